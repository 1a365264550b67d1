package main

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestAStopHasOneDeadline: each step ends before the next, the last with the time-out, and the handing over, which comes first, has most of it.
func TestAStopHasOneDeadline(t *testing.T) {
	for timeout, handing := range map[time.Duration]time.Duration{
		time.Minute:      54 * time.Second,
		20 * time.Second: 14 * time.Second,
		2 * time.Second:  800 * time.Millisecond,
		0:                0,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stopping{timeout: timeout}
			if got := s.left(stopHandOver); got != handing {
				t.Errorf("%v: %v for handing over, want %v", timeout, got, handing)
			}
			begun := time.Now()
			time.Sleep(handing / 2) // the bubble's clock
			s.begin()               // a second beginning changes nothing
			for step := stopHandOver; step > stopTraces; step-- {
				if next := s.by(step - 1); next.Before(s.by(step)) || timeout > 0 && next.Equal(s.by(step)) {
					t.Errorf("%v: step %d has no time of its own", timeout, step-1)
				}
			}
			if got := s.by(stopTraces).Sub(begun); got != timeout {
				t.Errorf("%v: the last step ends after %v", timeout, got)
			}
			// A step that never ends is left when its time is over, and leaves the next ones theirs.
			held := make(chan struct{})
			if timeout > 0 && s.within(stopClose, func() { <-held }) {
				t.Error("a step that goes on is said to be over")
			}
			if got, want := s.left(stopTraces), min(stopShareMax, timeout/stopShares); got != want {
				t.Errorf("%v: %v are left after it, want %v", timeout, got, want)
			}
			close(held)
			ctx, cancel := s.context(stopTraces)
			defer cancel()
			if ends, ok := ctx.Deadline(); !ok || !ends.Equal(s.by(stopTraces)) {
				t.Errorf("%v: the context of a step ends at %v", timeout, ends)
			}
			if timeout > 0 && !s.within(stopTraces, func() {}) {
				t.Error("a step that is over at once is said to go on")
			}
		})
	}
}
