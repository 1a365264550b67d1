package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// errTimedOut is the cause with which a call's context ends after Config.Timeout.
var errTimedOut = errors.New("time-out of the topology description plugin")

// A call goes through these events, of which the first of "settled" delivers the outcome:
//
//	future completes            settled, if it was not; completed
//	time-out, or ctx ends       settled, if it was not; Config.Grace begins
//	grace is over, or Close     abandoned, if not completed
//	the method has returned     returned
//
// completed or abandoned, whichever is first, ends the span and counts the call out; its slot is free once the method
// has returned too.
type call struct {
	t     *Traced
	op    operation
	group string
	epoch int32
	link  trace.SpanContext

	span    trace.Span
	cancel  context.CancelCauseFunc
	unwatch func() // stops the watch on the context and ends it
	deliver func(Outcome)

	mu                              sync.Mutex
	settled, ended, returned, freed bool
	warned                          bool
	outcome                         Outcome     // delivered; valid when settled
	grace                           *time.Timer // nil before a time-out
}

// begin starts a call. invoke is the plugin's method, judge makes an outcome of its value; done gets the outcome.
func begin[T any](ctx context.Context, c *call, haveSlot bool, invoke func(context.Context) *Future[T], judge func(T) Outcome, done func(Outcome)) {
	t := c.t
	c.deliver = done
	ctx = c.startSpan(ctx)
	if err := ctx.Err(); err != nil {
		c.refuse(haveSlot, withoutResult(Cancelled, fmt.Errorf("not called: %w", context.Cause(ctx))))
		return
	}
	if !haveSlot && !t.slots.try(c.op) {
		c.refuse(false, withoutResult(Busy, fmt.Errorf("the topology description plugin is busy: %d calls of %s are under way", t.cfg.Calls, c.op)))
		return
	}
	// The time-out's context is the child: when the caller's has a deadline of its own, that one is the cause.
	ctx, c.cancel = context.WithCancelCause(ctx)
	ctx, stop := context.WithTimeoutCause(ctx, t.cfg.Timeout, errTimedOut)
	t.counters.underWay.Add(1)
	c.mu.Lock() // neither the watch nor Close may settle the call before it is made up
	if !t.register(c) {
		c.mu.Unlock()
		stop()
		c.cancel(nil)
		t.counters.underWay.Add(-1)
		c.refuse(true, withoutResult(Cancelled, ErrClosed))
		return
	}
	unwatch := context.AfterFunc(ctx, func() { c.expired(context.Cause(ctx)) })
	c.unwatch = func() { unwatch(); stop(); c.cancel(nil) }
	c.mu.Unlock()

	go func() {
		defer c.methodReturned()
		ended := false
		defer func() {
			if !ended {
				c.completed(broken(errGoexit), false)
			}
		}()
		future, err := protect(func() (*Future[T], error) { return invoke(ctx), nil })
		ended = true
		switch {
		case err != nil:
			c.completed(broken(err), false)
		case future == nil:
			c.completed(broken(ErrNilFuture), false)
		default:
			future.OnRepeat(c.repeated)
			future.OnComplete(func(value T, err error) { c.futureCompleted(ctx, err, func() Outcome { return judge(value) }) })
		}
	}()
}

func (c *call) startSpan(ctx context.Context) context.Context {
	attributes := []attribute.KeyValue{
		attribute.String("plugin", c.t.name), attribute.String("operation", c.op.String()),
		attribute.String("group", validText(c.group)), // an exporter drops a batch with bad UTF-8 in it
	}
	if c.op.ofEpoch() {
		attributes = append(attributes, attribute.Int("topology.epoch", int(c.epoch)))
	}
	options := []trace.SpanStartOption{trace.WithAttributes(attributes...)}
	if c.link.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: c.link}))
	}
	ctx, c.span = c.t.cfg.Tracer.Start(ctx, "plugin "+c.op.String(), options...)
	return ctx
}

// refuse ends a call that was not made. The outcome comes from another goroutine, like every other.
func (c *call) refuse(release bool, o Outcome) {
	if release {
		c.t.slots.release(c.op)
	}
	c.settled, c.outcome = true, o
	c.endSpan(o)
	c.t.counters.delivered(c.op, o)
	c.logFailure(slog.LevelDebug, o) // under overload there are many, and a counter
	go c.deliver(o)
}

// futureCompleted is called when the plugin's future has its value or error.
func (c *call) futureCompleted(ctx context.Context, err error, judge func() Outcome) {
	if err == nil {
		o, panicked := protect(func() (Outcome, error) { return judge(), nil })
		if panicked != nil { // a value that the plugin changes at the same time
			o = failure(panicked)
		}
		c.completed(o, false)
		return
	}
	// A plugin that obeys its context fails with that one's error: the reason is what ended the context.
	if cause := context.Cause(ctx); cause != nil && (errors.Is(err, cause) || errors.Is(err, ctx.Err())) {
		c.completed(c.expiry(cause), true)
		return
	}
	c.completed(failure(err), false)
}

// completed ends the call with o. obeyed: the future only did what its context said.
func (c *call) completed(o Outcome, obeyed bool) {
	c.unwatch()
	c.mu.Lock()
	first := !c.settled
	if first {
		c.settled, c.outcome = true, o
	}
	delivered := c.outcome
	ended := c.ended
	c.ended = true
	if c.grace != nil {
		c.grace.Stop()
	}
	c.mu.Unlock()

	late := !first && !obeyed
	if late {
		c.t.counters.late.Add(1)
		c.t.log.Debug("topology description plugin completed late", "operation", c.op.String(), "group", c.group,
			"topology_epoch", c.epoch, "after", string(delivered.Kind), "outcome", o.String())
	}
	if !ended {
		if late {
			c.span.SetAttributes(attribute.String("late.after", string(delivered.Kind)), attribute.String("late.outcome", string(o.Kind)))
			late := delivered
			late.Kind = Late
			c.endSpan(late)
		} else {
			c.endSpan(delivered)
		}
		c.t.forget(c)
		c.free()
	}
	if first {
		c.hand(o)
	}
}

// expired is called when the call's context has ended.
func (c *call) expired(cause error) {
	o := c.expiry(cause)
	c.mu.Lock()
	if c.settled {
		c.mu.Unlock()
		return
	}
	c.settled, c.outcome = true, o
	c.grace = time.AfterFunc(c.t.cfg.Grace, c.abandon)
	c.span.AddEvent(string(o.Kind))
	c.mu.Unlock()
	c.hand(o)
}

func (c *call) expiry(cause error) Outcome {
	switch {
	case errors.Is(cause, errTimedOut):
		return withoutResult(TimedOut, fmt.Errorf("the topology description plugin did not answer within %s", c.t.cfg.Timeout))
	case errors.Is(cause, context.DeadlineExceeded):
		return withoutResult(TimedOut, errors.New("the topology description plugin did not answer in the time that the request had left"))
	case errors.Is(cause, ErrClosed):
		return withoutResult(Cancelled, ErrClosed)
	}
	return withoutResult(Cancelled, fmt.Errorf("the call of the topology description plugin was given up: %w", cause))
}

// abandon ends the span of a call whose future has not completed in time, and frees its slot.
func (c *call) abandon() {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended = true
	if c.grace != nil {
		c.grace.Stop()
	}
	first := !c.settled // Close was too hasty for the watch on the context
	if first {
		c.settled, c.outcome = true, withoutResult(Cancelled, ErrClosed)
	}
	o := c.outcome
	c.mu.Unlock()
	c.unwatch()
	c.span.SetAttributes(attribute.Bool("abandoned", true))
	c.endSpan(o)
	c.t.forget(c)
	c.free()
	if first {
		c.hand(o)
	}
}

func (c *call) methodReturned() {
	c.mu.Lock()
	c.returned = true
	c.mu.Unlock()
	c.free()
}

// free gives the slot back, once, when nothing of the call is left: the method has returned, and the future is completed or
// given up.
func (c *call) free() {
	c.mu.Lock()
	now := c.returned && c.ended && !c.freed
	c.freed = c.freed || now
	c.mu.Unlock()
	if now {
		c.t.counters.underWay.Add(-1)
		c.t.slots.release(c.op)
	}
}

// hand counts, logs and delivers the outcome. It is called once, without a lock.
func (c *call) hand(o Outcome) {
	c.t.counters.delivered(c.op, o)
	if !o.OK() {
		c.logFailure(slog.LevelWarn, o)
	}
	c.deliver(o)
}

func (c *call) logFailure(level slog.Level, o Outcome) {
	attributes := []any{"operation", c.op.String(), "group", c.group, "outcome", string(o.Kind), "permanent", o.Permanent, "error", detailOf(o.Err)}
	if c.op.ofEpoch() {
		attributes = append(attributes, "topology_epoch", c.epoch)
	}
	if p, ok := errors.AsType[*PanicError](o.Err); ok {
		attributes = append(attributes, "stack", cutMessage(string(p.Stack)))
	}
	c.t.log.Log(context.Background(), level, "topology description plugin failed", attributes...)
}

func (c *call) endSpan(o Outcome) {
	c.span.SetAttributes(attribute.String("outcome", string(o.Kind)))
	if !o.OK() {
		text := detailOf(o.Err)
		c.span.SetAttributes(attribute.String("error.message", text), attribute.Bool("permanent", o.Permanent))
		c.span.SetStatus(codes.Error, text)
	}
	c.span.End()
}

// repeated is called when the plugin completes a future again; the log hears of it once per call.
func (c *call) repeated() {
	c.t.counters.repeated.Add(1)
	c.mu.Lock()
	again := c.warned
	c.warned = true
	c.mu.Unlock()
	if !again {
		c.t.log.Warn("topology description plugin completed a future again: ignored", "operation", c.op.String(), "group", c.group, "topology_epoch", c.epoch)
	}
}
