package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"streamkeeper/eventlog"
	"streamkeeper/shard"
)

// reader is a replica in some state of reading the shard of the group g1, which is one of ours or of the cluster.
type reader struct {
	*fakeShards
	c       *Coordinator
	node    Node
	state   string
	older   bool // of a version that leads to the cluster whatever it has not read
	away    bool // can't be reached
	asked   int  // by other replicas
	ours    bool // what is in the log
	readers []*reader
}

// The states of reading.
var readings = []string{
	"whole",     // read to the end
	"rebuilds",  // reads all of it anew; its projection answers nothing
	"resumes",   // started with an old projection, and is not at the end yet
	"was away",  // was stopped, and reads what came meanwhile
	"cut off",   // can't reach the log, which it had read
	"refuses",   // can't read a record of a newer version
	"near",      // is not at the end, and will be in a moment
	"no leader", // started, and the partition has no leader
	"blind",     // had read it, and may not read it any more, or does not reach who has it; since then the shard has moved
}

func (r *reader) Fresh(int32) bool {
	return r.state == "whole"
}

func (r *reader) Unread(int32) bool { return r.state != "whole" && r.state != "cut off" }

func (r *reader) Known(string) (bool, error) {
	switch r.state {
	case "whole", "cut off", "blind":
		return r.ours, nil
	case "rebuilds":
		return false, errors.New("loading")
	case "refuses":
		return false, eventlog.ErrRefused
	}
	return false, nil
}

func (r *reader) Barrier(ctx context.Context, _ int32) error {
	switch r.state {
	case "whole":
		return nil
	case "near":
		r.state = "whole"
		return nil
	case "refuses":
		return eventlog.ErrRefused
	case "cut off", "no leader":
		return errors.New("the end can't be asked for")
	case "blind":
		return shard.ErrBlind
	}
	return context.DeadlineExceeded
}

func (r *reader) Describe(context.Context, string) (kmsg.StreamsGroupDescribeResponseGroup, error) {
	return kmsg.NewStreamsGroupDescribeResponseGroup(), shard.ErrNotOwner
}

// find is what the gateway makes of a lookup: the cluster, a replica, or nobody.
func (r *reader) find(who Caller) Found {
	ctx := context.Background()
	if r.older {
		n, known, ok := r.c.Coordinator(ctx, "g1")
		return Found{Cluster: !known, Node: n, OK: ok}
	}
	blind := r.c.CatchUp(ctx, []string{"g1"})
	if n, known, ok := r.c.Coordinator(ctx, "g1"); known && len(blind) == 0 {
		return Found{Node: n, OK: ok}
	}
	if f, ok := r.c.AskOthers(ctx, who, []string{"g1"})["g1"]; ok {
		return f
	}
	return Found{Cluster: true}
}

// Request implements Peers.
func (r *reader) Request(_ context.Context, to Node, req kmsg.Request) (kmsg.Response, error) {
	i := slices.IndexFunc(r.readers, func(o *reader) bool { return o.node == to })
	if i < 0 || r.readers[i].away {
		return nil, errors.New("no connection")
	}
	o := r.readers[i]
	o.asked++
	who := Caller{ClientID: fmt.Sprint(peerClientID, r.node.ID)}
	switch req := req.(type) {
	case *kmsg.FindCoordinatorRequest:
		resp := kmsg.NewPtrFindCoordinatorResponse()
		switch f := o.find(who); {
		case f.Cluster:
			resp.NodeID, resp.Host, resp.Port = 1, "broker", 9092
		case f.OK:
			resp.NodeID, resp.Host, resp.Port = f.Node.ID, f.Node.Host, f.Node.Port
		default:
			resp.ErrorCode = codeUnavailable
		}
		return resp, nil
	case *kmsg.StreamsGroupDescribeRequest:
		return o.c.Describe(context.Background(), who, req), nil
	}
	return nil, fmt.Errorf("unexpected %T", req)
}

// Close implements Peers.
func (*reader) Close() {}

// formerOwner is the node that owned the shard when a replica that is blind read of it last.
const formerOwner = 1000099

// No client of a group of ours is led to the cluster by a replica that has not read the log, whatever the others have read, and whatever their versions are. A client
// of another group is led to it where one of those that are asked has read the log, and nobody asks in circles.
func TestNobodyIsLedAstrayByAReplicaThatHasNotReadTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "replicas")
		ours := rapid.Bool().Draw(t, "ours")
		var all []*reader
		var nodes []Node
		for i := range n {
			r := &reader{
				fakeShards: newFakeShards(), node: Node{1000001 + int32(i), fmt.Sprint("r", i), 9292}, ours: ours,
				state: rapid.SampledFrom(readings).Draw(t, "state"), older: i > 0 && rapid.Bool().Draw(t, "older"), away: i > 0 && rapid.Bool().Draw(t, "away"),
			}
			r.owners[1] = owner(1000001+int32(n-1), fmt.Sprintf("r%d:9292", n-1), time.Now())
			if r.state == "blind" && !r.older {
				r.owners[1] = owner(formerOwner, "former:9292", time.Now())
			}
			nodes = append(nodes, r.node)
			all = append(all, r)
		}
		unlisted := rapid.Bool().Draw(t, "the group can't be asked for its replicas")
		logged := rapid.Bool().Draw(t, "replicas are known from the log")
		for _, r := range all {
			r.readers = all
			for _, n := range nodes {
				r.inGroup = append(r.inGroup, shard.GroupMember{NodeID: n.ID, Address: fmt.Sprint(n.Host, ":", n.Port)})
			}
			r.inGroup = append(r.inGroup, shard.GroupMember{NodeID: -1}) // a stranger
			if unlisted {
				r.err["members"], r.inGroup = errors.New("no answer"), nil
			}
			r.c = New(Config{Node: r.node, Shards: r, Peers: r, Replicas: func() (known []eventlog.Owner) {
				for _, n := range nodes {
					if logged {
						known = append(known, owner(n.ID, fmt.Sprint(n.Host, ":", n.Port), time.Now()))
					}
				}
				return known
			}})
		}
		asked := all[0]
		begun := asked.state
		var states []string // before they were asked
		for _, r := range all {
			states = append(states, r.state)
		}
		f := asked.find(Caller{})
		helps := false // there is one that has read the log and can be asked
		names := false // one of those names the owner: it need not read on first, as one of an older version does not
		for i, r := range all[1:] {
			heard := !r.away && (!unlisted || logged)
			helps = helps || heard && (r.state == "whole" || r.state == "near")
			names = names || heard && (states[i+1] == "whole" || states[i+1] == "near" && !r.older)
			if r.asked > 2 {
				t.Fatalf("replica %d was asked %d times", r.node.ID, r.asked)
			}
		}
		if begun == "blind" && n == 4 { // with the former owner there are more than are asked
			helps, names = false, false
		}
		read := begun == "whole" || begun == "near"
		switch {
		case ours && f.Cluster:
			t.Fatalf("a replica in state %q leads to the cluster", begun)
		case f.OK && !ours:
			t.Fatalf("replica %d is named for a group of the cluster", f.Node.ID)
		case f.OK && f.Node != all[n-1].node && (names || begun != "blind" || f.Node.ID != formerOwner):
			t.Fatalf("%v is named, which is not the owner", f.Node)
		case ours && !f.OK && begun == "blind":
			t.Fatal("nobody is named for a group whose owner was read once")
		case !ours && !f.Cluster && (read || helps || begun == "cut off"):
			t.Fatalf("a client of the cluster's is kept from it by a replica in state %q, although it can be told", begun)
		case ours && !f.OK && read:
			t.Fatal("the owner is not named")
		}
	})
}

// A replica that rebuilds asks the ownership group for its replicas once a second at most, and them in turn.
func TestOthersAreListedOnceForManyLookups(t *testing.T) {
	w := newWorld(t)
	w.shards.unread = true
	w.shards.barrier = func() error { return context.DeadlineExceeded }
	peers := map[int32]int{}
	for id, address := range []string{"self:1", "b:1", "c:1", "d:1", "e:1"} {
		w.shards.inGroup = append(w.shards.inGroup, shard.GroupMember{NodeID: 1000001 + int32(id), Address: address})
	}
	w.cfg.Peers = countingPeers(peers)
	for range 8 {
		if f, ok := w.AskOthers(t.Context(), Caller{}, []string{"g1"})["g1"]; !ok || f.OK || f.Cluster {
			t.Fatalf("%+v %v", f, ok)
		}
	}
	w.shards.mu.Lock()
	if listed := len(slices.DeleteFunc(slices.Clone(w.shards.calls), func(c string) bool { return c != "members" })); listed > 2 { // two where the test takes a second
		t.Errorf("the group was asked %d times for its replicas", listed)
	}
	w.shards.mu.Unlock()
	for id := int32(1000002); id <= 1000005; id++ {
		if peers[id] != 6 { // three of four, eight times
			t.Errorf("asked %v", peers)
		}
	}
	if f := w.AskOthers(t.Context(), Caller{ClientID: peerClientID + "7"}, []string{"g1"}); len(f) != 1 || peers[1000002] != 6 {
		t.Errorf("what a replica asks is sent on: %v %v", f, peers)
	}
}

// countingPeers count what they are asked, and can't be reached.
type countingPeers map[int32]int

func (p countingPeers) Request(_ context.Context, to Node, _ kmsg.Request) (kmsg.Response, error) {
	p[to.ID]++
	return nil, errors.New("no connection")
}

func (countingPeers) Close() {}

// silentGroup is an ownership group whose coordinator does not answer.
type silentGroup struct {
	*fakeShards
	asked int
}

func (s *silentGroup) Members(ctx context.Context) ([]shard.GroupMember, error) {
	s.asked++
	<-ctx.Done()
	return nil, ctx.Err()
}

// namingPeers name the replica 1000002 as the coordinator of every group.
type namingPeers struct{}

func (namingPeers) Request(context.Context, Node, kmsg.Request) (kmsg.Response, error) {
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.NodeID, resp.Host, resp.Port = 1000002, "b", 1
	return resp, nil
}

func (namingPeers) Close() {}

// While the coordinator of the ownership group hangs, those that the log names are asked in the same lookup. All lookups share the question to the group, which goes on
// when the client of the first has left, and whose client has left does not wait for it.
func TestReplicasOfTheLogAreAskedWhileTheGroupIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &silentGroup{fakeShards: newFakeShards()}
		s.unread, s.barrier = true, func() error { return errors.New("not read") }
		c := New(Config{Node: Node{1000001, "self", 1}, Shards: s, Peers: namingPeers{}, Replicas: func() []eventlog.Owner {
			return []eventlog.Owner{owner(1000002, "b:1", time.Now())}
		}})
		began := time.Now()
		answered := func(n int) {
			t.Helper()
			answers := make(chan Found)
			for range n {
				go func() { answers <- c.AskOthers(t.Context(), Caller{}, []string{"g1"})["g1"] }()
			}
			for range n {
				if f := <-answers; !f.OK || f.Node != (Node{1000002, "b", 1}) {
					t.Errorf("%+v", f)
				}
			}
		}
		answered(20)
		if took := time.Since(began); took != listTimeout || s.asked != 1 {
			t.Errorf("answered after %v; the group was asked %d times", took, s.asked)
		}
		time.Sleep(liveFor)
		began = time.Now()
		left, leave := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.AskOthers(left, Caller{}, []string{"g1"}); close(done) }()
		time.Sleep(listTimeout / 2)
		leave()
		<-done
		if took := time.Since(began); took != listTimeout/2 {
			t.Errorf("a lookup whose client left in the middle took %v", took)
		}
		answered(1)
		if took := time.Since(began); took != listTimeout || s.asked != 2 {
			t.Errorf("the next after %v; the group was asked %d times", took, s.asked)
		}
	})
}

// What the group names while this replica has not read the log is among its nodes, where clients look for what a lookup named: for a while, unless it is forgotten, and
// only until the log is read.
func TestReplicasThatTheGroupNamesAreNodesWhileTheLogIsUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeShards()
		s.unread, s.barrier = true, func() error { return errors.New("not read") }
		s.inGroup = []shard.GroupMember{{NodeID: 1000001, Address: "self:1"}, {NodeID: 1000002, Address: "b:1"}, {NodeID: 1000003, Address: "c:1"}, {NodeID: -1}}
		var logged []eventlog.Owner
		self := Node{1000001, "self", 1}
		c := New(Config{Node: self, Shards: s, Peers: namingPeers{}, Replicas: func() []eventlog.Owner { return logged }})
		want := func(why string, nodes ...Node) {
			t.Helper()
			if got := c.Nodes(); !slices.Equal(got, append([]Node{self}, nodes...)) {
				t.Errorf("%s: %v", why, got)
			}
		}
		ask := func() {
			t.Helper()
			if f := c.AskOthers(t.Context(), Caller{}, []string{"g1"})["g1"]; !f.OK || f.Node.ID != 1000002 {
				t.Fatalf("%+v", f)
			}
		}
		b, d := Node{1000002, "b", 1}, Node{1000003, "c", 1}
		want("before anybody asked")
		logged = []eventlog.Owner{owner(1000002, "before:1", time.Now().Add(time.Hour))} // whose clock is fast
		ask()
		want("after a lookup, with an older address in the log", b, d)
		time.Sleep(2 * liveFor)
		older := logged
		logged = []eventlog.Owner{owner(1000002, "since:1", time.Now().Add(time.Hour))}
		want("a newer address in the log", Node{1000002, "since", 1}, d)
		logged = older
		s.err["members"] = errors.New("away")
		ask()
		want("while the group does not answer any more", b, d)
		c.others.drop(1000003)
		want("one is forgotten", b)
		s.unread = false
		want("the log is read", Node{1000002, "before", 1})
		s.unread = true
		time.Sleep(toldFor)
		want("long after", Node{1000002, "before", 1})
	})
}

// nonePeers have read the log to its end, and know no group.
type nonePeers struct{}

func (nonePeers) Request(_ context.Context, _ Node, req kmsg.Request) (kmsg.Response, error) {
	switch r := req.(type) {
	case *kmsg.FindCoordinatorRequest:
		resp := r.ResponseKind().(*kmsg.FindCoordinatorResponse)
		resp.NodeID, resp.Host, resp.Port = 1, "broker", 9092
		return resp, nil
	case *kmsg.StreamsGroupDescribeRequest:
		resp := r.ResponseKind().(*kmsg.StreamsGroupDescribeResponse)
		g := kmsg.NewStreamsGroupDescribeResponseGroup()
		g.Group, g.ErrorCode = r.Groups[0], codeNoGroup
		resp.Groups = append(resp.Groups, g)
		return resp, nil
	}
	return nil, fmt.Errorf("unexpected %T", req)
}

func (nonePeers) Close() {}

// A streams client that was sent away from a replica that does not see the shard is led to another replica, which serves it or sends it on; others than streams clients
// are led to the cluster, as nobody has the group.
func TestANewGroupAtAReplicaThatDoesNotSeeItsShard(t *testing.T) {
	w := newWorld(t)
	w.shards.unread = true
	w.shards.barrier = func() error { return shard.ErrBlind }
	w.shards.inGroup = []shard.GroupMember{{NodeID: 1000001, Address: "self:1"}, {NodeID: 1000002, Address: "b:1"}}
	w.cfg.Peers = nonePeers{}
	w.remembered.note(time.Now(), "new4")
	groups := []string{"new4", "other5"}
	if blind := w.CatchUp(t.Context(), groups); !slices.Equal(blind, groups[:1]) {
		t.Errorf("not seen here: %v", blind)
	}
	found := w.AskOthers(t.Context(), Caller{}, groups)
	if f := found["new4"]; !f.OK || f.Node.ID != 1000002 || f.Cluster {
		t.Errorf("the group of a streams client: %+v", f)
	}
	if f := found["other5"]; !f.Cluster {
		t.Errorf("a group that nobody has: %+v", f)
	}
}
