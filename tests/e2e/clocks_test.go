package e2e

import (
	"fmt"
	"testing"
	"time"

	"streamkeeper/internal/kafkatest"
)

// clockSkew is by how much clocks are wrong: each way, so that two replicas differ by twice as much.
const clockSkew = 10 * time.Minute

// TestClocksThatAreWrong: of three replicas one has a clock that is fast, one a clock that is slow, and the third one that jumps back and
// forth all the time. Shards move between them. No member is expired, no offset is, and no application has a rebalance.
func TestClocksThatAreWrong(t *testing.T) {
	t.Parallel()
	retention := 3 * clockSkew
	r := newFleet(t, kafkatest.Shared(t, kafka44), 3, "--plugin", descriptions,
		"--set", fmt.Sprintf("offsets.retention.minutes=%d", int(retention.Minutes())), "--set", "offsets.retention.check.interval.ms=500")
	for i, skew := range []time.Duration{clockSkew, -clockSkew, 0} {
		r.replicas[r.nodes[i]].SkewClock(skew)
		r.replicas[r.nodes[i]].Start()
	}
	for _, node := range r.nodes {
		r.replicas[node].WaitReady()
	}
	r.waitSpread(r.nodes...)
	jumping := r.replicas[r.nodes[2]]
	tr := startTroupe(t, r, "clocks")
	idle := newConverts(t, r, "clocked")
	idle.comeOver("at first") // groups without members, with offsets, of several owners

	jump := func(times int) {
		for i := range times {
			jumping.SkewClock([]time.Duration{clockSkew, -clockSkew, 0}[i%3])
			time.Sleep(200 * time.Millisecond) // the time between two jumps
		}
	}
	tr.during("a clock jumps back and forth for longer than a session", func() { jump(35) })
	for _, node := range r.nodes {
		tr.during(fmt.Sprintf("replica %d is restarted, and others take its shards over", node), func() {
			r.replicas[node].Stop()
			jump(3)
			r.replicas[node].Start()
			r.replicas[node].WaitReady()
			r.waitSpread(r.nodes...)
			jump(3)
		})
	}
	owner, _ := r.ownerOf(tr.all[0].p.group)
	tr.during(fmt.Sprintf("replica %d is killed", owner), func() {
		r.replicas[owner].Kill()
		jump(10)
		r.waitSpread(r.without(owner)...)
		r.replicas[owner].Restart()
		r.waitSpread(r.nodes...)
	})
	idle.comeOver("in the end")
	tr.finish()
	for _, node := range r.nodes {
		r.noErrors("with a wrong clock", node)
	}
	checkFence(t, r.topic, readLog(t, r.cluster.Bootstrap(), r.topic))
}
