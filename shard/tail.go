package shard

import (
	"errors"
	"sync/atomic"
	"time"

	"streamkeeper/projection"
)

// The lease rests on what the ownership group says. A coordinator that was replaced and has not noticed (a broker that is cut off from the others)
// confirms heartbeats that are worth nothing, and a replica that reads its successor's claim does not need the group to know better. So the lease
// of a partition is also over when the partition was not read to its end for tailAgeLeases leases: then neither of the two would tell.
//
// The bound is long on purpose. While a partition's leader is away nothing can be read of it, nor claimed by anybody; a cluster takes 9 to 18 s to notice a
// leader that hangs, and as long as the group's coordinator is honest, what members are told meanwhile is right. It is shorter than the 45 s
// after which a successor gives the tasks of a silent member to others (group.streams.session.timeout.ms, at least 45 s unless the operator
// lowers group.streams.min.session.timeout.ms).
const tailAgeLeases = 5

// tailAgeMax is for how long a partition need not have been read to its end.
func (h *Host) tailAgeMax() time.Duration { return tailAgeLeases * h.cfg.Membership.LeaseDuration() }

// reads says that the partition was read to its end, as it was no longer ago than the lease allows.
func (s *Shard) reads(now Instant) bool {
	return now.Sub(Instant(s.tail.fresh.Load())) < s.host.tailAgeMax()
}

// blindAfter is for how long nothing may have been read of a partition whose store is out of order for the store to count as one that takes what is read all the
// same, in memory. What stands at its end is told so twice a second.
const blindAfter = 2 * time.Second

// blind says that the partition is not read any more, for this replica's own reasons.
func (s *Shard) blind() bool {
	if s.host.blind(s.partition) != nil {
		return true
	}
	now := s.host.cfg.Membership.Lease().Now()
	return errors.Is(s.host.cfg.Store.Err(s.partition), projection.ErrStorage) && now.Sub(Instant(s.tail.fresh.Load())) > blindAfter
}

// blind is why nothing that others append to p is seen here, for this replica's own reasons: it may not be read, or the broker that leads it does not answer.
func (h *Host) blind(p int32) error {
	if err := h.cfg.Log.Denied(p); err != nil {
		return err
	}
	return h.unreached(p, unreachedPatience)
}

// tail tells how old what was read of a partition is.
type tail struct {
	// fresh is an Instant: everything that was in the log then, and could be read, is applied.
	fresh atomic.Int64
	// behind says that there was more in the log than what the last batch brought.
	behind atomic.Bool

	// of the reading goroutine alone
	asked Instant // what is read next was asked for after this
	mark  int64   // the end of the log as it was at marked; 0: none is waited for
	at    Instant // of mark
}

// read takes one batch that was applied, at now: everything below next is, and end was the end of the log. The answer was asked for after
// the batch before it had been applied, for a partition has one fetch under way at a time; hence an end is as old as the batch before.
// A log that is written to all the time may be read without ever standing at its end: then the end that was named a while ago is what is
// reached now.
func (t *tail) read(now Instant, next, end int64) {
	asked := t.asked
	t.asked = now
	t.behind.Store(next < end)
	if asked == Never || end < next { // a leader that is new to its office does not know its end yet
		return
	}
	if t.mark > 0 && next >= t.mark {
		t.set(t.at)
		t.mark = 0
	}
	switch {
	case next >= end:
		t.set(asked)
		t.mark = 0
	case t.mark == 0:
		t.mark, t.at = end, asked
	}
}

func (t *tail) set(at Instant) {
	if int64(at) > t.fresh.Load() {
		t.fresh.Store(int64(at))
	}
}
