package projection

import (
	"reflect"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"streamkeeper/eventlog"
)

// claims writes claims of nodes, one after the other, at the times of the clock.
func claim(t *testing.T, s *Store, p int32, at time.Time, node int32, address string) {
	t.Helper()
	offset := s.Applied(p)
	e := ownershipEntry(offset, eventlog.Ownership{NodeID: node, Address: address, ProducerID: 7, ProducerEpoch: int16(offset), Claim: -1})
	e.Timestamp = at.UnixMilli()
	must(t, s.Batch(p, batchOf([]eventlog.Entry{e}, offset+1, offset+1)))
}

func addresses(s *Store) map[int32]string {
	m := map[int32]string{}
	last := int32(-1)
	for _, o := range s.Replicas() {
		if o.NodeID <= last {
			return nil // not ascending, or twice
		}
		m[o.NodeID], last = o.Address, o.NodeID
	}
	return m
}

func TestReplicasAreRememberedForADay(t *testing.T) {
	clock := newClock()
	cfg := testConfig(vfs.NewMem())
	cfg.Now, cfg.DeleteRetention = clock.Now, 1000*time.Hour // so that no rebuild disturbs
	s := open(t, cfg)
	want := func(when string, want map[int32]string) {
		t.Helper()
		if got := addresses(s); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	want("nothing claimed", map[int32]string{})
	claim(t, s, 0, clock.Now(), 1, "one:1")
	claim(t, s, 1, clock.Now(), 2, "two:1")
	clock.advance(time.Hour)
	claim(t, s, 0, clock.Now(), 3, "three:1") // 1 owns nothing any more
	claim(t, s, 2, clock.Now().Add(-2*time.Hour), 2, "two:old")
	want("after some claims", map[int32]string{1: "one:1", 2: "two:1", 3: "three:1"})
	if owners := s.Owners(); len(owners) != 3 || owners[0].NodeID != 3 || owners[1].NodeID != 2 {
		t.Errorf("owners %+v", owners)
	}

	must(t, s.Reset(0, "cut off"))
	want("a rebuilt partition", map[int32]string{1: "one:1", 2: "two:1", 3: "three:1"})
	if _, ok := s.Owner(0); ok {
		t.Error("a rebuilt partition has an owner")
	}
	must(t, s.Close())
	s = open(t, cfg)
	want("restarted", map[int32]string{1: "one:1", 2: "two:1", 3: "three:1"})
	claim(t, s, 1, clock.Now(), 2, "two:2")
	want("another address", map[int32]string{1: "one:1", 2: "two:2", 3: "three:1"})

	clock.advance(24*time.Hour + 30*time.Minute) // a day after their last record, dead or alive
	want("a day later", map[int32]string{1: "one:1", 2: "two:2", 3: "three:1"})
	clock.advance(5 * time.Hour)
	want("much later", map[int32]string{2: "two:2", 3: "three:1"})
	clock.advance(time.Hour)
	claim(t, s, 0, clock.Now(), 4, "four:1")
	must(t, s.Close())
	s = open(t, cfg)
	defer func() { must(t, s.Close()) }()
	want("still later, restarted", map[int32]string{4: "four:1"})
	if len(s.replicas) != 1 {
		t.Errorf("keeps %d", len(s.replicas))
	}
}

// TestTheNewestAddressIsNotTheClocks: a replica that comes back elsewhere, with a clock that is behind its former one, is known by its new address, in whatever
// order partitions are read. It is remembered from when it was heard of last.
func TestTheNewestAddressIsNotTheClocks(t *testing.T) {
	clock := newClock()
	now := clock.Now()
	type record struct {
		p        int32
		at       time.Duration
		instance string
		address  string
		order    int64
	}
	for _, c := range []struct {
		name    string
		records []record
		want    string
		heard   time.Duration
	}{
		{"the clock is behind", []record{{0, 10 * time.Minute, "a", "old:1", 1}, {1, 0, "b", "new:1", 2}}, "new:1", 0},
		{"read the other way round", []record{{1, 0, "b", "new:1", 2}, {0, 10 * time.Minute, "a", "old:1", 1}}, "new:1", 0},
		{"a repeat of the older claim is read last", []record{{1, 0, "b", "new:1", 3}, {0, 10 * time.Minute, "a", "old:1", 1}, {2, 11 * time.Minute, "a", "old:1", 2}}, "new:1", 0},
		{"heard of again by a repeat of an earlier claim", []record{{0, 0, "b", "new:1", 3}, {1, 5 * time.Minute, "b", "new:1", 2}, {2, 3 * time.Minute, "a", "old:1", 1}}, "new:1", 5 * time.Minute},
		{"the order is not lost by such a repeat", []record{{0, 0, "b", "new:1", 3}, {1, 5 * time.Minute, "b", "new:1", 1}, {2, 3 * time.Minute, "a", "old:1", 2}}, "new:1", 5 * time.Minute},
		{"an older version", []record{{0, 0, "a", "old:1", 0}, {1, time.Minute, "b", "new:1", 5}}, "new:1", time.Minute},
		{"back to an older version", []record{{0, 0, "a", "old:1", 4}, {1, time.Minute, "b", "new:1", 0}}, "new:1", time.Minute},
	} {
		cfg := testConfig(vfs.NewMem())
		cfg.Now = clock.Now
		s := open(t, cfg)
		check := func(when string) {
			t.Helper()
			got := s.Replicas()
			if len(got) != 1 || got[0].Address != c.want || got[0].Timestamp != now.Add(c.heard).UnixMilli() {
				t.Errorf("%s%s: %+v, want %s heard of %v later", c.name, when, got, c.want, c.heard)
			}
		}
		for _, r := range c.records {
			offset := s.Applied(r.p)
			e := ownershipEntry(offset, eventlog.Ownership{NodeID: 1, Address: r.address, Instance: r.instance, Order: r.order, ProducerID: 7, ProducerEpoch: int16(offset), Claim: -1})
			e.Timestamp = now.Add(r.at).UnixMilli()
			must(t, s.Batch(r.p, batchOf([]eventlog.Entry{e}, offset+1, offset+1)))
		}
		check("")
		must(t, s.Close())
		s = open(t, cfg)
		check(", after a restart")
		must(t, s.Close())
	}
}

func TestReplicasAreBounded(t *testing.T) {
	clock := newClock()
	cfg := testConfig(vfs.NewMem())
	cfg.Now = clock.Now
	s := open(t, cfg)
	defer func() { must(t, s.Close()) }()
	for node := range int32(replicasMax + 5) {
		clock.advance(time.Millisecond)
		claim(t, s, 0, clock.Now(), node, "h:1")
	}
	got := s.Replicas()
	if len(got) != replicasMax || got[0].NodeID != 5 {
		t.Errorf("%d replicas, the first is %d", len(got), got[0].NodeID)
	}
}
