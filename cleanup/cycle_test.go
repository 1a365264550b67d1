package cleanup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"streamkeeper/shard"
)

// fakeShard expires what it is told, and takes its time for it.
type fakeShard struct {
	partition int32
	groups    []string
	listErr   error                           // after the groups
	takes     time.Duration                   // per turn
	fits      int                             // groups in a turn; 0: all that are offered
	judge     func(group string) shard.Judged // nil: nothing expires
	fail      error                           // of each turn
	hang      bool                            // until the context ends

	mu     sync.Mutex
	calls  []string
	starts []time.Time
	now    int // turns under way
	most   int
}

func (s *fakeShard) Partition() int32 { return s.partition }

func (s *fakeShard) Candidates(context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, g := range s.groups {
			if !yield(g, nil) {
				return
			}
		}
		if s.listErr != nil {
			yield("", s.listErr)
		}
	}
}

func (s *fakeShard) Expire(ctx context.Context, groups []string) ([]shard.Judged, error) {
	if s.fits > 0 {
		groups = groups[:min(s.fits, len(groups))]
	}
	s.mu.Lock()
	s.starts = append(s.starts, time.Now())
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	if s.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	fail := s.fail
	s.mu.Unlock()
	if fail != nil {
		return nil, fail
	}
	var out []shard.Judged
	for _, group := range groups {
		s.mu.Lock()
		s.calls = append(s.calls, group)
		s.mu.Unlock()
		var j shard.Judged
		if s.judge != nil {
			j = s.judge(group)
		}
		if out = append(out, j); j.More {
			break
		}
	}
	return out, nil
}

func (s *fakeShard) judged() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func newCycle(shards ...Shard) *Cycle {
	return New(Config{Shards: func() []Shard { return shards }, Logger: slog.New(slog.DiscardHandler)})
}

func TestSweepCountsWhatWasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeShard{partition: 1, groups: []string{"gone", "some", "none"}, fits: 2, takes: 10 * time.Millisecond, judge: func(group string) shard.Judged {
			switch group {
			case "gone":
				return shard.Judged{Offsets: 3, Removed: true}
			case "some":
				return shard.Judged{Offsets: 4}
			}
			return shard.Judged{}
		}}
		left := 2
		b := &fakeShard{partition: 2, groups: []string{"small", "large", "last"}, takes: 10 * time.Millisecond, judge: func(group string) shard.Judged {
			if group != "large" {
				return shard.Judged{}
			}
			if left--; left < 0 {
				return shard.Judged{Offsets: 5, Removed: true} // the last part, with the group
			}
			return shard.Judged{Offsets: 100, More: true}
		}}
		c := newCycle(a, b)
		report, err := c.Sweep(t.Context())
		want := Report{Shards: 2, Candidates: 6, OffsetsExpired: 212, GroupsRemoved: 2, Duration: 3 * (10*time.Millisecond + restTurn)}
		if err != nil || report != want {
			t.Errorf("%+v, %v; want %+v", report, err, want)
		}
		if got, want := a.judged(), []string{"gone", "some", "none"}; !reflect.DeepEqual(got, want) || len(a.starts) != 2 {
			t.Errorf("judged %v in %d turns, want %v in 2", got, len(a.starts), want)
		}
		if got, want := b.judged(), []string{"small", "large", "large", "large", "last"}; !reflect.DeepEqual(got, want) || len(b.starts) != 3 {
			t.Errorf("judged %v in %d turns, want %v in 3", got, len(b.starts), want)
		}
		wantStats := Stats{Cycles: 1, Candidates: 6, OffsetsExpired: 212, GroupsRemoved: 2, LastDuration: want.Duration, LastEnd: time.Now()}
		if got := c.Stats(); got != wantStats {
			t.Errorf("%+v, want %+v", got, wantStats)
		}
	})
}

func TestRunSweepsAnIntervalAfterEachEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Each cycle takes as long as judging both, and a rest.
		s := &fakeShard{groups: []string{"a", "b"}, takes: 3*time.Second - restTurn}
		c := New(Config{Interval: 10 * time.Second, Shards: func() []Shard { return []Shard{s} }, Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(37 * time.Second) // virtual; in the middle of the third cycle
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
		var at []time.Duration
		for _, x := range s.starts {
			at = append(at, x.Sub(start))
		}
		want := []time.Duration{10 * time.Second, 23 * time.Second, 36 * time.Second}
		if !reflect.DeepEqual(at, want) {
			t.Errorf("judged at %v, want %v", at, want)
		}
		if c.Stats().Cycles != 3 {
			t.Errorf("%d cycles, want 3 (the last broken off)", c.Stats().Cycles)
		}
	})
}

func TestOnlyOneCycleAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeShard{groups: []string{"a"}, takes: 20 * time.Second}
		c := New(Config{Interval: 10 * time.Second, Shards: func() []Shard { return []Shard{s} }, Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error)
		go func() { _, err := c.Sweep(ctx); first <- err }()
		running := make(chan error)
		go func() { running <- c.Run(ctx) }()
		time.Sleep(15 * time.Second)
		if !c.Stats().Running {
			t.Error("the first cycle is not under way")
		}
		if _, err := c.Sweep(ctx); !errors.Is(err, ErrRunning) {
			t.Errorf("a second cycle: %v, want %v", err, ErrRunning)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
		cancel()
		<-running
		if s.most != 1 || len(s.judged()) != 1 || c.Stats().Running {
			t.Errorf("%d judgements, %d at once, running %v", len(s.judged()), s.most, c.Stats().Running)
		}
	})
}

func TestTheSweepRestsAfterEachTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var groups []string
		for i := range 100 {
			groups = append(groups, fmt.Sprint(i))
		}
		s := &fakeShard{groups: groups, fits: 30, takes: 7 * time.Millisecond}
		report, err := newCycle(s).Sweep(t.Context())
		if want := 4 * (7*time.Millisecond + restTurn); err != nil || report.Duration != want {
			t.Errorf("took %v, %v; want %v", report.Duration, err, want)
		}
		if !reflect.DeepEqual(s.judged(), groups) || s.most != 1 {
			t.Errorf("judged %v, %d turns at once; want each group once, and one turn", s.judged(), s.most)
		}
	})
}

func TestFewShardsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shards []Shard
		var under, most int
		var mu sync.Mutex
		for p := range int32(10) {
			shards = append(shards, &countingShard{fakeShard: fakeShard{partition: p, groups: []string{"g"}, takes: time.Second}, enter: func(d int) {
				mu.Lock()
				defer mu.Unlock()
				under += d
				most = max(most, under)
			}})
		}
		report, err := newCycle(shards...).Sweep(t.Context())
		if err != nil || report.Candidates != 10 || most != shardsAtOnce {
			t.Errorf("%+v, %v, %d at once, want %d", report, err, most, shardsAtOnce)
		}
	})
}

type countingShard struct {
	fakeShard
	enter func(int)
}

func (s *countingShard) Expire(ctx context.Context, groups []string) ([]shard.Judged, error) {
	s.enter(1)
	defer s.enter(-1)
	return s.fakeShard.Expire(ctx, groups)
}

func TestAFailingGroupDoesNotStopTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &fakeShard{partition: 1, groups: []string{"a", "bad", "b"}, judge: func(group string) shard.Judged {
			if group == "bad" {
				return shard.Judged{Offsets: 9, Removed: true, Err: errors.New("a record of it can't be applied")}
			}
			return shard.Judged{Offsets: 1, Removed: true}
		}}
		unlisted := &fakeShard{partition: 2, groups: []string{"c"}, listErr: errors.New("store is closed")}
		c := newCycle(broken, unlisted)
		report, err := c.Sweep(t.Context())
		want := Report{Shards: 2, Candidates: 4, OffsetsExpired: 2, GroupsRemoved: 2, Failures: 2, Duration: restFailed}
		if err != nil || report != want {
			t.Errorf("%+v, %v; want %+v", report, err, want)
		}
	})
}

func TestAShardThatIsGoneIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := &fakeShard{partition: 1, groups: []string{"a", "b", "c", "d", "e"}, fail: errors.New("not the owner")}
		fine := &fakeShard{partition: 2, groups: []string{"x"}, judge: func(string) shard.Judged { return shard.Judged{Offsets: 1, Removed: true} }}
		report, err := newCycle(gone, fine).Sweep(t.Context())
		if err != nil || report.Failures != failuresMax || report.GroupsRemoved != 1 {
			t.Errorf("%+v, %v", report, err)
		}
		if len(gone.starts) != failuresMax {
			t.Errorf("asked %d times, of which the first %d failed in a row", len(gone.starts), failuresMax)
		}
	})
}

// A turn that fails as a whole, as its append did, is no reason to leave the groups that were offered with its first one.
func TestGroupsBehindAFailedTurnHaveAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeShard{groups: []string{"a", "b", "c"}, fail: errors.New("append failed"), judge: func(string) shard.Judged { return shard.Judged{Removed: true} }}
		time.AfterFunc(restFailed/2, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.fail = nil
		})
		report, err := newCycle(s).Sweep(t.Context())
		if want := []string{"b", "c"}; err != nil || report.Failures != 1 || report.GroupsRemoved != 2 || !reflect.DeepEqual(s.judged(), want) {
			t.Errorf("%+v, %v, judged %v; want %v", report, err, s.judged(), want)
		}
	})
}

// A shard that judges nothing would be asked for ever.
func TestAShardThatJudgesNothingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &nothingShard{fakeShard{groups: []string{"a", "b"}}}
		report, err := newCycle(s).Sweep(t.Context())
		if err != nil || report.Failures != 2 {
			t.Errorf("%+v, %v; want a failure for each group", report, err)
		}
	})
}

type nothingShard struct{ fakeShard }

func (s *nothingShard) Expire(context.Context, []string) ([]shard.Judged, error) { return nil, nil }

// Single failures among successes are not the end of a shard, however many there are.
func TestFailuresCountOnlyInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeShard{judge: func(group string) shard.Judged {
			if group == "bad" {
				return shard.Judged{Err: errors.New("too large")}
			}
			return shard.Judged{Offsets: 1, Removed: true}
		}}
		for range 2 * failuresMax {
			s.groups = append(s.groups, "bad", "good")
		}
		report, err := newCycle(s).Sweep(t.Context())
		if err != nil || report.Failures != 2*failuresMax || report.GroupsRemoved != 2*failuresMax {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

func TestAHangingShardHoldsUpNothingForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeShard{groups: []string{"a", "b", "c", "d"}, hang: true}
		report, err := newCycle(s).Sweep(t.Context())
		if want := judgeTimeout; err != nil || report.Duration != want || report.Failures != 1 {
			t.Errorf("%+v, %v; want an end after %v", report, err, want)
		}
	})
}

func TestStoppingBreaksOffACycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeShard{groups: []string{"a", "b", "c", "d"}, fits: 2, takes: time.Minute}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		report, err := newCycle(s).Sweep(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second || report.Failures != 0 || len(s.starts) != 1 {
			t.Errorf("%+v, %v after %v, %d turns", report, err, time.Since(start), len(s.starts))
		}
	})
}

func TestAGroupThatNeverRunsOutGivesWayToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeShard{groups: []string{"endless", "another", "other"}, judge: func(group string) shard.Judged {
			if group == "other" {
				return shard.Judged{}
			}
			return shard.Judged{Offsets: 1, More: true}
		}}
		report, err := newCycle(s).Sweep(t.Context())
		if err != nil || report.OffsetsExpired != 2*batchesMax || report.Candidates != 3 || len(s.judged()) != 2*batchesMax+1 {
			t.Errorf("%+v, %v, %d judgements", report, err, len(s.judged()))
		}
	})
}

func TestIntervalDefaultIsKafkas(t *testing.T) {
	if c := New(Config{}); c.cfg.Interval != 600_000*time.Millisecond {
		t.Errorf("interval %v", c.cfg.Interval)
	}
}
