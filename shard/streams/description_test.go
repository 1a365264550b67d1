package streams

import (
	"fmt"
	"slices"
	"testing"

	"streamkeeper/eventlog"
)

// describedGroup is a group with a topology of the epoch, a member where member is not "", and the two description epochs.
func describedGroup(t *testing.T, epoch int32, member string, memberTopology, stored, failed int32) *Group {
	t.Helper()
	g := NewGroup("g")
	apply := func(k eventlog.Key, v eventlog.Value) {
		t.Helper()
		if err := g.Apply(eventlog.Record{Key: k, Value: v}); err != nil {
			t.Fatal(err)
		}
	}
	apply(eventlog.Key{Type: eventlog.TypeTopology, Group: "g"}, &eventlog.Topology{Epoch: epoch})
	apply(eventlog.Key{Type: eventlog.TypeGroup, Group: "g"}, &eventlog.Group{Epoch: 4, MetadataHash: 9, ValidatedTopologyEpoch: 0,
		LastAssignmentConfigs:          []eventlog.KeyValue{{Key: "num.standby.replicas", Value: "0"}},
		StoredDescriptionTopologyEpoch: stored, FailedDescriptionTopologyEpoch: failed})
	if member != "" {
		apply(eventlog.Key{Type: eventlog.TypeMember, Group: "g", Member: member}, &eventlog.Member{TopologyEpoch: memberTopology})
		apply(eventlog.Key{Type: eventlog.TypeCurrentMemberAssignment, Group: "g", Member: member}, &eventlog.CurrentMemberAssignment{MemberEpoch: 4, State: eventlog.MemberStable})
	}
	return g
}

// epochs are the two description epochs that the records leave behind; "none" where there is no record. Everything else must be as it was.
func epochs(t *testing.T, g *Group, records []eventlog.Record) string {
	t.Helper()
	if len(records) == 0 {
		return "none"
	}
	if len(records) != 1 || records[0].Key != (eventlog.Key{Type: eventlog.TypeGroup, Group: "g"}) {
		t.Fatalf("want one record of the group, got %v", records)
	}
	v := *records[0].Value.(*eventlog.Group)
	out := fmt.Sprintf("%d/%d", v.StoredDescriptionTopologyEpoch, v.FailedDescriptionTopologyEpoch)
	v.StoredDescriptionTopologyEpoch, v.FailedDescriptionTopologyEpoch = g.meta.StoredDescriptionTopologyEpoch, g.meta.FailedDescriptionTopologyEpoch
	if fmt.Sprint(v) != fmt.Sprint(g.meta) {
		t.Fatalf("the record changes more than the epochs: %+v, was %+v", v, g.meta)
	}
	return out
}

func TestDescriptionEpochs(t *testing.T) {
	for _, c := range []struct {
		stored, failed                                   int32
		mark, markDelete, stored3, refused3, gone, lost3 string
	}{
		{-1, -1, "-2/-1", "nothing to delete", "-2/-1", "-1/3", "none", "none"},
		{-2, -1, "none", "none", "3/-1", "-2/3", "-1/-1", "none"},
		{2, -1, "-2/-1", "-2/-1", "3/-1", "2/3", "-2/-1", "none"},
		{3, 1, "-2/1", "-2/1", "none", "3/3", "-2/1", "-2/1"},
		{5, 3, "-2/3", "-2/3", "none", "none", "-2/3", "none"},
	} {
		t.Run(fmt.Sprintf("%d/%d", c.stored, c.failed), func(t *testing.T) {
			g := describedGroup(t, 3, "", 0, c.stored, c.failed)
			check := func(what, got, want string) {
				t.Helper()
				if got != want {
					t.Errorf("%s: %s, want %s", what, got, want)
				}
			}
			check("before a push", epochs(t, g, g.MarkUncertain()), c.mark)
			marked := "nothing to delete"
			if recs, ok := g.MarkForDelete(); ok {
				marked = epochs(t, g, recs)
			}
			check("before a deletion", marked, c.markDelete)
			check("push of 3 stored", epochs(t, g, g.DescriptionStored(3)), c.stored3)
			check("push of 3 refused", epochs(t, g, refusedRecords(t, g, 3)), c.refused3)
			check("deleted", epochs(t, g, g.DescriptionDeleted()), c.gone)
			check("3 is lost", epochs(t, g, g.DescriptionLost(3)), c.lost3)
		})
	}
	fresh := NewGroup("g")
	if r := fresh.MarkUncertain(); r != nil {
		t.Errorf("a group that is not there is marked: %v", r)
	}
	if _, ok := describedGroup(t, 3, "m", 3, 3, -1).MarkForDelete(); ok {
		t.Error("a group with members is marked for the deletion of its description")
	}
}

// refusedRecords are the records of a refusal of the epoch but for the one with the reason, which has to be there and to be of it.
func refusedRecords(t *testing.T, g *Group, epoch int32) []eventlog.Record {
	t.Helper()
	why := eventlog.DescriptionRefusal{TopologyEpoch: epoch, Plugin: "p", Member: "m", Reason: "too odd", Timestamp: 7}
	records := g.DescriptionRefused(why)
	if len(records) == 0 {
		return nil
	}
	last := records[len(records)-1]
	if v, ok := last.Value.(*eventlog.DescriptionRefusal); !ok || *v != why || last.Key != (eventlog.Key{Type: eventlog.TypeDescriptionRefusal, Group: "g"}) {
		t.Fatalf("the reason is recorded as %+v", last)
	}
	return records[:len(records)-1]
}

// The reason of a refusal is the group's as long as it is of the failed epoch, goes with the group, and never makes one.
func TestARefusalHasItsReason(t *testing.T) {
	g := describedGroup(t, 3, "", 0, -2, -1)
	for _, r := range g.DescriptionRefused(eventlog.DescriptionRefusal{TopologyEpoch: 3, Reason: "too odd"}) {
		if err := g.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	if r := g.Refusal(); r == nil || r.Reason != "too odd" {
		t.Fatalf("after the refusal: %+v", r)
	}
	if got := g.DescriptionRefused(eventlog.DescriptionRefusal{TopologyEpoch: 2, Reason: "older"}); got != nil {
		t.Errorf("an older epoch's refusal is recorded: %v", got)
	}
	records, err := g.Delete()
	if err != nil {
		t.Fatal(err)
	}
	var deleted []eventlog.Type
	for _, r := range records {
		deleted = append(deleted, r.Key.Type)
		if err := g.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Contains(deleted, eventlog.TypeDescriptionRefusal) || g.Refusal() != nil || g.Exists() {
		t.Errorf("deleted by %v, refusal %+v, exists %v", deleted, g.Refusal(), g.Exists())
	}
	left := eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeDescriptionRefusal, Group: "g"}, Value: &eventlog.DescriptionRefusal{TopologyEpoch: 3, Reason: "of an earlier life"}}
	if err := g.Apply(left); err != nil || g.Exists() {
		t.Errorf("what was left behind makes a group: %v", err)
	}
	next := describedGroup(t, 3, "", 0, -1, -1)
	if err := next.Apply(left); err != nil || next.Refusal() != nil {
		t.Errorf("a reason of an earlier life is told: %v, %+v", err, next.Refusal())
	}
}

func TestWantsDescription(t *testing.T) {
	for _, c := range []struct {
		name             string
		topology, member int32
		stored, failed   int32
		epoch            int32
		version          int16
		want             bool
	}{
		{"nothing stored", 0, 0, -1, -1, 4, 1, true},
		{"uncertain", 0, 0, -2, -1, 4, 1, true},
		{"an older one stored", 2, 2, 1, 1, 4, 1, true},
		{"stored", 2, 2, 2, -1, 4, 1, false},
		{"refused for good", 2, 2, -2, 2, 4, 1, false},
		{"member behind", 2, 1, -1, -1, 4, 1, false},
		{"leaving", 0, 0, -1, -1, -1, 1, false},
		{"joining", 0, 0, -1, -1, 0, 1, true},
		{"old client", 0, 0, -1, -1, 4, 0, false},
	} {
		if got := describedGroup(t, c.topology, "m", c.member, c.stored, c.failed).WantsDescription("m", c.epoch, c.version); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAdmitPush(t *testing.T) {
	g := describedGroup(t, 2, "m", 2, -1, -1)
	for _, c := range []struct {
		g      *Group
		member string
		epoch  int32
		want   string
	}{
		{g, "m", 2, ""},
		{g, "n", 2, "error 25: Member n is not a member of group g."},
		{g, "m", 3, "error 42: Topology epoch 3 does not match the group's current topology epoch 2."},
		{NewGroup("g"), "m", 2, "error 69: Group g not found."},
	} {
		got := ""
		if err := c.g.AdmitPush(c.member, c.epoch); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("push by %s for %d: %q, want %q", c.member, c.epoch, got, c.want)
		}
	}
}
