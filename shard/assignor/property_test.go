package assignor

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func drawSpec(t *rapid.T) Spec {
	spec := Spec{NumStandbyReplicas: rapid.IntRange(0, 3).Draw(t, "standbys")}
	for i := range rapid.IntRange(0, 5).Draw(t, "subtopologies") {
		spec.Subtopologies = append(spec.Subtopologies, Subtopology{
			ID:       fmt.Sprint(i),
			Tasks:    rapid.Int32Range(0, 9).Draw(t, "tasks"),
			Stateful: rapid.Bool().Draw(t, "stateful"),
		})
	}
	task := rapid.Custom(func(t *rapid.T) Task {
		return Task{fmt.Sprint(rapid.IntRange(0, 6).Draw(t, "s")), rapid.Int32Range(-1, 10).Draw(t, "p")}
	})
	processes := rapid.IntRange(1, 6).Draw(t, "processes")
	for i := range rapid.IntRange(1, 9).Draw(t, "members") {
		m := Member{
			MemberID:    fmt.Sprintf("m%02d", i),
			ProcessID:   fmt.Sprintf("p%d", rapid.IntRange(1, processes).Draw(t, "process")),
			TaskOffsets: rapid.MapOfN(task, rapid.Int64Range(0, 5), 0, 6).Draw(t, "offsets"),
		}
		for _, set := range []*Tasks{&m.Active, &m.Standby} {
			*set = sorted(rapid.SliceOfNDistinct(task, 0, 8, rapid.ID).Draw(t, "has"))
		}
		spec.Members = append(spec.Members, m)
	}
	return spec
}

func compareTasks(a, b Task) int {
	return cmp.Or(strings.Compare(a.Subtopology, b.Subtopology), cmp.Compare(a.Partition, b.Partition))
}

func sorted(t Tasks) Tasks {
	slices.SortFunc(t, compareTasks)
	return t
}

func TestEveryTaskIsPlacedOnceAndNoProcessTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := drawSpec(t)
		got, err := NewSticky().Assign(spec)
		if err != nil {
			t.Fatal(err)
		}
		checkPlacement(t, spec, got)
		again, err := NewSticky().Assign(spec)
		if err != nil || !reflect.DeepEqual(got, again) {
			t.Fatalf("the same input gives\n%s, then\n%s (%v)", text(got), text(again), err)
		}
		slices.Reverse(spec.Members)
		slices.Reverse(spec.Subtopologies)
		if turned, err := NewSticky().Assign(spec); err != nil || !reflect.DeepEqual(got, turned) {
			t.Fatalf("the order of the input changes\n%s into\n%s (%v)", text(got), text(turned), err)
		}
	})
}

func checkPlacement(t *rapid.T, spec Spec, got map[string]Target) {
	processes := map[string]bool{}
	active, standby := map[Task]int{}, map[Task]int{}
	inProcess := map[string]map[Task]bool{}
	for _, m := range spec.Members {
		processes[m.ProcessID] = true
		if inProcess[m.ProcessID] == nil {
			inProcess[m.ProcessID] = map[Task]bool{}
		}
		target, ok := got[m.MemberID]
		if !ok {
			t.Fatalf("member %s has no target", m.MemberID)
		}
		for _, role := range []struct {
			tasks Tasks
			count map[Task]int
		}{{target.Active, active}, {target.Standby, standby}} {
			if !slices.IsSortedFunc(role.tasks, compareTasks) {
				t.Fatalf("tasks of %s: %v", m.MemberID, role.tasks)
			}
			for _, x := range role.tasks {
				role.count[x]++
				if inProcess[m.ProcessID][x] {
					t.Fatalf("process %s holds %v twice: %s", m.ProcessID, x, text(got))
				}
				inProcess[m.ProcessID][x] = true
			}
		}
	}
	if len(got) != len(spec.Members) {
		t.Fatalf("%d targets for %d members", len(got), len(spec.Members))
	}
	tasks := 0
	for _, s := range spec.Subtopologies {
		standbys := 0
		if s.Stateful {
			standbys = min(spec.NumStandbyReplicas, len(processes)-1)
		}
		for p := range s.Tasks {
			tasks++
			if x := (Task{s.ID, p}); active[x] != 1 || standby[x] != standbys {
				t.Fatalf("%v is active %d times, standby %d times, want once and %d times: %s", x, active[x], standby[x], standbys, text(got))
			}
		}
	}
	if len(active) != tasks {
		t.Fatalf("%d tasks are active, the topology has %d", len(active), tasks)
	}
}

func TestStickyTasksStayWithinTheFirstQuota(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlacement(drawSpec(t), ascending)
		quota := p.quotaActive
		p.restoreActive(p.keepActive(p.tasksByPartition()))
		for _, m := range p.members {
			if m.count > quota {
				t.Fatalf("member %s keeps %d tasks, quota %d", m.id, m.count, quota)
			}
		}
	})
}

func TestABalancedAssignmentStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := drawSpec(t)
		spec.NumStandbyReplicas = 0
		// Deal the tasks out like cards, in any order.
		var tasks []Task
		for _, s := range spec.Subtopologies {
			for p := range s.Tasks {
				tasks = append(tasks, Task{s.ID, p})
			}
		}
		tasks = rapid.Permutation(tasks).Draw(t, "deal")
		want := map[string]Target{}
		for i := range spec.Members {
			m := &spec.Members[i]
			m.Active, m.Standby = nil, nil
			for j := i; j < len(tasks); j += len(spec.Members) {
				m.Active = append(m.Active, tasks[j])
			}
			m.Active = sorted(m.Active)
			want[m.MemberID] = Target{Active: m.Active}
		}
		if got, err := NewSticky().Assign(spec); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("balanced\n%s became\n%s (%v)", text(want), text(got), err)
		}
	})
}

// A heap pops in ascending order whatever the ties.
func TestHeapSorts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h minHeap
		keys := rapid.SliceOf(rapid.IntRange(0, 5)).Draw(t, "keys")
		for i, k := range keys {
			h.push(entry{float64(k), int32(i)})
		}
		slices.Sort(keys)
		seen := map[int32]bool{}
		for _, k := range keys {
			e := h.pop()
			if e.key != float64(k) || seen[e.index] {
				t.Fatalf("popped %v, want key %d", e, k)
			}
			seen[e.index] = true
		}
	})
}
