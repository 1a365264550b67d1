package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/streams"
)

// The topology of every application: sourced reads topic source and keeps nothing; stateful reads topic side and has a store, so
// that it has standbys.
const (
	source    = "in"
	side      = "side"
	changelog = "app-store-changelog"

	sourced  = "0"
	stateful = "1"
)

// sourceMost is how many partitions topic source may grow to.
const sourceMost = 8

// topicOf is the topic that a subtopology reads.
func topicOf(sub string) string {
	if sub == stateful {
		return side
	}
	return source
}

// task is a task of the application.
type task struct {
	sub       string
	partition int32
}

func (t task) String() string { return fmt.Sprintf("%s_%d", t.sub, t.partition) }

// clusterTopics is a snapshot of the cluster's topics.
type clusterTopics struct {
	byName  map[string]streams.Topic
	version int64
}

func (t *clusterTopics) Topic(name string) (streams.Topic, bool) {
	x, ok := t.byName[name]
	return x, ok
}

func (t *clusterTopics) Version() int64 { return t.version }

// tasks are all tasks of the application while all its topics are there.
func (t *clusterTopics) tasks() (all []task) {
	for _, sub := range []string{sourced, stateful} {
		for p := range t.byName[topicOf(sub)].Partitions {
			all = append(all, task{sub, p})
		}
	}
	return all
}

// cluster is what the world has besides log and replicas.
type cluster struct {
	topics atomic.Pointer[clusterTopics] // the newest

	mu   sync.Mutex
	made byte // topics made so far: the next id
}

func newCluster(p plan) *cluster {
	c := &cluster{}
	c.topics.Store(&clusterTopics{byName: map[string]streams.Topic{}, version: 1})
	c.set(source, p.tasks)
	c.set(side, p.sideTasks)
	c.set(changelog, p.sideTasks)
	return c
}

// set makes a topic, or gives one that is there another number of partitions; 0 deletes it. It returns the new snapshot.
func (c *cluster) set(name string, partitions int32) *clusterTopics {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.topics.Load()
	next := &clusterTopics{byName: map[string]streams.Topic{}, version: old.version + 1}
	for n, t := range old.byName {
		next.byName[n] = t
	}
	if partitions == 0 {
		delete(next.byName, name)
	} else {
		t, there := next.byName[name]
		if !there {
			c.made++
			t = streams.Topic{Name: name, ID: [16]byte{0: 7, 15: c.made}}
		}
		t.Partitions = partitions
		next.byName[name] = t
	}
	c.topics.Store(next)
	return next
}

// now is a topic as it is in the cluster.
func (c *cluster) now(name string) (streams.Topic, bool) { return c.topics.Load().Topic(name) }

// drawSettings draws what all replicas are set to.
func drawSettings(rng *rand.Rand) *groupconfig.Broker {
	cfg := streams.DefaultConfig()
	seconds := func(of ...int) time.Duration { return time.Duration(of[rng.IntN(len(of))]) * time.Second }
	cfg.SessionTimeout = seconds(45, 45, 60)
	cfg.HeartbeatInterval = seconds(5, 5, 3, 10)
	cfg.InitialRebalanceDelay = seconds(3, 3, 0)
	cfg.AssignmentInterval = seconds(1, 1, 0, 5)
	cfg.NumStandbyReplicas = rng.IntN(3)
	return groupconfig.Fixed(cfg)
}

// drawChanges draws what an operator configures for a group.
func drawChanges(rng *rand.Rand) (changes []groupconfig.Change) {
	for _, c := range []struct {
		name   string
		values []string
	}{
		{"streams.num.standby.replicas", []string{"0", "1", "2"}},
		{"streams.session.timeout.ms", []string{"45000", "60000"}},
		{"streams.heartbeat.interval.ms", []string{"5000", "10000"}},
		{"streams.initial.rebalance.delay.ms", []string{"0", "3000"}},
		{"streams.assignment.interval.ms", []string{"0", "1000", "5000"}},
	} {
		switch rng.IntN(4) {
		case 0:
			changes = append(changes, groupconfig.Change{Op: groupconfig.Set, Name: c.name, Value: c.values[rng.IntN(len(c.values))]})
		case 1:
			changes = append(changes, groupconfig.Change{Op: groupconfig.Delete, Name: c.name})
		}
	}
	return changes
}

// wrongMax is how wrong the wall clock of a replica may be. What is past half of delete.retention.ms makes a replica forget its
// projection; the other half is for brokers and replicas whose clocks differ, and for this.
func (w *world) wrongMax() time.Duration { return min(w.deleteRetention/5, time.Hour) }

// jumped is t as a clock shows it that was set ahead by d, or back: its calendar time is another one, and the monotonic reading
// beside it, by which durations are measured, goes on. Package time can't make such a time, since nobody should; the kernel does
// whenever an operator sets the clock, and in a bubble there are no monotonic readings at all. A test checks the trick.
func jumped(t time.Time, d time.Duration) time.Time {
	set := t.Add(d)
	words := (*[2]uint64)(unsafe.Pointer(&set)) // as package time has them: wall, ext
	const has, nanosecondBits = 1 << 63, 30
	words[0] = has | uint64(set.Unix()-year1885.Unix())<<nanosecondBits | uint64(set.Nanosecond())
	words[1] = uint64(t.Sub(year1885.AddDate(100, 0, 0))) // from any start; before the year 2277
	return set
}

// year1885 is where the calendar of times with a monotonic reading begins.
var year1885 = time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC)
