package projection

import (
	"slices"
	"testing"

	"streamkeeper/eventlog"
)

// TestTrackNamesEveryGroupThatChanged: groups that were read before a change are named after it, whatever kind of record it was, a tombstone
// included; committed offsets are not part of a group, and other partitions are others.
func TestTrackNamesEveryGroupThatChanged(t *testing.T) {
	cfg := testConfig(nil)
	cfg.Dir = t.TempDir()
	s := open(t, cfg)
	next := map[int32]int64{}
	apply := func(p int32, recs ...eventlog.Record) {
		t.Helper()
		var entries []eventlog.Entry
		for _, r := range recs {
			raw := eventlog.Encode(r)
			entries = append(entries, eventlog.Entry{Offset: next[p], ProducerID: -1, Key: raw.Key, Value: raw.Value})
			next[p]++
		}
		must(t, s.Batch(p, batchOf(entries, next[p], next[p])))
	}
	group := func(id string) eventlog.Record {
		return eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeGroup, Group: id}, Value: &eventlog.Group{Epoch: 1}}
	}
	member := eventlog.Key{Type: eventlog.TypeMember, Group: "left", Member: "m"}
	apply(1, group("before"), group("left"), eventlog.Record{Key: member, Value: &eventlog.Member{}})

	first := s.Track(1)
	apply(1, group("both"), group("both"))
	second := s.Track(1)
	apply(1, eventlog.Record{Key: member})
	apply(1, eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeGroupConfig, Group: "configured"}, Value: &eventlog.GroupConfig{Format: 1, Configs: map[string]string{"a": "b"}}})
	apply(1, eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: "committed", Topic: "t"}, Value: &eventlog.OffsetCommit{}})
	apply(2, group("elsewhere"))

	for name, c := range map[string]struct {
		stop func() []string
		want []string
	}{"first": {first, []string{"both", "configured", "left"}}, "second": {second, []string{"configured", "left"}}} {
		got := c.stop()
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s tracker: %v, want %v", name, got, c.want)
		}
	}
	apply(1, group("after"))
	if part, _ := s.part(1); len(part.trackers) > 0 {
		t.Errorf("%d trackers are left after they were stopped", len(part.trackers))
	}
}

// TestGroupsToHydrateIsGroupOfEach: reading all groups with members at once gives what reading them one by one does.
func TestGroupsToHydrateIsGroupOfEach(t *testing.T) {
	cfg := testConfig(nil)
	cfg.Dir = t.TempDir()
	s := open(t, cfg)
	offset := int64(0)
	for _, id := range []string{"a", "a\x00b", "ab", "b", "bb"} {
		entries := benchGroup(offset, id)
		if id == "b" { // has no members
			entries = entries[:2]
		}
		offset += int64(len(entries))
		must(t, s.Batch(0, batchOf(entries, offset, offset)))
	}
	var ids []string
	must(t, s.GroupsToHydrate(0, func(id string, records []Stored) bool {
		ids = append(ids, id)
		want, err := s.Group(0, id)
		must(t, err)
		if len(records) != len(want) || len(want) != 33 {
			t.Fatalf("group %q has %d records, Group says %d", id, len(records), len(want))
		}
		for i := range records {
			if records[i].Record.Key != want[i].Record.Key || records[i].Offset != want[i].Offset {
				t.Errorf("group %q, record %d: %v at %d, Group says %v at %d", id, i, records[i].Record.Key, records[i].Offset, want[i].Record.Key, want[i].Offset)
			}
		}
		return true
	}))
	if want := []string{"a", "a\x00b", "ab", "bb"}; !slices.Equal(ids, want) {
		t.Errorf("groups %q, want %q", ids, want)
	}
	n := 0
	must(t, s.GroupsToHydrate(0, func(string, []Stored) bool { n++; return false }))
	if n != 1 {
		t.Errorf("%d groups after f had enough", n)
	}
}
