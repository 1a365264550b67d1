package sensor

import (
	"context"
	"sync"
	"time"
)

// Window is metrics.sample.window.ms of Kafka 4.4. A value covers the running window and the one before it.
const Window = 30 * time.Second

// Set holds the sensors of a process and moves their windows on. Its methods are safe for concurrent use.
type Set struct {
	mu    sync.Mutex
	items []interface{ roll(now time.Time) }
}

// Run moves the windows on until ctx ends, so that a value is right however seldom it is read.
func (s *Set) Run(ctx context.Context) {
	t := time.NewTicker(Window / 6)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			s.roll(now)
		}
	}
}

func (s *Set) roll(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.items {
		i.roll(now)
	}
}

// add makes the windows of i move.
func (s *Set) add(i interface{ roll(time.Time) }) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items = append(s.items, i)
}

// edges are what was read at the beginnings of the running window and of the one before.
type edges[T any] struct {
	mu       sync.Mutex
	read     func() T
	before   T // at the beginning of the window before the running one
	beforeAt time.Time
	current  T
	at       time.Time
}

func newEdges[T any](read func() T) *edges[T] {
	now, v := time.Now(), read()
	return &edges[T]{read: read, before: v, beforeAt: now, current: v, at: now}
}

func (e *edges[T]) roll(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.Sub(e.at) < Window {
		return
	}
	e.before, e.beforeAt = e.current, e.at
	e.current, e.at = e.read(), now
}

// since returns what was read at the beginning of the window before, when that was, and what is read now.
func (e *edges[T]) since() (before T, at time.Time, now T) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.before, e.beforeAt, e.read()
}
