package projection

import (
	"errors"
	"reflect"
	"strings"
	"sync"
	"time"

	"streamkeeper/eventlog"
)

// clock is a wall clock that stands still.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.UnixMilli(1_800_000_000_000)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func open(t tester, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

// groupEntry is a type-17 record without a producer.
func groupEntry(offset int64, group string) eventlog.Entry {
	raw := eventlog.Encode(eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeGroup, Group: group}, Value: &eventlog.Group{Epoch: 1}})
	return eventlog.Entry{Offset: offset, ProducerID: -1, ProducerEpoch: -1, Key: raw.Key, Value: raw.Value}
}

func ownershipEntry(offset int64, o eventlog.Ownership) eventlog.Entry {
	o.Format = 1
	raw := eventlog.Encode(eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeOwnership}, Value: &o})
	return eventlog.Entry{Offset: offset, Timestamp: 1_800_000_000_000, ProducerID: o.ProducerID, ProducerEpoch: o.ProducerEpoch, Key: raw.Key, Value: raw.Value}
}

// groupsBatch holds a group of each name, from offset on, and stands at the end.
func groupsBatch(offset int64, groups ...string) eventlog.Batch {
	b := eventlog.Batch{Next: offset, LeaderEpoch: 1}
	for _, g := range groups {
		b.Entries = append(b.Entries, groupEntry(b.Next, g))
		b.Next++
	}
	b.HighWatermark = b.Next
	return b
}

func groupsOf(t tester, s *Store, p int32) []string {
	t.Helper()
	groups := []string{}
	must(t, s.Groups(p, func(g string) bool { groups = append(groups, g); return true }))
	return groups
}

func wantGroups(t tester, s *Store, p int32, want ...string) {
	t.Helper()
	if got := groupsOf(t, s, p); !reflect.DeepEqual(got, append([]string{}, want...)) {
		t.Errorf("groups of partition %d: %q, want %q", p, got, want)
	}
}

func wantRebuilds(t tester, s *Store, want map[Reason]uint64) {
	t.Helper()
	if got := s.Stats().Rebuilds; !reflect.DeepEqual(got, want) {
		t.Errorf("rebuilds %v, want %v", got, want)
	}
}

// rebuild does what a tail does with ErrRebuild, and checks that it is one.
func rebuild(t tester, s *Store, p int32, err error, reason Reason) {
	t.Helper()
	if !errors.Is(err, eventlog.ErrRebuild) || !strings.Contains(err.Error(), string(reason)) {
		t.Fatalf("want to rebuild for %q: %v", reason, err)
	}
	must(t, s.Reset(p, err.Error()))
	if got := s.Resume(p); got != (eventlog.Position{Offset: 0, LeaderEpoch: -1}) {
		t.Fatalf("resumes at %+v", got)
	}
}
