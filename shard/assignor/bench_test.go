package assignor

import (
	"fmt"
	"testing"
)

// BenchmarkSticky: 1,000 members in 250 processes, 100 subtopologies of 100 tasks, a quarter of them stateful with
// one standby. "cold" begins with nothing, "steady" with what the run before gave, "join" with one member more.
func BenchmarkSticky(b *testing.B) {
	spec := Spec{NumStandbyReplicas: 1}
	for i := range 100 {
		spec.Subtopologies = append(spec.Subtopologies, Subtopology{ID: fmt.Sprint(i), Tasks: 100, Stateful: i%4 == 0})
	}
	for i := range 1000 {
		spec.Members = append(spec.Members, Member{MemberID: fmt.Sprintf("member-%04d", i), ProcessID: fmt.Sprintf("process-%03d", i%250)})
	}
	run := func(name string, spec Spec) (last map[string]Target) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if last, err = NewSticky().Assign(spec); err != nil {
					b.Fatal(err)
				}
			}
		})
		return last
	}
	targets := run("cold", spec)
	for i := range spec.Members {
		m := &spec.Members[i]
		m.Active, m.Standby = targets[m.MemberID].Active, targets[m.MemberID].Standby
	}
	run("steady", spec)
	spec.Members = append(spec.Members, Member{MemberID: "member-1000", ProcessID: "process-250"})
	run("join", spec)
}
