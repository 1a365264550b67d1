package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"streamkeeper/eventlog"
)

// walk is a client that wants all groups: it learns the nodes from one of them, asks each when its turn comes, and unites the answers.
type walk struct {
	began time.Time
	must  map[string]bool  // groups that exist since before it began
	ask   []int32          // nodes that are still to be asked
	found map[string]int32 // groups, and a node that listed it
}

// towns is some replicas over one log, of which shards come and go.
type towns struct {
	rt     *rapid.T
	log    *eventlog.Fake
	start  func(int32) *node
	nodes  map[int32]*node // nil: stopped
	of     map[int32]int32 // partition → the node that it was last assigned to; -1: nobody
	groups map[string]bool
	walks  []*walk
	whole  int // walks that came to their end
}

const (
	listShards = 3
	listNodes  = int32(3)
)

// TestNoListMissesAGroup: whatever happens to shards while a client asks one node after the other, a group that was there all the time is on one of
// the lists, unless one of the nodes did not answer; and where nothing has moved for a while it is on one list alone.
func TestNoListMissesAGroup(t *testing.T) {
	whole := 0
	for range 3 { // what is rare in a hundred histories is found by some run soon
		rapid.Check(t, func(rt *rapid.T) {
			inBubble(t, func() {
				log, start, end := newReplicas(context.Background(), listShards)
				defer end()
				w := &towns{rt: rt, log: log, start: start, nodes: map[int32]*node{}, of: map[int32]int32{}, groups: map[string]bool{}}
				for id := range listNodes {
					w.nodes[id] = start(id)
				}
				for p := range int32(listShards) {
					w.assign(p, p%listNodes)
				}
				w.settle()
				for i := range 2 * listShards {
					w.create(fmt.Sprintf("g%d", i))
				}
				rt.Repeat(map[string]func(*rapid.T){
					"move": func(rt *rapid.T) { w.move(rt) },
					"orphan": func(rt *rapid.T) { // revoked, and nobody has it
						p := w.shard(rt)
						if n := w.nodes[w.of[p]]; n != nil {
							n.m.revoke(p)
						}
						w.of[p] = -1
					},
					"lease over": func(rt *rapid.T) {
						if n := w.live(rt); n != nil {
							n.m.extend(-time.Second)
						}
					},
					"lease back": func(rt *rapid.T) {
						if n := w.live(rt); n != nil {
							n.m.extend(time.Hour)
						}
					},
					"stop": func(rt *rapid.T) {
						id := rapid.Int32Range(0, listNodes-1).Draw(rt, "node")
						n := w.nodes[id]
						if n == nil {
							return
						}
						if rapid.Bool().Draw(rt, "hands over") {
							ctx, cancel := context.WithTimeout(context.Background(), time.Second)
							_ = n.Shutdown(ctx)
							cancel()
						}
						n.stop()
						w.nodes[id] = nil
						for p, of := range w.of {
							if of == id {
								w.of[p] = -1
							}
						}
					},
					"start": func(rt *rapid.T) {
						id := rapid.Int32Range(0, listNodes-1).Draw(rt, "node")
						if w.nodes[id] == nil {
							w.nodes[id] = w.start(id)
							<-w.nodes[id].m.ready
						}
					},
					"a moment": func(rt *rapid.T) {
						time.Sleep(time.Duration(rapid.IntRange(1, 5000).Draw(rt, "ms")) * time.Millisecond)
					},
					"walk begins":  func(rt *rapid.T) { w.begin(rt) },
					"walk goes on": func(rt *rapid.T) { w.goOn(rt) },
					"another":      func(rt *rapid.T) { w.goOn(rt) },
				})
				whole += w.whole
				w.quiet()
			})
		})
	}
	if whole == 0 {
		t.Error("no list was ever whole: nothing was tested")
	}
}

func (w *towns) shard(rt *rapid.T) int32 { return rapid.Int32Range(0, listShards-1).Draw(rt, "shard") }

func (w *towns) live(rt *rapid.T) *node {
	return w.nodes[rapid.Int32Range(0, listNodes-1).Draw(rt, "node")]
}

func (w *towns) assign(p, id int32) {
	w.of[p] = id
	w.nodes[id].m.assign(time.Hour, p)
}

// move gives a shard to a node that runs; the one that had it, if it runs, hears of it before or after.
func (w *towns) move(rt *rapid.T) {
	p, to := w.shard(rt), rapid.Int32Range(0, listNodes-1).Draw(rt, "to")
	if w.nodes[to] == nil || w.of[p] == to {
		return
	}
	revoke := func() {}
	if from := w.of[p]; from >= 0 && w.nodes[from] != nil {
		revoke = func() { w.nodes[from].m.revoke(p) }
	}
	if rapid.Bool().Draw(rt, "revoked before") {
		revoke()
		w.assign(p, to)
	} else { // the former owner hears of it last
		w.assign(p, to)
		revoke()
	}
	if rapid.Bool().Draw(rt, "at once") {
		synctest.Wait()
	}
}

// settle waits until those that have shards serve them.
func (w *towns) settle() {
	for range 1000 {
		pending := 0
		for _, n := range w.nodes {
			if n != nil {
				pending += n.Pending()
			}
		}
		if pending == 0 {
			synctest.Wait()
			return
		}
		time.Sleep(10 * time.Millisecond) // the bubble's clock
	}
	w.rt.Fatal("the shards did not begin to serve")
}

func (w *towns) create(group string) {
	n := w.nodes[w.of[eventlog.Partition(group, listShards)]]
	if _, err := n.Heartbeat(context.Background(), Caller{ClientID: "c", ClientHost: "/h"}, 1, joinRequest(group, "m-"+group)); err != nil {
		w.rt.Fatalf("join of %s: %v", group, err)
	}
	w.groups[group] = true
}

// begin learns the nodes as the gateway shows them to clients that list groups: who asks is told those that own a shard, after a read barrier.
func (w *towns) begin(rt *rapid.T) {
	via := w.live(rt)
	if via == nil || len(w.walks) > 3 {
		return
	}
	now := &walk{began: time.Now(), must: maps.Clone(w.groups), found: map[string]int32{}}
	nodes := map[int32]bool{via.cfg.Self.NodeID: true}
	for p := range int32(listShards) {
		if err := via.Barrier(context.Background(), p); err != nil {
			rt.Fatal(err)
		}
		if o, ok := via.Owner(p); ok {
			nodes[o.NodeID] = true
		}
	}
	now.ask = rapid.Permutation(slices.Sorted(maps.Keys(nodes))).Draw(rt, "order")
	w.walks = append(w.walks, now)
}

// goOn has a client ask its next node.
func (w *towns) goOn(rt *rapid.T) {
	if len(w.walks) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.walks)-1).Draw(rt, "walk")
	now := w.walks[i]
	drop := func() { w.walks = slices.Delete(w.walks, i, i+1) }
	n := w.nodes[now.ask[0]]
	if n == nil || time.Since(now.began) >= listedAfterLoss {
		drop() // the client knows that it got no answer in time
		return
	}
	listed, err := n.List(context.Background())
	if errors.Is(err, ErrLoading) || errors.Is(err, ErrUnavailable) {
		return // it asks again
	}
	if err != nil {
		rt.Fatalf("list of node %d: %v", now.ask[0], err)
	}
	for _, l := range listed {
		if l.State != "Stable" {
			rt.Errorf("node %d lists %s as %s", now.ask[0], l.Group, l.State)
		}
		now.found[l.Group] = now.ask[0]
	}
	if now.ask = now.ask[1:]; len(now.ask) > 0 {
		return
	}
	for g := range now.must {
		if _, ok := now.found[g]; !ok && time.Since(now.began) < listedAfterLoss {
			rt.Fatalf("nobody listed %s to a client that began %s ago; it found %v", g, time.Since(now.began), now.found)
		}
	}
	w.whole++
	drop()
}

// quiet gives each shard to a node that runs, and looks at the lists when nothing has moved for a while.
func (w *towns) quiet() {
	for id, n := range w.nodes {
		if n == nil {
			w.nodes[id] = w.start(id)
			<-w.nodes[id].m.ready
		}
		w.nodes[id].m.extend(time.Hour)
	}
	for p := range int32(listShards) {
		if w.of[p] < 0 {
			w.assign(p, p)
		}
	}
	w.settle()
	time.Sleep(listedAfterLoss + time.Second) // the bubble's clock
	on := map[string]int{}
	for id, n := range w.nodes {
		listed, err := n.List(context.Background())
		if err != nil {
			w.rt.Fatalf("list of node %d when all is quiet: %v", id, err)
		}
		for _, l := range listed {
			on[l.Group]++
		}
	}
	for g := range w.groups {
		if on[g] != 1 {
			w.rt.Errorf("%s is on %d lists when all is quiet", g, on[g])
		}
	}
}

// A leader that takes no append, with commits that wait for it, holds up a list for as long as a list may take, and not for as long as an append may.
func TestAListDoesNotWaitForAnAppendThatHangs(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		group, p := "g", r.Partition("g")
		epoch := r.join(t, group, "m").MemberEpoch
		log.HoldAppends(p)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = r.commit(group, "m", epoch, 3) }()
		time.Sleep(time.Millisecond) // the bubble's clock
		list := async(func() ([]Listed, error) { return r.List(ctx) })
		time.Sleep(listMax + time.Second) // the bubble's clock
		if l, err, done := list(); !done || !errors.Is(err, ErrLoading) {
			t.Errorf("after %v: %v, %v, answered: %v", listMax, l, err, done)
		}
		list = async(func() ([]Listed, error) { return r.List(ctx) })
		time.Sleep(listMax / 2) // the bubble's clock
		log.ReleaseAppends(p)
		time.Sleep(time.Second) // the bubble's clock
		if l, err, done := list(); !done || err != nil || len(l) != 1 {
			t.Errorf("once the append came: %v, %v, answered: %v", l, err, done)
		}
	})
}

// What is on its way to the log in one shard does not hold up the others of the list.
func TestAnAppendHoldsUpNoOtherShard(t *testing.T) {
	inWorld(t, 8, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		held := map[int32]bool{}
		for i := 0; len(held) < 2*listsAtOnce; i++ {
			group := fmt.Sprintf("g%d", i)
			p := r.Partition(group)
			if held[p] {
				continue
			}
			held[p] = true
			epoch := r.join(t, group, "m").MemberEpoch
			log.HoldAppends(p)
			go func() { _ = r.commit(group, "m", epoch, 3) }()
		}
		time.Sleep(time.Millisecond) // the bubble's clock
		slots := make(chan struct{}, listsAtOnce)
		for p := range held {
			go func() { _, _ = r.shards[p].list(t.Context(), slots, slots) }()
		}
		synctest.Wait()
		for p := range r.Partitions() {
			if held[p] {
				continue
			}
			list := async(func() ([]Listed, error) { return r.shards[p].list(t.Context(), slots, slots) })
			if _, err, done := list(); err != nil || !done {
				t.Errorf("partition %d: %v, answered: %v", p, err, done)
			}
		}
		for p := range held {
			log.ReleaseAppends(p)
		}
	})
}

// A list of many shards that can't be read ends in time. They are others', who are asked too.
func TestAListEndsInTime(t *testing.T) {
	const shards = 600
	inWorld(t, shards, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		for p := range int32(shards) {
			log.Steal(p, eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: 9, Instance: "z"}).Close()
		}
		r := start(0)
		time.Sleep(time.Second)                 // the bubble's clock
		for p := int32(0); p < shards; p += 3 { // what one broker of three leads
			log.HoldTail(p)
			log.Steal(p, eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: 8, Instance: "y"}).Close()
		}
		begun := time.Now()
		l, err := r.List(t.Context())
		if took := time.Since(begun); took > listMax || err != nil || len(l) != 0 {
			t.Errorf("the list took %v: %v, %v", took, l, err)
		}
	})
}
