package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"streamkeeper/internal/kafkatest"
)

// fault is something that goes wrong, and is mended after a while.
type fault struct {
	name string
	// netless faults need no namespaces.
	netless bool
	// brokers: it happens to the brokers, not to a replica.
	brokers bool
	// apps: it happens to the applications.
	apps bool
	// can says whether it can happen in this world; nil: always.
	can func(w *world) bool
	// begin does it to one replica, or to what the drawn number says, and returns what mends it.
	begin func(w *world, target int, draw *rand.Rand) (mend func(), about string)
}

// cut makes a fault of the network of one replica.
func cut(name string, rules func(w *world, target int, draw *rand.Rand) ([]rule, string)) fault {
	return fault{name: name, begin: func(w *world, target int, draw *rand.Rand) (func(), string) {
		rs, about := rules(w, target, draw)
		w.net.apply(target, rs...)
		return func() { w.net.heal(target) }, about
	}}
}

func drawWay(draw *rand.Rand) direction { return direction(draw.IntN(3)) }

// ourPorts are those that clients use at a replica: its own, and the brokers'.
func ourPorts() string { return fmt.Sprintf("%d:%d", listenPort, listenPort+1+brokers) }

// faults are all that can go wrong. A seed picks from them.
var faults = slices.Concat(replicaFaults, brokerFaults, appFaults)

var replicaFaults = []fault{
	{name: "replica killed", netless: true, begin: func(w *world, target int, draw *rand.Rand) (func(), string) {
		w.keepers[target].Kill()
		about := ""
		if draw.IntN(3) == 0 {
			about = "its data directory is lost"
			if err := os.RemoveAll(w.keepers[target].DataDir()); err != nil {
				w.t.Error(err)
			}
		}
		return w.keepers[target].Start, about
	}},
	{name: "replica killed and started at once", netless: true, begin: func(w *world, target int, _ *rand.Rand) (func(), string) {
		w.keepers[target].Kill()
		w.keepers[target].Start()
		return func() {}, ""
	}},
	{name: "replica stopped and started", netless: true, begin: func(w *world, target int, _ *rand.Rand) (func(), string) {
		w.keepers[target].Stop()
		return w.keepers[target].Start, ""
	}},
	{name: "replica paused", netless: true, begin: func(w *world, target int, _ *rand.Rand) (func(), string) {
		w.keepers[target].Pause()
		return w.keepers[target].Resume, ""
	}},
	cut("replica cut from the cluster", func(w *world, _ int, draw *rand.Rand) ([]rule, string) {
		way := drawWay(draw)
		return cutFrom(w.brokerPorts(everyBroker()...), way, "DROP"), way.String()
	}),
	cut("replica's connections to the cluster are reset", func(w *world, _ int, _ *rand.Rand) ([]rule, string) {
		return cutFrom(w.brokerPorts(everyBroker()...), bothWays, "REJECT", "--reject-with", "tcp-reset"), ""
	}),
	cut("replica cut from its clients", func(_ *world, _ int, draw *rand.Rand) ([]rule, string) {
		way := drawWay(draw)
		return cutAt(ourPorts(), way), way.String()
	}),
	cut("replica cut from everything", func(w *world, _ int, draw *rand.Rand) ([]rule, string) {
		way := drawWay(draw)
		return append(cutFrom(w.brokerPorts(everyBroker()...), way, "DROP"), cutAt(ourPorts(), way)...), way.String()
	}),
	cut("replica cut from one broker", func(w *world, _ int, draw *rand.Rand) ([]rule, string) {
		b, way := 1+draw.IntN(brokers), drawWay(draw)
		return cutFrom(w.brokerPorts(b), way, "DROP"), fmt.Sprintf("broker %d, %v", b, way)
	}),
	cut("replica cut from the ownership group's coordinator", func(w *world, _ int, draw *rand.Rand) ([]rule, string) {
		b, way := w.groupCoordinator(), drawWay(draw)
		return cutFrom(w.brokerPorts(b), way, "DROP"), fmt.Sprintf("broker %d, %v", b, way)
	}),
	cut("replica cut from the other replicas", func(_ *world, _ int, draw *rand.Rand) ([]rule, string) {
		return cutFrom(ourPorts(), bothWays, "DROP"), ""
	}),
	cut("packets lost", func(_ *world, _ int, draw *rand.Rand) ([]rule, string) {
		part := 0.05 + 0.3*draw.Float64()
		return lose(part), fmt.Sprintf("%.0f%%", 100*part)
	}),
	{name: "replica's clock is wrong", netless: true, can: func(w *world) bool { return w.clocks }, begin: func(w *world, target int, draw *rand.Rand) (func(), string) {
		by := []time.Duration{clockSkew, -clockSkew}[draw.IntN(2)]
		w.skewed = true
		w.keepers[target].SkewClock(by)
		return func() { w.keepers[target].SkewClock(0) }, "by " + by.String()
	}},
	{name: "replica's disk is full", netless: true, can: func(w *world) bool { return len(w.disks) == replicas }, begin: func(w *world, target int, _ *rand.Rand) (func(), string) {
		file := kafkatest.FillDisk(w.t, w.disks[target], "filler")
		w.full++
		return func() {
			w.full--
			if err := os.Remove(file); err != nil {
				w.t.Error(err)
			}
		}, ""
	}},
	// Not while a disk is full: the restarts take a while, and after 8 s a replica with a full disk leaves its shards to others, as it should.
	{name: "replica cut from the cluster while the others are restarted", can: func(w *world) bool { return w.full == 0 }, begin: func(w *world, target int, draw *rand.Rand) (func(), string) {
		way := drawWay(draw)
		w.net.apply(target, cutFrom(w.brokerPorts(everyBroker()...), way, "DROP")...)
		w.roll(target)
		return func() { w.net.heal(target) }, way.String()
	}},
}

var brokerFaults = []fault{
	{name: "broker killed", netless: true, brokers: true, begin: func(w *world, _ int, draw *rand.Rand) (func(), string) {
		b := 1 + draw.IntN(brokers)
		w.cluster.Kill(b)
		return func() { w.cluster.Restart(b) }, fmt.Sprintf("broker %d", b)
	}},
	{name: "broker of the ownership group restarted", netless: true, brokers: true, begin: func(w *world, _ int, _ *rand.Rand) (func(), string) {
		b := w.groupCoordinator()
		w.cluster.Stop(b)
		return func() { w.cluster.Restart(b) }, fmt.Sprintf("broker %d", b)
	}},
	{name: "broker paused", netless: true, brokers: true, begin: func(w *world, _ int, draw *rand.Rand) (func(), string) {
		b := 1 + draw.IntN(brokers)
		w.cluster.Pause(b)
		return func() { w.cluster.Resume(b) }, fmt.Sprintf("broker %d", b)
	}},
	{name: "leaders moved", netless: true, brokers: true, begin: func(w *world, _ int, draw *rand.Rand) (func(), string) {
		w.moveLeaders(draw)
		return func() { w.moveLeaders(draw) }, ""
	}},
}

const (
	adminMax = 20 * time.Second
	// clockSkew is the most by which a clock is wrong, each way.
	clockSkew = 10 * time.Minute
	// rollWait is how long a roll waits for one replica to be ready: it may not become so while others are cut off.
	rollWait = 5 * time.Second
)

// roll restarts one replica after the other, but for one, and those with which something else is going wrong.
func (w *world) roll(except int) {
	for i, k := range w.keepers {
		if i == except || w.busy[i] {
			continue
		}
		k.Stop()
		k.Start()
		for begun := w.now(); k.Ready() != nil && w.now()-begun < rollWait; {
			time.Sleep(100 * time.Millisecond) // between looks
		}
	}
}

// groupCoordinator is the broker that coordinates the ownership group; 1 where nobody says.
func (w *world) groupCoordinator() int {
	ctx, cancel := context.WithTimeout(context.Background(), adminMax)
	defer cancel()
	found := kafkatest.Admin(w.t, w.cluster.Bootstrap()).FindGroupCoordinators(ctx, "streamkeeper-"+logTopic)
	for _, c := range found {
		if c.Err == nil && c.NodeID >= 1 && c.NodeID <= brokers {
			return int(c.NodeID)
		}
	}
	return 1
}

// moveLeaders makes other replicas of each partition of the log the leader: the order of replicas is turned, and the first elected.
func (w *world) moveLeaders(draw *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), adminMax)
	defer cancel()
	adm := kafkatest.Admin(w.t, w.cluster.Bootstrap())
	topics, err := adm.ListTopics(ctx, logTopic)
	if err != nil {
		w.logf("leaders can't be looked up: %v", err)
		return
	}
	var req kadm.AlterPartitionAssignmentsReq
	var set kadm.TopicsSet
	for _, p := range topics[logTopic].Partitions {
		if len(p.Replicas) == 0 {
			continue
		}
		by := 1 + draw.IntN(brokers-1)
		turned := append(append([]int32(nil), p.Replicas[by%len(p.Replicas):]...), p.Replicas[:by%len(p.Replicas)]...)
		req.Assign(logTopic, p.Partition, turned)
		set.Add(logTopic, p.Partition)
	}
	if _, err := adm.AlterPartitionAssignments(ctx, req); err != nil {
		w.logf("replicas can't be turned: %v", err)
		return
	}
	if _, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, set); err != nil {
		w.logf("leaders can't be elected: %v", err)
	}
}
