package projection

import (
	"fmt"
	"time"

	"streamkeeper/eventlog"
)

// Reason is why a partition, or all of them, is read again from the log (design D6).
type Reason string

// The reasons. The first five are found when the store is opened and are about all partitions.
const (
	ReasonNone       Reason = "no store"              // there was none
	ReasonDamaged    Reason = "damaged"               // also while running
	ReasonFormat     Reason = "other format"          // of a program that lays it out differently
	ReasonTopic      Reason = "other topic"           // another name or topic id
	ReasonPartitions Reason = "other partition count" // where topics have no ids; else ErrPartitions
	ReasonLogID      Reason = "other log"             // the log's own random id is another one
	ReasonCutOff     Reason = "log was cut off"       // below what was applied
	ReasonLogStart   Reason = "log starts later"      // than what was applied
	ReasonStale      Reason = "too long off the end"  // a tombstone may have been compacted away, see stale
	ReasonSkipped    Reason = "records were skipped"  // by a program that did not know their type; this one does
)

// Reasons are all of them, in this order.
var Reasons = []Reason{
	ReasonNone, ReasonDamaged, ReasonFormat, ReasonTopic, ReasonPartitions, ReasonLogID, ReasonCutOff, ReasonLogStart, ReasonStale, ReasonSkipped,
}

// String is the reason in words; that of a partition that was not forgotten is that its replica was away.
func (r Reason) String() string {
	if r == "" {
		return "resumed"
	}
	return string(r)
}

// staleFraction of delete.retention.ms may pass between two moments at the log's end. A tombstone stays for that long after
// the log was first cleaned behind it, so half of it leaves room for clocks and for a read that takes its time.
const staleFraction = 2

// clockBackMax is how far in the future the last time at the end may be, as stored. More than that, a clock was changed, and how
// long the store was away can't be known.
const clockBackMax = time.Minute

// stale says that too much time has passed since the tail stood at the log's end for the last time: the tombstone of
// something that is still here may have come and gone.
func (s *Store) stale(atEnd, now time.Time) bool {
	elapsed := now.Sub(atEnd) // by the monotonic clock where both have one: it doesn't jump back
	if wall := now.Round(0).Sub(atEnd.Round(0)); wall > elapsed {
		elapsed = wall // the monotonic clock stands still while the machine sleeps
	}
	return elapsed > s.cfg.DeleteRetention/staleFraction || elapsed < -clockBackMax
}

// Reset implements eventlog.Follower: it forgets everything of p.
func (s *Store) Reset(p int32, why string) error {
	part, err := s.part(p)
	if err != nil {
		return err
	}
	s.gate.RLock()
	defer s.gate.RUnlock()
	reason := part.takeWanted()
	if reason == "" {
		reason = ReasonCutOff // the tail found it out by itself
	}
	return s.forgetFor(part, reason, why)
}

// forgetFor is forget, and keeps the reason if that fails.
func (s *Store) forgetFor(part *partition, reason Reason, detail string) error {
	err := s.forget(part, reason, detail)
	if err != nil {
		part.mu.Lock()
		part.wanted = reason
		part.mu.Unlock()
	}
	return err
}

// want remembers why the tail is asked to reset p, and returns the error that asks it.
func (s *Store) want(part *partition, reason Reason, detail string) error {
	part.mu.Lock()
	defer part.mu.Unlock()
	part.wanted = reason
	return fmt.Errorf("%w: partition %d: %s: %s", eventlog.ErrRebuild, part.p, reason, detail)
}

func (part *partition) takeWanted() Reason {
	part.mu.Lock()
	defer part.mu.Unlock()
	reason := part.wanted
	part.wanted = ""
	return reason
}

// forget empties a partition. Readers are told before anything is gone, so that none takes a hole for an answer.
func (s *Store) forget(part *partition, reason Reason, detail string) error {
	e, err := s.usable()
	if err != nil {
		return err
	}
	defer e.release()
	if reason == ReasonDamaged && part.startedOver(e.number) {
		return nil // with all others, when the engine was replaced
	}
	part.restart(e.number)
	s.rebuilt(reason, part.p, detail)
	b := e.db.NewBatch()
	defer b.Close()
	if err := b.DeleteRange(partitionPrefix(part.p), partitionEnd(part.p), nil); err != nil {
		return e.failed(err)
	}
	return e.commit(b)
}

// startedOver says that nothing was applied to the partition in that engine.
func (part *partition) startedOver(engine int) bool {
	part.mu.Lock()
	defer part.mu.Unlock()
	return part.engine == engine && part.fresh()
}

// restart is the state of a partition of which nothing is applied, in the given engine.
func (part *partition) restart(engine int) {
	part.mu.Lock()
	defer part.mu.Unlock()
	part.engine = engine
	part.checkpoint = nothing()
	part.owner, part.owned = eventlog.Owner{}, false
	part.atEnd, part.loading, part.whole = false, true, false
	part.err = nil
	part.pending = 0
	part.skipped = nil
	part.logIDSeen = false
	part.restarts++
}

// rebuilt counts and logs a rebuild; p is -1 for all partitions.
func (s *Store) rebuilt(reason Reason, p int32, detail string) {
	s.mu.Lock()
	s.rebuilds[reason]++
	s.mu.Unlock()
	for _, part := range s.parts {
		if p < 0 || part.p == p {
			part.mu.Lock()
			part.because = reason
			part.mu.Unlock()
		}
	}
	if reason == ReasonNone {
		s.logger.Info("projection: a new store, the log is read from its start", "dir", s.cfg.Dir)
		return
	}
	args := []any{"reason", string(reason), "detail", detail}
	if p >= 0 {
		args = append(args, "partition", p)
	}
	s.logger.Warn("projection: rebuilt from the log", args...)
}
