package cleanup

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// judgeTimeout bounds one judgement: without it a shard that never answers would hold up this cycle and all later ones.
	judgeTimeout = 30 * time.Second
	// restMax bounds the pause after a judgement; a log that was slow once should not stretch the sweep for long.
	restMax = time.Second
	// batchesMax bounds how often one group is judged in a cycle while it goes on writing: hundreds of thousands of
	// offsets, after which other groups have their turn.
	batchesMax = 64
	// failuresMax is after how many failures in a row the rest of a shard is left to the next cycle: it was given up, or
	// its log is away, and each further try would wait for its time-out.
	failuresMax = 3
)

// judgedAtOnce is how many groups of a shard are judged side by side, so that their tombstones share a batch of the log: one after the other a million
// groups would take a quarter of an hour of waiting for acknowledgements. They are about a millisecond of the shard's loop.
const judgedAtOnce = 32

// sweep is one shard's part of a cycle. It has judgedAtOnce judgements under way at a time and rests as long as they took,
// so that it takes at most every other turn of a loop, and less when the loop is busy.
type sweep struct {
	shard  Shard
	log    *slog.Logger
	report Report
	inARow int // failures
	// removed is told of each group that went.
	removed func(group string)
}

func (s *sweep) run(ctx context.Context) Report {
	batch := make([]string, 0, judgedAtOnce)
	for group, err := range s.shard.Candidates(ctx) {
		if ctx.Err() != nil {
			return s.report
		}
		if err != nil {
			s.report.Failures++
			s.log.Warn("cleanup: the groups can't be listed, left to the next cycle", "err", err)
			break
		}
		if batch = append(batch, group); len(batch) == judgedAtOnce {
			if !s.judge(ctx, batch) {
				return s.report
			}
			batch = batch[:0]
		}
	}
	s.judge(ctx, batch)
	return s.report
}

// judgement is what came of one group.
type judgement struct {
	expired int
	removed bool
	err     error
}

// judge has groups judged side by side, each until nothing more is written for it. It returns false where the shard's sweep must end.
func (s *sweep) judge(ctx context.Context, groups []string) bool {
	s.report.Candidates += len(groups)
	groups = slices.Clone(groups)
	for round := 0; round < batchesMax && len(groups) > 0; round++ {
		start := time.Now()
		came := make([]judgement, len(groups))
		var wg sync.WaitGroup
		for i, group := range groups {
			wg.Go(func() { came[i].expired, came[i].removed, came[i].err = s.expire(ctx, group) })
		}
		wg.Wait()
		pause := min(time.Since(start), restMax)
		lost := s.inARow >= failuresMax
		var more []string
		for i, c := range came {
			switch {
			case c.err != nil: // what it may have written is not known, and not counted
				if ctx.Err() != nil {
					return false // we are told to stop: nothing failed
				}
				pause = restMax
				s.failed(groups[i], c.err)
				lost = lost || s.inARow >= failuresMax
				continue
			case c.removed:
				s.report.GroupsRemoved++
				s.removed(groups[i])
			case c.expired > 0:
				more = append(more, groups[i])
			}
			s.inARow = 0
			s.report.OffsetsExpired += c.expired
		}
		if lost {
			s.log.Warn("cleanup: the rest of the shard is left to the next cycle", "failures", s.report.Failures)
			return false
		}
		if !rest(ctx, pause) {
			return false
		}
		groups = more
	}
	return true
}

func (s *sweep) expire(ctx context.Context, group string) (int, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, judgeTimeout)
	defer cancel()
	return s.shard.Expire(ctx, group)
}

func (s *sweep) failed(group string, err error) {
	s.report.Failures++
	if s.inARow++; s.inARow <= failuresMax { // one line for each group of a shard that was given up would say nothing new
		s.log.Warn("cleanup: a group can't be judged, left to the next cycle", "group", group, "err", err)
	}
}

// rest waits for d; false: ctx ended.
func rest(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
