package projection

import (
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"streamkeeper/eventlog"
)

// kept is what is left of a log after compaction of what lies below an offset.
func kept(g *genLog, below int64, tombstones bool) []eventlog.Entry {
	log := eventlog.NewFake(eventlog.FakeOptions{IdleInterval: -1})
	defer log.Close()
	for _, e := range g.entries {
		log.Inject(0, e)
	}
	log.CompactBefore(0, below, tombstones)
	return log.Entries(0)
}

// TestEveryCompactedLogLoadsAlike: whatever compaction took away, before the store began or while it was somewhere in the
// middle, it ends up with the same, the offsets of the records included.
func TestEveryCompactedLogLoadsAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGenLog()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			g.step(t, false)
		}
		// Two things that nobody writes, and where Kafka's coordinator itself goes wrong: a tombstone in a transaction takes
		// effect at once, but is cleaned away with the transaction if that is aborted; types 0 and 1 share a place, but
		// to the cleaner they are two keys.
		g.entries = slices.DeleteFunc(g.entries, func(e eventlog.Entry) bool {
			k, _ := eventlog.DecodeKey(e.Key)
			return e.Control == eventlog.ControlNone && (e.Transactional && e.Value == nil || k.Type == eventlog.TypeLegacyOffsetCommit)
		})
		for i := range g.entries {
			e := &g.entries[i]
			e.Offset = int64(i)
			if e.Transactional && e.Headers != nil {
				e.Headers = header(g.generationAt(i))
			}
			g.repeatAt(i)
		}
		g.valid = slices.Repeat([]bool{true}, len(g.entries))
		end := int64(len(g.entries))
		want := g.model(int(end))

		s, err := Open(testConfig(vfs.NewMem()))
		must(t, err)
		defer func() { must(t, s.Close()) }()

		// what was read before compaction came by
		read := rapid.Int64Range(0, end).Draw(t, "read")
		if read > 0 {
			must(t, s.Batch(0, batchOf(g.entries[:read], read, end)))
		}
		// it takes tombstones only from a log that nobody resumes in the middle of: delete.retention.ms
		tombstones := read > 0 || rapid.Bool().Draw(t, "tombstones")
		rest := kept(g, rapid.Int64Range(0, end).Draw(t, "below"), tombstones)
		rest = slices.DeleteFunc(rest, func(e eventlog.Entry) bool { return e.Offset < read })
		for len(rest) > 0 {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			must(t, s.Batch(0, batchOf(rest[:n], rest[n-1].Offset+1, end)))
			rest = rest[n:]
		}
		must(t, s.Batch(0, batchOf(nil, end, end)))
		sameAsModel(t, s, 0, want)
	})
}

// generationAt is the generation of the claim that is in force at the i-th entry.
func (g *genLog) generationAt(i int) int64 {
	generation := int64(-1)
	for _, e := range g.entries[:i] {
		if r, err := eventlog.Decode(eventlog.Raw{Key: e.Key, Value: e.Value}); err == nil {
			if o, ok := r.Value.(*eventlog.Ownership); ok && o.Claim < 0 {
				generation = e.Offset
			}
		}
	}
	return generation
}

// repeatAt makes an ownership record that repeats a claim name the right one, after offsets have changed.
func (g *genLog) repeatAt(i int) {
	e := &g.entries[i]
	r, err := eventlog.Decode(eventlog.Raw{Key: e.Key, Value: e.Value})
	if err != nil {
		return
	}
	if o, ok := r.Value.(*eventlog.Ownership); ok && o.Claim >= 0 {
		o.Claim = g.generationAt(i)
		e.Value = eventlog.AppendValue(nil, o)
	}
}
