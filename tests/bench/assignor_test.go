package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"streamkeeper/internal/kafkatest"
	"streamkeeper/shard/assignor"
)

// assignments is one large group for the assignors.
type assignments struct {
	members, processes, subtopologies int
	partitions                        int32
	// statefulOf: every how many-th subtopology has a store, and one standby; with 1 members also report the offsets of all they have.
	statefulOf int
}

func (a assignments) String() string {
	s := fmt.Sprintf("%d members × %d subtopologies × %d partitions", a.members, a.subtopologies, a.partitions)
	if a.statefulOf == 1 {
		return s + ", all with standbys and offsets"
	}
	return s
}

// TestAssignor measures the sticky assignor beside Kafka's own class: the same groups, one after the other, both warmed up.
func TestAssignor(t *testing.T) {
	lasting, groups := 50*time.Millisecond, []assignments{{20, 10, 5, 10, 4}}
	if *full {
		lasting, groups = 4*time.Second, []assignments{{1000, 250, 100, 100, 4}, {1000, 250, 100, 100, 1}, {100, 50, 10, 50, 4}}
	}
	r := newResults()
	for _, g := range groups {
		args := []string{
			strconv.Itoa(g.members), strconv.Itoa(g.processes), strconv.Itoa(g.subtopologies), strconv.Itoa(int(g.partitions)),
			strconv.Itoa(g.statefulOf), strconv.Itoa(int(lasting.Milliseconds())),
		}
		rows := map[string]float64{}
		for line := range strings.Lines(kafkatest.Java(t, "assignor", "AssignorBench", args...)) {
			scenario, ns, _ := strings.Cut(strings.TrimSpace(line), " ")
			n, err := strconv.Atoi(ns)
			if err != nil {
				t.Fatalf("Kafka's side: %q", line)
			}
			rows[scenario] = float64(n) / 1e6
		}
		g.measure(t, lasting, func(scenario string, took time.Duration) {
			if rows[scenario] == 0 {
				t.Fatalf("Kafka's side says nothing of %s", scenario)
			}
			row := fmt.Sprintf("%v: %s, ms", g, scenario)
			r.addLess(nameKafka, row, rows[scenario])
			r.addLess(nameKeeper, row, float64(took)/float64(time.Millisecond))
		})
	}
	t.Logf("median, after a warm-up\n%s", r.markdown(nameKafka, nameKeeper))
}

// measure does what AssignorBench.java does.
func (a assignments) measure(t *testing.T, lasting time.Duration, report func(scenario string, median time.Duration)) {
	spec := assignor.Spec{NumStandbyReplicas: 1}
	for i := range a.subtopologies {
		spec.Subtopologies = append(spec.Subtopologies, assignor.Subtopology{ID: strconv.Itoa(i), Tasks: a.partitions, Stateful: i%a.statefulOf == 0})
	}
	add := func(i, process int) {
		spec.Members = append(spec.Members, assignor.Member{MemberID: fmt.Sprintf("member-%04d", i), ProcessID: fmt.Sprintf("process-%03d", process)})
	}
	for i := range a.members {
		add(i, i%a.processes)
	}
	once := func() map[string]assignor.Target {
		found, err := assignor.NewSticky().Assign(spec)
		if err != nil || len(found) != len(spec.Members) {
			t.Fatalf("%d members of %d have a target: %v", len(found), len(spec.Members), err)
		}
		return found
	}
	run := func() (took []time.Duration) {
		for begin := time.Now(); len(took) < 3 || time.Since(begin) < lasting; {
			one := time.Now()
			once()
			took = append(took, time.Since(one))
		}
		slices.Sort(took)
		return took
	}
	measure := func(scenario string) {
		run()
		took := run()
		report(scenario, took[len(took)/2])
	}
	measure("cold")
	found := once()
	for i := range spec.Members {
		m := &spec.Members[i]
		m.Active, m.Standby = found[m.MemberID].Active, found[m.MemberID].Standby
		if a.statefulOf == 1 {
			m.TaskOffsets = map[assignor.Task]int64{}
			for _, x := range slices.Concat(m.Active, m.Standby) {
				m.TaskOffsets[x] = int64(x.Partition)
			}
		}
	}
	measure("steady")
	add(a.members, a.processes)
	measure("join")
}
