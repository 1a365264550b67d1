package shard

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"streamkeeper/eventlog"
	"streamkeeper/shard/streams"
)

// request is one unit of work that somebody waits for.
type request struct {
	ctx   context.Context
	group string
	came  time.Time // into the inbox
	// run calls a pure handler on the loop. It returns what the handler decided; its answer is kept in a closure and
	// handed out by answer, or replaced by fail.
	run    func(t *turn) (effect, error)
	answer func()
	fail   func(error)
}

// effect is what a handler decided.
type effect struct {
	records []eventlog.Record
	soft    streams.Soft
	timers  []streams.Timer
	// barrier: the answer waits until the projection has passed a record that was written after the request came (D3).
	barrier bool
	// quiet: the records are no event that an operator wants to read of.
	quiet bool
	// why a member goes, where the records make one go: for the log and the trace.
	why string
	// settled, where there is one, runs on the loop when the records and the rest are applied, before the answer.
	settled func()
}

// turn is one run of a handler.
type turn struct {
	s   *Shard
	g   *group // never nil; g.Exists() is false for a group that the log does not have
	now time.Time
}

// env is the environment of a handler.
func (t *turn) env(c Caller, version int16) streams.Env {
	return streams.Env{
		Now: t.now.UnixMilli(), Topics: t.s.host.cfg.Topics(), Config: t.s.config(t.g),
		APIVersion: version, ClientID: c.ClientID, ClientHost: c.ClientHost,
	}
}

// serve runs one request on the loop.
func (s *Shard) serve(r *request) {
	s.host.stats.requests.Add(1)
	begun := time.Now()
	s.host.timings.Queue.Record(begun.Sub(r.came))
	defer func() { s.host.timings.Processing.Record(time.Since(begun)) }()
	if r.ctx.Err() != nil {
		r.fail(r.ctx.Err()) // nobody waits any more; a client that gave up sends again
		return
	}
	if err := s.admit(); err != nil {
		r.fail(err)
		return
	}
	g, err := s.group(r.group)
	if err != nil {
		s.log.Error("group can't be hydrated", "group", r.group, "err", err)
		r.fail(ErrLoading)
		return
	}
	if g.broken {
		r.fail(ErrLoading)
		return
	}
	t := &turn{s: s, g: g, now: s.host.cfg.Now()}
	g.used = t.now
	eff, err := s.guard(t, r.run)
	if err != nil {
		// A refusal rests on what is in memory, so it leaves no earlier than that is durable, and with proof that we still are
		// the owner.
		s.finish(t, effect{soft: eff.soft, barrier: needsProof(err)}, r.ctx, func() { r.fail(err) }, r.fail)
		return
	}
	s.finish(t, eff, r.ctx, r.answer, r.fail)
}

// admit says why the shard takes no work now; nil: it does.
func (s *Shard) admit() error {
	switch {
	case s.state == idle:
		return ErrNotOwner
	case s.state == claiming || s.forgotten():
		return ErrLoading
	case s.writer.Backlog() > backlogBytesMax || s.overlay.len() > overlayMax || len(s.unproven) >= unprovenMax:
		s.host.stats.overloaded.Add(1)
		return ErrLoading
	}
	return nil
}

// Kafka's error codes that are told apart or answered here; the first two say "there is none".
const (
	codeUnknownMember   = 25
	codeGroupIDNotFound = 69
	codeInvalidRequest  = 42
)

// needsProof: a refusal by the group. A replica that was replaced and has not read it yet would give it wrongly ("there is no such
// member", "your epoch is not the one I know"), and on its word a member abandons its tasks or an application ends. Refusals are rare,
// and one barrier serves all that wait.
func needsProof(err error) bool {
	var e *streams.Error
	return errors.As(err, &e)
}

// guard runs a handler and turns a panic of it into an error of this one group.
func (s *Shard) guard(t *turn, run func(*turn) (effect, error)) (eff effect, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("handler panicked, the group is hydrated again", "group", t.g.ID(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			s.host.stats.panics.Add(1)
			t.g.broken = true
			eff, err = effect{}, ErrInternal
		}
	}()
	return run(t)
}

// finish applies what a handler decided and arranges for the answer.
func (s *Shard) finish(t *turn, eff effect, ctx context.Context, answer func(), fail func(error)) {
	g := t.g
	w := waiter{answer: answer, fail: fail}
	if len(eff.records) > 0 {
		raws, size, err := s.encode(g, eff.records)
		if err != nil {
			fail(err)
			return
		}
		if size += batchOverhead; size > s.host.cfg.Log.BatchBytesMax() {
			s.log.Error("records of one request exceed the log's batch size", "group", g.ID(), "bytes", size, "max", s.host.cfg.Log.BatchBytesMax())
			fail(ErrTooLarge)
			return
		}
		in := inflight{g: g, records: len(raws)}
		told, err := s.change(t, eff)
		if err != nil {
			fail(err)
			return
		}
		s.seq++
		s.cover(t, eff, &in)
		w.write, w.since = true, time.Now()
		in.waiters = append(in.waiters, w)
		s.append(ctx, t.now, raws, in)
		s.report(ctx, t, eff, told)
		return
	}
	s.settle(t, eff)
	switch {
	case eff.barrier:
		w.write, w.since = true, time.Now()
		s.host.stats.barriers.Add(1)
		run := s.run
		s.writer.Barrier(func(offset int64, err error) { s.postAck(ack{run: run, offset: offset, err: err, barrier: &w}) })
	case g.lastSeq > s.acked:
		in := &s.inflight[g.lastSeq-s.acked-1]
		w.since = time.Now()
		in.waiters = append(in.waiters, w)
	default:
		s.hand(w)
	}
}

// encode makes the bytes of a group's records, and says how much of a batch they take at most.
func (s *Shard) encode(g *group, records []eventlog.Record) (raws []eventlog.Raw, size int, err error) {
	raws = make([]eventlog.Raw, len(records))
	for i, r := range records {
		if raws[i], err = eventlog.TryEncode(r); err != nil { // only a string that is too long; Kafka's parser would have refused the request
			s.log.Warn("request refused: a record of it can't be written", "group", g.ID()[:min(len(g.ID()), 249)], "err", err)
			return nil, 0, &streams.Error{Code: codeInvalidRequest, Message: "A string of the request is longer than the 32767 bytes that a record can hold."}
		}
		size += rawBytes(raws[i])
	}
	return raws, size, nil
}

// told is what an operation's records mean to people.
type told struct {
	chronicle *streams.Chronicle // nil: nothing
	events    []streams.Event
}

// change applies an operation's records to its group in memory, but for committed offsets. After an error nothing of the operation may be
// written, and the group is to be hydrated again.
func (s *Shard) change(t *turn, eff effect) (told, error) {
	var out told
	out.chronicle = s.chronicle(t, eff)
	for _, r := range eff.records {
		if r.Key.Type == eventlog.TypeOffsetCommit {
			continue
		}
		if out.chronicle != nil {
			out.events = append(out.events, out.chronicle.Tell(r)...)
		}
		if err := s.apply(t.g, r); err != nil {
			// Nothing of this operation has been written. The group in memory is no longer what the log says.
			s.log.Error("record can't be applied, the group is hydrated again", "group", t.g.ID(), "type", r.Key.Type.String(), "err", err)
			s.host.stats.applyFailed.Add(1)
			t.g.broken = true
			return told{}, ErrInternal
		}
	}
	return out, nil
}

// cover puts an operation's committed offsets over the projection, as those of the append s.seq, and does the rest of what was decided.
// After the other records: this can't fail, so a failure leaves no commit behind.
func (s *Shard) cover(t *turn, eff effect, in *inflight) {
	others := false
	for _, r := range eff.records {
		if r.Key.Type != eventlog.TypeOffsetCommit {
			others = true
			continue
		}
		v, _ := r.Value.(*eventlog.OffsetCommit)
		in.offsets = append(in.offsets, s.overlay.put(r.Key, v, s.seq))
	}
	if others { // commits alone change no state
		s.recount(t.g)
	}
	s.settle(t, eff)
}

// report tells people what an operation's records did.
func (s *Shard) report(ctx context.Context, t *turn, eff effect, what told) {
	if what.chronicle != nil {
		s.watch(ctx, t, eff.records, append(what.events, what.chronicle.Settled()...))
	}
}

// The size of a batch around its records, and of a record around its key and value, at most (magic 2): 61 bytes
// of batch header, and per record attributes, five varints of up to 10 bytes, no headers.
const (
	batchOverhead  = 61
	recordOverhead = 32
)

// rawBytes is what a record takes of a batch, at most.
func rawBytes(r eventlog.Raw) int { return recordOverhead + len(r.Key) + len(r.Value) }

// settle applies the soft facts and the timers of an effect.
func (s *Shard) settle(t *turn, eff effect) {
	t.g.ApplySoft(eff.soft)
	for _, tm := range eff.timers {
		s.schedule(t.g, tm, t.now)
	}
	if !t.g.Exists() { // deleted, or never there: nothing is left to expire
		for key, tm := range t.g.timers {
			s.timers.remove(tm)
			delete(t.g.timers, key)
		}
	}
	if eff.settled != nil {
		eff.settled()
	}
}

// apply puts one record into the group in memory: the only door by which its state changes.
func (s *Shard) apply(g *group, r eventlog.Record) error {
	if err := g.Apply(r); err != nil {
		return err
	}
	if r.Key.Type == eventlog.TypeGroup {
		if r.Value != nil {
			if _, known := s.host.known.Swap(g.ID(), struct{}{}); !known {
				s.census.created.Add(1)
			}
		} else if _, known := s.host.known.LoadAndDelete(g.ID()); known {
			s.census.created.Add(-1)
		}
	}
	return nil
}

// append hands the records of one operation to the writer: of one group, or of those that a sweep judged in one turn.
func (s *Shard) append(ctx context.Context, now time.Time, raws []eventlog.Raw, in inflight) {
	in.g.lastSeq = s.seq
	for _, g := range in.more {
		g.lastSeq = s.seq
	}
	s.inflight = append(s.inflight, in)
	s.host.stats.records.Add(int64(len(raws)))
	run, span := s.run, trace.Span(nil)
	if parent := trace.SpanFromContext(ctx); parent.IsRecording() {
		_, span = s.host.tracer.Start(ctx, "append", trace.WithAttributes(
			attribute.Int("partition", int(s.partition)), attribute.Int("records", len(raws)), attribute.String("group", in.g.ID()), attribute.Int("groups", 1+len(in.more))))
	}
	s.writer.Append(now.UnixMilli(), raws, func(offset int64, err error) {
		if span != nil {
			if err != nil {
				span.SetStatus(codes.Error, err.Error())
			} else {
				span.SetAttributes(attribute.Int64("offset", offset))
			}
			span.End()
		}
		s.postAck(ack{run: run, offset: offset, err: err})
	})
}

// acknowledge takes the outcome of an append or a barrier.
func (s *Shard) acknowledge(a ack) {
	if a.barrier != nil {
		switch {
		case a.run != s.run:
			a.barrier.fail(ErrNotOwner)
		case a.err != nil:
			a.barrier.fail(ErrLoading)
			s.failed(a.err)
		default:
			s.unproved(*a.barrier, a.offset)
		}
		return
	}
	if a.run != s.run || len(s.inflight) == 0 {
		return
	}
	if a.err != nil {
		s.failed(a.err)
		return
	}
	in := s.inflight[0]
	s.inflight[0] = inflight{}
	s.inflight = s.inflight[1:]
	s.acked++
	in.g.lastOffset = a.offset + int64(in.records) - 1
	for _, g := range in.more {
		g.lastOffset = in.g.lastOffset
	}
	s.overlay.acknowledged(in.offsets, in.g.lastOffset)
	proven := s.wanted && s.leaseValid()
	for _, w := range in.waiters {
		if w.write && !proven {
			s.unproved(w, in.g.lastOffset)
			continue
		}
		s.hand(w)
	}
}

// unproven is an answer that an acknowledgement does not prove (D3). It leaves when our own projection has passed the record that was
// acknowledged, with our claim still the last one. There are two kinds:
//
//   - what waits for a barrier. The barrier's record was written after the request came, so whoever reads it behind our claim alone knows that no
//     other claim was in the log at that moment. It rests on nothing but the log and our reading of it: not on the group, not on what the
//     cluster refuses.
//   - writes, where another replica may have claimed the partition already: a cluster that can't refuse a former owner (D4)
//     acknowledges what no reader counts.
type unproven struct {
	w      waiter
	offset int64
}

// unproved has an answer wait until the projection has passed the record at the offset.
func (s *Shard) unproved(w waiter, offset int64) {
	s.unproven = append(s.unproven, unproven{w, offset})
	s.proving.Store(true)
}

// prove gives out the answers whose records the projection has passed. Ownership records below were told first, and would have ended
// the shard. Where the projection was thrown away meanwhile, and is read again, it passes other records of those offsets: the shard ends.
func (s *Shard) prove(applied int64) {
	if len(s.unproven) == 0 || s.forgotten() {
		return
	}
	keep := s.unproven[:0]
	for _, u := range s.unproven {
		if u.offset < applied {
			s.tell(u.w)
		} else {
			keep = append(keep, u)
		}
	}
	clear(s.unproven[len(keep):])
	s.unproven = keep
	s.proving.Store(len(keep) > 0)
}

// giveUpProofs answers what waits for a projection that has not moved for so long that nobody waits for the answers any more.
func (s *Shard) giveUpProofs() {
	waiting := s.unproven
	s.unproven = nil
	s.proving.Store(false)
	for _, u := range waiting {
		u.w.fail(ErrLoading)
	}
}

// hand gives an answer out. One that does not rest on an append of its own needs the lease, which is looked at once for all that
// the loop has ready: reading a clock that counts suspended time is a system call.
func (s *Shard) hand(w waiter) {
	if w.write {
		s.tell(w)
		return
	}
	s.ready = append(s.ready, w)
}

// tell gives an answer out and measures how long it had to wait for the log (Kafka's event purgatory).
func (s *Shard) tell(w waiter) {
	if !w.since.IsZero() {
		s.host.timings.Purgatory.Record(time.Since(w.since))
	}
	w.answer()
}

// handReady gives out what hand kept. The lease is read after the state that the answers are made of (see Lease).
func (s *Shard) handReady() {
	if len(s.ready) == 0 {
		return
	}
	valid := s.leaseValid()
	for _, w := range s.ready {
		switch {
		case valid:
			s.tell(w)
		case s.wanted:
			s.host.stats.leaseRefusals.Add(1)
			w.fail(ErrLoading)
		default:
			s.host.stats.leaseRefusals.Add(1)
			w.fail(ErrNotOwner)
		}
	}
	clear(s.ready)
	s.ready = s.ready[:0]
}
