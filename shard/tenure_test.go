package shard

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"streamkeeper/eventlog"
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

// TestHoldingIsOfTheTenure: what writes beside the log has the claim that the shard serves under, as it is renewed, and nothing after it.
func TestHoldingIsOfTheTenure(t *testing.T) {
	describing(t, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := start(0)
		if h, ok := r.Holding(0); ok {
			t.Errorf("before the shard serves: %+v", h)
		}
		r.m.assign(time.Hour, 0)
		r.awaitServing(t)
		first, ok := r.Holding(0)
		if !ok || first.Claim.ProducerID != 1000 || first.Owner.NodeID != r.cfg.Self.NodeID || first.Tenure != r.TenureOf(0) {
			t.Fatalf("holding %+v, %v", first, ok)
		}
		first.Renew()
		synctest.Wait()
		renewed, ok := r.Holding(0)
		if !ok || renewed.Claim.ProducerEpoch != first.Claim.ProducerEpoch+1 || renewed.Tenure != first.Tenure || first.Tenure.Err() != nil {
			t.Errorf("after a renewal: %+v, %v", renewed, ok)
		}
		r.join(t, "g", "m") // the writer works on
		s := start(1)
		s.m.assign(time.Hour, 0)
		s.awaitServing(t)
		synctest.Wait()
		if h, ok := r.Holding(0); ok && h.Tenure == first.Tenure || first.Tenure.Err() == nil {
			t.Errorf("after another replica's claim: %+v, %v; the tenure: %v", h, ok, first.Tenure.Err())
		}
		if h, ok := s.Holding(0); !ok || h.Claim.ProducerEpoch <= renewed.Claim.ProducerEpoch {
			t.Errorf("the other one's: %+v, %v", h, ok)
		}
	})
}

func TestMayBeDescribed(t *testing.T) {
	describing(t, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		want := func(want bool) {
			t.Helper()
			if got, err := r.MayBeDescribed(t.Context(), "g"); err != nil || got != want {
				t.Errorf("%v, %v; want %v", got, err, want)
			}
		}
		want(false)
		r.join(t, "g", "m")
		want(false)
		noError(t, r.BeginPush(t.Context(), "g", "m", 0, nil))
		want(true)
		noError(t, r.PushStored(t.Context(), "g", 0))
		want(true)
		r.leave(t, "g", "m")
		if ok, err := r.MarkForDelete(t.Context(), "g"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		want(true)
		noError(t, r.DescriptionDeleted(t.Context(), "g"))
		want(false)
	})
}

// TestAClaimThatCantBeRenewedEnds: at once, not when the shard has something to append, and the partition is claimed anew.
func TestAClaimThatCantBeRenewedEnds(t *testing.T) {
	describing(t, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := start(0)
		r.m.assign(time.Hour, 0)
		r.awaitServing(t)
		first, _ := r.Holding(0)
		log.ExpireProducer(0)
		first.Renew()
		time.Sleep(time.Minute) // of the bubble
		now, ok := r.Holding(0)
		if first.Tenure.Err() == nil || !ok || now.Claim.ProducerID == first.Claim.ProducerID {
			t.Errorf("the tenure: %v; now %+v, %v", first.Tenure.Err(), now, ok)
		}
		first.Renew() // of a tenure that is over: nothing
		synctest.Wait()
		if again, _ := r.Holding(0); again.Claim != now.Claim {
			t.Errorf("renewed by somebody whose tenure is over: %+v, %+v", again.Claim, now.Claim)
		}
	})
}
