package shard

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client/explain"
	"streamkeeper/eventlog"
	"streamkeeper/shard/streams"
)

// describing is inWorld with replicas that keep topology descriptions.
func describing(t *testing.T, test func(t *testing.T, log *eventlog.Fake, start func(int32) *node)) {
	t.Helper()
	describes.Store(true)
	defer describes.Store(false)
	inWorld(t, 1, test)
}

func (r *node) stored(t *testing.T, group string) int32 {
	t.Helper()
	d, err := r.DescribeStored(t.Context(), group)
	if err != nil {
		t.Fatalf("describe %s: %v", group, err)
	}
	return d.Stored
}

func (r *node) leave(t *testing.T, group, member string) {
	t.Helper()
	if _, err := r.beat(group, member, -1); err != nil {
		t.Fatal(err)
	}
}

func codeOf(err error) int16 {
	var e *streams.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code
}

func TestMembersAreWantedUntilTheDescriptionIsStoredOrRefused(t *testing.T) {
	describing(t, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		ask := func(version int16, req *kmsg.StreamsGroupHeartbeatRequest) HeartbeatResult {
			t.Helper()
			res, err := r.Host.Heartbeat(t.Context(), Caller{}, version, req)
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		first := ask(1, joinRequest("g", "m"))
		if !first.Wants || first.TopologyEpoch != 0 {
			t.Errorf("the join that brings the topology: %v %d", first.Wants, first.TopologyEpoch)
		}
		epoch := first.Response.MemberEpoch
		if ask(0, beatRequest("g", "m", epoch)).Wants {
			t.Error("a version without the field")
		}
		if !ask(1, beatRequest("g", "m", epoch)).Wants {
			t.Error("a heartbeat while nothing is stored")
		}
		if err := r.BeginPush(t.Context(), "g", "m", 0, nil); err != nil {
			t.Fatal(err)
		}
		if !ask(1, beatRequest("g", "m", epoch)).Wants {
			t.Error("a heartbeat while the group is uncertain")
		}
		if err := r.PushStored(t.Context(), "g", 0); err != nil || r.stored(t, "g") != 0 {
			t.Errorf("stored: %v, %d", err, r.stored(t, "g"))
		}
		if ask(1, beatRequest("g", "m", epoch)).Wants {
			t.Error("a heartbeat with the epoch stored")
		}
		other := ask(1, joinRequest("h", "m"))
		if err := r.PushRefused(t.Context(), "h", tooOdd); err != nil {
			t.Fatal(err)
		}
		if ask(1, beatRequest("h", "m", other.Response.MemberEpoch)).Wants {
			t.Error("a heartbeat with the epoch refused")
		}
		ask(1, joinRequest("i", "m"))
		if ask(1, beatRequest("i", "m", -1)).Wants {
			t.Error("a member that leaves")
		}
	})
}

func TestNobodyIsWantedWithoutPlugin(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		res, err := r.Host.Heartbeat(t.Context(), Caller{}, 1, joinRequest("g", "m"))
		if err != nil || res.Wants {
			t.Errorf("wants %v, %v", res.Wants, err)
		}
		if err := r.BeginPush(t.Context(), "g", "m", 0, nil); err != nil { // what a replica with a plugin left
			t.Fatal(err)
		}
		r.leave(t, "g", "m")
		if e, err := r.expire("g"); err != nil || !e.Removed {
			t.Errorf("without a plugin the marker keeps a group: %+v, %v", e, err)
		}
	})
}

var tooOdd = eventlog.DescriptionRefusal{Plugin: "p", Member: "m", Reason: "too odd"}

func TestAPushIsRefusedInOrder(t *testing.T) {
	describing(t, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		r.join(t, "g", "m")
		bad := &streams.Error{Code: 42, Message: "Unknown topology node type: 9"}
		for _, c := range []struct {
			group, member string
			epoch         int32
			code          int16
			text          string
		}{
			{"x", "m", 0, 69, "Group x not found."},
			{"g", "n", 0, 25, "Member n is not a member of group g."},
			{"g", "m", 3, 42, "Topology epoch 3 does not match the group's current topology epoch 0."},
			{"g", "m", 0, 42, bad.Message},
		} {
			err := r.BeginPush(t.Context(), c.group, c.member, c.epoch, bad)
			var e *streams.Error
			if !errors.As(err, &e) || e.Code != c.code || e.Message != c.text {
				t.Errorf("push of %s at %d to %s: %v, want %d %s", c.member, c.epoch, c.group, err, c.code, c.text)
			}
		}
		if got := r.stored(t, "g"); got != eventlog.EpochNone {
			t.Errorf("a refused push left %d", got)
		}
		if err := r.PushStored(t.Context(), "x", 0); codeOf(err) != 69 {
			t.Errorf("outcome for a group that is gone: %v", err)
		}
		if err := r.PushRefused(t.Context(), "x", tooOdd); codeOf(err) != 69 {
			t.Errorf("refusal for a group that is gone: %v", err)
		}
		if err := r.DescriptionDeleted(t.Context(), "x"); err != nil {
			t.Errorf("deletion of a group that is gone: %v", err)
		}
	})
}

func TestAGroupStaysAsLongAsItsDescription(t *testing.T) {
	describing(t, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		r.join(t, "g", "m")
		if err := r.BeginPush(t.Context(), "g", "m", 0, nil); err != nil {
			t.Fatal(err)
		}
		if err := r.PushStored(t.Context(), "g", 0); err != nil {
			t.Fatal(err)
		}
		if ok, err := r.MarkForDelete(t.Context(), "g"); ok || err != nil {
			t.Errorf("mark of a group with a member: %v %v", ok, err)
		}
		if err := r.DeleteGroup(t.Context(), "g"); codeOf(err) != 68 {
			t.Errorf("delete of a group with a member: %v", err)
		}
		r.leave(t, "g", "m")
		if e, err := r.expire("g"); err != nil || e.Removed {
			t.Errorf("a described group expired: %+v, %v", e, err)
		}
		if err := r.DeleteGroup(t.Context(), "g"); !errors.Is(err, ErrDescribed) {
			t.Errorf("delete of a described group: %v", err)
		}
		if err := r.commit("g", "", -1, 5); err != nil {
			t.Fatal(err)
		}
		if ok, err := r.MarkExpired(t.Context(), "g"); ok || err != nil {
			t.Errorf("a group with an offset counts as expired: %v %v", ok, err)
		}
		if got := r.stored(t, "g"); got != 0 {
			t.Errorf("marked all the same: %d", got)
		}
		if ok, err := r.MarkForDelete(t.Context(), "g"); !ok || err != nil || r.stored(t, "g") != eventlog.EpochUncertain {
			t.Errorf("mark: %v %v %d", ok, err, r.stored(t, "g"))
		}
		if err := r.DescriptionDeleted(t.Context(), "g"); err != nil || r.stored(t, "g") != eventlog.EpochNone {
			t.Errorf("deleted: %v %d", err, r.stored(t, "g"))
		}
		if ok, err := r.MarkForDelete(t.Context(), "g"); ok || err != nil {
			t.Errorf("mark without a description: %v %v", ok, err)
		}
		if err := r.DeleteGroup(t.Context(), "g"); err != nil {
			t.Errorf("delete: %v", err)
		}
	})
}

// A process that is killed between the marker, the plugin call and the outcome leaves "uncertain", and its successor asks and
// deletes again.
func TestASuccessorFindsTheMarker(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, r *node)
		want int32
	}{
		{"after the marker of a push", func(t *testing.T, r *node) {}, eventlog.EpochUncertain},
		{"after the outcome of a push", func(t *testing.T, r *node) {
			if err := r.PushStored(t.Context(), "g", 0); err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"after a permanent refusal", func(t *testing.T, r *node) {
			if err := r.PushRefused(t.Context(), "g", tooOdd); err != nil {
				t.Fatal(err)
			}
		}, eventlog.EpochUncertain},
		{"after the marker of a deletion", func(t *testing.T, r *node) {
			if err := r.PushStored(t.Context(), "g", 0); err != nil {
				t.Fatal(err)
			}
			r.leave(t, "g", "m")
			if ok, err := r.MarkForDelete(t.Context(), "g"); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}, eventlog.EpochUncertain},
		{"after the outcome of a deletion", func(t *testing.T, r *node) {
			r.leave(t, "g", "m")
			if ok, err := r.MarkForDelete(t.Context(), "g"); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if err := r.DescriptionDeleted(t.Context(), "g"); err != nil {
				t.Fatal(err)
			}
		}, eventlog.EpochNone},
	} {
		t.Run(c.name, func(t *testing.T) {
			describing(t, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
				r := serving(t, log, start)
				r.join(t, "g", "m")
				if err := r.BeginPush(t.Context(), "g", "m", 0, nil); err != nil {
					t.Fatal(err)
				}
				c.do(t, r)
				r.stop()
				s := start(1)
				s.m.assign(time.Hour, 0)
				s.awaitServing(t)
				if got := s.stored(t, "g"); got != c.want {
					t.Errorf("the successor reads %d, want %d", got, c.want)
				}
			})
		})
	}
}

func TestTheMarkerIsDurableBeforeThePluginIsCalled(t *testing.T) {
	describing(t, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		r.join(t, "g", "m")
		log.HoldAcks(0)
		push := async(func() (struct{}, error) { return struct{}{}, r.BeginPush(context.Background(), "g", "m", 0, nil) })
		again := async(func() (struct{}, error) { return struct{}{}, r.BeginPush(context.Background(), "g", "m", 0, nil) })
		if _, _, done := push(); done {
			t.Error("the barrier returned before its record was acknowledged")
		}
		if _, _, done := again(); done {
			t.Error("a second push overtook the record that it relies on")
		}
		log.ReleaseAcks(0)
		if _, err, done := push(); !done || err != nil {
			t.Errorf("after the acknowledgement: %v %v", done, err)
		}
		if _, err, done := again(); !done || err != nil {
			t.Errorf("second, after the acknowledgement: %v %v", done, err)
		}
	})
}

func TestATenureEndsWithTheShard(t *testing.T) {
	describing(t, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := start(0)
		if err := context.Cause(r.Tenure("g")); err != ErrNotOwner {
			t.Errorf("before the shard serves: %v", err)
		}
		r.m.assign(time.Hour, 0)
		r.awaitServing(t)
		ctx := r.Tenure("g")
		if ctx.Err() != nil {
			t.Fatal("while the shard serves:", context.Cause(ctx))
		}
		if n := r.ended.Load(); n != 0 {
			t.Errorf("ended %d times while the shard serves", n)
		}
		s := start(1)
		s.m.assign(time.Hour, 0)
		s.awaitServing(t)
		synctest.Wait()
		if n := r.ended.Load(); n != 1 {
			t.Errorf("told %d times of the end of the tenure", n)
		}
		if ctx.Err() == nil {
			t.Error("another replica claimed the partition, and the tenure goes on")
		}
		if err := context.Cause(r.Tenure("g")); err != ErrNotOwner && r.Tenure("g").Err() != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// An explanation is of one moment: the state, its timers, the refusal; and it is the successor's as well.
func TestExplain(t *testing.T) {
	describing(t, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		if _, err := r.Explain(t.Context(), "nobody"); codeOf(err) != 69 {
			t.Errorf("of a group that is not there: %v", err)
		}
		r.join(t, "g", "m")
		r.join(t, "h", "m")
		now := time.Now()
		for _, g := range []string{"g", "h"} {
			if err := r.BeginPush(t.Context(), g, "m", 0, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.PushRefused(t.Context(), "g", tooOdd); err != nil {
			t.Fatal(err)
		}
		if e, err := r.Explain(t.Context(), "h"); err != nil || e.DescribedAt != 0 {
			t.Errorf("before it is stored it was stored at %d, %v", e.DescribedAt, err)
		}
		if err := r.PushStored(t.Context(), "h", 0); err != nil {
			t.Fatal(err)
		}
		if e, err := r.Explain(t.Context(), "h"); err != nil || e.Stored != 0 || e.DescribedAt != now.UnixMilli() {
			t.Errorf("stored at %d, %v, want %d", e.DescribedAt, err, now.UnixMilli())
		}
		time.Sleep(20 * time.Second)
		check := func(r *node, silent time.Duration, speaks bool) {
			t.Helper()
			e, err := r.Explain(t.Context(), "g")
			if err != nil {
				t.Fatal(err)
			}
			if e.Group.State != "Stable" || e.Stored != eventlog.EpochUncertain || e.Failed != 0 || e.Current != 1 || e.SpeakOld || e.SpeakDesc != speaks {
				t.Errorf("got %+v", e)
			}
			if why := e.Refusal; why == nil || why.Reason != "too odd" || why.Timestamp == 0 {
				t.Errorf("refused because of %+v", why)
			}
			switch {
			case silent == 0:
				if len(e.Reasons) != 0 {
					t.Errorf("reasons %+v", e.Reasons)
				}
			case len(e.Reasons) != 1 || e.Reasons[0].Code != explain.SilentMember || e.At.Sub(*e.Reasons[0].Since) != silent:
				t.Errorf("reasons %+v, want one member silent for %s", e.Reasons, silent)
			}
		}
		check(r, 20*time.Second, true)
		r.stop()
		s := start(1)
		s.m.assign(time.Hour, 0)
		s.awaitServing(t)
		check(s, 0, false) // its session began anew, and its version is not known
	})
}
