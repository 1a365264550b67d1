package streams

import (
	"strings"
	"testing"

	"streamkeeper/eventlog"
)

func rec(t eventlog.Type, member string, v eventlog.Value) eventlog.Record {
	return eventlog.Record{Key: eventlog.Key{Type: t, Group: "g", Member: member}, Value: v}
}

// TestApplyRefusesTombstonesOutOfOrder: what Kafka's loader refuses too, because a group would be left half removed.
func TestApplyRefusesTombstonesOutOfOrder(t *testing.T) {
	for _, c := range []struct {
		name   string
		record eventlog.Record
		want   string
	}{
		{"group with members", rec(eventlog.TypeGroup, "", nil), "it has 1 members"},
		{"member with an assignment", rec(eventlog.TypeMember, "m", nil), "its assignment (epoch 2) was not removed"},
		{"target assignment with targets", rec(eventlog.TypeTargetAssignment, "", nil), "1 members still have a target"},
		{"another group", eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeGroup, Group: "h"}}, `record of group "h"`},
		{"offset commit", rec(eventlog.TypeOffsetCommit, "", nil), "not of a streams group"},
		{"value of another type", rec(eventlog.TypeGroup, "", &eventlog.Topology{}), "has a value of type"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, _ := grown(t, 1, 1, 2)
			g.members["m"] = g.members[memberName(0)] // one member under a short name
			delete(g.members, memberName(0))
			g.targets = map[string]assignment{"m": {}}
			before := g.String()
			err := g.Apply(c.record)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if g.String() != before {
				t.Errorf("a refused record changed the group:\n%s\nbefore\n%s", g, before)
			}
		})
	}
	t.Run("member with a target", func(t *testing.T) {
		g := NewGroup("g")
		for _, r := range []eventlog.Record{rec(eventlog.TypeMember, "m", &eventlog.Member{}), rec(eventlog.TypeTargetAssignmentMember, "m", &eventlog.TargetAssignmentMember{}), rec(eventlog.TypeCurrentMemberAssignment, "m", nil)} {
			if err := g.Apply(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Apply(rec(eventlog.TypeMember, "m", nil)); err == nil || !strings.Contains(err.Error(), "its target was not removed") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("group with a target assignment", func(t *testing.T) {
		g := NewGroup("g")
		if err := g.Apply(rec(eventlog.TypeGroup, "", &eventlog.Group{Epoch: 3})); err != nil {
			t.Fatal(err)
		}
		if err := g.Apply(rec(eventlog.TypeGroup, "", nil)); err == nil || !strings.Contains(err.Error(), "target assignment (epoch 1) was not removed") {
			t.Errorf("got %v", err)
		}
	})
}

// TestTombstonesOfNothingAreIgnored: compaction may leave them in any mix.
func TestTombstonesOfNothingAreIgnored(t *testing.T) {
	for _, typ := range hydrationOrder {
		g := NewGroup("g")
		if err := g.Apply(rec(typ, "m", nil)); err != nil || g.Exists() {
			t.Errorf("%s in no group: %v, exists %v", typ, err, g.Exists())
		}
	}
	g, _ := grown(t, 1, 1, 2)
	before := g.String()
	for _, typ := range []eventlog.Type{eventlog.TypeMember, eventlog.TypeCurrentMemberAssignment, eventlog.TypeTargetAssignmentMember} {
		if err := g.Apply(rec(typ, "nobody", nil)); err != nil {
			t.Errorf("%s of nobody: %v", typ, err)
		}
	}
	if g.String() != before {
		t.Errorf("got\n%s\nwant\n%s", g, before)
	}
}

// TestEveryValueCreatesWhatItSpeaksOf: whichever record of a group is the first that compaction left.
func TestEveryValueCreatesWhatItSpeaksOf(t *testing.T) {
	for typ, v := range map[eventlog.Type]eventlog.Value{
		eventlog.TypeGroup: &eventlog.Group{Epoch: 5}, eventlog.TypeMember: &eventlog.Member{ClientID: "c"}, eventlog.TypeTargetAssignment: &eventlog.TargetAssignment{AssignmentEpoch: 5},
		eventlog.TypeTargetAssignmentMember: &eventlog.TargetAssignmentMember{}, eventlog.TypeCurrentMemberAssignment: &eventlog.CurrentMemberAssignment{MemberEpoch: 3, State: 77},
		eventlog.TypeTopology: &eventlog.Topology{Epoch: 1},
	} {
		g := NewGroup("g")
		if err := g.Apply(rec(typ, "m", v)); err != nil || !g.Exists() {
			t.Errorf("%s: %v, exists %v", typ, err, g.Exists())
		}
	}
}

// TestMembersOfForeignLogsCanGoOn: a member without a type-22 record, an unknown state, active tasks without epochs.
func TestMembersOfForeignLogsCanGoOn(t *testing.T) {
	g := NewGroup("g")
	for _, r := range []eventlog.Record{
		rec(eventlog.TypeTopology, "", &eventlog.Topology{Subtopologies: []eventlog.Subtopology{{SubtopologyID: "0", SourceTopics: []string{"in"}}}}),
		rec(eventlog.TypeGroup, "", &eventlog.Group{Epoch: 4}),
		rec(eventlog.TypeMember, "bare", &eventlog.Member{}),
		rec(eventlog.TypeMember, "odd", &eventlog.Member{ProcessID: "p"}),
		rec(eventlog.TypeCurrentMemberAssignment, "odd", &eventlog.CurrentMemberAssignment{MemberEpoch: 3, State: 77, Active: []eventlog.TaskIDs{{SubtopologyID: "0", Partitions: []int32{1, 0}, Epochs: []int32{1}}}}),
	} {
		if err := g.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	if m := g.members["bare"]; m.epoch != 0 || m.state != eventlog.MemberStable {
		t.Errorf("bare member: %+v", m)
	}
	m := g.members["odd"]
	if m.state != eventlog.MemberUnknown || m.assigned.active.String() != "0:[0@3 1@3]" {
		t.Errorf("odd member: %s %s", stateText(m.state), m.assigned)
	}
	env := Env{Topics: &fakeTopics{version: 1, byName: map[string]Topic{"in": namedTopic("in", 2)}}, Config: DefaultConfig(), APIVersion: 1}
	// A member in an unknown state has to give everything up first.
	for _, owned := range [][]int32{nil, {0}} {
		req := beatRequest("g", "odd", 3)
		if owned != nil {
			a := assignment{active: tasks{{sub: "0", partition: owned[0]}}}
			req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = a.active.wire(), a.standby.wire(), a.warmup.wire()
		}
		_, err := g.Heartbeat(env, req)
		if e, ok := err.(*Error); !ok || e.Code != codeFencedMemberEpoch || !strings.Contains(e.Message, "unknown state") {
			t.Errorf("owning %v: %v", owned, err)
		}
	}
	req := beatRequest("g", "odd", 3)
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = tasks{}.wire(), tasks{}.wire(), tasks{}.wire()
	r, err := g.Heartbeat(env, req)
	if err != nil || r.Response.MemberEpoch != 5 {
		t.Errorf("owning nothing: %v %v", r.Response, err)
	}
}
