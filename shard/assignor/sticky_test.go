package assignor

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The worked examples: notation s_p is task p of subtopology s.
func TestWorkedExamples(t *testing.T) {
	for _, c := range []struct {
		name string
		spec Spec
		want string
	}{
		{
			name: "cold start, unequal processes",
			spec: Spec{
				Subtopologies: []Subtopology{{ID: "0", Tasks: 3}, {ID: "1", Tasks: 3}},
				Members:       []Member{{MemberID: "a1", ProcessID: "A"}, {MemberID: "a2", ProcessID: "A"}, {MemberID: "b1", ProcessID: "B"}},
			},
			want: "a1 active 0_0 1_1; a2 active 0_2 1_2; b1 active 0_1 1_0",
		},
		{
			name: "scale out leaves the lowest partitions with their owner",
			spec: Spec{
				Subtopologies: []Subtopology{{ID: "0", Tasks: 4}},
				Members:       []Member{{MemberID: "m1", ProcessID: "P1", Active: set{"0": {0, 1, 2, 3}}.tasks()}, {MemberID: "m2", ProcessID: "P2"}},
			},
			want: "m1 active 0_0 0_1; m2 active 0_2 0_3",
		},
		{
			name: "cold start with standbys",
			spec: Spec{
				NumStandbyReplicas: 1,
				Subtopologies:      []Subtopology{{ID: "0", Tasks: 3, Stateful: true}},
				Members:            []Member{{MemberID: "m1", ProcessID: "P1"}, {MemberID: "m2", ProcessID: "P2"}, {MemberID: "m3", ProcessID: "P3"}},
			},
			want: "m1 active 0_0 standby 0_2; m2 active 0_2 standby 0_1; m3 active 0_1 standby 0_0",
		},
		{
			name: "failover to the standby",
			spec: Spec{
				NumStandbyReplicas: 1,
				Subtopologies:      []Subtopology{{ID: "0", Tasks: 3, Stateful: true}},
				Members: []Member{
					{MemberID: "m1", ProcessID: "P1", Active: set{"0": {0}}.tasks(), Standby: set{"0": {2}}.tasks()},
					{MemberID: "m2", ProcessID: "P2", Active: set{"0": {1}}.tasks(), Standby: set{"0": {0}}.tasks()},
				},
			},
			want: "m1 active 0_0 0_2 standby 0_1; m2 active 0_1 standby 0_0 0_2",
		},
		{
			name: "the former owner becomes the standby",
			spec: Spec{
				NumStandbyReplicas: 1,
				Subtopologies:      []Subtopology{{ID: "0", Tasks: 2}, {ID: "1", Tasks: 2, Stateful: true}},
				Members: []Member{
					{MemberID: "m1", ProcessID: "P1", Active: set{"0": {0, 1}, "1": {0, 1}}.tasks()},
					{MemberID: "m2", ProcessID: "P2"},
				},
			},
			want: "m1 active 0_0 1_0 standby 1_1; m2 active 0_1 1_1 standby 1_0",
		},
		{
			name: "no standby within one process",
			spec: Spec{
				NumStandbyReplicas: 1,
				Subtopologies:      []Subtopology{{ID: "0", Tasks: 2, Stateful: true}},
				Members:            []Member{{MemberID: "m1", ProcessID: "P1"}, {MemberID: "m2", ProcessID: "P1"}},
			},
			want: "m1 active 0_0; m2 active 0_1",
		},
		{
			name: "the larger reported offset wins",
			spec: Spec{
				Subtopologies: []Subtopology{{ID: "0", Tasks: 2, Stateful: true}},
				Members: []Member{
					{MemberID: "m1", ProcessID: "P1", TaskOffsets: map[Task]int64{{"0", 0}: 10}},
					{MemberID: "m2", ProcessID: "P2", TaskOffsets: map[Task]int64{{"0", 0}: 500}},
				},
			},
			want: "m1 active 0_1; m2 active 0_0",
		},
		{
			name: "order of the input does not matter",
			spec: Spec{
				Subtopologies: []Subtopology{{ID: "1", Tasks: 3}, {ID: "0", Tasks: 3}},
				Members:       []Member{{MemberID: "b1", ProcessID: "B"}, {MemberID: "a2", ProcessID: "A"}, {MemberID: "a1", ProcessID: "A"}},
			},
			want: "a1 active 0_0 1_1; a2 active 0_2 1_2; b1 active 0_1 1_0",
		},
		{
			name: "members without tasks are listed, tasks that are gone are not",
			spec: Spec{
				Subtopologies: []Subtopology{{ID: "0", Tasks: 1}},
				Members: []Member{
					{MemberID: "m1", ProcessID: "P1", Active: set{"0": {1, -1}, "old": {0}}.tasks(), Standby: set{"old": {0}}.tasks(), TaskOffsets: map[Task]int64{{"old", 0}: 1}},
					{MemberID: "m2", ProcessID: "P2", Active: set{"0": {0}}.tasks()},
				},
			},
			want: "m1; m2 active 0_0",
		},
		{
			name: "of two that claim a task the last one keeps it",
			spec: Spec{
				Subtopologies: []Subtopology{{ID: "0", Tasks: 1}},
				Members:       []Member{{MemberID: "m1", ProcessID: "P1", Active: set{"0": {0}}.tasks()}, {MemberID: "m2", ProcessID: "P2", Active: set{"0": {0}}.tasks()}},
			},
			want: "m1; m2 active 0_0",
		},
		{name: "nobody and nothing", want: ""},
		{
			name: "no subtopologies",
			spec: Spec{NumStandbyReplicas: 2, Members: []Member{{MemberID: "m1", ProcessID: "P1"}}},
			want: "m1",
		},
		{
			name: "a negative number of standbys is none",
			spec: Spec{
				NumStandbyReplicas: -1,
				Subtopologies:      []Subtopology{{ID: "0", Tasks: 1, Stateful: true}},
				Members:            []Member{{MemberID: "m1", ProcessID: "P1"}, {MemberID: "m2", ProcessID: "P2"}},
			},
			want: "m1 active 0_0; m2",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := NewSticky().Assign(c.spec)
			if err != nil {
				t.Fatal(err)
			}
			if text(got) != c.want {
				t.Errorf("got  %s\nwant %s", text(got), c.want)
			}
		})
	}
}

// set is tasks as one writes them: partitions by subtopology.
type set map[string][]int32

// tasks keeps the order of partitions, right or wrong.
func (s set) tasks() (t Tasks) {
	for _, sub := range slices.Sorted(maps.Keys(s)) {
		for _, p := range s[sub] {
			t = append(t, Task{sub, p})
		}
	}
	return t
}

// text prints an assignment, members and tasks ascending.
func text(a map[string]Target) string {
	var members []string
	for _, id := range slices.Sorted(maps.Keys(a)) {
		s := id
		for _, role := range []struct {
			name  string
			tasks Tasks
		}{{"active", a[id].Active}, {"standby", a[id].Standby}} {
			if len(role.tasks) > 0 {
				s += " " + role.name
			}
			for _, x := range role.tasks {
				s += fmt.Sprintf(" %s_%d", x.Subtopology, x.Partition)
			}
		}
		members = append(members, s)
	}
	return strings.Join(members, "; ")
}

func TestTasksWithoutMembersAreRefused(t *testing.T) {
	got, err := NewSticky().Assign(Spec{Subtopologies: []Subtopology{{ID: "0", Tasks: 0}, {ID: "1", Tasks: 2}}})
	if want := "No process available to assign active task 1_0."; err == nil || err.Error() != want || got != nil {
		t.Errorf("%v, error %v; want %q", got, err, want)
	}
}

func TestAssignLeavesItsInputAlone(t *testing.T) {
	spec := func() Spec {
		return Spec{
			NumStandbyReplicas: 1,
			Subtopologies:      []Subtopology{{ID: "1", Tasks: 2, Stateful: true}, {ID: "0", Tasks: 2, Stateful: true}},
			Members: []Member{
				{MemberID: "m2", ProcessID: "P2", Standby: set{"1": {0, 1}}.tasks()},
				{MemberID: "m1", ProcessID: "P1", Active: set{"0": {0, 1}, "1": {0, 1}}.tasks(), TaskOffsets: map[Task]int64{{"0", 0}: 5}},
			},
		}
	}
	given := spec()
	if _, err := NewSticky().Assign(given); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(given, spec()) {
		t.Errorf("the input was changed to %+v", given)
	}
}

func TestNameIsKafkas(t *testing.T) {
	if got := NewSticky().Name(); got != "sticky" {
		t.Errorf("name %q", got)
	}
}
