package main

import (
	"context"
	"sync"
	"time"
)

// stopping is the one deadline of a stop, --shutdown-timeout after it has begun. Each step ends early enough to leave the later ones their shares: what a step
// does not use the next ones have. A step that is held up by a cluster that is away takes nothing from them.
type stopping struct {
	timeout time.Duration

	once sync.Once
	ends time.Time
}

// stopStep is a step of a stop; its value is how many shares are kept for those after it.
type stopStep int

const (
	stopTraces   stopStep = iota // the last spans are sent, and the admin address is closed
	stopClose                    // what was made is taken down
	stopParts                    // the parts end
	stopRead                     // the projection reads what was written last
	stopRequests                 // requests under way are finished
	stopRelease                  // released records of what nobody took
	stopHandOver                 // the group is left, successors claim
)

const (
	// stopShareMax is enough for each step after the handing over, where the cluster answers.
	stopShareMax = time.Second
	// stopShares is how many shares a short time-out has: more than are kept, so that the handing over has some, too.
	stopShares = 10
)

// begin starts the clock, once.
func (s *stopping) begin() { s.once.Do(func() { s.ends = time.Now().Add(s.timeout) }) }

// by is when a step has to be over. A stop that nobody has begun begins.
func (s *stopping) by(step stopStep) time.Time {
	s.begin()
	return s.ends.Add(-time.Duration(step) * min(stopShareMax, s.timeout/stopShares))
}

// left is how long a step may still take.
func (s *stopping) left(step stopStep) time.Duration { return max(0, time.Until(s.by(step))) }

// context lasts until a step has to be over.
func (s *stopping) context(step stopStep) (context.Context, context.CancelFunc) {
	return context.WithDeadline(context.Background(), s.by(step))
}

// within runs f, and returns false where it is not over when the step has to be: f goes on meanwhile.
func (s *stopping) within(step stopStep, f func()) bool {
	over := make(chan struct{})
	go func() { defer close(over); f() }()
	late := time.NewTimer(s.left(step))
	defer late.Stop()
	select {
	case <-over:
		return true
	case <-late.C:
		return false
	}
}
