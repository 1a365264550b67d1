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
