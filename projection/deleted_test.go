package projection

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"streamkeeper/eventlog"
)

// Where groups by the thousand were deleted, and no compaction has been at the store, reading one group still costs a few steps: nothing looks behind
// the keys that it was asked for, where the deleted ones of the next kind are. A sweep that removes all groups would else be quadratic.
func TestReadingAGroupCostsTheSameBesideDeletedOnes(t *testing.T) {
	const groups = 3000
	s := open(t, testConfig(vfs.NewMem()))
	defer func() { must(t, s.Close()) }()
	id := func(i int) string { return fmt.Sprintf("g%05d", i) }
	var b eventlog.Batch
	add := func(k eventlog.Key, v eventlog.Value) {
		raw := eventlog.Encode(eventlog.Record{Key: k, Value: v})
		b.Entries = append(b.Entries, eventlog.Entry{Offset: b.Next, ProducerID: -1, ProducerEpoch: -1, Key: raw.Key, Value: raw.Value})
		b.Next++
		b.HighWatermark = b.Next
	}
	keys := func(i int) []eventlog.Key {
		return []eventlog.Key{{Type: eventlog.TypeGroup, Group: id(i)}, {Type: eventlog.TypeOffsetCommit, Group: id(i), Topic: "in"}, {Type: eventlog.TypeTopology, Group: id(i)}}
	}
	values := []eventlog.Value{&eventlog.Group{Epoch: 1}, &eventlog.OffsetCommit{Offset: 1}, &eventlog.Topology{Subtopologies: []eventlog.Subtopology{{SubtopologyID: "0", SourceTopics: []string{"in"}}}}}
	for i := range groups {
		for j, k := range keys(i) {
			add(k, values[j])
		}
	}
	must(t, s.Batch(0, b))
	b.Entries = nil
	for i := range groups - 1 { // all but the last
		for _, k := range keys(i) {
			add(k, nil)
		}
	}
	must(t, s.Batch(0, b))

	v := view{s.engine.db, 0}
	it, err := v.iterator()
	must(t, err)
	defer it.Close()
	const most = 200
	steps := func(what string, do func()) {
		t.Helper()
		it.ResetStats()
		do()
		st := it.Stats()
		if n := st.ForwardStepCount[pebble.InternalIterCall] + st.ReverseStepCount[pebble.InternalIterCall]; n > most {
			t.Errorf("%s took %d steps beside %d deleted groups, more than %d", what, n, groups-1, most)
		}
	}
	for _, i := range []int{0, groups / 2, groups - 1} {
		steps("group "+id(i), func() {
			records, err := groupReader{0, it, it, it, it}.read(id(i))
			if must(t, err); len(records) > 0 != (i == groups-1) {
				t.Errorf("%s has %d records", id(i), len(records))
			}
		})
		steps("offsets of "+id(i), func() {
			n := 0
			w := walk{it: it}
			must(t, w.offsets(partitionKey(0, kindOffset).str(id(i)), func(Stored) bool { n++; return true }))
			if n > 0 != (i == groups-1) {
				t.Errorf("%s has %d offsets", id(i), n)
			}
		})
	}
	steps("groups with members", func() {
		must(t, namesWith(it, partitionKey(0, kindMember), func(string) bool { t.Error("there are none"); return true }))
	})
}
