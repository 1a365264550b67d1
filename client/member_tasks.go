package client

import (
	"fmt"
	"time"
)

// advanceTasks calls the next handler, if there is a reason to, and moves on from phases that waited for one. No
// handler is at work.
func (s *session) advanceTasks(now time.Time) {
	switch s.phase {
	case inGroup:
		if s.target == nil {
			return
		}
		target := *s.target
		s.target = nil
		if target.Equal(s.owned) {
			s.reconciled(now)
			return
		}
		s.next = target
		revoked := s.owned.without(target)
		s.handle(func() error {
			if f := s.m.cfg.Revoke; f != nil && !revoked.Empty() {
				if err := f(s.handlerCtx, revoked); err != nil {
					return fmt.Errorf("give up tasks %v: %w", revoked, err)
				}
			}
			if f := s.m.cfg.Assign; f != nil {
				if err := f(s.handlerCtx, target.clone()); err != nil {
					return fmt.Errorf("take tasks %v: %w", target, err)
				}
			}
			return nil
		})
	case fenced, expelled:
		s.target = nil
		if s.owned.Empty() {
			if s.phase == expelled {
				s.phase = over
				return
			}
			s.phase, s.beatAt, s.told = entering, now, nil
			return
		}
		lost := s.owned
		s.next = Tasks{}
		s.handle(func() error {
			if f := s.m.cfg.Lose; f != nil {
				f(lost)
			}
			return nil
		})
	case parting:
		s.target = nil
		if s.owned.Empty() {
			s.farewell(now)
			return
		}
		last := s.owned
		s.next, s.lastCall = Tasks{}, true
		s.handle(func() error {
			if f := s.m.cfg.Revoke; f != nil {
				if err := f(s.handlerCtx, last); err != nil {
					return fmt.Errorf("give up tasks %v: %w", last, err)
				}
			}
			return nil
		})
	}
}

func (s *session) handle(f func() error) {
	s.handling = true
	go func() { s.handled <- f() }()
}

// onHandled takes note of what a handler made of the tasks. When it fails the member has to assume that it has none of the new ones:
// it parts, and gives up what it had.
func (s *session) onHandled(err error, now time.Time) {
	s.handling = false
	if err != nil {
		s.m.log.Error("a task handler failed", "err", err)
		if s.lastCall { // there is nothing more to try
			s.own(Tasks{})
			if s.err == nil {
				s.err = err
			}
			return
		}
		s.part(err)
		return
	}
	s.own(s.next)
	s.m.log.Info("tasks changed", "tasks", s.owned)
	s.reconciled(now)
}

func (s *session) own(t Tasks) {
	s.owned = t
	s.m.setTasks(t)
}

// reconciled makes the next heartbeat tell the coordinator at once what tasks the member has: others wait for what it gave up.
func (s *session) reconciled(now time.Time) {
	if s.told == nil || !s.told.Equal(s.owned) {
		s.hurry(now)
	}
}
