package shard

import (
	"context"
	"fmt"
	"testing"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/plugin"
	"streamkeeper/plugin/memory"
)

// backend is a plugin that outlives replicas.
type backend struct{ *memory.Plugin }

func (b backend) holds(t *testing.T, group string) bool {
	t.Helper()
	d, err := b.Get(t.Context(), group, 0).Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d != nil
}

// step is one of marker, plugin call and outcome.
type step func(t *testing.T, r *node, b backend)

func pushSteps() []step {
	return []step{
		func(t *testing.T, r *node, _ backend) { noError(t, r.BeginPush(t.Context(), "g", "m", 0, nil)) },
		func(t *testing.T, _ *node, b backend) {
			_, err := b.Set(t.Context(), "g", 0, &plugin.Description{}).Wait(t.Context())
			noError(t, err)
		},
		func(t *testing.T, r *node, _ backend) { noError(t, r.PushStored(t.Context(), "g", 0)) },
	}
}

func deleteSteps(mark func(*node, context.Context, string) (bool, error)) []step {
	return []step{
		func(t *testing.T, r *node, _ backend) { r.leave(t, "g", "m") },
		func(t *testing.T, r *node, _ backend) {
			if ok, err := mark(r, t.Context(), "g"); !ok || err != nil {
				t.Fatalf("mark: %v %v", ok, err)
			}
		},
		func(t *testing.T, _ *node, b backend) {
			_, err := b.Delete(t.Context(), "g").Wait(t.Context())
			noError(t, err)
		},
		func(t *testing.T, r *node, _ backend) { noError(t, r.DescriptionDeleted(t.Context(), "g")) },
		func(t *testing.T, r *node, _ backend) { noError(t, r.DeleteGroup(t.Context(), "g")) },
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// cycle is what the cleanup cycle does for one group.
func (r *node) cycle(t *testing.T, b backend, group string) {
	t.Helper()
	marked, err := r.MarkExpired(t.Context(), group)
	noError(t, err)
	if marked {
		_, err := b.Delete(t.Context(), group).Wait(t.Context())
		noError(t, err)
		noError(t, r.DescriptionDeleted(t.Context(), group))
	}
	_, err = r.expire(group)
	noError(t, err)
}

// Whatever a killed replica was about, its successor never takes a description for stored that may not be there, and never
// lets a group go whose description may be.
func TestKilledAtAnyPointTheGroupConverges(t *testing.T) {
	for name, steps := range map[string][]step{
		"push":    pushSteps(),
		"delete":  append(pushSteps(), deleteSteps(func(r *node, ctx context.Context, g string) (bool, error) { return r.MarkForDelete(ctx, g) })...),
		"cleanup": append(pushSteps(), deleteSteps(func(r *node, ctx context.Context, g string) (bool, error) { return r.MarkExpired(ctx, g) })...),
	} {
		for killed := range len(steps) + 1 {
			for _, restart := range []bool{false, true} { // of the same replica, else another takes over
				t.Run(fmt.Sprintf("%s killed after %d steps, restart %v", name, killed, restart), func(t *testing.T) {
					describing(t, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
						b := backend{memory.New(memory.Config{})}
						r := serving(t, log, start)
						r.join(t, "g", "m")
						for _, do := range steps[:killed] {
							do(t, r, b)
						}
						r.stop()
						id := int32(1)
						if restart {
							id = 0
						}
						s := start(id)
						s.m.assign(time.Hour, 0)
						s.awaitServing(t)
						s.converges(t, b)
					})
				})
			}
		}
	}
}

// converges checks what holds of the group g at once, and that it goes with its description.
func (r *node) converges(t *testing.T, b backend) {
	t.Helper()
	d, err := r.DescribeStored(t.Context(), "g")
	if codeOf(err) == codeGroupIDNotFound {
		if b.holds(t, "g") {
			t.Error("the description has outlived its group")
		}
		return
	}
	noError(t, err)
	if d.Stored >= 0 && !b.holds(t, "g") {
		t.Errorf("epoch %d counts as stored and is not there", d.Stored)
	}
	if d.Stored == eventlog.EpochNone && b.holds(t, "g") {
		t.Error("nothing counts as stored, but there is something")
	}
	if len(d.Group.Members) > 0 {
		result, err := r.Host.Heartbeat(t.Context(), Caller{}, 1, beatRequest("g", "m", d.Group.Members[0].MemberEpoch))
		noError(t, err)
		if result.Wants == (d.Stored == 0) {
			t.Errorf("stored %d, and the member is wanted: %v", d.Stored, result.Wants)
		}
		r.leave(t, "g", "m")
	}
	r.cycle(t, b, "g")
	if _, err := r.DescribeStored(t.Context(), "g"); codeOf(err) != codeGroupIDNotFound || b.holds(t, "g") {
		t.Errorf("after a cycle: %v, description there %v", err, b.holds(t, "g"))
	}
}

// A replica that was replaced between its marker and the outcome can't write it, and its call has ended.
func TestAReplacedReplicaCantWriteTheOutcome(t *testing.T) {
	describing(t, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		r.join(t, "g", "m")
		noError(t, r.BeginPush(t.Context(), "g", "m", 0, nil))
		tenure := r.Tenure("g")
		s := start(1)
		s.m.assign(time.Hour, 0)
		s.awaitServing(t)
		if err := r.PushStored(t.Context(), "g", 0); err == nil {
			t.Error("the outcome was written by a replica that had been replaced")
		}
		if tenure.Err() == nil {
			t.Error("its call of the plugin goes on")
		}
		if got := s.stored(t, "g"); got != eventlog.EpochUncertain {
			t.Errorf("the successor reads %d", got)
		}
	})
}

// A push and a deletion whose plugin calls overlap leave "uncertain", whichever outcome is written last.
func TestOverlappingPushAndDeletionStayUncertain(t *testing.T) {
	for _, pushLast := range []bool{true, false} {
		describing(t, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
			r := serving(t, log, start)
			r.join(t, "g", "m")
			noError(t, r.BeginPush(t.Context(), "g", "m", 0, nil))
			r.leave(t, "g", "m")
			if ok, err := r.MarkForDelete(t.Context(), "g"); !ok || err != nil {
				t.Fatal(ok, err)
			}
			outcomes := []func() error{
				func() error { return r.DescriptionDeleted(t.Context(), "g") },
				func() error { return r.PushStored(t.Context(), "g", 0) },
			}
			if !pushLast {
				outcomes[0], outcomes[1] = outcomes[1], outcomes[0]
			}
			for _, write := range outcomes {
				noError(t, write())
			}
			if got := r.stored(t, "g"); got != eventlog.EpochUncertain {
				t.Errorf("push last %v: %d", pushLast, got)
			}
		})
	}
}
