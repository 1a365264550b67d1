package cleanup

import (
	"context"
	"log/slog"
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

// sweep is one shard's part of a cycle. It has one judgement under way at a time and rests as long as each one took,
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
	for group, err := range s.shard.Candidates(ctx) {
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			s.report.Failures++
			s.log.Warn("cleanup: the groups can't be listed, left to the next cycle", "err", err)
			break
		}
		s.report.Candidates++
		if !s.judge(ctx, group) {
			break
		}
	}
	return s.report
}

// judge has one group judged until nothing more is written for it. It returns false where the shard's sweep must end.
func (s *sweep) judge(ctx context.Context, group string) bool {
	for range batchesMax {
		start := time.Now()
		expired, removed, err := s.expire(ctx, group)
		if err != nil {
			return s.failed(ctx, group, err) // what it may have written is not known, and not counted
		}
		s.inARow = 0
		s.report.OffsetsExpired += expired
		if removed {
			s.report.GroupsRemoved++
			s.removed(group)
		}
		if !rest(ctx, min(time.Since(start), restMax)) {
			return false
		}
		if removed || expired == 0 {
			return true
		}
	}
	return true
}

func (s *sweep) expire(ctx context.Context, group string) (int, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, judgeTimeout)
	defer cancel()
	return s.shard.Expire(ctx, group)
}

func (s *sweep) failed(ctx context.Context, group string, err error) bool {
	if ctx.Err() != nil {
		return false // we are told to stop: nothing failed
	}
	s.report.Failures++
	s.inARow++
	s.log.Warn("cleanup: a group can't be judged, left to the next cycle", "group", group, "err", err)
	if s.inARow >= failuresMax {
		s.log.Warn("cleanup: the rest of the shard is left to the next cycle", "failures", s.inARow)
		return false
	}
	return rest(ctx, restMax)
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
