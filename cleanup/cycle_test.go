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
)

// fakeShard expires what it is told, and takes its time for it.
type fakeShard struct {
	partition int32
	groups    []string
	listErr   error                                 // after the groups
	takes     time.Duration                         // per judgement
	judge     func(group string) (int, bool, error) // nil: nothing expires
	hang      bool                                  // until the context ends

	mu     sync.Mutex
	calls  []string
	starts []time.Time
	now    int // judgements under way
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

func (s *fakeShard) Expire(ctx context.Context, group string) (int, bool, error) {
	s.mu.Lock()
	s.calls = append(s.calls, group)
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
		return 0, false, ctx.Err()
	}
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return 0, false, ctx.Err()
	}
	if s.judge == nil {
		return 0, false, nil
	}
	return s.judge(group)
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
		a := &fakeShard{partition: 1, groups: []string{"gone", "some", "none"}, takes: 10 * time.Millisecond, judge: func(group string) (int, bool, error) {
			switch group {
			case "gone":
				return 3, true, nil
			}
			return 0, false, nil
		}}
		left := 2
		b := &fakeShard{partition: 2, groups: []string{"large"}, takes: 10 * time.Millisecond, judge: func(string) (int, bool, error) {
			if left--; left < 0 {
				return 5, true, nil // the last part, with the group
			}
			return 100, false, nil
		}}
		c := newCycle(a, b)
		report, err := c.Sweep(t.Context())
		want := Report{Shards: 2, Candidates: 4, OffsetsExpired: 208, GroupsRemoved: 2, Duration: 60 * time.Millisecond}
		if err != nil || report != want {
			t.Errorf("%+v, %v; want %+v", report, err, want)
		}
		if got, want := slices.Sorted(slices.Values(a.judged())), []string{"gone", "none", "some"}; !reflect.DeepEqual(got, want) {
			t.Errorf("judged %v, want %v", got, want)
		}
		if got := b.judged(); len(got) != 3 {
			t.Errorf("the large group was judged %d times, want until nothing was left", len(got))
		}
		wantStats := Stats{Cycles: 1, Candidates: 4, OffsetsExpired: 208, GroupsRemoved: 2, LastDuration: want.Duration, LastEnd: time.Now()}
		if got := c.Stats(); got != wantStats {
			t.Errorf("%+v, want %+v", got, wantStats)
		}
	})
}

func TestRunSweepsAnIntervalAfterEachEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Each cycle takes 2 s of judging both and 1 s of rest.
		s := &fakeShard{groups: []string{"a", "b"}, takes: 2 * time.Second}
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
		want := []time.Duration{10 * time.Second, 10 * time.Second, 23 * time.Second, 23 * time.Second, 36 * time.Second, 36 * time.Second}
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

func TestTheSweepRestsAsLongAsItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var groups []string
		for i := range 100 {
			groups = append(groups, fmt.Sprint(i))
		}
		s := &fakeShard{groups: groups, takes: 7 * time.Millisecond}
		report, err := newCycle(s).Sweep(t.Context())
		if want := (100 + judgedAtOnce - 1) / judgedAtOnce * 14 * time.Millisecond; err != nil || report.Duration != want {
			t.Errorf("took %v, %v; want %v", report.Duration, err, want)
		}
		if s.most != judgedAtOnce {
			t.Errorf("%d judgements of one shard at once, want %d", s.most, judgedAtOnce)
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

func (s *countingShard) Expire(ctx context.Context, group string) (int, bool, error) {
	s.enter(1)
	defer s.enter(-1)
	return s.fakeShard.Expire(ctx, group)
}

func TestAFailingGroupDoesNotStopTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &fakeShard{partition: 1, groups: []string{"a", "bad", "b"}, judge: func(group string) (int, bool, error) {
			if group == "bad" {
				return 9, true, errors.New("append failed")
			}
			return 1, true, nil
		}}
		unlisted := &fakeShard{partition: 2, groups: []string{"c"}, listErr: errors.New("store is closed")}
		c := newCycle(broken, unlisted)
		report, err := c.Sweep(t.Context())
		want := Report{Shards: 2, Candidates: 4, OffsetsExpired: 2, GroupsRemoved: 2, Failures: 2, Duration: restMax}
		if err != nil || report != want {
			t.Errorf("%+v, %v; want %+v", report, err, want)
		}
	})
}

func TestAShardThatIsGoneIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := &fakeShard{partition: 1, groups: slices.Repeat([]string{"a"}, 3*judgedAtOnce), judge: func(string) (int, bool, error) {
			return 0, false, errors.New("not the owner")
		}}
		fine := &fakeShard{partition: 2, groups: []string{"x"}, judge: func(string) (int, bool, error) { return 1, true, nil }}
		report, err := newCycle(gone, fine).Sweep(t.Context())
		if err != nil || report.Failures != judgedAtOnce || report.GroupsRemoved != 1 {
			t.Errorf("%+v, %v", report, err)
		}
		if got := gone.judged(); len(got) != judgedAtOnce {
			t.Errorf("%d judged, of which the first %d failed in a row", len(got), failuresMax)
		}
	})
}

// Single failures among successes are not the end of a shard, however many there are.
func TestFailuresCountOnlyInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeShard{judge: func(group string) (int, bool, error) {
			if group == "bad" {
				return 0, false, errors.New("too large")
			}
			return 1, true, nil
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
		s := &fakeShard{groups: slices.Repeat([]string{"a"}, 3*judgedAtOnce), hang: true}
		report, err := newCycle(s).Sweep(t.Context())
		if want := judgeTimeout; err != nil || report.Duration != want || report.Failures != judgedAtOnce {
			t.Errorf("%+v, %v; want an end after %v", report, err, want)
		}
	})
}

func TestStoppingBreaksOffACycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeShard{groups: slices.Repeat([]string{"a"}, 3*judgedAtOnce), takes: time.Minute}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		report, err := newCycle(s).Sweep(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second || report.Failures != 0 || len(s.judged()) != judgedAtOnce {
			t.Errorf("%+v, %v after %v, judged %v", report, err, time.Since(start), s.judged())
		}
	})
}

func TestAGroupThatNeverRunsOutGivesWayToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeShard{groups: []string{"endless", "other"}, judge: func(group string) (int, bool, error) {
			if group == "endless" {
				return 1, false, nil
			}
			return 0, false, nil
		}}
		report, err := newCycle(s).Sweep(t.Context())
		if err != nil || report.OffsetsExpired != batchesMax || report.Candidates != 2 {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

func TestIntervalDefaultIsKafkas(t *testing.T) {
	if c := New(Config{}); c.cfg.Interval != 600_000*time.Millisecond {
		t.Errorf("interval %v", c.cfg.Interval)
	}
}
