package shard

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard/offsets"
)

const (
	// sweepTurnMax is how long a sweep may hold the loop in one turn, in which it judges a few dozen groups: others wait for it.
	sweepTurnMax = time.Millisecond
	// SweepGroupsMax bounds the groups of a turn, should the clock not: what they need is in memory together. No more need be offered.
	SweepGroupsMax = 256
)

// Judged is what a sweep did to one group.
type Judged struct {
	Offsets int   // tombstones of offsets written
	Removed bool  // the group itself went
	More    bool  // not all that is to go fits one batch: the group is to be judged again
	Err     error // it can't be judged, which says nothing of the others
}

// verdict is what a handler decides about one group: the tombstones of offsets, which may be split, and behind them the group's own, which may not (D2).
type verdict struct {
	offsets []eventlog.Record
	group   []eventlog.Record
}

// ExpireGroups judges groups of partition p for the cleanup cycle: offsets past their retention get tombstones, and a group that is empty
// and has no offset left is removed, unless a description of it may be stored: that goes first.
//
// It takes one turn of the shard's loop, and judges as many of the groups as fit it, in their order; one at least. What it returns is of those.
// The records of a turn are written in one append, so an error that is not a group's own (ErrNotOwner, ErrLoading, …) leaves open what became of
// any. No group may be named twice.
func (h *Host) ExpireGroups(ctx context.Context, p int32, groups []string) ([]Judged, error) {
	judged, err := h.sweep(ctx, "expire", p, groups, func(t *turn, v *view) (verdict, error) {
		if !t.g.Exists() || h.settled(t) != nil {
			return verdict{}, nil
		}
		recs, allGone := offsets.Expire(t.offsetsEnv(), v, t.g.ID(), t.g.Subscribed)
		out := verdict{offsets: recs}
		if v.err == nil && allGone && t.g.Empty() && !h.mayBeDescribed(t) {
			gone, err := t.g.Delete()
			if err != nil {
				return verdict{}, err
			}
			out.group = gone
		}
		return out, nil
	})
	for _, j := range judged {
		h.stats.offsetExpirations.Add(int64(j.Offsets))
	}
	return judged, err
}

// ForgetTopics removes committed offsets of topics that were deleted, those of groups of partition p; see offsets.TopicsDeleted. It goes about it
// as ExpireGroups does.
func (h *Host) ForgetTopics(ctx context.Context, p int32, groups []string, gone func(offsets.TopicRef) bool, before time.Time) ([]Judged, error) {
	return h.sweep(ctx, "forget topics", p, groups, func(t *turn, v *view) (verdict, error) {
		if !t.g.Exists() {
			return verdict{}, nil
		}
		return verdict{offsets: offsets.TopicsDeleted(v, t.g.ID(), gone, before.UnixMilli())}, nil
	})
}

// sweep has groups judged in one turn of their shard's loop, and waits until what was decided is written.
func (h *Host) sweep(ctx context.Context, verb string, p int32, groups []string, judge func(*turn, *view) (verdict, error)) ([]Judged, error) {
	if len(groups) == 0 {
		return nil, nil
	}
	ctx, span := h.tracer.Start(ctx, "shard "+verb, trace.WithAttributes(attribute.Int("partition", int(p)), attribute.Int("groups.offered", len(groups))))
	defer span.End()
	type outcome struct {
		judged []Judged
		err    error
	}
	out := make(chan outcome, 1)
	var judged []Judged // the loop's until it is handed out
	w := waiter{answer: func() { out <- outcome{judged: judged} }, fail: func(err error) { out <- outcome{err: err} }}
	if h.stopping.Load() || !h.shards[p].post(func(s *Shard) { judged = s.sweep(ctx, groups, judge, w) }) {
		return nil, ErrUnavailable
	}
	select {
	case o := <-out:
		span.SetAttributes(attribute.Int("groups", len(o.judged)))
		if o.err != nil {
			span.SetStatus(codes.Error, o.err.Error())
		}
		return o.judged, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-h.ended:
		return nil, ErrUnavailable
	}
}

// sweepTurn is one turn of a sweep on its way.
type sweepTurn struct {
	s      *Shard
	reader projection.GroupReader
	judge  func(*turn, *view) (verdict, error)
	now    time.Time
	judged []Judged
	parts  []sweepPart
	bytes  int // of the batch
}

// sweepPart is a group of which something is to be written.
type sweepPart struct {
	t    *turn
	eff  effect
	raws []eventlog.Raw
	at   int // in judged
}

// sweep runs a turn of a sweep on the loop: all is read and decided before the first record is applied. The answer is given through w.
func (s *Shard) sweep(ctx context.Context, groups []string, judge func(*turn, *view) (verdict, error), w waiter) []Judged {
	if ctx.Err() != nil {
		w.fail(ctx.Err())
		return nil
	}
	if err := s.admit(); err != nil {
		w.fail(err)
		return nil
	}
	s.host.stats.requests.Add(1)
	begun := time.Now()
	defer func() { s.host.timings.Processing.Record(time.Since(begun)) }()
	st := &sweepTurn{s: s, judge: judge, now: s.host.cfg.Now(), bytes: batchOverhead}
	err := s.host.cfg.Store.ReadMany(s.partition, func(r projection.GroupReader) error {
		st.reader = r
		for i, id := range groups[:min(len(groups), SweepGroupsMax)] {
			if i > 0 && time.Since(begun) >= sweepTurnMax || !st.group(id) {
				break
			}
		}
		return nil
	})
	if err != nil {
		s.log.Error("groups can't be read for a sweep", "err", err)
		w.fail(ErrLoading)
		return nil
	}
	st.write(ctx, w)
	return st.judged
}

// group judges one group; false: what it needs does not fit the batch any more, and it is to be judged in another turn.
func (st *sweepTurn) group(id string) bool {
	s := st.s
	g := s.groups[id]
	if g == nil { // then all that was written of it is applied (D7), so the reader has it
		stored, err := st.reader.Group(id)
		if err == nil {
			g, err = replay(id, stored)
		}
		if err != nil {
			s.log.Error("group can't be hydrated", "group", id, "err", err)
			st.judged = append(st.judged, Judged{Err: ErrLoading})
			return true
		}
	}
	if g.broken {
		st.judged = append(st.judged, Judged{Err: ErrLoading})
		return true
	}
	t := &turn{s: s, g: g, now: st.now}
	var v verdict
	_, err := s.guard(t, func(t *turn) (effect, error) {
		view := &view{s: s, group: id, reader: st.reader}
		var err error
		if v, err = st.judge(t, view); view.err != nil {
			err = view.failed()
		}
		return effect{}, err
	})
	records := append(v.offsets, v.group...)
	var raws []eventlog.Raw
	var size int
	if err == nil {
		raws, size, err = s.encode(g, records)
	}
	if err != nil {
		st.judged = append(st.judged, Judged{Err: err})
		return true
	}
	j := Judged{Offsets: len(v.offsets), Removed: len(v.group) > 0}
	room := s.host.cfg.Log.BatchBytesMax() - st.bytes
	if size > room {
		if len(st.parts) > 0 {
			return false
		}
		keep := 0 // a sweep may be split where a request may not (D2)
		for size = 0; keep < len(v.offsets); keep++ {
			n := rawBytes(raws[keep])
			if size+n > room {
				break
			}
			size += n
		}
		if keep == 0 {
			st.judged = append(st.judged, Judged{Err: ErrTooLarge})
			return true
		}
		records, raws = records[:keep], raws[:keep]
		j = Judged{Offsets: keep, More: true}
	}
	st.judged = append(st.judged, j)
	if len(records) > 0 {
		st.bytes += size
		st.parts = append(st.parts, sweepPart{t, effect{records: records}, raws, len(st.judged) - 1})
	}
	return !j.More
}

// write applies what was decided, appends it at once, and arranges for the answer.
func (st *sweepTurn) write(ctx context.Context, w waiter) {
	s := st.s
	var in inflight
	var raws []eventlog.Raw
	var reports []func()
	kept := st.parts[:0]
	for _, p := range st.parts {
		if s.groups[p.t.g.ID()] == nil {
			s.keep(p.t.g)
		}
		told, err := s.change(p.t, p.eff)
		if err != nil {
			st.judged[p.at] = Judged{Err: err}
			continue
		}
		kept = append(kept, p)
		raws = append(raws, p.raws...)
		reports = append(reports, func() { s.report(ctx, p.t, p.eff, told) })
	}
	if len(kept) == 0 {
		s.hand(w)
		return
	}
	s.seq++
	in.records = len(raws)
	for i, p := range kept {
		s.cover(p.t, p.eff, &in)
		if i == 0 {
			in.g = p.t.g
		} else {
			in.more = append(in.more, p.t.g)
		}
	}
	w.write, w.since = true, time.Now()
	in.waiters = append(in.waiters, w)
	s.append(ctx, st.now, raws, in)
	for _, report := range reports {
		report()
	}
}
