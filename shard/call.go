package shard

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Caller says who asks.
type Caller struct {
	ClientID   string
	ClientHost string // Java's form, "/10.0.0.1"
	// Unasked says that the cluster was not asked whether it has a group of that id, as the group was known here: it may be gone when the request's turn comes,
	// converted to a classic group. A join that would make it anew is told to try again (ErrLoading).
	Unasked bool
}

// call runs a handler on the loop of the group's shard and waits for its answer to be allowed out. run returns the answer
// and what the handler decided; both are only touched by the loop until the answer is handed out.
func call[T any](ctx context.Context, h *Host, verb, groupID string, run func(t *turn) (T, effect, error)) (T, error) {
	var zero T
	s := h.shards[h.Partition(groupID)]
	ctx, span := h.tracer.Start(ctx, "shard "+verb, trace.WithAttributes(
		attribute.String("group", groupID), attribute.Int("partition", int(s.partition))))
	defer span.End()

	type outcome struct {
		v   T
		err error
	}
	out := make(chan outcome, 1)
	var v T
	r := request{
		ctx: ctx, group: groupID,
		run: func(t *turn) (effect, error) {
			var eff effect
			var err error
			v, eff, err = run(t)
			return eff, err
		},
		answer: func() { out <- outcome{v: v} },
		fail:   func(err error) { out <- outcome{err: err} },
	}
	if h.stopping.Load() {
		return zero, ErrUnavailable
	}
	if !s.submit(r) {
		h.stats.overloaded.Add(1)
		return zero, ErrLoading
	}
	select {
	case o := <-out:
		switch {
		case errors.Is(o.err, ErrDescribed): // nothing has failed: the description goes first
			span.SetAttributes(attribute.Bool("described", true))
		case o.err != nil:
			span.SetStatus(codes.Error, o.err.Error())
		}
		return o.v, o.err
	case <-ctx.Done():
		return zero, ctx.Err()
	case <-h.ended:
		return zero, ErrUnavailable
	}
}
