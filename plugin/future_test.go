package plugin

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

var errTest = errors.New("test")

func TestFutureCompletesOnce(t *testing.T) {
	f := NewFuture[int]()
	if _, err := f.Result(); err != ErrPending {
		t.Errorf("before: %v", err)
	}
	var got []string
	f.OnComplete(func(v int, err error) { got = append(got, fmt.Sprint("first ", v, err)) })
	f.OnComplete(func(v int, err error) { got = append(got, fmt.Sprint("second ", v, err)) })
	early := f.Done()
	if !f.Complete(1) {
		t.Error("the first Complete was not the first")
	}
	f.OnComplete(func(v int, err error) { got = append(got, fmt.Sprint("late ", v, err)) })
	if f.Complete(2) || f.Fail(errTest) {
		t.Error("completed again")
	}
	if v, err := f.Result(); v != 1 || err != nil {
		t.Errorf("%d, %v", v, err)
	}
	<-early
	<-f.Done()
	if want := "[first 1 <nil> second 1 <nil> late 1 <nil>]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestFutureReportsRepeats(t *testing.T) {
	f := NewFuture[int]()
	f.Complete(1)
	f.Complete(2) // before anybody listens
	f.Complete(3)
	n := 0
	f.OnRepeat(func() { n++ })
	if n != 1 {
		t.Errorf("%d reports of what was before, want 1", n)
	}
	f.Fail(errTest)
	if n != 2 {
		t.Errorf("%d reports", n)
	}
}

func TestFutureCallbackMayUseItsFuture(t *testing.T) {
	f := NewFuture[int]()
	var inner int
	f.OnComplete(func(int, error) {
		f.OnComplete(func(v int, _ error) { inner = v })
		f.Complete(9)
		<-f.Done()
	})
	f.Complete(3)
	if inner != 3 {
		t.Errorf("%d", inner)
	}
}

func TestFailedFutures(t *testing.T) {
	if _, err := Failed[int](errTest).Result(); err != errTest {
		t.Errorf("%v", err)
	}
	if _, err := Failed[int](nil).Result(); err != ErrNoCause || err.Error() != "Plugin failure (no cause)." {
		t.Errorf("%v", err)
	}
	if v, err := Completed("x").Wait(context.Background()); v != "x" || err != nil {
		t.Errorf("%v, %v", v, err)
	}
	ended, cancel := context.WithCancelCause(context.Background())
	cancel(errTest)
	if v, err := Completed("x").Wait(ended); v != "x" || err != nil {
		t.Errorf("what is there comes first: %v, %v", v, err)
	}
	if _, err := NewFuture[int]().Wait(ended); err != errTest {
		t.Errorf("%v", err)
	}
}

func TestGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := Go(func() (int, error) { time.Sleep(time.Second); return 7, nil })
		if _, err := f.Result(); err != ErrPending {
			t.Errorf("not asynchronous: %v", err)
		}
		if v, err := f.Wait(t.Context()); v != 7 || err != nil {
			t.Errorf("%d, %v", v, err)
		}
		if _, err := Go(func() (int, error) { return 7, errTest }).Wait(t.Context()); err != errTest {
			t.Errorf("%v", err)
		}
		_, err := Go(func() (int, error) { panic(errTest) }).Wait(t.Context())
		if p, ok := errors.AsType[*PanicError](err); !ok || !errors.Is(err, errTest) || !strings.Contains(string(p.Stack), "TestGo") {
			t.Errorf("a panic: %v", err)
		}
		if _, err := Go(func() (int, error) { panic("oh") }).Wait(t.Context()); err == nil || err.Error() != "panic: oh" {
			t.Errorf("%v", err)
		}
		if _, err := Go(func() (int, error) { runtime.Goexit(); return 1, nil }).Wait(t.Context()); err != errGoexit {
			t.Errorf("Goexit: %v", err)
		}
	})
}

// TestFutureUnderConcurrency: one winner, and every callback runs once with the winner's value.
func TestFutureUnderConcurrency(t *testing.T) {
	for range 200 {
		f := NewFuture[int]()
		var wins, calls, wrong, repeats atomic.Int64
		var winner atomic.Int64
		f.OnRepeat(func() { repeats.Add(1) })
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				if f.Complete(i) {
					wins.Add(1)
					winner.Store(int64(i))
				}
			})
			wg.Go(func() {
				f.OnComplete(func(v int, _ error) {
					calls.Add(1)
					if got, _ := f.Result(); got != v {
						wrong.Add(1)
					}
				})
			})
			wg.Go(func() { <-f.Done() })
		}
		wg.Wait()
		if v, _ := f.Result(); wins.Load() != 1 || calls.Load() != 4 || wrong.Load() != 0 || repeats.Load() != 3 || int64(v) != winner.Load() {
			t.Fatalf("%d wins, %d calls, %d wrong, %d repeats", wins.Load(), calls.Load(), wrong.Load(), repeats.Load())
		}
	}
}

func TestIsPermanent(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{Permanent("no"), true},
		{Permanentf("no %d", 1), true},
		{fmt.Errorf("put: %w", Permanent("no")), true},
		{errors.Join(errTest, Permanent("no")), true},
		{&TooLargeError{Bytes: 2, BytesMax: 1, What: "x"}, true},
		{&PanicError{Value: Permanent("no")}, true}, // Java: an exception thrown in the asynchronous part
		{&PanicError{Value: "no"}, false},
		{Transient("later", Permanent("no")), false},
		{Transient("later", errTest), false},
		{errTest, false},
		{context.DeadlineExceeded, false},
		{nil, false},
	} {
		if got := IsPermanent(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

type brokenError struct{ s string }

func (e *brokenError) Error() string { return e.s }

func TestMessagesAreCut(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("x", MessageBytesMax), "bad \xff\xfe end"} {
		if got := cutMessage(s); got != strings.ToValidUTF8(s, "?") {
			t.Errorf("%.20q became %.20q", s, got)
		}
	}
	for _, s := range []string{strings.Repeat("x", MessageBytesMax+1), strings.Repeat("😀", 1<<18), strings.Repeat("\x80", 1<<20), "a" + strings.Repeat("é", 1<<19)} {
		got := cutMessage(s)
		if len(got) > MessageBytesMax || !utf8.ValidString(got) || !strings.HasSuffix(got, fmt.Sprintf("… (%d bytes in all)", len(s))) || strings.Contains(got, "\uFFFD") {
			t.Errorf("%d bytes became %d: …%q", len(s), len(got), got[len(got)-40:])
		}
	}
	if got := messageOf((*brokenError)(nil)); !strings.HasPrefix(got, "*plugin.brokenError, whose text can't be had: ") {
		t.Errorf("%q", got)
	}
	if got := detailOf(fmt.Errorf("put: %w", Transient("not reachable", errTest))); got != "put: not reachable: test" {
		t.Errorf("%q", got)
	}
	if got := detailOf(&PermanentError{Reason: "no", Cause: errTest}); got != "no: test" {
		t.Errorf("%q", got)
	}
	if got := detailOf(Permanent("no")); got != "no" {
		t.Errorf("%q", got)
	}
}
