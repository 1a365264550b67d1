package streams

import (
	"testing"
	"time"
)

// TestAssignmentIntervalAndTheClock: the interval holds a new target up for its length, also where the clock went back meanwhile.
func TestAssignmentIntervalAndTheClock(t *testing.T) {
	g := NewGroup("g")
	for _, c := range []struct {
		timestamp, now int64
		interval       time.Duration
		want           bool
	}{
		{1000, 1000, time.Second, true},
		{1000, 1999, time.Second, true},
		{1000, 2000, time.Second, false},
		{1000, 999, time.Second, false}, // from the future
		{1000, 1000, 0, false},
		{0, 500, time.Second, false}, // nobody has to wait for a group that was empty
	} {
		g.assignmentTimestamp = c.timestamp
		if got := g.assignedLately(c.now, c.interval); got != c.want {
			t.Errorf("target of %d at %d with interval %v: %v", c.timestamp, c.now, c.interval, got)
		}
	}
}
