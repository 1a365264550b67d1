package e2e

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"streamkeeper/internal/kafkatest"
)

// troupe is one application for each replica of a fleet, whose group that replica owns at first: two instances each, with state and
// standbys, under load, in one JVM.
type troupe struct {
	t    *testing.T
	r    *fleet
	host *kafkatest.AppHost
	all  []*watched
	// told is how much of the JVM's log has been looked at.
	told int
}

// startTroupe starts the applications and waits until each is spread over its instances and has its state twice.
func startTroupe(t *testing.T, r *fleet, name string) *troupe {
	t.Helper()
	tr := &troupe{t: t, r: r, host: kafkatest.StartAppHost(t, kafkatest.V44)}
	c := &cast{place: &place{streams: r.bootstrap(), direct: r.cluster.Bootstrap(), cluster: r.cluster}, host: tr.host}
	for i, group := range oneGroupEach(t, r, name) {
		p := c.stageAs(t, group, partitions)
		configureGroup(t, r.replicas[r.nodes[i]].Bootstrap(), group, "streams.num.standby.replicas", "1")
		// Shorter than the session, for replicas that hang: see TestTwoReplicas.
		tr.add(p, map[string]string{"request.timeout.ms": "3000"})
	}
	tr.begin(20)
	return tr
}

// add starts two instances of an application with these settings.
func (tr *troupe) add(p *play, config map[string]string) {
	tr.t.Helper()
	w := &watched{p: p, load: kafkatest.NewWords(tr.t, p.direct, p.in, words)}
	o := kafkatest.AppOptions{Topology: "counted", Config: config}
	w.apps = []*kafkatest.App{p.start("a", o), p.start("b", o)}
	tr.all = append(tr.all, w)
}

// begin waits until each application is spread over its instances and has its state twice, and puts it under load.
func (tr *troupe) begin(perSecond int) {
	t := tr.t
	t.Helper()
	t.Cleanup(func() {
		for _, w := range tr.all {
			if w.disturbed {
				tr.r.tell(w.p.group)
			}
		}
	})
	for _, w := range tr.all {
		w.settled()
		w.load.Send(4 * words)
	}
	for _, w := range tr.all {
		kafkatest.WaitCommitted(t, tr.r.bootstrap(), w.p.group, w.p.in, outcome)
		w.remember()
		w.load.Run(perSecond)
	}
	tr.told = len(tr.host.Output())
}

// oneGroupEach makes up a group name for each replica, of a shard that it owns now.
func oneGroupEach(t *testing.T, r *fleet, name string) []string {
	t.Helper()
	owners := r.owners()
	shards := int32(len(owners))
	var groups []string
	for _, node := range r.nodes {
		for i := 0; ; i++ {
			if group := fmt.Sprintf("%s-%d", name, i); owners[partitionOf(group, shards)].NodeID == node {
				groups = append(groups, group)
				break
			}
		}
	}
	return groups
}

// settled waits until both instances have half the tasks, and the state of the other's in standby.
func (w *watched) settled() {
	t := w.p.t
	t.Helper()
	waitSpread(t, []int{partitions, partitions}, w.apps...)
	kafkatest.Eventually(t, outcome, func() error {
		a, b := w.apps[0], w.apps[1]
		if len(a.Standbys())+len(b.Standbys()) != partitions || a.State() != "RUNNING" || b.State() != "RUNNING" {
			return fmt.Errorf("%s: standbys %v and %v", w.p.group, a.Standbys(), b.Standbys())
		}
		return nil
	})
}

// during does something to the replicas under the running applications. They must not notice it but by a pause: the same members with the
// same epochs, no other tasks, nothing in their log that is worse than a warning.
func (tr *troupe) during(what string, do func()) {
	tr.t.Helper()
	tr.t.Logf("— %s", what)
	marks := make([]int, len(tr.all))
	for i, w := range tr.all {
		marks[i] = w.p.sink.Mark()
	}
	do()
	for _, w := range tr.all { // it goes on, in each partition
		w.waitProgress()
	}
	var pauses []string
	for i, w := range tr.all {
		pauses = append(pauses, w.p.sink.LongestOf(marks[i]).Round(10*time.Millisecond).String())
		w.undisturbed(what)
	}
	tr.t.Logf("longest time without a record in a partition, by application: %s", strings.Join(pauses, ", "))
	tr.checkLog(what)
}

// waitProgress waits until each partition of the output has a new record.
func (w *watched) waitProgress() {
	t := w.p.t
	t.Helper()
	mark := w.p.sink.Mark()
	kafkatest.Eventually(t, outcome, func() error {
		parts := map[int32]bool{}
		for _, s := range w.p.sink.Seen()[mark:] {
			parts[s.Partition] = true
		}
		if len(parts) < partitions {
			return fmt.Errorf("%s writes to the partitions %v only", w.p.group, slices.Sorted(maps.Keys(parts)))
		}
		return nil
	})
}

var (
	// logLine is a line of the applications' log, as tools-log4j2.properties has it: level, message, logger.
	logLine = regexp.MustCompile(`(?m)^\[[^\]]+\] ([A-Z]+) (.*) \(([\w.$]+)\)$`)
	// particulars are what makes two lines of one kind differ.
	particulars = regexp.MustCompile(`\[[^\]]*\]|\([^)]*\)|[A-Za-z0-9_-]{22}|[\w.-]*\d[\w.:-]*`)
)

// expectedWarnings are the kinds of warnings that an application may log while a replica is stopped, killed or paused, with the reason. All of them are
// the client's own words for a connection that ended, or was not answered, and that it goes on by itself.
var expectedWarnings = []struct {
	logger, begins string
	why            string
}{
	{"NetworkClient", "Connection to node ", "the replica is down, or not up yet; its address stays in Metadata"},
	{"NetworkClient", "Bootstrap broker ", "the same, before the client knows any node"},
	{"NetworkClient", "Received error POLL from node ", "a connection that is closed while it is being made"},
	{"Sender", "Got error produce response with correlation id … on topic-partition …, retrying …. Error: NETWORK_EXCEPTION.", "a connection that led to a broker through the replica has ended"},
	{"Sender", "Got error produce response with correlation id … on topic-partition …, retrying …. Error: REQUEST_TIMED_OUT", "the replica is paused, with the connection that leads to a broker; or the broker says so, whose followers did not get their turn on a busy machine"},
	{"Sender", "Received invalid metadata error in produce request on partition … due to org.apache.kafka.common.errors.NetworkException: Disconnected", "the same connections"},
	{"Sender", "Received invalid metadata error in produce request on partition … due to org.apache.kafka.common.errors.TimeoutException: Disconnected", "the same connections"},
}

func warningExpected(logger, kind string) bool {
	for _, w := range expectedWarnings {
		// What comes before the text is the name of the client, in brackets.
		if logger == w.logger && strings.Contains(strings.ReplaceAll(kind, "……", "…"), w.begins) {
			return true
		}
	}
	return false
}

// checkLog counts the warnings of the applications by kind, and fails the test if there is one that is not expected, or anything worse.
func (tr *troupe) checkLog(when string) {
	tr.t.Helper()
	out := tr.host.Output()
	kinds, unexpected := sortLog(out[tr.told:])
	tr.told = len(out)
	for _, line := range unexpected {
		tr.t.Errorf("%s: an application logs %s", when, line)
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		tr.t.Logf("%4d × %s", kinds[kind], kind)
	}
}

// sortLog counts the warnings in a log of applications by kind. unexpected are the lines that are worse, or of no expected kind.
func sortLog(out string) (kinds map[string]int, unexpected []string) {
	kinds = map[string]int{}
	for _, m := range logLine.FindAllStringSubmatch(out, -1) {
		level, message, logger := m[1], m[2], m[3][strings.LastIndexByte(m[3], '.')+1:]
		kind := strings.Join(strings.Fields(particulars.ReplaceAllString(message, "…")), " ")
		if level != "WARN" || !warningExpected(logger, kind) {
			unexpected = append(unexpected, m[0])
			continue
		}
		kinds[logger+": "+kind[:min(len(kind), 140)]]++
	}
	return kinds, unexpected
}

// TestWarningsAreToldApart: what the log of applications is looked through with finds what it is to find.
func TestWarningsAreToldApart(t *testing.T) {
	const producer = "[Producer clientId=rolling-0-5c1b-StreamThread-1-producer] "
	for _, c := range []struct {
		level, message, logger string
		expected               bool
	}{
		{"WARN", "[Consumer clientId=c, groupId=rolling-0] Connection to node 1 (localhost/127.0.0.1:31715) could not be established. Node may not be available.", "NetworkClient", true},
		{"WARN", "[AdminClient clientId=c] Connection to node 1000001 (localhost/127.0.0.1:31713) could not be established. Node may not be available.", "NetworkClient", true},
		{"WARN", producer + "Got error produce response with correlation id 77 on topic-partition rolling-0-out-1, retrying (2147483646 attempts left). Error: NETWORK_EXCEPTION. Error Message: Disconnected from node 1", "Sender", true},
		{"WARN", producer + "Got error produce response with correlation id 77 on topic-partition rolling-0-out-1, retrying (2147483646 attempts left). Error: CORRUPT_MESSAGE. Error Message: null", "Sender", false},
		{"WARN", producer + "Received invalid metadata error in produce request on partition rolling-0-counts-changelog-1 due to org.apache.kafka.common.errors.NetworkException: Disconnected from node 1. Going to request metadata update now", "Sender", true},
		{"WARN", "[Consumer clientId=c, groupId=rolling-0] Offset commit failed on partition rolling-0-in-1 at offset 7: The coordinator is not aware of this member.", "ConsumerCoordinator", false},
		{"ERROR", "[Consumer clientId=c, groupId=rolling-0] Connection to node 1 could not be established.", "NetworkClient", false},
		{"WARN", "stream-thread [c] Detected that the thread is being fenced.", "StreamThread", false},
	} {
		_, unexpected := sortLog("[2026-11-30 09:00:00,123] " + c.level + " " + c.message + " (org.apache.kafka.x." + c.logger + ")\n")
		if (len(unexpected) == 0) != c.expected {
			t.Errorf("expected: %t, want %t: %s %s", len(unexpected) == 0, c.expected, c.level, c.message)
		}
	}
}

// finish halts the load and checks the sums: nothing lost or counted twice, each task with one owner from the beginning to the end.
func (tr *troupe) finish() {
	t := tr.t
	t.Helper()
	for _, w := range tr.all {
		w.load.Halt()
		w.p.sink.WaitCounts(w.load.Counts(), outcome)
		kafkatest.WaitCommitted(t, tr.r.bootstrap(), w.p.group, w.p.in, outcome)
		w.p.oneOwner(nil)
		w.p.calm(w.apps...)
		tenures := map[string]bool{}
		for _, a := range w.apps {
			for _, of := range tenuresOf(w.p.sink, a.Name()) {
				tenures[of] = true
			}
		}
		if len(tenures) != partitions { // of the subtopology that writes
			t.Errorf("%s: the tenures were %v, want one for each of %d tasks", w.p.group, slices.Sorted(maps.Keys(tenures)), partitions)
		}
	}
}

// TestRollingRestart: three replicas are stopped and started one after the other, then killed one after the other, then paused, one and
// all, for longer than the sessions of members and of the ownership group. Applications with state and standbys keep their tasks, and
// their groups have no rebalance.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	r := startFleet(t, kafkatest.Shared(t, kafka44), 3, "--plugin", descriptions)
	r.waitSpread(r.nodes...)
	tr := startTroupe(t, r, "rolling")

	rounds, pause := 1, 9*time.Second // longer than both sessions, which are 6 s
	if *long {
		rounds, pause = 2, time.Minute
	}
	for range rounds {
		for _, node := range r.nodes {
			tr.during(fmt.Sprintf("replica %d is stopped and started", node), func() {
				r.replicas[node].Stop()
				r.replicas[node].Start()
				r.replicas[node].WaitReady()
				r.waitSpread(r.nodes...)
			})
		}
	}
	for _, node := range r.nodes {
		tr.during(fmt.Sprintf("replica %d is killed, replaced by the others, and started", node), func() {
			r.replicas[node].Kill()
			r.waitSpread(r.without(node)...)
			for _, w := range tr.all {
				w.waitProgress()
			}
			r.replicas[node].Restart()
			r.waitSpread(r.nodes...)
		})
	}
	owner, _ := r.ownerOf(tr.all[0].p.group)
	tr.during(fmt.Sprintf("replica %d is paused for %s and wakes up", owner, pause), func() {
		r.replicas[owner].Pause()
		time.Sleep(pause) // the pause is what is tested
		r.replicas[owner].Resume()
		r.waitSpread(r.nodes...)
	})
	// Less than the minute for which Java's client tries to commit (default.api.timeout.ms): after that it logs an error and commits again. More than a session.
	all := min(pause, 55*time.Second)
	tr.during(fmt.Sprintf("all replicas are paused for %s and wake up", all), func() {
		for _, node := range r.nodes {
			r.replicas[node].Pause()
		}
		time.Sleep(all) // the pause is what is tested
		for _, node := range r.nodes {
			r.replicas[node].Resume()
		}
		r.waitSpread(r.nodes...)
	})
	tr.finish()
	checkFence(t, r.topic, readLog(t, r.cluster.Bootstrap(), r.topic))
}
