package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
	"streamkeeper/internal/wire"
)

// wideTopic is what every subtopology of the large group reads.
const wideTopic = "bench-wide"

// large is one group of many members, all of which join at once.
type large struct {
	members, subtopologies int
	partitions             int32
}

func (l large) String() string {
	return fmt.Sprintf("%d members × %d subtopologies × %d partitions", l.members, l.subtopologies, l.partitions)
}

// join makes a request of the large group; two members are a process.
func (l large) join(g *group, ctx context.Context, c *wire.Client) error {
	req := g.heartbeat()
	req.MemberEpoch, req.RebalanceTimeoutMillis, req.EndpointInformationEpoch = 0, 300_000, -1
	process := g.member[:len(g.member)-1]
	req.ProcessID = &process
	topology := kmsg.NewStreamsGroupHeartbeatRequestTopology()
	for i := range l.subtopologies {
		sub := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
		sub.SubtopologyID, sub.SourceTopics = strconv.Itoa(i), []string{wideTopic}
		topology.Subtopologies = append(topology.Subtopologies, sub)
	}
	req.Topology = &topology
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	return g.exchange(ctx, c, req)
}

// stormConnections is how many members of the large group join at a time.
const stormConnections = 16

// storm measures the large group: all join, each of which computes a target for all, then they beat until every task runs. Meanwhile one
// connection beats for a group in another shard, and one for a group in the same shard.
func (l large) storm(t *testing.T, s *target, r *results) {
	kafkatest.CreateTopics(t, s.broker, l.partitions, wideTopic)
	const id = "large"
	l.awaitTopic(t, s.groups, id)
	members := make([]*group, l.members)
	for i := range members {
		members[i] = &group{id: id, member: fmt.Sprintf("member%015d", i)}
	}
	var same, other *group
	for _, g := range newGroups("beside", 2000) {
		if partitionOf(g.id, 50) == partitionOf(id, 50) {
			same = g
		} else {
			other = g
		}
	}
	beside := []*group{same, other}
	phase(t, s.groups, 1, beside, 0, (*group).join)
	phase(t, s.groups, 1, beside, 0, (*group).settle)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var beating sync.WaitGroup
	took := make([][]time.Duration, len(beside))
	errs := make([]error, len(beside))
	for i, g := range beside {
		beating.Go(func() { took[i], errs[i] = g.beatUntil(ctx, s.groups) })
	}
	began := time.Now()
	joins := phase(t, s.groups, stormConnections, members, 0, l.join)
	rounds := 0
	for ; l.running(members) < l.subtopologies*int(l.partitions); rounds++ {
		const roundsMax = 20 // revoke, release, take over, and some
		if rounds == roundsMax {
			t.Fatalf("after %d rounds %d tasks run", rounds, l.running(members))
		}
		phase(t, s.groups, stormConnections, members, 0, (*group).settle)
	}
	ended := time.Since(began)
	cancel()
	beating.Wait()
	row := func(what string) string { return fmt.Sprintf("%v: %s", l, what) }
	r.add(s.name, row("joins per second"), joins.perSecond)
	r.addLess(s.name, row("join p50 ms"), float64(joins.percentile(0.5))/float64(time.Millisecond))
	r.addLess(s.name, row("join p99 ms"), float64(joins.percentile(0.99))/float64(time.Millisecond))
	r.addLess(s.name, row("from the first join until every task runs, s"), ended.Seconds())
	for i, where := range []string{"of the same shard", "of another shard"} {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		slices.Sort(took[i])
		m := measure{latencies: took[i]}
		for _, p := range []float64{0.5, 0.99} {
			r.addLess(s.name, row(fmt.Sprintf("heartbeat of a group %s meanwhile, p%.0f ms", where, p*100)), float64(m.percentile(p))/float64(time.Millisecond))
		}
	}
}

// awaitTopic waits until the coordinator of a group knows what the group is to read. Kafka's hears of a topic a moment after it was created; a group that joins just
// then is not told of it before its next refresh. So groups of the same shard, of one member each, join one after the other until one is given all its tasks.
func (l large) awaitTopic(t *testing.T, address, id string) {
	t.Helper()
	n := 0
	kafkatest.Eventually(t, requestTimeout, func() error {
		g := &group{member: "member000000000000000"}
		for g.id == "" || partitionOf(g.id, 50) != partitionOf(id, 50) {
			g.id = fmt.Sprintf("%s-before-%d", id, n)
			n++
		}
		ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
		defer cancel()
		c, err := wire.Dial(ctx, address, "bench")
		if err != nil {
			return err
		}
		defer c.Close()
		if err := l.join(g, ctx, c); err != nil {
			return err
		}
		tasks := l.running([]*group{g})
		g.epoch = -1
		if err := g.beat(ctx, c); err != nil { // it leaves
			return err
		}
		if tasks != l.subtopologies*int(l.partitions) {
			return fmt.Errorf("a group is given %d tasks", tasks)
		}
		return nil
	})
}

// running is how many tasks the members know to have.
func (l large) running(members []*group) (n int) {
	for _, g := range members {
		for _, ids := range g.tasks {
			n += len(ids.Partitions)
		}
	}
	return n
}

// beatUntil sends heartbeats over one connection until ctx ends.
func (g *group) beatUntil(ctx context.Context, address string) (took []time.Duration, err error) {
	c, err := wire.Dial(ctx, address, "bench")
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for {
		sent := time.Now()
		err := g.beat(ctx, c)
		if ctx.Err() != nil {
			return took, nil
		}
		if err != nil {
			return took, fmt.Errorf("group %s: %w", g.id, err)
		}
		took = append(took, time.Since(sent))
		time.Sleep(time.Millisecond) // the measured processor should be busy with the large group, not with these
	}
}
