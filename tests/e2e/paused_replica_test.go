package e2e

import (
	"fmt"
	"testing"
	"time"

	"streamkeeper/internal/kafkatest"
)

// patiences are what decides at an application how long it hangs on a replica that does not answer: see docs/operations.md, "A replica hangs". All give up
// a request after 3 s.
var patiences = []struct {
	name   string
	config map[string]string
	// most is how long a partition may stand still while a replica is paused for longer, well above the 31 s that were measured on a busy machine.
	// 0: there is no limit.
	most time.Duration
}{
	// The clients of Kafka 4.4 may find no other replica for as long as it lasts: while a connection is being made they ask nobody else for metadata, and
	// connections to a paused process are made, and lead nowhere. A producer has no others.
	{name: "plain"},
	// Their way out: without an answer about metadata for so long they begin again with bootstrap.servers.
	{name: "turns", config: map[string]string{"metadata.recovery.rebootstrap.trigger.ms": "5000"}, most: 50 * time.Second},
}

// TestPausedReplica: each of three replicas before three brokers is paused for a minute, and wakes up, under applications with state and standbys. They keep
// their tasks, have no rebalance, and go on meanwhile where their settings let them. At last each is paused and ended by what watches it: then all go on.
func TestPausedReplica(t *testing.T) {
	if !*long {
		t.Skip("skipped: it takes minutes, see -long; TestRollingRestart has a short pause")
	}
	t.Parallel()
	r := startFleet(t, kafkatest.Shared(t, kafkatest.Options{Version: kafkatest.V44, Brokers: 3}), 3, "--plugin", "none")
	r.waitSpread(r.nodes...)
	tr := &troupe{t: t, r: r, host: kafkatest.StartAppHost(t, kafkatest.V44)}
	c := &cast{place: &place{streams: r.bootstrap(), direct: r.cluster.Bootstrap(), cluster: r.cluster}, host: tr.host}
	for _, patience := range patiences {
		config := map[string]string{"request.timeout.ms": "3000"}
		for k, v := range patience.config {
			config[k] = v
		}
		for i, group := range oneGroupEach(t, r, patience.name)[:2] {
			at := r.replicas[r.nodes[i]].Bootstrap()
			configureGroup(t, at, group, "streams.num.standby.replicas", "1")
			// Those of a silent replica are expired only if they find no other one for twice as long as it takes to be replaced.
			configureGroup(t, at, group, "streams.session.timeout.ms", "12000")
			tr.add(c.stageAs(t, group, partitions), config)
		}
	}
	tr.begin(10)
	for _, node := range r.nodes {
		tr.stands(fmt.Sprintf("replica %d is paused for a minute and wakes up", node), func() {
			r.replicas[node].Pause()
			time.Sleep(time.Minute) // the pause is what is tested
			r.replicas[node].Resume()
			r.waitSpread(r.nodes...)
		}, func(i int) time.Duration { return patiences[i/2].most })
	}
	const watched = 20 * time.Second // what the watchdogs in docs/deploy take
	for _, node := range r.nodes {
		tr.stands(fmt.Sprintf("replica %d is paused, ended after %v, and started", node, watched), func() {
			r.replicas[node].Pause()
			time.Sleep(watched) // the pause is what is tested
			r.replicas[node].Kill()
			for _, w := range tr.all {
				w.waitProgress()
			}
			r.replicas[node].Restart()
			r.waitSpread(r.nodes...)
		}, func(int) time.Duration { return watched + 20*time.Second })
	}
	tr.finish()
	checkFence(t, r.topic, readLog(t, r.cluster.Bootstrap(), r.topic))
}

// stands is during, and no partition of an application may stand still for longer than most says of it; 0: for as long as it likes.
func (tr *troupe) stands(what string, do func(), most func(i int) time.Duration) {
	tr.t.Helper()
	marks := make([]int, len(tr.all))
	for i, w := range tr.all {
		marks[i] = w.p.sink.Mark()
	}
	tr.during(what, do)
	for i, w := range tr.all {
		if still, max := w.p.sink.LongestOf(marks[i]), most(i); max > 0 && still > max {
			tr.t.Errorf("%s: a partition of %s stood still for %v, want %v at most", what, w.p.group, still.Round(10*time.Millisecond), max)
		}
	}
}
