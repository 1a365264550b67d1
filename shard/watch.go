package shard

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// loopLook is how often each loop is asked for a sign of life.
	loopLook = 5 * time.Second
	// loopLooksMax is how many looks in a row a loop may miss. A minute is far beyond the longest turn; looks are counted, not time, so that a process that
	// was stopped for a while does not find all its loops hung when it goes on.
	loopLooksMax = 12
)

// watched is what a loop's watcher knows of it.
type watched struct {
	asked  atomic.Bool // and has not answered
	missed atomic.Int32
}

// watchLoops asks the loops for a sign of life until ctx ends.
func (h *Host) watchLoops(ctx context.Context) {
	t := time.NewTicker(loopLook)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			h.lookAtLoops()
		}
	}
}

func (h *Host) lookAtLoops() {
	for _, s := range h.shards {
		if s.watched.asked.Load() {
			s.watched.missed.Add(1)
			continue
		}
		s.watched.asked.Store(true)
		s.post(func(s *Shard) {
			s.watched.missed.Store(0)
			s.watched.asked.Store(false)
		})
	}
}

// Hung are the partitions whose loop has taken no turn for about a minute of the process's own time: only an end of the process mends that.
func (h *Host) Hung() []int32 {
	var out []int32
	for _, s := range h.shards {
		if s.watched.missed.Load() >= loopLooksMax {
			out = append(out, s.partition)
		}
	}
	return out
}
