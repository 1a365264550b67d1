package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
	"streamkeeper/internal/wire"
)

// TestTwoReplicas: shards are shared, clients are led to the owner, and an application lives through a replica that is
// stopped, killed, and paused.
func TestTwoReplicas(t *testing.T) {
	r := startTwoReplicas(t)
	const group, in, out = "replicated", "replicated-in", "replicated-out"
	kafkatest.CreateTopics(t, r.cluster.Bootstrap(), partitions, in, out)
	s := &scene{t: t, p: &place{streams: r.bootstrap(), direct: r.cluster.Bootstrap()}, group: group, in: in,
		load: kafkatest.NewLoad(t, r.cluster.Bootstrap(), in), sink: kafkatest.Watch(t, r.cluster.Bootstrap(), out)}

	t.Cleanup(func() { r.tell(group) })

	s.step("the shards are shared")
	r.waitShares(4, 4)

	s.step("an application that knows the wrong replica is led to the right one")
	owner, other := r.ownerOf(group)
	a := kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: r.replicas[other].Bootstrap(), Group: group, Name: "wrong-way"})
	a.WaitTasks(partitions)
	s.underLoad(func() { a.WaitCount(100) })
	r.checkLeading(group, owner, other)
	a.Stop()

	s.step("a replica is stopped")
	// A replica that hangs is noticed by the client's request time-out (30 s by default), which must be shorter than the
	// session (45 s by default, 6 s here): a member that was expired meanwhile loses its tasks, and the 4.4 client
	// sometimes dies of that (IllegalStateException "Consumer is not subscribed").
	a = kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: r.bootstrap(), Group: group, Config: map[string]string{"request.timeout.ms": "3000"}})
	a.WaitTasks(partitions)
	before := s.members()
	mark := s.sink.Mark()
	s.underLoad(func() {
		r.replicas[owner].Stop()
		n := a.Count()
		a.WaitCount(n + 200)
	})
	t.Logf("longest time without a record: %s", s.sink.Longest(mark).Round(10*time.Millisecond))
	if now, _ := r.ownerOf(group); now != other {
		t.Errorf("node %d owns the group's shard after node %d was stopped", now, owner)
	}
	r.checkSameMembers(s, before)

	s.step("it comes back, and gets its share again")
	r.replicas[owner].Restart()
	r.waitShares(4, 4)
	kafkatest.WaitCommitted(t, r.bootstrap(), group, in, outcome)

	s.step("the owner is killed")
	owner, other = r.ownerOf(group)
	s.underLoad(func() {
		r.replicas[owner].Kill()
		r.waitOwner(group, other)
		n := a.Count()
		a.WaitCount(n + 100)
	})
	r.replicas[owner].Restart()
	r.waitShares(4, 4)
	r.checkSameMembers(s, before)
	kafkatest.WaitCommitted(t, r.bootstrap(), group, in, outcome)

	s.step("the owner is paused, replaced, and wakes up")
	r.pauseOwner(s, a)

	if u := a.Uncaught(); len(u) > 0 {
		t.Errorf("the application had uncaught exceptions: %q", u)
	}
	a.Stop()
	s.oneOwner()
	checkFence(t, r.topic, readLog(t, r.cluster.Bootstrap(), r.topic))
}

func (r *fleet) checkSameMembers(s *scene, before []string) {
	r.t.Helper()
	if now := s.members(); !slices.Equal(before, now) {
		r.t.Errorf("the members before and after:\n%s\n%s", strings.Join(before, "\n"), strings.Join(now, "\n"))
	}
}

// checkLeading asks both replicas for the group's coordinator, and the one that isn't for the group itself.
func (r *fleet) checkLeading(group string, owner, other int32) {
	r.t.Helper()
	for _, asked := range []int32{owner, other} {
		node, addr, err := kafkatest.CoordinatorIn(exchange(r.t, r.replicas[asked], kafkatest.FindCoordinators(group)))
		if want := r.replicas[owner].Bootstrap(); node != owner || addr != want || err != nil {
			r.t.Errorf("replica %d names node %d at %s (error %v) as the coordinator of %s, want node %d at %s", asked, node, addr, err, group, owner, want)
		}
	}
	for _, q := range groupRequests(group, "", -1) {
		want := []error{kerr.NotCoordinator}
		if q.what == "list groups" {
			want = []error{errNotThere, nil} // nil: it had the shard until a minute ago
		}
		if err := q.outcome(group, exchange(r.t, r.replicas[other], q.req)); !isOneOf(err, want) {
			r.t.Errorf("%s at the replica that does not own the group: %v, want %v", q.what, err, want)
		}
	}
	if out, errOut, exit := kafkatest.Tool(r.t, r.replicas[other].Bootstrap(), "kafka-streams-groups", "--list"); exit != 0 || out != group+"\n" {
		r.t.Errorf("list through the other replica: exit %d\n%s%s", exit, out, errOut)
	}
}

// pauseOwner stops the owner's clock with SIGSTOP, lets requests wait in its sockets while the other replica takes over
// and goes on, and wakes it up: none of the waiting requests may be answered with success, and the log must not get a
// record of it any more.
func (r *fleet) pauseOwner(s *scene, a *kafkatest.App) {
	t := r.t
	owner, other := r.ownerOf(s.group)
	paused := r.replicas[owner]
	member, epoch := memberOf(t, paused, s.group)

	type waiting struct {
		question
		client *wire.Client
		id     int32
	}
	var all []waiting
	for _, q := range groupRequests(s.group, member, epoch) {
		cl := dial(t, paused)
		// One exchange first, so that the connection is not only in the kernel's queue.
		if _, err := cl.Exchange(t.Context(), versions()); err != nil {
			t.Fatal(err)
		}
		all = append(all, waiting{question: q, client: cl})
	}
	mark := s.sink.Mark()
	s.underLoad(func() {
		paused.Pause()
		for i := range all {
			id, err := all[i].client.Send(t.Context(), all[i].req)
			if err != nil {
				t.Fatal(err)
			}
			all[i].id = id
		}
		r.waitOwner(s.group, other)
		n := a.Count()
		a.WaitCount(n + 100)
		kafkatest.Eventually(t, outcome, func() error { // the successor has committed something new
			if got := kafkatest.Committed(t, r.replicas[other].Bootstrap(), s.group, s.in); len(got) < partitions {
				return fmt.Errorf("committed %v", got)
			}
			return nil
		})
		paused.Resume()
		n = a.Count()
		a.WaitCount(n + 100)
	})
	t.Logf("longest time without a record: %s", s.sink.Longest(mark).Round(10*time.Millisecond))
	for _, w := range all {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		resp, err := w.client.Receive(ctx, w.req, w.id)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: the replica that woke up gives no answer", w.what)
			continue
		}
		if err == nil { // a closed connection is an answer too: the client asks elsewhere
			err = w.outcome(s.group, resp)
		}
		t.Logf("%s, asked before the pause ended: %v", w.what, err)
		if _, list := w.req.(*kmsg.ListGroupsRequest); err == nil && !list { // a list is read from the log by who had the shard
			t.Errorf("%s: the replica that woke up answered as if it were still the owner: %+v", w.what, resp)
		}
	}
	r.waitShares(4, 4)
	kafkatest.WaitCommitted(t, r.bootstrap(), s.group, s.in, outcome)
}

// question is a group request by hand.
type question struct {
	what string
	req  kmsg.Request
}

var errNotThere = errors.New("the group is not in the answer")

// outcome is nil where the answer is that of the group's owner.
func (q question) outcome(group string, resp kmsg.Response) error {
	if err := kafkatest.Refusal(resp); err != nil {
		return err
	}
	if list, ok := resp.(*kmsg.ListGroupsResponse); ok && !slices.ContainsFunc(list.Groups, func(g kmsg.ListGroupsResponseGroup) bool { return g.Group == group }) {
		return errNotThere
	}
	return nil
}

// groupRequests are the requests that only a group's owner may answer. The commit would rewind the group's offsets.
func groupRequests(group, member string, epoch int32) []question {
	m := kafkatest.Member{Version: 1, Group: group, ID: member, Topic: group + "-in", Epoch: epoch}
	beat := m
	if member == "" {
		beat.ID, beat.Epoch = "AAAAAAAAAAAAAAAAAAAAAA", 1
	}
	describe := kafkatest.DescribeStreams(group)
	describe.SetVersion(1)
	return []question{
		{"heartbeat", beat.Heartbeat()},
		{"describe", describe},
		{"fetch offsets", kafkatest.FetchAll(group)},
		{"commit offsets", m.Commit(0, 1)},
		{"list groups", kafkatest.ListStreams()},
	}
}

func isOneOf(err error, want []error) bool {
	return slices.ContainsFunc(want, func(w error) bool { return errors.Is(err, w) })
}

func versions() kmsg.Request {
	req := kmsg.NewPtrApiVersionsRequest()
	req.SetVersion(3)
	req.ClientSoftwareName, req.ClientSoftwareVersion = "e2e", "1"
	return req
}

func dial(t *testing.T, k *kafkatest.Keeper) *wire.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	cl, err := wire.Dial(ctx, k.Bootstrap(), "by-hand")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cl.Close() })
	return cl
}

func exchange(t *testing.T, k *kafkatest.Keeper, req kmsg.Request) kmsg.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	resp, err := dial(t, k).Exchange(ctx, req)
	if err != nil {
		t.Fatalf("request %d to %s: %v", req.Key(), k.Bootstrap(), err)
	}
	return resp
}

// memberOf is the only member of the group and its epoch.
func memberOf(t *testing.T, k *kafkatest.Keeper, group string) (string, int32) {
	t.Helper()
	g := exchange(t, k, kafkatest.DescribeStreams(group)).(*kmsg.StreamsGroupDescribeResponse).Groups[0]
	if g.ErrorCode != 0 || len(g.Members) != 1 {
		t.Fatalf("describe %s: %v, %d members, want one", group, kerr.ErrorForCode(g.ErrorCode), len(g.Members))
	}
	return g.Members[0].MemberID, g.Members[0].MemberEpoch
}
