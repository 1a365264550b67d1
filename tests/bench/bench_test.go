package bench

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"streamkeeper/internal/kafkatest"
)

var (
	full   = flag.Bool("full", false, "measure properly (about ten minutes) instead of showing that measuring works")
	only   = flag.String("only", "", "measure one system alone: kafka or streamkeeper")
	rounds = flag.Int("rounds", 3, "with -full: how often each system is measured, by turns")
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

// plan is how much is measured.
type plan struct {
	rounds      int
	connections []int
	groups      int           // for heartbeats
	lasting     time.Duration // of a heartbeat or produce phase
	warmUp      time.Duration
	many        int // groups at the restart
	large       large
}

func thePlan() plan {
	if *full {
		return plan{rounds: *rounds, connections: []int{1, 16, 64}, groups: 256, lasting: 8 * time.Second, warmUp: 6 * time.Second, many: 20000, large: large{1000, 100, 100}}
	}
	return plan{rounds: 1, connections: []int{1, 16}, groups: 32, lasting: 300 * time.Millisecond, warmUp: 200 * time.Millisecond, many: 300, large: large{20, 5, 10}}
}

const (
	nameKafka  = "Kafka 4.4"
	nameKeeper = "streamkeeper"
)

// TestPerformance measures both systems by turns and prints the table.
func TestPerformance(t *testing.T) {
	p := thePlan()
	r := newResults()
	for round := range p.rounds {
		if *only != "streamkeeper" {
			t.Run(fmt.Sprintf("round %d %s", round+1, nameKafka), func(t *testing.T) { p.measure(t, kafkaTarget(t), r) })
		}
		if *only != "kafka" {
			t.Run(fmt.Sprintf("round %d %s", round+1, nameKeeper), func(t *testing.T) { p.measure(t, keeperTarget(t), r) })
		}
		if t.Failed() {
			return
		}
	}
	table := fmt.Sprintf("%d processors shared with the load generator, %s, %d rounds by turns, median (least–most).\n\n%s",
		runtime.NumCPU(), runtime.Version(), p.rounds, r.markdown(nameKafka, nameKeeper))
	t.Logf("\n%s", table)
	if *full {
		file := filepath.Join(kafkatest.CacheDir(), "bench.md")
		if err := os.WriteFile(file, []byte(table), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Logf("written to %s", file)
	}
}

// measure runs all phases against one system.
func (p plan) measure(t *testing.T, s *target, r *results) {
	kafkatest.CreateTopics(t, s.broker, partitions, topic)
	kafkatest.CreateTopics(t, s.broker, 50, plainTopic)
	probes := awaitCoordinator(t, s.groups)
	for what, pid := range s.pids() {
		r.addLess(s.name, "memory of the "+what+", no load yet, MiB", residentMiB(t, pid))
	}

	warm := newGroups("warm", p.groups)
	phase(t, s.groups, 16, warm, 0, (*group).join)
	phase(t, s.groups, 16, warm, 0, (*group).settle)
	phase(t, s.groups, 16, warm, p.warmUp, (*group).beat)
	phase(t, s.groups, 16, warm, p.warmUp/2, (*group).commit)
	produce(t, s.broker, 16, p.warmUp/2)

	for _, n := range p.connections {
		groups := newGroups(fmt.Sprintf("c%d", n), p.groups)
		r.addMeasure(s.name, n, "join", phase(t, s.groups, n, groups, 0, (*group).join))
		phase(t, s.groups, n, groups, 0, (*group).settle)
		r.addMeasure(s.name, n, "heartbeat", s.withCPU(t, func() measure { return phase(t, s.groups, n, groups, p.lasting, (*group).beat) }))
		r.addMeasure(s.name, n, "commit of 4 offsets", s.withCPU(t, func() measure { return phase(t, s.groups, n, groups, p.lasting/2, (*group).commit) }))
		phase(t, s.groups, n, groups, 0, (*group).commit) // of each, also where the phase before was short
		r.addMeasure(s.name, n, "fetch of 4 offsets", s.withCPU(t, func() measure { return phase(t, s.groups, n, groups, p.lasting/2, (*group).fetchAll) }))
		r.addMeasure(s.name, n, "plain produce of 4 records, acks=all", produce(t, s.broker, n, p.lasting/2))
	}

	p.large.storm(t, s, r)

	many := newGroups("many", p.many)
	r.add(s.name, fmt.Sprintf("%d groups joined, per second", p.many), phase(t, s.groups, 16, many, 0, (*group).join).perSecond)
	phase(t, s.groups, 16, many, 0, (*group).settle)
	phase(t, s.groups, 16, many, 0, (*group).commit)
	memory := func(when string) {
		for what, pid := range s.pids() {
			r.addLess(s.name, fmt.Sprintf("memory of the %s, %s, MiB", what, when), residentMiB(t, pid))
		}
	}
	memory(fmt.Sprintf("%d groups", p.many))
	for _, how := range []struct {
		what string
		kill bool
	}{{"stopped", false}, {"killed", true}} {
		began := time.Now()
		s.restart(how.kill)
		untilAnswered(t, s.groups, probes, (*group).beat)
		r.addLess(s.name, fmt.Sprintf("restart with %d groups after it was %s, until every shard answers, s", p.many, how.what), time.Since(began).Seconds())
		memory(how.what + " and started again")
	}
	// The groups are what they were: each member's next heartbeat is accepted with its old epoch.
	phase(t, s.groups, 16, many, 0, (*group).beat)
}

// withCPU adds the processor time of all processes of the system to a measure.
func (s *target) withCPU(t *testing.T, phase func() measure) measure {
	t.Helper()
	sum := func() (d time.Duration) {
		for _, pid := range s.pids() {
			d += cpuTime(t, pid)
		}
		return d
	}
	before := sum()
	m := phase()
	m.cpu = sum() - before
	return m
}
