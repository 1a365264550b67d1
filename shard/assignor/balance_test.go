package assignor

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Balance and stickiness, for the active tasks that every assignment is about. Standbys bend only where a process would hold a
// task twice; checkPlacement says what must be true of them.

// totals counts the tasks of a topology.
func totals(spec Spec) (tasks int) {
	for _, s := range spec.Subtopologies {
		tasks += int(s.Tasks)
	}
	return tasks
}

func assign(t *rapid.T, spec Spec) map[string]Target {
	got, err := NewSticky().Assign(spec)
	if err != nil {
		t.Fatal(err)
	}
	checkPlacement(t, spec, got)
	return got
}

// settledIn makes what was assigned what the members have: everybody followed.
func settledIn(spec Spec, targets map[string]Target) Spec {
	spec.Members = slices.Clone(spec.Members)
	for i := range spec.Members {
		m := &spec.Members[i]
		m.Active, m.Standby = targets[m.MemberID].Active, targets[m.MemberID].Standby
	}
	return spec
}

func owners(targets map[string]Target) map[Task]string {
	of := map[Task]string{}
	for id, target := range targets {
		for _, x := range target.Active {
			of[x] = id
		}
	}
	return of
}

// Whatever members claim to have, nobody runs more than its share.
func TestNobodyRunsMoreThanItsShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := drawSpec(t)
		got := assign(t, spec)
		share := ceilDiv(totals(spec), len(spec.Members))
		for id, target := range got {
			if len(target.Active) > share {
				t.Fatalf("%s runs %d tasks, its share is %d: %s", id, len(target.Active), share, text(got))
			}
		}
	})
}

// Where nobody has anything processes get tasks by their number of members, and the members of a process the same, but for one task.
func TestAColdStartIsBalanced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := drawSpec(t)
		for i := range spec.Members {
			m := &spec.Members[i]
			m.Active, m.Standby, m.TaskOffsets = nil, nil, nil
		}
		got := assign(t, spec)
		members, tasks := map[string]int{}, map[string]int{}
		least, most := map[string]int{}, map[string]int{}
		for _, m := range spec.Members {
			n, p := len(got[m.MemberID].Active), m.ProcessID
			if members[p] == 0 {
				least[p], most[p] = n, n
			}
			members[p]++
			tasks[p] += n
			least[p], most[p] = min(least[p], n), max(most[p], n)
		}
		for p := range members {
			if most[p]-least[p] > 1 {
				t.Fatalf("members of process %s run %d to %d tasks: %s", p, least[p], most[p], text(got))
			}
			for q := range members {
				// (tasks of p - 1) / members of p <= tasks of q / members of q: p was the least loaded when it got its last task.
				if (tasks[p]-1)*members[q] > tasks[q]*members[p] {
					t.Fatalf("process %s runs %d tasks with %d members, %s %d with %d: %s", p, tasks[p], members[p], q, tasks[q], members[q], text(got))
				}
			}
		}
	})
}

// A task leaves a living owner only if that one has its share; and it goes to somebody without its state only if somebody with
// its state has.
func TestATaskMovesOnlyForBalance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := drawSpec(t)
		got := assign(t, spec)
		floor := totals(spec) / len(spec.Members)
		before, able := map[Task]string{}, map[Task][]string{}
		for _, m := range spec.Members { // ascending: of two that claim a task the last one counts
			for _, x := range m.Active {
				before[x] = m.MemberID
			}
			for _, x := range m.Standby {
				able[x] = append(able[x], m.MemberID)
			}
			for x := range m.TaskOffsets {
				able[x] = append(able[x], m.MemberID)
			}
		}
		for x, now := range owners(got) {
			was, had := before[x]
			if had && was != now && len(got[was].Active) < floor {
				t.Fatalf("%v left %s, which runs only %d of at least %d tasks: %s", x, was, len(got[was].Active), floor, text(got))
			}
			if (had && was == now) || len(able[x]) == 0 || slices.Contains(able[x], now) {
				continue
			}
			full := slices.ContainsFunc(able[x], func(id string) bool { return len(got[id].Active) >= floor })
			if !full {
				t.Fatalf("%v went to %s although %v have its state and room: %s", x, now, able[x], text(got))
			}
		}
	})
}

// drawMembers draws a topology with members that have nothing yet, each process with up to three threads.
func drawMembers(t *rapid.T, processes int) Spec {
	spec := Spec{NumStandbyReplicas: rapid.IntRange(0, 2).Draw(t, "standbys")}
	for i := range rapid.IntRange(1, 4).Draw(t, "subtopologies") {
		spec.Subtopologies = append(spec.Subtopologies, Subtopology{
			ID: fmt.Sprint(i), Tasks: rapid.Int32Range(0, 12).Draw(t, "tasks"), Stateful: rapid.Bool().Draw(t, "stateful"),
		})
	}
	threads := rapid.IntRange(1, 3).Draw(t, "threads")
	for p := range processes {
		for n := range threads {
			spec.Members = append(spec.Members, Member{MemberID: fmt.Sprintf("m%d-%d", p, n), ProcessID: fmt.Sprintf("p%d", p)})
		}
	}
	return spec
}

// TestScalingMovesNoMoreThanItMust: from one process to three and back, one at a time. Whoever comes takes its share from the others, and
// nothing moves between those; whoever goes leaves its tasks to the others, and those keep theirs.
func TestScalingMovesNoMoreThanItMust(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawMembers(t, 3)
		threads := len(all.Members) / 3
		here := all
		here.Members = all.Members[:threads]
		targets := assign(t, here)
		for _, processes := range []int{2, 3, 2, 1} {
			before := owners(targets)
			comes := processes*threads > len(here.Members)
			if comes {
				here = settledIn(here, targets)
				here.Members = append(slices.Clone(here.Members), all.Members[len(here.Members):processes*threads]...)
			} else {
				here.Members = here.Members[:processes*threads]
				here = settledIn(here, targets)
			}
			newcomers := map[string]bool{}
			for _, m := range here.Members {
				newcomers[m.MemberID] = comes && m.ProcessID == fmt.Sprintf("p%d", processes-1)
			}
			next := assign(t, here)
			for x, now := range owners(next) {
				was := before[x]
				_, stayed := next[was]
				switch {
				case was == now:
				case comes && !newcomers[now]:
					t.Fatalf("%d processes: %v moved from %s to %s, which was there before:\n%s\n%s", processes, x, was, now, text(targets), text(next))
				case !comes && stayed:
					t.Fatalf("%d processes: %v moved from %s to %s although its owner stayed:\n%s\n%s", processes, x, was, now, text(targets), text(next))
				}
			}
			targets = next
		}
	})
}

// TestASettledAssignmentStays: an assignment that everybody followed is computed again, also with standbys.
func TestASettledAssignmentStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := drawMembers(t, rapid.IntRange(1, 5).Draw(t, "processes"))
		first := assign(t, spec)
		again := assign(t, settledIn(spec, first))
		if a, b := owners(first), owners(again); fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("settled\n%s became\n%s", text(first), text(again))
		}
	})
}
