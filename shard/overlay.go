package shard

import (
	"cmp"
	"iter"
	"slices"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard/offsets"
)

// overlay holds the offset commits that are appended and that the projection has not applied yet (D7), so that a fetch sees
// every commit before it.
type overlay struct {
	groups map[string]map[offsets.TopicPartition]overlayEntry
	n      int
	// done are the acknowledged ones in log order; drop takes them off its front.
	done []doneOffset
}

type overlayEntry struct {
	value *eventlog.OffsetCommit // nil: a tombstone
	seq   int64
}

type offsetKey struct {
	group string
	tp    offsets.TopicPartition
	seq   int64
}

type doneOffset struct {
	offsetKey
	offset int64
}

func newOverlay() overlay {
	return overlay{groups: map[string]map[offsets.TopicPartition]overlayEntry{}}
}

func (o *overlay) len() int { return o.n }

func (o *overlay) put(k eventlog.Key, v *eventlog.OffsetCommit, seq int64) offsetKey {
	m := o.groups[k.Group]
	if m == nil {
		m = map[offsets.TopicPartition]overlayEntry{}
		o.groups[k.Group] = m
	}
	tp := offsets.TopicPartition{Topic: k.Topic, Partition: k.Partition}
	if _, ok := m[tp]; !ok {
		o.n++
	}
	m[tp] = overlayEntry{value: v, seq: seq}
	return offsetKey{group: k.Group, tp: tp, seq: seq}
}

// acknowledged says that the keys are in the log, at or below the offset.
func (o *overlay) acknowledged(keys []offsetKey, offset int64) {
	for _, k := range keys {
		o.done = append(o.done, doneOffset{k, offset})
	}
}

// drop forgets what the projection has applied: everything below next.
func (o *overlay) drop(next int64) {
	i := 0
	for ; i < len(o.done) && o.done[i].offset < next; i++ {
		d := o.done[i]
		m := o.groups[d.group]
		if e, ok := m[d.tp]; ok && e.seq == d.seq { // a newer commit of the same partition stays
			delete(m, d.tp)
			o.n--
			if len(m) == 0 {
				delete(o.groups, d.group)
			}
		}
	}
	if i == len(o.done) {
		o.done = nil
	} else {
		o.done = o.done[i:]
	}
}

// view is the committed offsets of one group: the projection under the overlay. A storage error ends iteration and is kept in err.
type view struct {
	s      *Shard
	group  string
	reader projection.GroupReader // the store's, but in a sweep
	err    error
}

func (s *Shard) view(group string) *view {
	return &view{s: s, group: group, reader: storeReader{s.host.cfg.Store, s.partition}}
}

// storeReader reads each group by itself, as it is at that moment.
type storeReader struct {
	store Store
	p     int32
}

func (r storeReader) Group(group string) ([]projection.Stored, error) {
	return r.store.Group(r.p, group)
}

func (r storeReader) Offsets(group string, f func(projection.Stored) bool) error {
	return r.store.Offsets(r.p, group, f)
}

func (r storeReader) Pending(group string, f func(int64, projection.Stored) bool) error {
	return r.store.Pending(r.p, group, f)
}

func (v *view) Get(topic string, partition int32) (eventlog.OffsetCommit, bool) {
	if e, ok := v.s.overlay.groups[v.group][offsets.TopicPartition{Topic: topic, Partition: partition}]; ok {
		if e.value == nil {
			return eventlog.OffsetCommit{}, false
		}
		return *e.value, true
	}
	st, ok, err := v.s.host.cfg.Store.Offset(v.s.partition, v.group, topic, partition)
	if err != nil {
		v.err = err
		return eventlog.OffsetCommit{}, false
	}
	if !ok {
		return eventlog.OffsetCommit{}, false
	}
	return *st.Record.Value.(*eventlog.OffsetCommit), true
}

func (v *view) All() iter.Seq2[offsets.TopicPartition, eventlog.OffsetCommit] {
	return func(yield func(offsets.TopicPartition, eventlog.OffsetCommit) bool) {
		over := v.s.overlay.groups[v.group]
		stopped := false
		err := v.reader.Offsets(v.group, func(st projection.Stored) bool {
			tp := offsets.TopicPartition{Topic: st.Record.Key.Topic, Partition: st.Record.Key.Partition}
			if _, hidden := over[tp]; hidden {
				return true
			}
			stopped = !yield(tp, *st.Record.Value.(*eventlog.OffsetCommit))
			return !stopped
		})
		if err != nil {
			v.err = err
			return
		}
		if stopped {
			return
		}
		tps := make([]offsets.TopicPartition, 0, len(over))
		for tp, e := range over {
			if e.value != nil {
				tps = append(tps, tp)
			}
		}
		slices.SortFunc(tps, func(a, b offsets.TopicPartition) int {
			return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
		})
		for _, tp := range tps {
			if !yield(tp, *over[tp].value) {
				return
			}
		}
	}
}

func (v *view) Open(topic string, partition int32) bool {
	for tp := range v.OpenAll() {
		if tp.Topic == topic && tp.Partition == partition {
			return true
		}
	}
	return false
}

func (v *view) OpenAll() iter.Seq[offsets.TopicPartition] {
	return func(yield func(offsets.TopicPartition) bool) {
		err := v.reader.Pending(v.group, func(_ int64, st projection.Stored) bool {
			return yield(offsets.TopicPartition{Topic: st.Record.Key.Topic, Partition: st.Record.Key.Partition})
		})
		if err != nil {
			v.err = err
		}
	}
}
