package shard

import (
	"context"
	"errors"
	"testing"
)

type valueOf string

// TestUnderEndsWithTheTenureAtOnce: nothing may come between the end of a tenure and that of what is done under it, or it could be
// taken for a part of the next one.
func TestUnderEndsWithTheTenureAtOnce(t *testing.T) {
	request, leave := context.WithCancel(context.WithValue(t.Context(), valueOf("span"), "of the request"))
	for range 1000 {
		tenure, end := context.WithCancelCause(context.Background())
		ctx, cancel := Under(request, tenure)
		deeper, stop := context.WithTimeout(ctx, 1<<40)
		end(ErrNotOwner)
		if ctx.Err() == nil || deeper.Err() == nil || !errors.Is(context.Cause(deeper), ErrNotOwner) {
			t.Fatalf("after the tenure ended: %v, %v, cause %v", ctx.Err(), deeper.Err(), context.Cause(deeper))
		}
		stop()
		cancel(nil)
	}
	tenure, end := context.WithCancelCause(context.Background())
	defer end(nil)
	ctx, cancel := Under(request, tenure)
	if ctx.Value(valueOf("span")) != "of the request" {
		t.Error("the request's values are gone")
	}
	leave()
	if ctx.Err() != nil {
		t.Error("a client that leaves ends what it began")
	}
	cancel(nil)
	if ctx.Err() == nil || tenure.Err() != nil {
		t.Errorf("cancelled: %v; the tenure: %v", ctx.Err(), tenure.Err())
	}
}
