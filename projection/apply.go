package projection

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"streamkeeper/eventlog"
)

// Batch implements eventlog.Follower: all of b is applied, with the position after it, or nothing. Where a record can't
// be read, what comes before it is applied, the position is that record's, and the error wraps eventlog.ErrRefused.
func (s *Store) Batch(p int32, b eventlog.Batch) error {
	part, err := s.part(p)
	if err != nil {
		return err
	}
	s.gate.RLock()
	defer s.gate.RUnlock()
	select {
	case <-s.closing:
		return ErrClosed
	default:
	}
	e, err := s.writable()
	if err != nil {
		return err
	}
	defer e.release()
	e.ease(s.closing)

	now := s.cfg.Now()
	a, err := s.beginApply(part, e, b, now)
	if err != nil {
		return err
	}
	defer func() { _ = a.batch.Close() }()
	refused := a.entries(b.Entries)
	if other := (otherLog{}); refused != nil && errors.As(refused.err, &other) {
		return s.want(part, ReasonLogID, other.Error())
	}
	if err := a.finish(b, refused, now); err != nil {
		return e.failed(err)
	}
	return s.publish(a, b, refused, now)
}

// beginApply prepares to apply b to what there is, or says why the partition must be read again.
func (s *Store) beginApply(part *partition, e *engine, b eventlog.Batch, now time.Time) (*apply, error) {
	part.mu.Lock()
	part.highWater = b.HighWatermark
	wanted, ours := part.wanted, part.engine == e.number
	a := &apply{
		s: s, part: part, e: e,
		after: part.checkpoint, persisted: part.persisted, pending: part.pending, logIDSeen: part.logIDSeen, whole: part.whole, skipped: part.skipped,
	}
	part.mu.Unlock()
	c := &a.after
	switch {
	case wanted != "":
		return nil, s.want(part, wanted, "still to be done")
	case !ours:
		return nil, s.want(part, ReasonDamaged, "the store was replaced")
	case c.fresh():
		c.atEnd = now // reading begins
	case s.stale(c.atEnd, now):
		return nil, s.want(part, ReasonStale, fmt.Sprintf("the tail stood at the end at %s for the last time, it is %s, delete.retention.ms is %d",
			c.atEnd.Format(time.RFC3339), now.Format(time.RFC3339), s.cfg.DeleteRetention.Milliseconds()))
	case b.LogStart > c.pos.Offset:
		return nil, s.want(part, ReasonLogStart, fmt.Sprintf("the log starts at %d, applied is what comes before %d", b.LogStart, c.pos.Offset))
	}
	a.batch = e.db.NewIndexedBatch()
	return a, nil
}

// apply is one batch on its way into the engine.
type apply struct {
	s     *Store
	part  *partition
	e     *engine
	batch *pebble.Batch // indexed: what is read through it has the changes so far

	after     checkpoint
	persisted time.Time        // the time at the end that is stored
	owners    []eventlog.Owner // ownership records that count, in order
	voids     []Void           // those with a key that can be read, in order
	pending   int              // number of pending offsets
	logIDSeen bool
	whole     bool                       // kindWhole is stored
	skipped   map[eventlog.Type]struct{} // shared with the partition until one is added
	news      []skipped                  // those added by this batch
	counts    countsOf
	touched   []string // groups that get records, offsets aside; with repeats
	value     []byte
}

// refusal is why an entry can't be applied.
type refusal struct {
	offset int64
	err    error
}

// entries applies entries until one can't be read.
func (a *apply) entries(entries []eventlog.Entry) *refusal {
	for i := range entries {
		e := &entries[i]
		if e.Offset < a.after.pos.Offset {
			continue // applied before an earlier entry of the same read was refused
		}
		fence := a.after.fence
		if err := a.entry(e); err != nil {
			a.after.fence = fence
			return &refusal{e.Offset, err}
		}
		a.counts.applied++
	}
	return nil
}

// entry applies one entry. An error says that the record can't be read, or that the store can't.
func (a *apply) entry(e *eventlog.Entry) error {
	if a.s.cfg.Opaque {
		return a.opaque(e)
	}
	if e.Control != eventlog.ControlNone {
		a.after.fence.Void(*e)
		return a.settle(e)
	}
	k, err := eventlog.DecodeKey(e.Key)
	if err == nil && k.Type == eventlog.TypeOwnership {
		return a.ownership(e)
	}
	if a.after.fence.Void(*e) {
		a.void(e, k, err)
		return nil
	}
	if errors.Is(err, eventlog.ErrUnknownType) {
		return a.skip(e, k.Type)
	}
	if err != nil {
		return err
	}
	if k.Type == eventlog.TypeLegacyOffsetCommit || k.Type == eventlog.TypeOffsetCommit {
		return a.offset(e, k)
	}
	if e.Transactional { // nobody writes these in a transaction; Kafka's coordinator would take them as plain
		a.void(e, k, nil)
		return nil
	}
	var v eventlog.Value
	if e.Value != nil {
		if v, err = eventlog.DecodeValue(k.Type, e.Value); err != nil {
			return err
		}
	}
	if k.Type == eventlog.TypeTopology {
		t, _ := v.(*eventlog.Topology)
		if err := a.topology(k, t); err != nil {
			return storageError{err}
		}
	}
	if n := len(a.touched); n == 0 || a.touched[n-1] != k.Group {
		a.touched = append(a.touched, k.Group)
	}
	if v == nil {
		return storage(a.batch.Delete(recordKey(a.part.p, k), nil))
	}
	a.value = recordValue(a.value[:0], e.Offset, e.Value)
	return storage(a.batch.Set(recordKey(a.part.p, k), a.value, nil))
}

// Void is a record that does not count (design D4). It is not in the projection, but compaction takes it for the latest
// of its key; so the owner of the partition appends what is right.
type Void struct {
	Offset int64
	Key    eventlog.Key
}

// void drops an entry. err is what was wrong with its key.
func (a *apply) void(e *eventlog.Entry, k eventlog.Key, err error) {
	a.counts.void++
	if err == nil {
		a.voids = append(a.voids, Void{e.Offset, k})
	}
}

// topology keeps the index of topics in step with a record of type 23, which is about to be replaced by t, or to go if
// that is nil.
func (a *apply) topology(k eventlog.Key, t *eventlog.Topology) error {
	b, err := get(a.batch, recordKey(a.part.p, k))
	if err != nil {
		return err
	}
	if b != nil {
		old, err := stored(k, b)
		if err != nil {
			return err
		}
		for topic := range topicsOf(old.Record.Value.(*eventlog.Topology)) {
			if err := a.batch.Delete(topicKey(a.part.p, topic, k.Group), nil); err != nil {
				return err
			}
		}
	}
	if t == nil {
		return nil
	}
	for topic := range topicsOf(t) {
		if err := a.batch.Set(topicKey(a.part.p, topic, k.Group), nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// topicsOf are the topics that a topology names.
func topicsOf(t *eventlog.Topology) map[string]struct{} {
	topics := map[string]struct{}{}
	for i := range t.Subtopologies {
		st := &t.Subtopologies[i]
		for _, names := range [][]string{st.SourceTopics, st.RepartitionSinkTopics} {
			for _, name := range names {
				topics[name] = struct{}{}
			}
		}
		for _, infos := range [][]eventlog.TopicInfo{st.StateChangelogTopics, st.RepartitionSourceTopics} {
			for _, info := range infos {
				topics[info.Name] = struct{}{}
			}
		}
	}
	return topics
}

// storageError marks an error of the store, among those of records.
type storageError struct{ error }

func (e storageError) Unwrap() error { return e.error }

// storage marks err, if there is one, as one of the store.
func storage(err error) error {
	if err == nil {
		return nil
	}
	return storageError{err}
}

// finish puts the position into the batch and commits it.
func (a *apply) finish(b eventlog.Batch, refused *refusal, now time.Time) error {
	var failure storageError
	if refused != nil && errors.As(refused.err, &failure) {
		return failure.error
	}
	before := a.after.pos
	switch {
	case refused == nil:
		a.after.pos = eventlog.Position{Offset: max(b.Next, before.Offset), LeaderEpoch: b.LeaderEpoch}
	case refused.offset > before.Offset:
		// the epoch of the record before it isn't known; an older one finds a cut log as well
		a.after.pos.Offset = refused.offset
		if before.LeaderEpoch == eventlog.EpochNone {
			a.after.pos.LeaderEpoch = b.LeaderEpoch
		}
	}
	if refused == nil && b.AtEnd() {
		a.after.atEnd = now
		if !a.whole {
			if err := a.batch.Set(partitionKey(a.part.p, kindWhole), nil, nil); err != nil {
				return err
			}
			a.whole = true
		}
	}
	if refused != nil && a.whole { // whoever takes the store for the last copy must know that something is missing
		if err := a.batch.Delete(partitionKey(a.part.p, kindWhole), nil); err != nil {
			return err
		}
		a.whole = false
	}
	if n := len(a.owners); n > 0 {
		if err := a.batch.Set(partitionKey(a.part.p, kindOwner), encodeOwner(a.owners[n-1]), nil); err != nil {
			return err
		}
	}
	if a.batch.Empty() && a.after.pos == before && !a.atEndIsOld() {
		return nil
	}
	if err := a.batch.Set(partitionKey(a.part.p, kindCheckpoint), a.after.encode(), nil); err != nil {
		return err
	}
	if err := a.e.commit(a.batch); err != nil {
		return err
	}
	a.persisted = a.after.atEnd
	return nil
}

// atEndEvery is how old the stored time at the end may become while nothing else is written. It only ever makes a
// restart rebuild that much sooner.
const atEndEvery = 10 * time.Second

func (a *apply) atEndIsOld() bool { return a.after.atEnd.Sub(a.persisted) >= atEndEvery }

// publish makes what was applied visible, and tells those who want to know.
func (s *Store) publish(a *apply, b eventlog.Batch, refused *refusal, now time.Time) error {
	part := a.part
	part.mu.Lock()
	if part.engine != a.e.number { // broken and replaced in the meantime
		part.mu.Unlock()
		return s.want(part, ReasonDamaged, "the store was replaced")
	}
	moved := a.after.pos.Offset != part.pos.Offset
	part.checkpoint = a.after
	part.persisted = a.persisted
	part.pending = a.pending
	part.logIDSeen = a.logIDSeen
	part.whole = a.whole
	part.skipped = a.skipped
	part.err = nil
	if refused != nil {
		part.err = fmt.Errorf("%w: partition %d of %s, offset %d: %w", eventlog.ErrRefused, part.p, s.cfg.Identity.Topic, refused.offset, refused.err)
	} else if b.AtEnd() {
		part.atEnd, part.loading = true, false
	}
	if n := len(a.owners); n > 0 {
		part.owner, part.owned = a.owners[n-1], true
	}
	next, err := part.pos.Offset, part.err
	part.note(a.touched)
	part.notify()
	part.mu.Unlock()

	s.counts.add(a.counts)
	for _, o := range a.owners {
		s.remember(a.e, o)
		for _, f := range s.onOwner {
			f(part.p, o)
		}
	}
	a.saySkipped()
	if a.counts.void > 0 {
		s.logger.Warn("projection: records of a former owner, or of a transaction under it, are void", "partition", part.p, "records", a.counts.void, "before", next)
		for _, f := range s.onVoid {
			f(part.p, a.voids)
		}
	}
	if moved {
		for _, f := range s.onApplied {
			f(part.p, next)
		}
	}
	if refused == nil {
		for _, f := range s.onRead {
			f(part.p, next, b.HighWatermark)
		}
	} else {
		s.logger.Error("projection: a record can't be read, the partition is not served", "partition", part.p, "offset", refused.offset, "error", refused.err)
	}
	return err
}
