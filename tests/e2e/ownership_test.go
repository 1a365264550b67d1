package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
	"streamkeeper/internal/wire"
)

// seeker is a member of one group that goes to whoever FindCoordinator names, and asks any replica again when it is sent away, as Java's client does.
type seeker struct {
	r       *fleet
	group   string
	in      string // what it reads
	asked   int    // lookups
	epoch   int32
	offset  int64 // the last that was acknowledged
	client  *wire.Client
	mu      sync.Mutex
	last    time.Time
	longest time.Duration // without an answer
	bad     []string      // answers that an application would have been told
	refused int           // answers NOT_COORDINATOR
}

// again are the refusals after which clients try again by themselves.
var again = []error{kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable}

// seekTimeout is the time-out of a request: longer than anything that may hold one up.
const seekTimeout = 20 * time.Second

func (s *seeker) run(ctx context.Context) {
	defer s.hangUp()
	for ctx.Err() == nil {
		err := s.once()
		s.mu.Lock()
		now := time.Now()
		var answer *kerr.Error
		if errors.Is(err, kerr.NotCoordinator) {
			s.refused++
		}
		switch {
		case err == nil:
			s.longest, s.last = max(s.longest, now.Sub(s.last)), now
		case errors.Is(err, context.DeadlineExceeded), errors.As(err, &answer) && !isOneOf(err, again), errors.Is(err, errLost):
			s.bad = append(s.bad, err.Error())
		}
		s.mu.Unlock()
		if err != nil && !errors.Is(err, kerr.CoordinatorLoadInProgress) {
			s.hangUp()
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond): // the pace of the questions, no assumption on timing
		}
	}
}

func (s *seeker) hangUp() {
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
}

var errLost = errors.New("what was acknowledged is not there")

// once is a heartbeat, a commit, and the reading of what was committed.
func (s *seeker) once() error {
	ctx, cancel := context.WithTimeout(context.Background(), seekTimeout)
	defer cancel()
	if s.client == nil {
		address, err := s.lookup(ctx)
		if err != nil {
			return err
		}
		if s.client, err = wire.Dial(ctx, address, "seeker"); err != nil {
			return err
		}
	}
	m := kafkatest.Member{Group: s.group, ID: "m", Topic: s.in, Epoch: s.epoch}
	resp, err := s.ask(ctx, m.Heartbeat())
	if err != nil {
		return err
	}
	s.epoch = resp.(*kmsg.StreamsGroupHeartbeatResponse).MemberEpoch
	m.Epoch = s.epoch
	if _, err := s.ask(ctx, m.Commit(0, s.offset+1)); err != nil {
		return err
	}
	s.offset++
	if resp, err = s.ask(ctx, m.Fetch(0)); err != nil {
		return err
	}
	if got := kafkatest.CommittedIn(resp, m.Topic, 0); got < s.offset {
		return fmt.Errorf("%w: offset %d of %s; there is %d", errLost, s.offset, s.group, got)
	}
	return nil
}

// ask sends a request to whom it is connected with; an answer that is an error is the error.
func (s *seeker) ask(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	resp, err := s.client.Exchange(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := kafkatest.Refusal(resp); err != nil {
		return nil, fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), err)
	}
	return resp, nil
}

// lookup asks the replicas in turn, and checks that who is named is in that replica's Metadata, at that address.
func (s *seeker) lookup(ctx context.Context) (string, error) {
	s.asked++
	k := s.r.replicas[s.r.nodes[s.asked%len(s.r.nodes)]]
	cl, err := wire.Dial(ctx, k.Bootstrap(), "seeker")
	if err != nil {
		return "", err
	}
	defer cl.Close()
	resp, err := cl.Exchange(ctx, kafkatest.FindCoordinators(s.group))
	if err != nil {
		return "", err
	}
	node, address, err := kafkatest.CoordinatorIn(resp)
	if err != nil {
		return "", err
	}
	if resp, err = cl.Exchange(ctx, kafkatest.Nodes()); err != nil {
		return "", err
	}
	nodes := resp.(*kmsg.MetadataResponse).Brokers
	if !slices.ContainsFunc(nodes, func(b kmsg.MetadataResponseBroker) bool {
		return b.NodeID == node && net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))) == address
	}) {
		return "", fmt.Errorf("%w: node %d at %s is named as coordinator of %s and is not among the nodes %+v", errLost, node, address, s.group, nodes)
	}
	return address, nil
}

// groupIn names a group in a shard.
func groupIn(prefix string, p, shards int32) string {
	for i := 0; ; i++ {
		if group := fmt.Sprintf("%s-%d", prefix, i); partitionOf(group, shards) == p {
			return group
		}
	}
}

// seek starts a seeker for a group of each shard.
func (r *fleet) seek() []*seeker { return r.seekAs("owned", "ownership-in") }

func (r *fleet) seekAs(name, in string) []*seeker {
	var all []*seeker
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for p := range int32(len(r.owners())) {
		s := &seeker{r: r, group: groupIn(name, p, int32(len(r.owners()))), in: in, asked: int(p), last: time.Now()}
		all = append(all, s)
		wg.Go(func() { s.run(ctx) })
	}
	r.t.Cleanup(func() { cancel(); wg.Wait() })
	return all
}

// during does something under the seekers, and waits until each has been answered again by whoever has its group then.
func (r *fleet) during(all []*seeker, what string, do func()) {
	r.t.Helper()
	for _, s := range all {
		s.mu.Lock()
		s.longest, s.last, s.refused = 0, time.Now(), 0
		s.mu.Unlock()
	}
	before := claims(readLog(r.t, r.cluster.Bootstrap(), r.topic))
	do()
	done := time.Now()
	longest := time.Duration(0)
	for _, s := range all {
		kafkatest.Eventually(r.t, takeover, func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, bad := range s.bad {
				r.t.Errorf("%s: %s: %s", what, s.group, bad)
			}
			s.bad = nil
			if longest = max(longest, s.longest); s.last.Before(done) {
				return fmt.Errorf("%s: group %s has had no answer for %s", what, s.group, time.Since(s.last))
			}
			return nil
		})
	}
	after, most := claims(readLog(r.t, r.cluster.Bootstrap(), r.topic)), 0
	for _, s := range all {
		s.mu.Lock()
		refused := s.refused
		s.mu.Unlock()
		most = max(most, refused)
		// A client that was sent away is led to the owner by its next lookup, wherever that is asked: one refusal for each move, one for a group that
		// no replica had heard of, and as many again for lookups that were overtaken by the next move. A client that is led in a circle gets hundreds.
		p := partitionOf(s.group, int32(len(before)))
		if moves := after[p] - before[p]; refused > 2*(moves+1) {
			r.t.Errorf("%s: group %s was sent away %d times, and its shard has moved %d times", what, s.group, refused, moves)
		}
	}
	r.t.Logf("%s: a group was sent away %d times at most", what, most)
	r.t.Logf("%s: longest time without an answer of a group %s", what, longest.Round(time.Millisecond))
	// Planned moves have no gap; what is allowed here is a machine that is busy, and less than a session, which would be a member that is waited for.
	if longest > takeover/2 {
		r.t.Errorf("%s: a group had no answer for %s", what, longest)
	}
}

// listed are the streams groups that the replicas list, each for itself; who had a group's shard until a minute ago lists it, too.
func (r *fleet) listed(nodes ...int32) []string {
	r.t.Helper()
	var groups []string
	for _, n := range nodes {
		resp := exchange(r.t, r.replicas[n], kafkatest.ListStreams()).(*kmsg.ListGroupsResponse)
		if resp.ErrorCode != 0 {
			r.t.Fatalf("list at %d: %v", n, kerr.ErrorForCode(resp.ErrorCode))
		}
		for _, g := range resp.Groups {
			groups = append(groups, g.Group)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// TestOwnershipOfThreeReplicas: one is stopped, comes back, moves to another address, and goes for good, under members that are not told of it
// but by refusals that clients know. Beside them there is another installation on the cluster with one of their node ids and one of their
// groups, and one comes with a node id that is taken.
func TestOwnershipOfThreeReplicas(t *testing.T) {
	c := kafkatest.Shared(t, kafka44)
	kafkatest.CreateTopics(t, c.Bootstrap(), partitions, "ownership-in")
	other := newFleet(t, c, 1, "--log-topic", "__log_another_installation")
	other.topic = "__log_another_installation"
	other.replicas[nodeOne].Start()
	r := startFleet(t, c, 3)
	r.waitSpread(r.nodes...)
	twin := kafkatest.NewStreamkeeper(t, serveArgs(t, c, "--node-id", fmt.Sprint(nodeOne))...)
	twin.Start()
	all := r.seek()
	last := r.nodes[2]
	r.during(all, "the groups are made", func() {})
	r.during(all, "a replica is stopped", func() { r.replicas[last].Stop() })
	port, err := kafkatest.ReservePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	r.during(all, "it comes back at another address", func() {
		r.replicas[last].Set("--listen", fmt.Sprintf("127.0.0.1:%d", port))
		r.replicas[last].Start()
		r.replicas[last].WaitReady()
		r.waitSpread(r.nodes...)
	})
	var groups []string
	for _, s := range all {
		groups = append(groups, s.group)
	}
	slices.Sort(groups)
	if got := r.listed(r.nodes...); !slices.Equal(got, groups) {
		t.Errorf("the replicas list %v, want %v", got, groups)
	}
	out, errOut, exit := kafkatest.Tool(t, c.Bootstrap(), "kafka-consumer-groups", "--describe", "--group", "streamkeeper-"+r.topic, "--members", "--verbose")
	for _, n := range r.nodes {
		if want := fmt.Sprintf("sk/%d@%s", n, r.replicas[n].Bootstrap()); exit != 0 || !strings.Contains(out, want) {
			t.Errorf("kafka-consumer-groups --members: exit %d, no %s in\n%s%s", exit, want, out, errOut)
		}
	}
	r.during(all, "a replica goes for good", func() { r.replicas[r.nodes[1]].Stop() })
	if got := r.listed(nodeOne, last); !slices.Equal(got, groups) {
		t.Errorf("two of the replicas list %v, want %v", got, groups)
	}

	if code := twin.WaitExit(takeover); code == 0 {
		t.Error("the replica whose node id is taken ends as if nothing had happened")
	}
	for _, part := range []string{fmt.Sprintf("node id %d belongs to the replica %s", nodeOne, r.replicas[nodeOne].Bootstrap()), twin.Bootstrap(), "--node-id"} {
		if !strings.Contains(twin.Output(), part) {
			t.Errorf("the replica whose node id is taken does not say %q:\n%s", part, twin.Output())
		}
	}
	anotherInstallation(t, other, r, all[0])
}

// anotherInstallation has one of the groups of the first, and knows nothing of it; then one of its shards meets a newer format.
func anotherInstallation(t *testing.T, other, r *fleet, first *seeker) {
	k := other.replicas[nodeOne]
	k.WaitReady()
	if got := other.listed(nodeOne); len(got) > 0 {
		t.Errorf("another installation lists %v", got)
	}
	all := other.seek()
	other.during(all, "another installation has groups of the same ids", func() {})
	if all[0].group != first.group {
		t.Fatalf("%s and %s are to be the same", all[0].group, first.group)
	}
	for _, b := range exchange(t, k, kafkatest.Nodes()).(*kmsg.MetadataResponse).Brokers {
		if b.NodeID >= nodeOne && fmt.Sprintf("%s:%d", b.Host, b.Port) != k.Bootstrap() {
			t.Errorf("another installation lists the node %d at %s:%d", b.NodeID, b.Host, b.Port)
		}
	}

	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(r.cluster.Bootstrap(), ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	id, epoch, err := cl.ProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	newer := fmt.Sprintf(`{"format":99,"nodeId":%d,"address":"127.0.0.1:1","producerId":%d,"producerEpoch":%d}`, nodeTwo, id, epoch)
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: other.topic, Partition: 0, Key: ownershipKey(t, other), Value: []byte(newer)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	kafkatest.Eventually(t, outcome, func() error {
		out, errOut, exit := kafkatest.Streamkeeper(t, "shards", "--bootstrap-servers", r.cluster.Bootstrap(), "--log-topic", other.topic, "--admin", k.Admin())
		if want := fmt.Sprintf("Shard 0 is refused by %d: ", nodeOne); exit != 0 || !strings.Contains(out, want) || strings.Count(out, " yes ") != len(all)-1 {
			return fmt.Errorf("streamkeeper shards: exit %d, no %q\n%s%s", exit, want, out, errOut)
		}
		if !strings.Contains(k.Output(), "a record can't be read, the partition is not served") {
			return errors.New("the log does not say that a shard is refused")
		}
		// The shard ends a moment later than its tail.
		if err := k.Ready(); err == nil || !strings.Contains(err.Error(), "shard 0 is refused") {
			return fmt.Errorf("/readyz of a replica that can't read one shard says %v", err)
		}
		return nil
	})
	end := func() int64 { return kafkatest.EndOffsets(t, r.cluster.Bootstrap(), other.topic)[0] }
	before := end()
	other.during(all[1:], "a shard has a newer format", func() {})
	if now := end(); now != before {
		out, _, _ := kafkatest.Streamkeeper(t, "log", "--bootstrap-servers", r.cluster.Bootstrap(), "--log-topic", other.topic, "--partition", "0")
		t.Logf("the end of a shard that can't be read went from %d to %d:\n%s", before, now, out)
		// A claim that was under way when the newer record came is written behind it, once.
		before = now
		other.during(all[1:], "a shard has a newer format", func() {})
		if now := end(); now != before {
			t.Errorf("a replica that can't read a shard goes on writing to it: its end was %d and is %d", before, now)
		}
	}
}

// ownershipKey is the key of ownership records, as there is one in the log.
func ownershipKey(t *testing.T, r *fleet) []byte {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(r.cluster.Bootstrap(), ",")...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	fetches := cl.PollFetches(t.Context())
	for _, rec := range fetches.Records() {
		if len(rec.Key) > 1 && int(rec.Key[0])<<8|int(rec.Key[1]) == ownershipType {
			return rec.Key
		}
	}
	t.Fatal("there is no ownership record")
	return nil
}
