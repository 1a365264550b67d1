package eventlog

import (
	"context"
	"time"
)

// fakeWriter is a Writer of a Fake. All fields are guarded by Fake.mu.
type fakeWriter struct {
	f       *Fake
	part    *fakePartition
	owner   Ownership
	current Claim
	err     error // why the writer is dead
	queue   []*fakeOp
	under   *fakeOp // in the log, its acknowledgement held
	backlog int
	renew   bool  // before the next batch
	adopted bool  // the claim is another writer's
	last    int64 // offset of its last batch
	lost    bool  // the log was cut off below it
}

type fakeOp struct {
	op       operation
	done     Done
	barriers []Done
	bytes    int
	offset   int64
	repeats  bool // it is the ownership record, which is written anew when it is sent
	released bool // and says that the partition is released
}

// take takes the next producer epoch and writes the ownership record.
func (w *fakeWriter) take() {
	part := w.part
	part.issued++
	o := w.owner
	o.Format, o.ProducerID, o.ProducerEpoch, o.Claim = OwnershipFormat, part.producer, part.issued, -1
	w.owner = o
	w.current = Claim{Partition: part.p, Number: o.Number, ProducerID: o.ProducerID, ProducerEpoch: o.ProducerEpoch}
	w.current.Generation = part.write(w.f, w.entries(operation{time.Now().UnixMilli(), []Raw{ownershipRaw(o)}}))
	w.last, w.lost = w.current.Generation, false // a new epoch begins with a sequence of its own
}

// fenceFormer does to the partition what the real one does, before the writer takes its claim.
func (w *fakeWriter) fenceFormer(prev *Owner) (fresh bool) {
	next := Claim{Partition: w.part.p, ProducerID: w.part.producer}
	if !freshProducer(prev, next) {
		return false
	}
	if w.part.faults.keepsFormer {
		return true
	}
	former := []int64{prev.ProducerID}
	for _, b := range w.part.batches {
		for _, e := range b.entries {
			if e.Offset > prev.Offset {
				former = formerProducer(former, next, e)
			}
		}
	}
	for _, producer := range former {
		if w.part.seen[producer] == formerEpoch {
			continue // another claimer was here before us
		}
		o := w.owner
		o.Format, o.Released, o.Claim, o.ProducerID, o.ProducerEpoch = OwnershipFormat, false, -1, producer, formerEpoch
		e := Entry{Timestamp: time.Now().UnixMilli(), ProducerID: producer, ProducerEpoch: formerEpoch}
		raw := ownershipRaw(o)
		e.Key, e.Value = raw.Key, raw.Value
		w.part.write(w.f, []Entry{e})
	}
	return false
}

// ownershipRaw encodes an ownership record.
func ownershipRaw(o Ownership) Raw {
	return Encode(Record{Key: Key{Type: TypeOwnership}, Value: &o})
}

func (w *fakeWriter) entries(op operation) []Entry {
	entries := make([]Entry, len(op.recs))
	for i, r := range op.recs {
		entries[i] = Entry{Timestamp: op.timestamp, ProducerID: w.current.ProducerID, ProducerEpoch: w.current.ProducerEpoch, Key: r.Key, Value: r.Value}
	}
	return entries
}

func (w *fakeWriter) Claim() Claim {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	return w.current
}

func (w *fakeWriter) Append(timestamp int64, recs []Raw, done Done) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if w.err != nil {
		w.f.later(done, -1, w.err)
		return
	}
	if len(recs) == 0 {
		w.f.later(done, -1, ErrEmptyAppend)
		return
	}
	if !fitsBatch(recs, w.f.options.BatchBytesMax) {
		// behind what waits, so that outcomes come in the order of the appends
		w.push(&fakeOp{op: operation{timestamp: timestamp}, done: done})
		return
	}
	w.push(&fakeOp{op: operation{timestamp, recs}, done: done, bytes: batchOverhead + recordsSizeMax(recs)})
}

func (w *fakeWriter) push(op *fakeOp) {
	w.backlog += op.bytes
	w.queue = append(w.queue, op)
	w.step()
}

func (w *fakeWriter) Barrier(done Done) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	switch {
	case w.err != nil:
		w.f.later(done, -1, w.err)
	case len(w.queue) > 0 && len(w.queue[len(w.queue)-1].op.recs) > 0:
		last := w.queue[len(w.queue)-1]
		last.barriers = append(last.barriers, done)
	default:
		w.push(w.repetition(false, done))
	}
}

// repetition is the ownership record, to be written again under the claim that is in force by then.
func (w *fakeWriter) repetition(released bool, done Done) *fakeOp {
	return &fakeOp{op: operation{time.Now().UnixMilli(), []Raw{ownershipRaw(w.owner)}}, done: done, repeats: true, released: released}
}

// repeat is the ownership record written again without a new claim. Once one is released those behind it are, too.
func (w *fakeWriter) repeat(released bool) Raw {
	w.owner.Released = w.owner.Released || released
	o := w.owner
	o.Claim = w.current.Generation
	return ownershipRaw(o)
}

// Renew implements Writer; the writer renews itself when nothing is under way.
func (w *fakeWriter) Renew() {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if w.err == nil && !w.adopted {
		w.renew = true
		w.step()
	}
}

func (w *fakeWriter) Backlog() int {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	return w.backlog
}

func (w *fakeWriter) Release(ctx context.Context) error {
	outcome := make(chan error, 1)
	w.f.mu.Lock()
	if w.err != nil {
		defer w.f.mu.Unlock()
		return w.err
	}
	w.push(w.repetition(true, func(_ int64, err error) { outcome <- err }))
	w.f.mu.Unlock()
	defer w.Close()
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *fakeWriter) Close() {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if w.err == nil {
		w.die(ErrClosed)
	}
}

// step sends what can be sent: one batch is under way at a time.
func (w *fakeWriter) step() {
	faults := &w.part.faults
	if w.renew && w.err == nil && w.under == nil && !faults.holdAppends {
		w.renew = false
		if w.current.ProducerID != w.part.producer || w.current.ProducerEpoch != w.part.issued {
			w.die(ErrFenced)
			return
		}
		w.take()
	}
	for w.err == nil && w.under == nil && len(w.queue) > 0 && !faults.holdAppends {
		op := w.queue[0]
		if len(op.op.recs) == 0 {
			w.queue = w.queue[1:]
			w.f.later(op.done, -1, ErrTooLarge)
			continue
		}
		if !faults.unfenced && w.part.seen[w.current.ProducerID] > w.current.ProducerEpoch {
			w.die(ErrFenced)
			return
		}
		if w.lost {
			w.die(ErrOutcomeUnknown)
			return
		}
		if op.repeats {
			op.op.recs = []Raw{w.repeat(op.released)}
		}
		switch fault := faults.next(); fault.kind {
		case fakeFail:
			w.die(fault.err)
			return
		case fakeDrop:
			faults.late = &fakeLate{w.current, w.entries(op.op)}
			w.die(ErrOutcomeUnknown)
			return
		case fakeLoseAck:
			w.part.write(w.f, w.entries(op.op))
			w.die(ErrOutcomeUnknown)
			return
		}
		w.queue = w.queue[1:]
		op.offset = w.part.write(w.f, w.entries(op.op))
		w.last = op.offset
		w.under = op
		if !faults.holdAcks {
			w.acknowledge()
		}
	}
}

// acknowledge completes the batch under way.
func (w *fakeWriter) acknowledge() {
	op := w.under
	w.under = nil
	w.backlog -= op.bytes
	for _, done := range append([]Done{op.done}, op.barriers...) {
		w.f.later(done, op.offset, nil)
	}
}

// die ends the writer: everything that waits fails with err.
func (w *fakeWriter) die(err error) {
	w.err = err
	ops := w.queue
	if w.under != nil {
		ops = append([]*fakeOp{w.under}, ops...)
	}
	w.queue, w.under, w.backlog = nil, nil, 0
	for _, op := range ops {
		for _, done := range append([]Done{op.done}, op.barriers...) {
			w.f.later(done, -1, err)
		}
	}
	for i, other := range w.part.writers {
		if other == w {
			w.part.writers = append(w.part.writers[:i], w.part.writers[i+1:]...)
			break
		}
	}
}
