package plugin

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
)

// Future is a result that comes later: a value or an error, once. The zero Future waits to be completed. A Future must
// not be copied after first use.
type Future[T any] struct {
	mu        sync.Mutex
	done      chan struct{} // made on demand; closed when completed
	completed bool
	value     T
	err       error
	callbacks []func(T, error)
	onRepeat  func()
	repeated  bool // completed again before anybody listened for that
}

// NewFuture returns a future to be completed with Complete or Fail.
func NewFuture[T any]() *Future[T] { return new(Future[T]) }

// Completed returns a future that has its value already.
func Completed[T any](value T) *Future[T] { return &Future[T]{completed: true, value: value} }

// Failed returns a future that has failed already; see Fail.
func Failed[T any](err error) *Future[T] {
	f := new(Future[T])
	f.Fail(err)
	return f
}

// Go runs fn on a goroutine of its own and returns a future of its result. A panic in fn is a failure (*PanicError) and
// not the end of the process; what fn starts itself it must look after itself.
func Go[T any](fn func() (T, error)) *Future[T] {
	f := new(Future[T])
	go func() {
		ended := false
		defer func() {
			if !ended { // runtime.Goexit, as t.FailNow calls it, runs nothing but deferred functions
				f.Fail(errGoexit)
			}
		}()
		value, err := protect(fn)
		ended = true
		if err != nil {
			f.Fail(err)
		} else {
			f.Complete(value)
		}
	}()
	return f
}

// protect calls fn and turns a panic into an error.
func protect[T any](fn func() (T, error)) (value T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &PanicError{Value: r, Stack: debug.Stack()}
		}
	}()
	return fn()
}

// Complete sets the value and says whether it was the first to complete the future. If it was not, nothing changes, and
// OnRepeat's function is called.
func (f *Future[T]) Complete(value T) bool { return f.complete(value, nil) }

// Fail sets the error, as Complete sets the value. A nil error becomes ErrNoCause: a future can't fail for nothing.
func (f *Future[T]) Fail(err error) bool {
	if err == nil {
		err = ErrNoCause
	}
	var none T
	return f.complete(none, err)
}

func (f *Future[T]) complete(value T, err error) bool {
	f.mu.Lock()
	if f.completed {
		report := f.onRepeat
		f.repeated = true
		f.mu.Unlock()
		if report != nil {
			report()
		}
		return false
	}
	f.completed, f.value, f.err = true, value, err
	callbacks := f.callbacks
	f.callbacks = nil
	if f.done != nil {
		close(f.done)
	}
	f.mu.Unlock()
	for _, c := range callbacks {
		c(value, err)
	}
	return true
}

// Done returns a channel that is closed when the future is completed.
func (f *Future[T]) Done() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done == nil {
		f.done = make(chan struct{})
		if f.completed {
			close(f.done)
		}
	}
	return f.done
}

// ErrPending is the error of a future that is not completed yet.
var ErrPending = errors.New("the future is not completed yet")

// Result returns the value or the error, or ErrPending.
func (f *Future[T]) Result() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.completed {
		return f.value, ErrPending
	}
	return f.value, f.err
}

// Wait returns the result when it is there, or ctx's error when that comes first.
func (f *Future[T]) Wait(ctx context.Context) (T, error) {
	select {
	case <-f.Done():
		return f.Result()
	default: // a result that is there comes before a ctx that has ended
	}
	select {
	case <-f.Done():
		return f.Result()
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// OnComplete calls fn once, when the future is completed: at once, on this goroutine, if it is already; otherwise on the
// goroutine that completes it, in the order of the calls to OnComplete. fn must not block.
func (f *Future[T]) OnComplete(fn func(value T, err error)) {
	f.mu.Lock()
	if !f.completed {
		f.callbacks = append(f.callbacks, fn)
		f.mu.Unlock()
		return
	}
	value, err := f.value, f.err
	f.mu.Unlock()
	fn(value, err)
}

// OnRepeat sets the function that is called whenever somebody completes the future again; once at once if that has
// happened before. There is one such function: a second call replaces it. fn must not block.
func (f *Future[T]) OnRepeat(fn func()) {
	f.mu.Lock()
	f.onRepeat = fn
	repeated := f.repeated
	f.repeated = false
	f.mu.Unlock()
	if repeated && fn != nil {
		fn()
	}
}
