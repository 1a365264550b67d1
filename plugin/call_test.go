package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// answering is a plugin whose every Set answers after delay, whatever its context says.
func answering(delay time.Duration, err error) *puppet {
	return &puppet{set: func(context.Context, string, int32, *Description) *Future[Void] {
		return Go(func() (Void, error) { time.Sleep(delay); return Void{}, err })
	}}
}

const timedOutText = "the topology description plugin did not answer within 4s"

func TestTimeOutIsTransient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := NewFuture[Void]()
		s := newStage(t, &puppet{set: func(context.Context, string, int32, *Description) *Future[Void] { return never }})
		start := time.Now()
		o := s.set(t.Context(), "g")
		if took := time.Since(start); took != 4*time.Second {
			t.Errorf("delivered after %s", took)
		}
		if o.Kind != TimedOut || o.Permanent || o.Message != timedOutText {
			t.Errorf("%+v", o)
		}
		if st := s.Stats(); st.UnderWay != 1 || st.TimedOut != 1 || st.SetError != 1 {
			t.Errorf("%+v", st)
		}
		time.Sleep(GraceDefault)
		s.wantIdle(t)
		s.wantSpans(t, "plugin set abandoned=true error.message=the topology description plugin did not answer within 4s group=g operation=set "+
			"outcome=timed_out permanent=false plugin=puppet topology.epoch=3 ERROR +4s:timed_out took=34s")
		never.Complete(Void{}) // long after everything is over
		if st := s.Stats(); st.Late != 1 || st.SetSuccess != 0 {
			t.Errorf("%+v", st)
		}
		s.wantIdle(t)
	})
}

// TestLateCompletion: the outcome stands, the span says how long it really took.
func TestLateCompletion(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		after string
	}{{"success", nil, "stored"}, {"refused for good", Permanent("no"), "permanent"}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, answering(10*time.Second, c.err))
				if o := s.set(t.Context(), "g"); o.Kind != TimedOut {
					t.Errorf("%+v", o)
				}
				time.Sleep(time.Minute)
				s.wantSpans(t, "plugin set error.message=the topology description plugin did not answer within 4s group=g late.after=timed_out late.outcome="+c.after+
					" operation=set outcome=late permanent=false plugin=puppet topology.epoch=3 ERROR +4s:timed_out took=10s")
				if st := s.Stats(); st.Late != 1 || st.SetSuccess != 0 || st.SetError != 1 {
					t.Errorf("%+v", st)
				}
				s.wantIdle(t)
			})
		})
	}
}

// TestPluginThatObeysItsContext: it fails with the context's error at the time-out, which is not late and not its own failure.
func TestPluginThatObeysItsContext(t *testing.T) {
	for _, wrap := range []func(context.Context) error{
		context.Context.Err, context.Cause, func(ctx context.Context) error { return Transient("slow", fmt.Errorf("put: %w", ctx.Err())) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, &puppet{set: func(ctx context.Context, _ string, _ int32, _ *Description) *Future[Void] {
				return Go(func() (Void, error) { <-ctx.Done(); return Void{}, wrap(ctx) })
			}})
			if o := s.set(t.Context(), "g"); o.Kind != TimedOut || o.Message != timedOutText {
				t.Errorf("%+v", o)
			}
			s.wantIdle(t)
			if got := s.ended(); len(got) != 1 || !strings.Contains(got[0], "outcome=timed_out") || !strings.HasSuffix(got[0], "took=4s") || strings.Contains(got[0], "abandoned") {
				t.Errorf("%q", got)
			}
			if st := s.Stats(); st.Late != 0 || st.TimedOut != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestCallersDeadlineIsATimeOut: a request that has less time than a call.
func TestCallersDeadlineIsATimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, answering(10*time.Second, nil))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if o := s.set(ctx, "g"); o.Kind != TimedOut || !strings.Contains(o.Message, "in the time that the request had left") {
			t.Errorf("%+v", o)
		}
		time.Sleep(time.Minute)
		s.wantIdle(t)
	})
}

// TestShardMoves: the caller's context ends; the outcome comes at once, and what the plugin says later changes nothing.
func TestShardMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, answering(3*time.Second, nil))
		ctx, cancel := context.WithCancelCause(t.Context())
		outcomes := make(chan Outcome, 2)
		s.Set(ctx, SetCall{Group: "g", TopologyEpoch: 3, Description: small()}, func(o Outcome) { outcomes <- o })
		time.Sleep(time.Second)
		cancel(errors.New("the shard moved"))
		o := <-outcomes
		if o.Kind != Cancelled || o.Permanent || o.Message != "the call of the topology description plugin was given up: the shard moved" {
			t.Errorf("%+v", o)
		}
		time.Sleep(time.Minute)
		if len(outcomes) != 0 {
			t.Error("a second outcome")
		}
		s.wantSpans(t, "plugin set error.message=the call of the topology description plugin was given up: th group=g late.after=cancelled late.outcome=stored "+
			"operation=set outcome=late permanent=false plugin=puppet topology.epoch=3 ERROR +1s:cancelled took=3s")
		if st := s.Stats(); st.Cancelled != 1 || st.Late != 1 {
			t.Errorf("%+v", st)
		}
		s.wantIdle(t)

		if o := s.set(ctx, "g"); o.Kind != Cancelled || o.Message != "not called: the shard moved" {
			t.Errorf("a call with a context that has ended: %+v", o)
		}
		s.wantIdle(t)
	})
}

// TestBlockingMethod: a method that does not return costs a goroutine and a slot, and nothing else.
func TestBlockingMethod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newStage(t, &puppet{set: func(context.Context, string, int32, *Description) *Future[Void] {
			<-release
			return Completed(Void{})
		}}, func(c *Config) { c.Calls = 1 })
		if o := s.set(t.Context(), "g"); o.Kind != TimedOut {
			t.Errorf("%+v", o)
		}
		time.Sleep(time.Hour)
		if st := s.Stats(); st.UnderWay != 1 {
			t.Errorf("the slot was freed though the method still runs: %+v", st)
		}
		o := s.set(t.Context(), "g")
		if o.Kind != Busy || o.Permanent || o.Message != "the topology description plugin is busy: 1 calls of set are under way" {
			t.Errorf("%+v", o)
		}
		close(release)
		synctest.Wait()
		if st := s.Stats(); st.Late != 1 || st.Busy != 1 {
			t.Errorf("%+v", st)
		}
		s.wantIdle(t)
		if o := s.set(t.Context(), "g"); o.Kind != Stored {
			t.Errorf("afterwards: %+v", o)
		}
		s.wantIdle(t)
	})
}

// TestBusy: the bound holds per operation, the refusal comes at once, and slots come back.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		p := answering(0, nil)
		p.set = func(context.Context, string, int32, *Description) *Future[Void] {
			return Go(func() (Void, error) {
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(time.Second)
				running.Add(-1)
				return Void{}, nil
			})
		}
		p.get = func(context.Context, string, int32) *Future[*Description] { return Completed(small()) }
		s := newStage(t, p, func(c *Config) { c.Calls = 3 })
		kinds := make(chan Kind, 10)
		start := time.Now()
		for range 10 {
			s.Set(t.Context(), SetCall{Group: "g", Description: small()}, func(o Outcome) { kinds <- o.Kind })
		}
		for range 7 {
			if k := <-kinds; k != Busy {
				t.Errorf("%s", k)
			}
		}
		if time.Since(start) != 0 {
			t.Errorf("refused after %s", time.Since(start))
		}
		if _, o := s.get(t.Context(), "g"); o.Kind != Found {
			t.Errorf("a get while all slots of set are taken: %+v", o)
		}
		for range 3 {
			if k := <-kinds; k != Stored {
				t.Errorf("%s", k)
			}
		}
		if most.Load() != 3 {
			t.Errorf("%d at once", most.Load())
		}
		s.wantIdle(t)
		if o := s.set(t.Context(), "g"); o.Kind != Stored {
			t.Errorf("%+v", o)
		}
	})
}

// TestOutcomeIsDeliveredOnce races completion, time-out and cancellation at the same instant.
func TestOutcomeIsDeliveredOnce(t *testing.T) {
	for i := range 300 {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, answering(time.Second, nil), func(c *Config) { c.Timeout = time.Second + time.Duration(i%2) })
			ctx, cancel := context.WithCancel(t.Context())
			if i%3 == 0 {
				time.AfterFunc(time.Second, cancel)
			}
			defer cancel()
			var outcomes atomic.Int64
			s.Set(ctx, SetCall{Group: "g", Description: small()}, func(Outcome) { outcomes.Add(1) })
			if i%5 == 0 {
				time.AfterFunc(time.Second, func() { _ = s.Close(context.Background()) })
			}
			time.Sleep(time.Hour)
			if outcomes.Load() != 1 {
				t.Errorf("%d outcomes", outcomes.Load())
			}
			s.wantIdle(t)
			if st := s.Stats(); st.SetSuccess+st.SetError != 1 || len(s.spans.Ended()) != 1 {
				t.Errorf("%+v, %d spans", st, len(s.spans.Ended()))
			}
		})
	}
}

// TestDoneIsNeverCalledByTheCaller: a caller may hold what done takes.
func TestDoneIsNeverCalledByTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, &puppet{set: func(context.Context, string, int32, *Description) *Future[Void] { return Completed(Void{}) }}, func(c *Config) { c.Calls = 1 })
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		var mu sync.Mutex
		var wg sync.WaitGroup
		call := func(ctx context.Context) {
			wg.Add(1)
			mu.Lock()
			defer mu.Unlock()
			s.Set(ctx, SetCall{Description: small()}, func(Outcome) {
				mu.Lock()
				defer mu.Unlock()
				wg.Done()
			})
		}
		call(t.Context())
		call(t.Context()) // busy or not
		call(ended)
		wg.Wait()
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		call(t.Context())
		wg.Wait()
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		obeys := &puppet{
			set: func(ctx context.Context, _ string, _ int32, _ *Description) *Future[Void] {
				return Go(func() (Void, error) {
					<-ctx.Done()
					time.Sleep(time.Second)
					order = append(order, "call")
					return Void{}, ctx.Err()
				})
			},
			close: func(context.Context) error { order = append(order, "close"); return errTest },
		}
		s := newStage(t, obeys)
		outcome := make(chan Outcome, 2)
		s.Set(t.Context(), SetCall{Group: "g", Description: small()}, func(o Outcome) { outcome <- o })
		start := time.Now()
		second := make(chan error)
		go func() { synctest.Wait(); second <- s.Close(t.Context()) }()
		err := s.Close(t.Context())
		if !errors.Is(err, errTest) || !strings.HasPrefix(err.Error(), "close the topology description plugin puppet: ") {
			t.Errorf("%v", err)
		}
		if o := <-outcome; o.Kind != Cancelled || !errors.Is(o.Err, ErrClosed) {
			t.Errorf("%+v", o)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %s", took)
		}
		if fmt.Sprint(order) != "[call close]" {
			t.Errorf("%v", order)
		}
		if again := <-second; !errors.Is(again, errTest) {
			t.Errorf("second Close: %v", again)
		}
		if o := s.set(t.Context(), "g"); o.Kind != Cancelled || !errors.Is(o.Err, ErrClosed) || o.Permanent {
			t.Errorf("a call after Close: %+v", o)
		}
		s.wantIdle(t)
		for _, line := range s.ended() {
			if !strings.Contains(line, "outcome=cancelled") {
				t.Errorf("%s", line)
			}
		}
	})
}

// TestCloseDoesNotHang: neither a lost future nor a method that blocks nor a Close that blocks or panics holds the process up.
func TestCloseDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newStage(t, &puppet{
			set:    func(context.Context, string, int32, *Description) *Future[Void] { return NewFuture[Void]() },
			delete: func(context.Context, string) *Future[Void] { <-release; return nil },
			close:  func(context.Context) error { <-release; return nil },
		})
		outcomes := make(chan Outcome, 3)
		s.Set(t.Context(), SetCall{Group: "g", Description: small()}, func(o Outcome) { outcomes <- o })
		s.Delete(t.Context(), "g", func(o Outcome) { outcomes <- o })
		start := time.Now()
		err := s.Close(t.Context())
		if took := time.Since(start); took != CloseTimeoutDefault+closeMoment {
			t.Errorf("took %s", took)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if len(outcomes) != 2 || len(s.spans.Ended()) != 2 {
			t.Errorf("%d outcomes, %d spans", len(outcomes), len(s.spans.Ended()))
		}
		close(release)
		time.Sleep(time.Minute)
		s.wantIdle(t)

		hasty, cancel := context.WithCancel(t.Context())
		cancel()
		s = newStage(t, &puppet{
			set:   func(context.Context, string, int32, *Description) *Future[Void] { return NewFuture[Void]() },
			close: func(context.Context) error { panic("oh") },
		})
		s.Set(t.Context(), SetCall{Group: "g", Description: small()}, func(o Outcome) { outcomes <- o })
		err = s.Close(hasty)
		if _, ok := errors.AsType[*PanicError](err); !ok {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		if len(outcomes) != 3 {
			t.Errorf("%d outcomes", len(outcomes))
		}
		s.wantIdle(t)
	})
}

func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most, calls atomic.Int64
		s := newStage(t, &puppet{
			get: func(_ context.Context, group string, epoch int32) *Future[*Description] {
				return Go(func() (*Description, error) {
					calls.Add(1)
					most.Store(max(most.Load(), running.Add(1)))
					defer running.Add(-1)
					time.Sleep(100 * time.Millisecond)
					switch epoch % 3 {
					case 0:
						return nil, fmt.Errorf("no %s", group)
					case 1:
						return nil, nil
					}
					return &Description{Subtopologies: []Subtopology{{ID: group}}}, nil
				})
			},
			delete: func(_ context.Context, group string) *Future[Void] {
				if group == "g1" {
					return nil
				}
				return Completed(Void{})
			},
		}, func(c *Config) { c.Calls = 8 })
		var list []GetCall
		for i := range 100 {
			list = append(list, GetCall{fmt.Sprint("g", i), int32(i)})
		}
		start := time.Now()
		results := s.GetAll(t.Context(), list)
		if took := time.Since(start); took != 2500*time.Millisecond {
			t.Errorf("100 calls, 4 at once, 0.1 s each: took %s", took)
		}
		if most.Load() != 4 || calls.Load() != 100 {
			t.Errorf("%d at once of %d; a batch takes half of the slots", most.Load(), calls.Load())
		}
		for i, r := range results {
			want := []Kind{TransientFailure, NotFound, Found}[i%3]
			if r.Outcome.Kind != want || (want == Found) != (r.Description != nil) || r.Description != nil && r.Description.Subtopologies[0].ID != list[i].Group {
				t.Errorf("%d: %+v", i, r)
			}
		}
		if got := s.DeleteAll(t.Context(), []string{"g0", "g1", "g2"}); len(got) != 3 || got[0].Kind != Deleted || got[1].Kind != PermanentFailure || got[2].Kind != Deleted {
			t.Errorf("%+v", got)
		}
		if got := s.GetAll(t.Context(), nil); len(got) != 0 {
			t.Errorf("%+v", got)
		}
		s.wantIdle(t)
	})
}

// TestBatchOfADeadPlugin: the answer comes within a bounded time, however many groups there are.
func TestBatchOfADeadPlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, &puppet{get: func(ctx context.Context, _ string, _ int32) *Future[*Description] {
			return Go(func() (*Description, error) { <-ctx.Done(); return nil, ctx.Err() })
		}}, func(c *Config) { c.Calls = 8 })
		list := make([]GetCall, 100)
		start := time.Now()
		results := s.GetAll(t.Context(), list)
		if took := time.Since(start); took > BatchTimeoutDefault+TimeoutDefault {
			t.Errorf("took %s", took)
		}
		kinds := map[Kind]int{}
		for _, r := range results {
			kinds[r.Outcome.Kind]++
		}
		if kinds[TimedOut]+kinds[Busy] != 100 || kinds[TimedOut] < 20 || kinds[Busy] < 70 {
			t.Errorf("%v", kinds)
		}
		if st := s.Stats(); st.GetError != 100 {
			t.Errorf("%+v", st)
		}
		if !strings.Contains(s.log.String(), "a part of many groups was not asked for") {
			t.Error("the log has no word of it")
		}

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start = time.Now()
		for i, r := range s.GetAll(ctx, list) {
			if r.Outcome.Kind != Cancelled {
				t.Errorf("%d: %+v", i, r)
			}
		}
		if time.Since(start) != time.Second {
			t.Errorf("took %s", time.Since(start))
		}
		s.wantIdle(t)
	})
}

// TestRealClock: the same under the race detector, without a bubble's order.
func TestRealClock(t *testing.T) {
	var n atomic.Int64
	p := &puppet{
		set: func(ctx context.Context, _ string, _ int32, d *Description) *Future[Void] {
			f := NewFuture[Void]()
			switch n.Add(1) % 5 {
			case 0:
				f.Complete(Void{})
			case 1:
				go f.Complete(Void{})
			case 2:
				go func() { <-ctx.Done(); f.Fail(ctx.Err()) }()
			case 3:
				go func() { <-ctx.Done(); f.Complete(Void{}); f.Complete(Void{}) }()
			case 4:
				panic("oh")
			}
			return f
		},
	}
	s := newStage(t, p, func(c *Config) { c.Timeout, c.Grace, c.Calls = time.Millisecond, 2*time.Millisecond, 16 })
	var wg sync.WaitGroup
	var outcomes atomic.Int64
	for range 8 {
		wg.Go(func() {
			for range 100 {
				s.set(context.Background(), "g")
				outcomes.Add(1)
			}
		})
	}
	wg.Wait()
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); outcomes.Load() != 800 || st.SetSuccess+st.SetError != 800 || len(s.spans.Ended()) != 800 {
		t.Errorf("%d outcomes, %+v, %d spans", outcomes.Load(), st, len(s.spans.Ended()))
	}
}
