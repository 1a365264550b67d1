package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// GetCall names a description.
type GetCall struct {
	Group         string
	TopologyEpoch int32
}

// GetResult is what became of a GetCall.
type GetResult struct {
	Description *Description // nil unless the outcome is Found
	Outcome     Outcome
}

// GetAll reads many descriptions side by side and returns one result per call, in order. Unlike Get it waits for slots
// instead of being Busy, but takes at most half of them, so that others find some; what has not begun within
// Config.BatchTimeout is Busy after all, and what has begun ends with its own time-out.
func (t *Traced) GetAll(ctx context.Context, calls []GetCall) []GetResult {
	return batch(ctx, t, opGet, calls, func(g GetCall, done func(GetResult)) {
		t.get(ctx, g, true, func(d *Description, o Outcome) { done(GetResult{d, o}) })
	}, func(o Outcome) GetResult { return GetResult{nil, o} })
}

// DeleteAll deletes what is stored for many groups, as GetAll reads it.
func (t *Traced) DeleteAll(ctx context.Context, groups []string) []Outcome {
	return batch(ctx, t, opDelete, groups, func(group string, done func(Outcome)) {
		t.delete(ctx, group, true, done)
	}, func(o Outcome) Outcome { return o })
}

func batch[I, R any](ctx context.Context, t *Traced, op operation, items []I, start func(I, func(R)), refused func(Outcome) R) []R {
	results := make([]R, len(items))
	waiting, cancel := context.WithTimeout(ctx, t.cfg.BatchTimeout)
	defer cancel()
	own := make(chan struct{}, max(1, t.cfg.Calls/2))
	var running sync.WaitGroup
	for i, item := range items {
		if !t.turn(waiting, op, own) {
			o := t.notBegun(ctx, op)
			for j := i; j < len(items); j++ {
				results[j] = refused(o)
				t.counters.delivered(op, o)
			}
			t.log.Warn("topology description plugin: a part of many groups was not asked for", "operation", op.String(),
				"groups", len(items), "not_asked", len(items)-i, "outcome", string(o.Kind), "error", messageOf(o.Err))
			break
		}
		running.Add(1)
		start(item, func(r R) {
			results[i] = r
			<-own
			running.Done()
		})
	}
	running.Wait()
	return results
}

// turn waits until one more call of a batch may begin, and takes its slot.
func (t *Traced) turn(ctx context.Context, op operation, own chan struct{}) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case own <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	return t.slots.wait(ctx, op)
}

func (t *Traced) notBegun(ctx context.Context, op operation) Outcome {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return withoutResult(Cancelled, fmt.Errorf("not called: %w", context.Cause(ctx)))
	}
	return withoutResult(Busy, fmt.Errorf("the topology description plugin is busy: no turn for this call of %s within %s", op, t.cfg.BatchTimeout))
}
