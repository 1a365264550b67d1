package coordinator

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"streamkeeper/eventlog"
	"streamkeeper/shard"
)

// movingShard is the log of one shard that moves between replicas: the node ids of its claims, in order.
type movingShard struct {
	claims   []int32
	replicas []*lagging
}

// lagging is a replica that has read a part of that log.
type lagging struct {
	c *Coordinator
	*fakeShards
	shard *movingShard
	node  Node
	read  int  // claims that its projection has applied
	held  bool // its tail gets nothing, so that it can't catch up either
	ended bool // it has found out that it was replaced, by a refused append, before its tail told
}

func (s *movingShard) owner() int32 { return s.claims[len(s.claims)-1] }

// Owns, as shard.Host: a claim serves when the projection has applied it, until the successor's is applied, or an append is refused.
func (l *lagging) Owns(int32) bool {
	return l.read > 0 && l.shard.claims[l.read-1] == l.node.ID && !l.ended
}

// Owner, as shard.Host: nobody is led to a replica by the record of an earlier life of it.
func (l *lagging) Owner(int32) (eventlog.Owner, bool) {
	if l.read == 0 {
		return eventlog.Owner{}, false
	}
	id := l.shard.claims[l.read-1]
	return owner(id, address(id), time.UnixMilli(int64(l.read))), id != l.node.ID || l.Owns(1)
}

func (l *lagging) Fresh(int32) bool           { return l.read == len(l.shard.claims) }
func (l *lagging) Unread(int32) bool          { return false }
func (l *lagging) Known(string) (bool, error) { return true, nil }
func (l *lagging) Partitions() int32          { return 2 }

func (l *lagging) Barrier(context.Context, int32) error {
	if l.held {
		return errors.New("the tail is held")
	}
	l.apply(len(l.shard.claims))
	return nil
}

func (l *lagging) apply(n int) {
	if n != l.read {
		l.read, l.ended = n, false
	}
}

// ask says that the replica answered a request of the group: it owns the shard in the log, and has read that it does. One that believes so
// without owning it has its append refused.
func (l *lagging) ask() bool {
	if l.Owns(1) && l.read < len(l.shard.claims) {
		l.ended = true
	}
	return l.Owns(1)
}

func address(id int32) string { return fmt.Sprintf("replica-%d:9292", id) }

// A client that follows Java's rules (whoever says NOT_COORDINATOR is asked no more, any node is asked for the coordinator) gets to the owner
// with one lookup, at whatever replica, however far that one is behind, unless that one has been replaced and is the first to hear of it; and if tails
// stand still, with the first lookup after they go on.
func TestLookupsLeadToTheOwnerHoweverStaleTheReplicas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &movingShard{}
		n := rapid.IntRange(2, 5).Draw(t, "replicas")
		moves := rapid.IntRange(1, 12).Draw(t, "moves")
		for range moves {
			s.claims = append(s.claims, int32(rapid.IntRange(1, n).Draw(t, "claims")))
		}
		for i := range n {
			l := &lagging{fakeShards: newFakeShards(), shard: s, node: Node{int32(i + 1), fmt.Sprintf("replica-%d", i+1), 9292}}
			l.read = rapid.IntRange(0, moves).Draw(t, "read")
			l.held = rapid.Bool().Draw(t, "held")
			l.c = New(Config{Node: l.node, Shards: l, Replicas: func() []eventlog.Owner { return nil }, Now: func() time.Time { return time.UnixMilli(1000) }})
			s.replicas = append(s.replicas, l)
		}
		stillFor := rapid.IntRange(0, 10).Draw(t, "the tails stand still for so many lookups")
		for lookups, astray := 1, 0; ; lookups++ {
			if lookups > stillFor+astray {
				for _, l := range s.replicas {
					l.held = false
				}
				// The owner's own tail goes on by itself; the others' may still lag, and need not.
				s.replicas[s.owner()-1].apply(moves)
			}
			at := s.replicas[rapid.IntRange(0, n-1).Draw(t, "asked")]
			at.c.CatchUp(context.Background(), []string{"g1"}) // nobody is blind
			to, known, ok := at.c.Coordinator(context.Background(), "g1")
			if !known {
				t.Fatalf("replica %d does not know the group", at.node.ID)
			}
			if ok {
				want := s.replicas[to.ID-1].node
				if !reflect.DeepEqual(to, want) {
					t.Fatalf("replica %d names %v, which is %v", at.node.ID, to, want)
				}
				listed := false
				for _, m := range at.c.Nodes() {
					listed = listed || m == to
				}
				if !listed {
					t.Fatalf("replica %d names %v as coordinator, which is not among its nodes %v", at.node.ID, to, at.c.Nodes())
				}
				if s.replicas[to.ID-1].ask() {
					if to.ID != s.owner() {
						t.Fatalf("replica %d answered, and %d is the owner", to.ID, s.owner())
					}
					return
				}
			}
			// A former owner that does not know yet finds out by the refusal of what it is asked for, once.
			if lookups > stillFor+astray && ok && to.ID == at.node.ID && at.ended {
				astray++
			}
			if lookups > stillFor+astray {
				t.Fatalf("lookup %d, the first after the tails went on, led to %v (%v), and not to %d", lookups, to, ok, s.owner())
			}
		}
	})
}

// What a lookup names is in Metadata, with the same address: Java keys its connections by node id.
func TestTheOwnerIsAmongTheNodesAtTheSameAddress(t *testing.T) {
	w := newWorld(t)
	w.shards.known["g1"], w.shards.known["g2"], w.shards.known["g3"] = true, true, true
	w.shards.owners[1] = owner(1000002, "before:1", w.now.Add(-time.Hour)) // the replica has moved since
	w.shards.owners[2] = owner(1000002, "after:2", w.now)
	w.shards.owners[3] = owner(1000003, "long-ago:3", w.now.Add(-48*time.Hour)) // all replicas were down for two days
	w.replicas = []eventlog.Owner{w.shards.owners[1], w.shards.owners[2]}
	nodes := map[int32]Node{}
	for _, n := range w.Nodes() {
		nodes[n.ID] = n
	}
	for group, want := range map[string]Node{"g1": {1000002, "after", 2}, "g2": {1000002, "after", 2}, "g3": {1000003, "long-ago", 3}} {
		n, _, ok := w.Coordinator.Coordinator(t.Context(), group)
		if !ok || n != want || nodes[n.ID] != n {
			t.Errorf("%s: %v ok=%v, want %v; the nodes are %v", group, n, ok, want, nodes)
		}
	}
}

// A group of a shard that this replica can't read (a newer format) stays a streams group, and its owner is named; of others nothing is claimed.
func TestLookupsInAShardThatCanNotBeRead(t *testing.T) {
	w := newWorld(t)
	w.shards.known["g1"], w.shards.known["g2"], w.shards.failing = true, true, eventlog.ErrRefused
	w.shards.owners[1] = owner(1000002, "newer:1", w.now)
	w.shards.owners[2] = owner(w.cfg.Node.ID, "self:1", w.now)
	for group, want := range map[string]string{"g1": "1000002 true true", "g2": "0 true false", "h1": "0 false false"} {
		if blind := w.CatchUp(t.Context(), []string{group}); len(blind) > 0 {
			t.Error(blind)
		}
		n, known, ok := w.Coordinator.Coordinator(t.Context(), group)
		if !ok {
			n = Node{}
		}
		if got := fmt.Sprintf("%d %v %v", n.ID, known, ok); got != want {
			t.Errorf("%s: %s, want %s", group, got, want)
		}
	}
}

// Where this replica does not see the log it says so: others know. What it serves it knows itself, and of what it does not know others are asked anyway.
func TestLookupsAtAReplicaThatMayNotRead(t *testing.T) {
	w := newWorld(t)
	w.shards.known["g1"], w.shards.known["g2"], w.shards.known["g3"], w.shards.owned[3] = true, true, true, true
	w.shards.barrier = func() error { return fmt.Errorf("%w: no right", shard.ErrBlind) }
	w.remembered.note(time.Now(), "hinted4")
	blind := w.CatchUp(t.Context(), []string{"g1", "g2", "g3", "hinted4", "unknown7"})
	if slices.Sort(blind); !slices.Equal(blind, []string{"g1", "g2", "hinted4"}) {
		t.Error(blind)
	}
}

// A hundred thousand keys of one lookup read each partition once.
func TestALookupReadsEachShardOnce(t *testing.T) {
	w := newWorld(t)
	var groups []string
	for i := range 1000 {
		group := fmt.Sprintf("g%d", i)
		groups = append(groups, group)
		w.shards.known[group] = true
	}
	w.shards.owned[3] = true
	if blind := w.CatchUp(t.Context(), append(groups, "unknown7")); len(blind) > 0 {
		t.Error(blind)
	}
	if n := len(w.shards.calls); n != 9 { // ten shards, one of which is served here
		t.Errorf("%d barriers: %v", n, w.shards.calls)
	}
}
