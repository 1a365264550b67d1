package eventlog

import (
	"sync"
	"time"
)

const (
	// troubleAfter is how long a partition may not be read before that is worth a line: longer than a leader's end, and its successor's beginning, take.
	troubleAfter = 20 * time.Second
	// troubleEvery spaces the lines; what fails, fails for many partitions at once.
	troubleEvery = time.Minute
)

// trouble are the partitions of which every read fails. Each failure alone is nothing to tell: leaders move.
type trouble struct {
	mu    sync.Mutex
	since map[int32]time.Time
	told  time.Time
}

// note takes the outcome of a read of p. Where it is time for a line, n is how many partitions have failed for so long, and longest for how long the first of them.
func (t *trouble) note(p int32, err error, now time.Time) (n int, longest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.since, p)
		return 0, 0
	}
	if t.since == nil {
		t.since = map[int32]time.Time{}
	}
	if _, ok := t.since[p]; !ok {
		t.since[p] = now
	}
	if now.Sub(t.since[p]) < troubleAfter || !t.told.IsZero() && now.Sub(t.told) < troubleEvery {
		return 0, 0
	}
	t.told = now
	for _, since := range t.since {
		if failed := now.Sub(since); failed >= troubleAfter {
			n, longest = n+1, max(longest, failed)
		}
	}
	return n, longest
}
