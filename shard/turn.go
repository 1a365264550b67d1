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
	// barrier: the answer waits for an append that was acknowledged after the request came (D3).
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
	switch {
	case s.state == idle:
		r.fail(ErrNotOwner)
		return
	case s.state == claiming || s.forgotten():
		r.fail(ErrLoading)
		return
	case s.writer.Backlog() > backlogBytesMax || s.overlay.len() > overlayMax:
		s.host.stats.overloaded.Add(1)
		r.fail(ErrLoading)
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
		raws := make([]eventlog.Raw, len(eff.records))
		size := batchOverhead
		for i, r := range eff.records {
			raw, err := eventlog.TryEncode(r)
			if err != nil { // only a string that is too long; Kafka's parser would have refused the request
				s.log.Warn("request refused: a record of it can't be written", "group", g.ID()[:min(len(g.ID()), 249)], "err", err)
				fail(&streams.Error{Code: codeInvalidRequest, Message: "A string of the request is longer than the 32767 bytes that a record can hold."})
				return
			}
			raws[i] = raw
			size += recordOverhead + len(raws[i].Key) + len(raws[i].Value)
		}
		if size > s.host.cfg.Log.BatchBytesMax() {
			s.log.Error("records of one request exceed the log's batch size", "group", g.ID(), "bytes", size, "max", s.host.cfg.Log.BatchBytesMax())
			fail(ErrTooLarge)
			return
		}
		in := inflight{g: g, records: len(raws)}
		chronicle := s.chronicle(t, eff)
		var events []streams.Event
		for _, r := range eff.records {
			if r.Key.Type == eventlog.TypeOffsetCommit {
				continue
			}
			if chronicle != nil {
				events = append(events, chronicle.Tell(r)...)
			}
			if err := s.apply(g, r); err != nil {
				// Nothing of this operation has been written. The group in memory is no longer what the log says.
				s.log.Error("record can't be applied, the group is hydrated again", "group", g.ID(), "type", r.Key.Type.String(), "err", err)
				s.host.stats.applyFailed.Add(1)
				g.broken = true
				fail(ErrInternal)
				return
			}
		}
		s.seq++
		for _, r := range eff.records { // after the others: these can't fail, so a failure leaves no commit behind
			if r.Key.Type == eventlog.TypeOffsetCommit {
				v, _ := r.Value.(*eventlog.OffsetCommit)
				in.offsets = append(in.offsets, s.overlay.put(r.Key, v, s.seq))
			}
		}
		if len(in.offsets) < len(raws) { // commits alone change no state
			s.recount(g)
		}
		s.settle(t, eff)
		w.write, w.since = true, time.Now()
		in.waiters = append(in.waiters, w)
		s.append(ctx, t, raws, in)
		if chronicle != nil {
			s.watch(ctx, t, eff.records, append(events, chronicle.Settled()...))
		}
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

// The size of a batch around its records, and of a record around its key and value, at most (magic 2): 61 bytes
// of batch header, and per record attributes, five varints of up to 10 bytes, no headers.
const (
	batchOverhead  = 61
	recordOverhead = 32
)

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

// append hands the records of one operation to the writer.
func (s *Shard) append(ctx context.Context, t *turn, raws []eventlog.Raw, in inflight) {
	t.g.lastSeq = s.seq
	s.inflight = append(s.inflight, in)
	s.host.stats.records.Add(int64(len(raws)))
	run, span := s.run, trace.Span(nil)
	if parent := trace.SpanFromContext(ctx); parent.IsRecording() {
		_, span = s.host.tracer.Start(ctx, "append", trace.WithAttributes(
			attribute.Int("partition", int(s.partition)), attribute.Int("records", len(raws)), attribute.String("group", t.g.ID())))
	}
	s.writer.Append(t.now.UnixMilli(), raws, func(offset int64, err error) {
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
		case s.wanted && s.leaseValid():
			s.hand(*a.barrier)
		default: // the same doubt as for a write, below
			s.unproven = append(s.unproven, unproven{*a.barrier, a.offset})
			s.proving.Store(true)
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
	s.overlay.acknowledged(in.offsets, in.g.lastOffset)
	proven := s.wanted && s.leaseValid()
	for _, w := range in.waiters {
		if w.write && !proven {
			s.unproven = append(s.unproven, unproven{w, in.g.lastOffset})
			s.proving.Store(true)
			continue
		}
		s.hand(w)
	}
}

// unproven is an answer to a write that was acknowledged while another replica may have claimed the partition already: where the
// claim's producer id is another one the cluster acknowledges what no reader counts (D4). It leaves when our own projection has passed
// the record, with our claim still the last one.
type unproven struct {
	w      waiter
	offset int64
}

// prove gives out the answers whose records the projection has passed. Ownership records below were told first, and would have ended
// the shard.
func (s *Shard) prove(applied int64) {
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
