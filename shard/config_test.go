package shard

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/streams"
)

func (r *node) alter(group string, validateOnly bool, changes ...groupconfig.Change) error {
	return r.AlterConfig(context.Background(), group, validateOnly, func(b *groupconfig.Broker, current map[string]string) (map[string]string, *streams.Error) {
		return b.Alter(current, changes)
	})
}

func set(name, value string) groupconfig.Change { return groupconfig.Change{Name: name, Value: value} }

func wantConfig(t *testing.T, r *node, group string, want map[string]string) {
	t.Helper()
	synctest.Wait()
	if got, err := r.GroupConfig(group); err != nil || !maps.Equal(got, want) {
		t.Errorf("configuration of %s: %v, %v; want %v", group, got, err, want)
	}
}

// A configuration is there before the group and after it, and goes with its last value.
func TestAConfigurationOutlivesItsGroup(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		if err := r.alter("g", false, set("streams.heartbeat.interval.ms", "6000")); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"streams.heartbeat.interval.ms": "6000"}
		wantConfig(t, r, "g", want)
		if known, err := r.Known("g"); known || err != nil {
			t.Errorf("a configuration makes the group known: %v", err)
		}
		if l, err := r.List(t.Context()); err != nil || len(l) != 0 {
			t.Errorf("list: %v %v", l, err)
		}
		if resp := r.join(t, "g", "m"); resp.HeartbeatIntervalMillis != 6000 {
			t.Errorf("heartbeat interval %d", resp.HeartbeatIntervalMillis)
		}
		if _, err := r.beat("g", "m", -1); err != nil {
			t.Fatal(err)
		}
		if err := r.DeleteGroup(t.Context(), "g"); err != nil {
			t.Fatal(err)
		}
		wantConfig(t, r, "g", want)
		time.Sleep(2 * idleKeep) // the group leaves memory
		if resp := r.join(t, "g", "m"); resp.HeartbeatIntervalMillis != 6000 {
			t.Errorf("heartbeat interval of the group's next life: %d", resp.HeartbeatIntervalMillis)
		}
		var ids []string
		if err := r.GroupsWithConfig(0, func(g string) { ids = append(ids, g) }); err != nil || len(ids) != 1 || ids[0] != "g" {
			t.Errorf("groups with a configuration: %v %v", ids, err)
		}
		if err := r.alter("g", false, groupconfig.Change{Op: groupconfig.Delete, Name: "streams.heartbeat.interval.ms"}); err != nil {
			t.Fatal(err)
		}
		wantConfig(t, r, "g", nil)
		ids = nil
		if err := r.GroupsWithConfig(0, func(g string) { ids = append(ids, g) }); err != nil || len(ids) != 0 {
			t.Errorf("groups with a configuration: %v %v", ids, err)
		}
	})
}

// What is refused, or only asked, or no change, writes nothing.
func TestAlterationsThatWriteNothing(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		if err := r.alter("g", false, set("streams.num.standby.replicas", "1")); err != nil {
			t.Fatal(err)
		}
		before := r.Stats().Records
		var e *streams.Error
		if err := r.alter("g", false, set("streams.num.standby.replicas", "9")); !errors.As(err, &e) || e.Code != 40 {
			t.Errorf("out of bounds: %v", err)
		}
		if err := r.alter("g", true, set("streams.num.standby.replicas", "2")); err != nil {
			t.Errorf("only asked: %v", err)
		}
		if err := r.alter("g", false, set("streams.num.standby.replicas", "1")); err != nil {
			t.Errorf("no change: %v", err)
		}
		if err := r.alter("h", false, groupconfig.Change{Op: groupconfig.Delete, Name: "streams.num.standby.replicas"}); err != nil {
			t.Errorf("a deletion of what is not there: %v", err)
		}
		if after := r.Stats().Records; after != before {
			t.Errorf("%d records were written", after-before)
		}
		wantConfig(t, r, "g", map[string]string{"streams.num.standby.replicas": "1"})
	})
}

// The number of standby replicas makes a new epoch at the next heartbeat; the session time-out counts from there on, and after a takeover.
func TestAConfigurationActsOnARunningGroup(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		a := serving(t, log, start)
		a.m.extend(time.Hour)
		epoch := a.join(t, "g", "m").MemberEpoch
		if err := a.alter("g", false, set("streams.num.standby.replicas", "1"), set("streams.session.timeout.ms", "60000")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // past the assignment interval
		resp, err := a.beat("g", "m", epoch)
		if err != nil || resp.MemberEpoch <= epoch {
			t.Fatalf("member epoch %d after %d, %v: no rebalance", resp.MemberEpoch, epoch, err)
		}
		epoch = resp.MemberEpoch
		if resp, err = a.beat("g", "m", epoch); err != nil || resp.MemberEpoch != epoch {
			t.Fatalf("member epoch %d after %d, %v: one rebalance too many", resp.MemberEpoch, epoch, err)
		}
		time.Sleep(50 * time.Second) // longer than the time-out of groups that are not configured
		if _, err = a.beat("g", "m", epoch); err != nil {
			t.Fatalf("after 50 s of 60: %v", err)
		}
		b := start(1)
		a.m.revoke(0)
		b.m.assign(time.Hour, 0)
		b.awaitServing(t)
		time.Sleep(50 * time.Second)
		if _, err = b.beat("g", "m", epoch); err != nil {
			t.Fatalf("at the successor, after 50 s of 60: %v", err)
		}
		time.Sleep(61 * time.Second)
		var e *streams.Error
		if _, err = b.beat("g", "m", epoch); !errors.As(err, &e) || e.Code != codeUnknownMember {
			t.Errorf("after 61 s: %v", err)
		}
	})
}
