package shard

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

// slowStore is a projection that takes nothing before a moment, and says so to nobody: reading takes long.
type slowStore struct {
	*modelStore
	until atomic.Pointer[time.Time]
}

func (s *slowStore) Batch(p int32, b eventlog.Batch) error {
	if until := s.until.Load(); until != nil {
		time.Sleep(time.Until(*until)) // the bubble's clock
	}
	return s.modelStore.Batch(p, b)
}

func (s *slowStore) slow(d time.Duration) {
	until := time.Now().Add(d)
	s.until.Store(&until)
}

// fleet is some hosts in a group of theirs over one log.
type fleet struct {
	log   *eventlog.Fake
	group *FakeGroup
	ctx   context.Context
	wg    sync.WaitGroup
	hosts []*Host
	store []*slowStore
	cut   func(id int32, log eventlog.Log) eventlog.Log // the log as a host sees it, if set
}

// inFleet runs test in a bubble with a log of n partitions.
func inFleet(t *testing.T, n int32, test func(t *testing.T, f *fleet)) {
	t.Helper()
	inWorld(t, n, func(t *testing.T, log *eventlog.Fake, _ func(int32) *node) {
		ctx, cancel := context.WithCancel(t.Context())
		f := &fleet{log: log, group: NewFakeGroup(FakeGroupOptions{Partitions: n}), ctx: ctx}
		defer f.wg.Wait()
		defer cancel()
		test(t, f)
	})
}

// start starts one more, which reads nothing for so long.
func (f *fleet) start(unread time.Duration) *Host {
	id, n := int32(len(f.hosts)), f.log.Identity().Partitions
	store := &slowStore{modelStore: newModelStore(n)}
	store.slow(unread)
	log := eventlog.Log(f.log)
	if f.cut != nil {
		log = f.cut(id, log)
	}
	h := New(Config{
		Log: log, Store: store, Membership: f.group.Member(id, func() time.Duration { return time.Duration(id+1) * 10 * time.Millisecond }),
		Self:   eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: id, Instance: string(rune('a' + id))},
		Topics: func() streams.Topics { return oneTopic{} }, Groups: groupconfig.Fixed(streams.DefaultConfig()),
		Offsets: offsets.Env{MetadataBytesMax: offsets.MetadataMaxDefault, Retention: retention},
	})
	f.hosts, f.store = append(f.hosts, h), append(f.store, store)
	f.wg.Go(func() { _ = f.log.Follow(f.ctx, store) })
	f.wg.Go(func() { _ = h.Run(f.ctx) })
	return h
}

// unserved is the longest time during d in which a partition had no owner.
func (f *fleet) unserved(d time.Duration) (longest time.Duration) {
	const look = 10 * time.Millisecond
	gap := make([]time.Duration, f.log.Identity().Partitions)
	for begun := time.Now(); time.Since(begun) < d; time.Sleep(look) { // the bubble's clock
		for p := range gap {
			gap[p] += look
			if slices.ContainsFunc(f.hosts, func(h *Host) bool { return h.Owns(int32(p)) }) {
				gap[p] = 0
			}
			longest = max(longest, gap[p])
		}
	}
	return longest
}

// spread says that each has as many partitions as the others, and nobody declines any.
func (f *fleet) spread() bool {
	n := int(f.log.Identity().Partitions) / len(f.hosts)
	return !slices.ContainsFunc(f.hosts, func(h *Host) bool { return h.OwnedCount() != n || len(h.Declines()) > 0 })
}

// plannedMove is how long a shard may have no owner when it moves as planned: the successor's claim is read by both within milliseconds.
const plannedMove = 100 * time.Millisecond

// A replica that begins with an empty data directory before a long log is in the group before it has read it. Those who have read it serve on meanwhile.
func TestAReplicaThatStillReadsTakesNoShards(t *testing.T) {
	inFleet(t, 4, func(t *testing.T, f *fleet) {
		f.start(0)
		time.Sleep(10 * time.Second) // the bubble's clock
		b := f.start(5 * time.Minute)
		if gap := f.unserved(4 * time.Minute); gap > plannedMove {
			t.Errorf("a shard had no owner for %v while one replica read the log", gap)
		}
		if d := b.Declines(); len(d) != 4 || d[0].Why != DeclinedReading || len(b.Held()) != 0 {
			t.Errorf("it declines %v, and has %v", d, b.Held())
		}
		if gap := f.unserved(2 * time.Minute); gap > plannedMove || !f.spread() {
			t.Errorf("a shard had no owner for %v when the log was read; owned: %d and %d", gap, f.hosts[0].OwnedCount(), b.OwnedCount())
		}
	})
}

// Where nobody has read the log the first that has serves, and they share it when all have.
func TestAllReplicasStillRead(t *testing.T) {
	inFleet(t, 6, func(t *testing.T, f *fleet) {
		f.start(time.Minute)
		f.start(2 * time.Minute)
		f.start(2 * time.Minute)
		time.Sleep(70 * time.Second) // the bubble's clock
		if n := f.hosts[0].OwnedCount(); n != 6 {
			t.Errorf("the one that has read the log serves %d shards", n)
		}
		if gap := f.unserved(2 * time.Minute); gap > plannedMove || !f.spread() {
			t.Errorf("a shard had no owner for %v after one had read the log, or they are not shared: %d, %d, %d", gap, f.hosts[0].OwnedCount(), f.hosts[1].OwnedCount(), f.hosts[2].OwnedCount())
		}
	})
}

// One partition can't be read by anybody, because its brokers are away: replicas that start serve all others, also where there is nobody else.
func TestAPartitionThatCantBeReadKeepsNobodyFromTheOthers(t *testing.T) {
	inFleet(t, 4, func(t *testing.T, f *fleet) {
		a := f.start(0)
		time.Sleep(10 * time.Second) // the bubble's clock
		if n := a.OwnedCount(); n != 4 {
			t.Fatalf("%d shards are served", n)
		}
		f.log.HoldTail(3)
		b := f.start(0)
		time.Sleep(30 * time.Second) // the bubble's clock
		if d := b.Declines(); b.OwnedCount() == 0 || len(d) != 1 || d[0].Partition != 3 || slices.Contains(b.Held(), 3) {
			t.Errorf("it serves %d shards, declines %v, and has %v", b.OwnedCount(), d, b.Held())
		}
		f.log.ReleaseTail(3)
		time.Sleep(30 * time.Second) // the bubble's clock
		if !f.spread() {
			t.Errorf("the shards are not shared: %d and %d", a.OwnedCount(), b.OwnedCount())
		}
	})
}

// The same after all replicas have ended.
func TestAPartitionThatCantBeReadKeepsNobodyFromTheOthersAtAStart(t *testing.T) {
	inFleet(t, 4, func(t *testing.T, f *fleet) {
		f.log.Steal(1, eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: 7, Instance: "before", Partitions: 4}).Close()
		f.log.HoldTail(3)
		a := f.start(0)
		time.Sleep(30 * time.Second) // the bubble's clock
		if n := a.OwnedCount(); n != 3 {
			t.Errorf("%d shards are served", n)
		}
		f.log.ReleaseTail(3)
		time.Sleep(30 * time.Second) // the bubble's clock
		if !f.spread() {
			t.Errorf("%d shards are served", a.OwnedCount())
		}
	})
}

// Partitions of a long log may come to their ends one closely after the other for as long as it takes: those that are done are asked for meanwhile, and not one by one.
func TestWhatIsReadIsAskedForWhileOthersAreRead(t *testing.T) {
	for _, c := range []struct {
		every time.Duration // from one end to the next
		n     int32
		wait  time.Duration // for those that are done, at most
		asks  int           // at most
	}{
		{100 * time.Millisecond, 50, 4 * time.Second, 4},
		{time.Second, 60, 31 * time.Second, 6},
		{20 * time.Second, 60, 2*time.Minute + time.Second, 12},
		{2 * time.Minute, 50, time.Minute + time.Second, 51},
	} {
		d, now, begun := &declines{}, time.Now(), time.Now()
		never := func(*Decline) bool { return false }
		done, asks, longest := map[int32]time.Time{}, 0, time.Duration(0)
		for at := time.Duration(0); at <= time.Duration(c.n+1)*c.every+2*time.Minute; at += declineLook {
			now = begun.Add(at)
			for p := range c.n {
				unread := at < time.Duration(p+1)*c.every+readingPatience
				if d.readFor(p, now, unread) >= readingPatience {
					d.add(p, DeclinedReading, errReading)
				}
				if x := d.by[p]; !unread && x != nil && x.now && done[p].IsZero() {
					done[p] = now
				}
			}
			before := len(d.list())
			if d.lift(now, never); len(d.list()) < before {
				asks++
			}
			for p, since := range done {
				if d.by[p].now {
					longest = max(longest, now.Sub(since))
				}
			}
		}
		if len(done) == 0 || len(d.list()) != 0 || longest > c.wait || asks > c.asks {
			t.Errorf("one each %v: of %d that were declined %d are at the end; one waited %v, and there were %d rebalances", c.every, len(done), len(d.list()), longest, asks)
		}
		t.Logf("one each %v: %d, %v, %d", c.every, len(done), longest, asks)
	}
}
