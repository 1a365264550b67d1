package shard

import (
	"container/heap"
	"context"
	"time"

	"streamkeeper/shard/streams"
)

// timer is one timer of a group. A session timer is moved at every heartbeat, nearly always to a later time: then only due
// moves, and the heap finds out when the old time comes.
type timer struct {
	group *group
	t     streams.Timer
	due   time.Time
	at    time.Time // the time by which the heap is ordered; never after due
	index int       // in the heap; -1: not in it
}

// timers is a heap by at.
type timers []*timer

func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *timers) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *timers) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}

// next is how long until the first timer may be due.
func (h timers) next(now time.Time) (time.Duration, bool) {
	if len(h) == 0 {
		return 0, false
	}
	return max(0, h[0].at.Sub(now)), true
}

func (h *timers) remove(t *timer) {
	if t.index >= 0 {
		heap.Remove(h, t.index)
	}
}

// schedule starts, moves or cancels a timer of a group.
func (s *Shard) schedule(g *group, t streams.Timer, now time.Time) {
	old := g.timers[t.Key]
	if t.After < 0 {
		if old != nil {
			s.timers.remove(old)
			delete(g.timers, t.Key)
		}
		return
	}
	due := now.Add(t.After)
	if old != nil && old.index >= 0 {
		old.t, old.due = t, due
		if due.Before(old.at) {
			old.at = due
			heap.Fix(&s.timers, old.index)
		}
		return
	}
	tm := &timer{group: g, t: t, due: due, at: due}
	g.timers[t.Key] = tm
	heap.Push(&s.timers, tm)
}

// fire runs what is due. While the lease is not valid nothing fires: a member must not be expired by a pause of this process,
// and whoever owns the partition by now has timers of its own.
func (s *Shard) fire() {
	now := s.host.cfg.Now()
	if s.state != active {
		return
	}
	if d, ok := s.timers.next(now); !ok || d > 0 {
		return
	}
	s.watchLease()
	if s.state != active {
		return
	}
	if s.lapsed {
		// What is due now would be due again at once; the sessions start anew when the lease is back.
		for len(s.timers) > 0 && !s.timers[0].at.After(now) {
			s.timers[0].at = now.Add(leaseRecheck)
			heap.Fix(&s.timers, 0)
		}
		return
	}
	for len(s.timers) > 0 && !s.timers[0].at.After(now) {
		tm := s.timers[0]
		if tm.due.After(now) {
			tm.at = tm.due
			heap.Fix(&s.timers, 0)
			continue
		}
		heap.Pop(&s.timers)
		delete(tm.group.timers, tm.t.Key)
		s.expire(tm, now)
		if s.state != active {
			return
		}
	}
}

// expire lets the group decide what an expired timer means; it generates records like any other handler.
func (s *Shard) expire(tm *timer, now time.Time) {
	g := tm.group
	if g.broken || s.groups[g.ID()] != g {
		return
	}
	t := &turn{s: s, g: g, now: now}
	eff, err := s.guard(t, func(t *turn) (effect, error) {
		r := g.Fire(t.env(Caller{}, 0), tm.t)
		return effect{records: r.Records, soft: r.Soft, timers: r.Timers, why: goneBy[tm.t.Key.Kind]}, nil
	})
	if err != nil {
		return
	}
	if len(eff.records) > 0 {
		s.host.stats.timersFired.Add(1)
		attributes := []any{"group", g.ID(), "timer", timerName(tm.t.Key.Kind)}
		if member := tm.t.Key.Member; member != "" { // some timers are the group's
			attributes = append(attributes, "member", member)
		}
		s.log.Info("timer expired", attributes...)
	}
	s.finish(t, eff, context.Background(), func() {}, func(error) {})
}

// goneBy says why a member goes whose timer fired.
var goneBy = map[streams.TimerKind]string{
	streams.TimerSession: "sent no heartbeat within its session timeout", streams.TimerRebalance: "did not give up its tasks within its rebalance timeout",
}

func timerName(k streams.TimerKind) string {
	switch k {
	case streams.TimerSession:
		return "session"
	case streams.TimerRebalance:
		return "rebalance"
	case streams.TimerInitial:
		return "initial rebalance delay"
	}
	return "unknown"
}
