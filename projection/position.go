package projection

import (
	"context"
	"errors"

	"streamkeeper/eventlog"
)

// Resume implements eventlog.Follower.
func (s *Store) Resume(p int32) eventlog.Position {
	part, err := s.part(p)
	if err != nil {
		return nothing().pos
	}
	s.gate.RLock()
	defer s.gate.RUnlock()
	part.mu.Lock()
	c, wanted := part.checkpoint, part.wanted
	part.wanted = ""
	part.mu.Unlock()
	now := s.cfg.Now()
	if wanted == "" && !c.fresh() && s.stale(c.atEnd, now) {
		wanted = ReasonStale // it will be no younger when the tail stands at the end
	}
	if wanted != "" {
		// where this fails, Batch asks for it again
		_ = s.forgetFor(part, wanted, "before reading began")
	}
	part.mu.Lock()
	defer part.mu.Unlock()
	return part.pos
}

// Applied implements Reader.
func (s *Store) Applied(p int32) int64 {
	part, err := s.part(p)
	if err != nil {
		return 0
	}
	part.mu.Lock()
	defer part.mu.Unlock()
	return part.pos.Offset
}

// AtEnd says that the tail has stood at the end of p since the store was opened, or p was rebuilt for the last time.
// Before that clients are told COORDINATOR_LOAD_IN_PROGRESS.
func (s *Store) AtEnd(p int32) bool {
	part, err := s.part(p)
	if err != nil {
		return false
	}
	part.mu.Lock()
	defer part.mu.Unlock()
	return part.atEnd
}

// AllAtEnd says so of all partitions.
func (s *Store) AllAtEnd() bool {
	for _, part := range s.parts {
		if !s.AtEnd(part.p) {
			return false
		}
	}
	return true
}

// Err implements Reader.
func (s *Store) Err(p int32) error {
	part, err := s.part(p)
	if err != nil {
		return err
	}
	part.mu.Lock()
	err = part.err
	part.mu.Unlock()
	if err != nil {
		return err
	}
	if err := s.disk.full(); err != nil {
		return err
	}
	e, err := s.current()
	if err != nil {
		return err
	}
	defer e.release()
	return firstError(e.err(), e.hangs())
}

// Reads says why nothing more is read of p: as Err, but that a disk which is full is no reason as long as memory takes what is read.
func (s *Store) Reads(p int32) error {
	part, err := s.part(p)
	if err != nil {
		return err
	}
	part.mu.Lock()
	err = part.err
	part.mu.Unlock()
	if err != nil {
		return err
	}
	e, err := s.current()
	if err != nil {
		return err
	}
	defer e.release()
	if full := s.disk.full(); full != nil {
		if e.held.Load() >= heldBytesMax {
			return full
		}
		return e.err() // a flush that waits for space does not make it one that hangs
	}
	return firstError(e.err(), e.hangs())
}

// OnApplied calls f after each batch that moved a partition on: next is the first offset not applied yet. f must not
// block: it holds up the tail. Register before the tail runs.
func (s *Store) OnApplied(f func(p int32, next int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onApplied = append(s.onApplied, f)
}

// OnOwner calls f after an ownership record was applied, in the order of the log; Owner and Applied know of it then.
// Void ones are not told. f must not block. Register before the tail runs.
func (s *Store) OnOwner(f func(p int32, o eventlog.Owner)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onOwner = append(s.onOwner, f)
}

// OnVoid calls f after void records were dropped, in the order of the log, so that the owner of the partition can repair
// their keys. The same ones are told again after a rebuild. f must not block, nor keep voids. Register before the tail
// runs.
func (s *Store) OnVoid(f func(p int32, voids []Void)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onVoid = append(s.onVoid, f)
}

// OnRead calls f after each batch that was applied, also where it moved nothing: everything below next is applied, and end is the high watermark that the
// partition's leader named with that batch. Ownership records of the batch were told before. f must not block: it holds up the tail. Register
// before the tail runs.
func (s *Store) OnRead(f func(p int32, next, end int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRead = append(s.onRead, f)
}

// Wait returns when everything of p below offset is applied. It gives up when ctx ends, when the store is closed, and
// when p can't be read (eventlog.ErrRefused).
func (s *Store) Wait(ctx context.Context, p int32, offset int64) error {
	part, err := s.part(p)
	if err != nil {
		return err
	}
	for {
		part.mu.Lock()
		if part.pos.Offset >= offset {
			part.mu.Unlock()
			return nil
		}
		err := part.err
		if part.changed == nil {
			part.changed = make(chan struct{})
		}
		changed := part.changed
		part.mu.Unlock()
		if errors.Is(err, eventlog.ErrRefused) {
			return err
		}
		select {
		case <-changed:
		case <-s.closing:
			return ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// notify wakes those who wait for a change. part.mu is held.
func (part *partition) notify() {
	if part.changed != nil {
		close(part.changed)
		part.changed = nil
	}
}

// Restarts counts how often partition p was forgotten and read again since the store was opened. Who keeps state made of what
// the projection held must drop it when the number changes: the log itself may have lost records (cut off below the position).
func (s *Store) Restarts(p int32) uint64 {
	part, err := s.part(p)
	if err != nil {
		return 0
	}
	part.mu.Lock()
	defer part.mu.Unlock()
	return part.restarts
}
