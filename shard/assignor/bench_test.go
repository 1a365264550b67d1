package assignor

import (
	"fmt"
	"testing"
)

// BenchmarkSticky: 1,000 members in 250 processes, 100 subtopologies of 100 tasks, a quarter of them stateful with
// one standby. "cold" begins with nothing, "steady" with what the run before gave, "join" with one member more. In the same with
// "all" every task is stateful with one standby, and members report the offsets of all that they have.
func BenchmarkSticky(b *testing.B) {
	benchmarkSticky(b, "", 4)
	benchmarkSticky(b, "all ", 1)
}

// benchmarkSticky makes every statefulOf-th subtopology stateful.
func benchmarkSticky(b *testing.B, prefix string, statefulOf int) {
	spec := Spec{NumStandbyReplicas: 1}
	for i := range 100 {
		spec.Subtopologies = append(spec.Subtopologies, Subtopology{ID: fmt.Sprint(i), Tasks: 100, Stateful: i%statefulOf == 0})
	}
	for i := range 1000 {
		spec.Members = append(spec.Members, Member{MemberID: fmt.Sprintf("member-%04d", i), ProcessID: fmt.Sprintf("process-%03d", i%250)})
	}
	run := func(name string, spec Spec) {
		b.Run(prefix+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := NewSticky().Assign(spec); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("cold", spec)
	targets, err := NewSticky().Assign(spec)
	if err != nil {
		b.Fatal(err)
	}
	for i := range spec.Members {
		m := &spec.Members[i]
		m.Active, m.Standby = targets[m.MemberID].Active, targets[m.MemberID].Standby
		if statefulOf == 1 {
			m.TaskOffsets = map[Task]int64{}
			for _, x := range append(m.Active, m.Standby...) {
				m.TaskOffsets[x] = int64(len(m.TaskOffsets))
			}
		}
	}
	run("steady", spec)
	spec.Members = append(spec.Members, Member{MemberID: "member-1000", ProcessID: "process-250"})
	run("join", spec)
}
