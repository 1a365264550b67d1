package shard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/streams"
)

func ownershipOf(id int32, instance string, order, timestamp int64) eventlog.Owner {
	return eventlog.Owner{Ownership: eventlog.Ownership{NodeID: id, Address: "gone:9292", Instance: instance, Order: order}, Timestamp: timestamp}
}

// What a forgotten replica wrote before is covered, in whatever partition it is read; what it writes when it is back is not, also where a clock is wrong.
func TestForgottenCoversWhatWasAndNotWhatComes(t *testing.T) {
	f := forgotten{Instance: "i", Order: 7, Timestamp: 1000}
	for _, c := range []struct {
		o    eventlog.Owner
		want bool
		why  string
	}{
		{ownershipOf(3, "i", 7, 1000), true, "the record that was the last"},
		{ownershipOf(3, "i", 5, 400), true, "an older claim of the process, in another partition"},
		{ownershipOf(3, "i", 7, 900), true, "an older copy of its last claim"},
		{ownershipOf(3, "h", 4, 2000), true, "a process before that, whose clock was fast"},
		{ownershipOf(3, "i", 8, 500), false, "the same process claims again, and its clock was set back"},
		{ownershipOf(3, "i", 7, 1001), false, "it says again that it owns something"},
		{ownershipOf(3, "j", 8, 10), false, "it was started again, with a clock that is slow"},
		{ownershipOf(3, "j", 0, 1001), false, "it was started again, in a version that gives its claims no order"},
		{ownershipOf(3, "h", 0, 999), true, "before that it was of such a version"},
	} {
		if got := f.covers(c.o); got != c.want {
			t.Errorf("%s: covered %v", c.why, got)
		}
	}
}

// However often replicas are forgotten, what is kept is bounded, holds the latest, and leaves alone what is not its own.
func TestWhatIsKeptOfForgottenReplicasIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.UnixMilli(1_800_000_000_000)
		configs := map[string]string{"streams.num.standby.replicas": "1"}
		last := map[int32]eventlog.Owner{}
		for range rapid.IntRange(1, 3*forgottenMax).Draw(t, "times") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3600).Draw(t, "seconds")) * time.Second)
			o := ownershipOf(int32(rapid.IntRange(0, 2*forgottenMax).Draw(t, "node")), "i", 1, now.UnixMilli())
			before := maps.Clone(configs)
			next, err := forget(configs, o, "topic", now)
			if err != nil || !maps.Equal(before, configs) {
				t.Fatalf("%v; it changed what it was given: %v", err, !maps.Equal(before, configs))
			}
			configs, last[o.NodeID] = next, o
		}
		nodes := forgottenIn(configs)
		if len(nodes) > forgottenMax || configs["streams.num.standby.replicas"] != "1" {
			t.Fatalf("%d nodes, and %q", len(nodes), configs["streams.num.standby.replicas"])
		}
		var lately int
		for id, o := range last {
			if now.Sub(time.UnixMilli(o.Timestamp)) < projection.ReplicaKept {
				lately++
			}
			if f, ok := nodes[id]; ok && (f.Timestamp != o.Timestamp || f.TopicID != "topic") {
				t.Fatalf("node %d: %+v, forgotten last as %+v", id, f, o)
			}
		}
		if want := min(lately, forgottenMax); len(nodes) < want {
			t.Fatalf("%d nodes are kept, of %d of whom something is remembered", len(nodes), lately)
		}
	})
}

// A replica is forgotten by all: by who is told, by who only reads, by who starts later, and by who owns the shard next. When it is back it is back, for all.
func TestForgottenReplicaStaysSoUntilItIsBack(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		gone := start(7)
		gone.m.assign(time.Hour, 0, 1)
		gone.awaitServing(t)
		was, _ := gone.store.Owner(0)
		gone.stop()

		a, b := start(0), start(1)
		a.m.assign(time.Hour, 0, 1)
		a.awaitServing(t)
		if a.Forgotten(was) {
			t.Fatal("forgotten before anybody said so")
		}
		if err := a.Forget(t.Context(), was); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want := func(who string, r *node, o eventlog.Owner, forgotten bool) {
			t.Helper()
			if got := r.Forgotten(o); got != forgotten {
				t.Errorf("%s: forgotten is %v, want %v", who, got, forgotten)
			}
		}
		want("who wrote it", a, was, true)
		want("who reads it", b, was, true)
		before := a.Stats().Records
		if err := a.Forget(t.Context(), was); err != nil || a.Stats().Records != before {
			t.Errorf("a second time: %v, %d records", err, a.Stats().Records-before)
		}

		c := start(2)
		synctest.Wait()
		want("who starts later", c, was, true)
		a.m.revoke(0, 1)
		b.m.assign(time.Hour, 0, 1)
		b.awaitServing(t)
		another := ownershipOf(9, "x", 1, time.Now().UnixMilli())
		if err := b.Forget(t.Context(), another); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want("the next owner", b, was, true)
		want("the next owner, of another", c, another, true)

		back := start(7)
		b.m.revoke(0)
		back.m.assign(time.Hour, 0)
		back.awaitServing(t)
		synctest.Wait()
		now, _ := c.store.Owner(0)
		if now.NodeID != 7 {
			t.Fatalf("owner %+v", now)
		}
		for _, r := range []*node{a, b, c, back} {
			want("one that is back", r, now, false)
		}
	})
}

// What is kept of forgotten replicas is nothing that clients can see, set or lose with what they can set.
func TestForgottenReplicasAreNoConfigurationOfClients(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		group := OwnershipGroup(log.Identity().Topic)
		gone := ownershipOf(7, "i", 1, time.Now().UnixMilli())
		if err := r.Forget(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		listed := func() (groups []string) {
			if err := r.GroupsWithConfig(0, func(g string) { groups = append(groups, g) }); err != nil {
				t.Error(err)
			}
			return groups
		}
		if got := listed(); len(got) > 0 {
			t.Errorf("configured is %q", got)
		}
		if err := r.alter(group, false, set(forgottenName(8), "{}")); err == nil {
			t.Error("a client can have a replica forgotten by a configuration")
		}
		if err := r.alter(group, false, set("streams.num.standby.replicas", "1")); err != nil {
			t.Errorf("the ownership group can't be configured as others are: %v", err)
		}
		synctest.Wait()
		if got := listed(); !slices.Equal(got, []string{group}) {
			t.Errorf("configured is %q", got)
		}
		err := r.AlterConfig(context.Background(), group, false, func(b *groupconfig.Broker, current map[string]string) (map[string]string, *streams.Error) {
			if len(current) != 1 {
				t.Errorf("a client sees %v", current)
			}
			return b.Replace(nil)
		})
		synctest.Wait()
		if configs, _ := r.GroupConfig(group); err != nil || len(configs) != 1 || !r.Forgotten(gone) {
			t.Errorf("after all was replaced: %v, %v", configs, err)
		}
		// A restored log is another one, in which the order of claims begins anew.
		nodes := maps.Clone(*r.Host.forgotten.nodes.Load())
		f := nodes[7]
		f.TopicID = "of another log"
		nodes[7] = f
		r.Host.forgotten.nodes.Store(&nodes)
		if r.Forgotten(gone) {
			t.Error("what was said in another log counts")
		}
		for _, e := range r.Groups().Describe(map[string]string{forgottenName(7): "{}"}, nil) {
			if strings.HasPrefix(e.Name, "streamkeeper.") {
				t.Errorf("described: %+v", e)
			}
		}
		if got := forgottenIn(map[string]string{forgottenPrefix + "x": "{}", forgottenPrefix + "3": "no", "other": "{}"}); len(got) > 0 {
			t.Errorf("read of what nobody of us wrote: %v", fmt.Sprint(got))
		}
	})
}

// Metadata does not wait for a disk that hangs: what was read before counts, one reading is under way, and when it goes on what came meanwhile is seen.
func TestForgottenReplicasWhileTheDiskHangs(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		first, second := ownershipOf(7, "i", 1, time.Now().UnixMilli()), ownershipOf(8, "j", 1, time.Now().UnixMilli())
		forget := func(o eventlog.Owner) {
			t.Helper()
			if err := r.Forget(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if err := r.Barrier(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		forget(first)
		if !r.Forgotten(first) {
			t.Fatal("what was applied is not seen by the next call")
		}
		var reading atomic.Int32
		hang := make(chan struct{})
		r.store.mu.Lock()
		r.store.onConfig = func() { reading.Add(1); <-hang }
		r.store.mu.Unlock()
		forget(second)
		began := time.Now()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for range 3 {
					if !r.Forgotten(first) || r.Forgotten(second) {
						t.Error("not what was read before")
					}
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took != forgottenPatience || reading.Load() != 1 {
			t.Errorf("they waited for %v; %d read", took, reading.Load())
		}
		close(hang)
		synctest.Wait()
		if !r.Forgotten(second) {
			t.Error("what came while the disk hung is not seen")
		}
	})
}
