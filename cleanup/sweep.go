package cleanup

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"streamkeeper/shard"
)

const (
	// judgeTimeout bounds one turn: without it a shard that never answers would hold up this cycle and all later ones.
	judgeTimeout = 30 * time.Second
	// restTurn is the longest pause after a turn, twice what a turn may hold the loop. While its records wait for the log the loop is free
	// anyway; a longer rest would only make the sweep as slow as the log.
	restTurn = 2 * time.Millisecond
	// restFailed is the pause after a failure: who can't judge now can't in a millisecond either.
	restFailed = time.Second
	// batchesMax bounds how often one group is judged in a cycle because what is to go does not fit a batch: hundreds of thousands of
	// offsets, after which other groups have their turn.
	batchesMax = 64
	// failuresMax is after how many failures in a row the rest of a shard is left to the next cycle: it was given up, or
	// its log is away, and each further try would wait for its time-out.
	failuresMax = 3
)

// sweep is one shard's part of a cycle. After each turn of the shard's loop it waits for the log and rests, so that it takes a third of a loop's
// time at most, and less when the loop or the log is busy.
type sweep struct {
	shard  Shard
	log    *slog.Logger
	report Report
	inARow int // failures
	// removed is told of each group that went.
	removed func(group string)
}

func (s *sweep) run(ctx context.Context) Report {
	batch := make([]string, 0, shard.SweepGroupsMax)
	for group, err := range s.shard.Candidates(ctx) { // which holds nothing open meanwhile
		if ctx.Err() != nil {
			return s.report
		}
		if err != nil {
			s.report.Failures++
			s.log.Warn("cleanup: the groups can't be listed, left to the next cycle", "err", err)
			break
		}
		s.report.Candidates++
		if batch = append(batch, group); len(batch) == cap(batch) {
			if !s.judge(ctx, batch) {
				return s.report
			}
			batch = batch[:0]
		}
	}
	s.judge(ctx, batch)
	return s.report
}

// judge has groups judged, each until nothing more is to be written for it. It returns false where the shard's sweep must end.
func (s *sweep) judge(ctx context.Context, groups []string) bool {
	return inTurns(ctx, groups, s.shard.Expire, func(group string, j shard.Judged) bool {
		if j.Err != nil { // what it may have written is not known, and not counted
			return s.failed(group, j.Err)
		}
		s.inARow = 0
		s.report.OffsetsExpired += j.Offsets
		if j.Removed {
			s.report.GroupsRemoved++
			s.removed(group)
		}
		return true
	})
}

// failed notes that a group could not be judged; false: enough have failed in a row.
func (s *sweep) failed(group string, err error) bool {
	s.report.Failures++
	s.inARow++
	s.log.Warn("cleanup: a group can't be judged, left to the next cycle", "group", group, "err", err)
	if s.inARow < failuresMax && !errors.Is(err, context.DeadlineExceeded) { // nor is one asked again that does not answer
		return true
	}
	s.log.Warn("cleanup: the rest of the shard is left to the next cycle", "failures", s.report.Failures)
	return false
}

// inTurns has groups judged, as many in each turn of their shard's loop as fit it, and tells of each what came of it until told returns
// false. Where a whole turn fails its first group alone is told of; those behind it are offered again. False: it was stopped, by told or by ctx.
func inTurns(ctx context.Context, groups []string, judge func(context.Context, []string) ([]shard.Judged, error), told func(string, shard.Judged) bool) bool {
	large, rounds := "", 0 // how often a group was judged of which not all fitted
	for len(groups) > 0 {
		start := time.Now()
		judged, err := inTime(ctx, groups, judge)
		pause := min(time.Since(start), restTurn)
		if err == nil && len(judged) == 0 {
			err = errNothingJudged
		}
		if err != nil {
			if ctx.Err() != nil {
				return false // we are told to stop: nothing failed
			}
			judged = []shard.Judged{{Err: err}}
		}
		for i, j := range judged {
			if j.Err != nil {
				pause = restFailed
			}
			if !told(groups[i], j) {
				return false
			}
		}
		last, next := len(judged)-1, len(judged)
		if judged[last].More {
			if groups[last] != large {
				large, rounds = groups[last], 0
			}
			if rounds++; rounds < batchesMax {
				next = last
			}
		}
		groups = groups[next:]
		if !rest(ctx, pause) {
			return false
		}
	}
	return true
}

// errNothingJudged: a shard that takes no group in a turn would be asked for ever.
var errNothingJudged = errors.New("the shard judges no group")

func inTime(ctx context.Context, groups []string, judge func(context.Context, []string) ([]shard.Judged, error)) ([]shard.Judged, error) {
	ctx, cancel := context.WithTimeout(ctx, judgeTimeout)
	defer cancel()
	return judge(ctx, groups)
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
