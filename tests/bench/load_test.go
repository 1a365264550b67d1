package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
	"streamkeeper/internal/wire"
)

// topic is what all groups read; partitions are a group's tasks, and the offsets of a commit.
const (
	topic      = "bench-in"
	plainTopic = "bench-plain"
	partitions = 4
	// sampleOffset is what every commit says.
	sampleOffset = 1000
)

// requestTimeout ends a measurement that hangs.
const requestTimeout = 30 * time.Second

// group is a group with one member.
type group struct {
	id, member string
	epoch      int32
	tasks      []kmsg.TaskIDs
}

func newGroups(prefix string, n int) []*group {
	groups := make([]*group, n)
	for i := range groups {
		groups[i] = &group{id: fmt.Sprintf("%s-%05d", prefix, i), member: fmt.Sprintf("member%016d", i)}
	}
	return groups
}

// Each of the following sends one request of a group and takes over what the answer says.

func (g *group) join(ctx context.Context, c *wire.Client) error {
	req := g.heartbeat()
	req.MemberEpoch, req.RebalanceTimeoutMillis, req.EndpointInformationEpoch = 0, 300_000, -1
	req.ProcessID = &g.member
	topology := kmsg.NewStreamsGroupHeartbeatRequestTopology()
	sub := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
	sub.SubtopologyID, sub.SourceTopics = "0", []string{topic}
	topology.Subtopologies = append(topology.Subtopologies, sub)
	req.Topology = &topology
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	return g.exchange(ctx, c, req)
}

// settle tells the coordinator that the member has the tasks it was given.
func (g *group) settle(ctx context.Context, c *wire.Client) error {
	req := g.heartbeat()
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = g.tasks, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	return g.exchange(ctx, c, req)
}

func (g *group) beat(ctx context.Context, c *wire.Client) error {
	return g.exchange(ctx, c, g.heartbeat())
}

func (g *group) heartbeat() *kmsg.StreamsGroupHeartbeatRequest {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.SetVersion(1)
	req.Group, req.MemberID, req.MemberEpoch = g.id, g.member, g.epoch
	return req
}

func (g *group) exchange(ctx context.Context, c *wire.Client, req *kmsg.StreamsGroupHeartbeatRequest) error {
	kresp, err := c.Exchange(ctx, req)
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.StreamsGroupHeartbeatResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	g.epoch = resp.MemberEpoch
	if resp.ActiveTasks != nil {
		g.tasks = resp.ActiveTasks
	}
	return nil
}

func (g *group) commit(ctx context.Context, c *wire.Client) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.SetVersion(9)
	req.Group, req.MemberID, req.Generation = g.id, g.member, g.epoch
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = topic
	metadata := "AgAAAaIo/GFS" // as long as what Kafka Streams puts there
	for p := range int32(partitions) {
		part := kmsg.NewOffsetCommitRequestTopicPartition()
		part.Partition, part.Offset, part.Metadata = p, sampleOffset, &metadata
		t.Partitions = append(t.Partitions, part)
	}
	req.Topics = append(req.Topics, t)
	kresp, err := c.Exchange(ctx, req)
	if err != nil {
		return err
	}
	for _, p := range kresp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return err
		}
	}
	return nil
}

// fetchAll reads back what commit has committed.
func (g *group) fetchAll(ctx context.Context, c *wire.Client) error {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.SetVersion(9)
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group, rg.MemberID, rg.MemberEpoch = g.id, &g.member, g.epoch
	t := kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic = topic
	for p := range int32(partitions) {
		t.Partitions = append(t.Partitions, p)
	}
	rg.Topics = append(rg.Topics, t)
	req.Groups, req.RequireStable = append(req.Groups, rg), true
	kresp, err := c.Exchange(ctx, req)
	if err != nil {
		return err
	}
	got := kresp.(*kmsg.OffsetFetchResponse).Groups[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return err
	}
	for _, p := range got.Topics[0].Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return err
		}
		if p.Offset != sampleOffset {
			return fmt.Errorf("offset %d is committed, want %d", p.Offset, sampleOffset)
		}
	}
	return nil
}

// measure is the result of a phase.
type measure struct {
	perSecond float64
	latencies []time.Duration // sorted
	cpu       time.Duration   // of the measured processes meanwhile, 0 if it was not looked at
}

func (m measure) percentile(p float64) time.Duration {
	if len(m.latencies) == 0 {
		return 0
	}
	return m.latencies[min(int(p*float64(len(m.latencies))), len(m.latencies)-1)]
}

// phase calls do for the groups over the given number of connections: once for each group when lasting is 0, else
// again and again for that long. Each connection has its own groups and one request under way.
func phase(t *testing.T, address string, connections int, groups []*group, lasting time.Duration, do func(*group, context.Context, *wire.Client) error) measure {
	t.Helper()
	clients := make([]*wire.Client, connections)
	for i := range clients {
		c, err := wire.Dial(t.Context(), address, "bench")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients[i] = c
	}
	ctx, cancel := context.WithTimeout(t.Context(), lasting+requestTimeout+time.Duration(len(groups))*200*time.Millisecond)
	defer cancel()
	results := make([][]time.Duration, connections)
	errs := make([]error, connections)
	var wg sync.WaitGroup
	began := time.Now()
	for i, c := range clients {
		var mine []*group
		for j := i; j < len(groups); j += connections {
			mine = append(mine, groups[j])
		}
		if len(mine) == 0 {
			continue
		}
		wg.Go(func() { results[i], errs[i] = drive(ctx, c, mine, began, lasting, do) })
	}
	wg.Wait()
	took := time.Since(began)
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("a request failed: %v", err)
	}
	var m measure
	for _, r := range results {
		m.latencies = append(m.latencies, r...)
	}
	slices.Sort(m.latencies)
	m.perSecond = float64(len(m.latencies)) / took.Seconds()
	return m
}

func drive(ctx context.Context, c *wire.Client, groups []*group, began time.Time, lasting time.Duration, do func(*group, context.Context, *wire.Client) error) ([]time.Duration, error) {
	var latencies []time.Duration
	for {
		for _, g := range groups {
			sent := time.Now()
			if err := do(g, ctx, c); err != nil {
				return latencies, fmt.Errorf("group %s: %w", g.id, err)
			}
			latencies = append(latencies, time.Since(sent))
			if lasting > 0 && time.Since(began) > lasting {
				return latencies, nil
			}
		}
		if lasting == 0 {
			return latencies, nil
		}
	}
}

// produce is the yardstick: the records of a commit, written with acks=all to a plain topic by as many clients as
// there are connections, each waiting for its acknowledgement.
func produce(t *testing.T, address string, connections int, lasting time.Duration) measure {
	t.Helper()
	results := make([][]time.Duration, connections)
	errs := make([]error, connections)
	var clients []*kgo.Client
	for range connections {
		cl, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.AllISRAcks()))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		clients = append(clients, cl)
	}
	write := func(i int) error {
		records := make([]*kgo.Record, partitions) // one batch, as the offsets of one commit are
		for j := range records {
			records[j] = &kgo.Record{Topic: plainTopic, Partition: int32(i % 50), Key: make([]byte, 35), Value: make([]byte, 54)}
		}
		return clients[i].ProduceSync(t.Context(), records...).FirstErr()
	}
	for i := range clients { // connected, and the metadata known
		if err := write(i); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	began := time.Now()
	for i := range clients {
		wg.Go(func() {
			for time.Since(began) < lasting && errs[i] == nil {
				sent := time.Now()
				errs[i] = write(i)
				results[i] = append(results[i], time.Since(sent))
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var m measure
	for _, r := range results {
		m.latencies = append(m.latencies, r...)
	}
	slices.Sort(m.latencies)
	m.perSecond = float64(len(m.latencies)) / took.Seconds()
	return m
}

// awaitCoordinator joins a group on every shard, so that what follows meets no shard that is still loading. It returns
// one group per shard.
func awaitCoordinator(t *testing.T, address string) []*group {
	t.Helper()
	probes := map[int32]*group{}
	for _, g := range newGroups("probe", 2000) {
		p := partitionOf(g.id, 50)
		if probes[p] == nil {
			probes[p] = g
		}
	}
	var all []*group
	for p := range int32(50) {
		all = append(all, probes[p])
	}
	untilAnswered(t, address, all, (*group).join)
	untilAnswered(t, address, all, (*group).settle)
	return all
}

// untilAnswered repeats a request for each of the groups until it succeeds.
func untilAnswered(t *testing.T, address string, groups []*group, do func(*group, context.Context, *wire.Client) error) {
	t.Helper()
	var c *wire.Client
	defer func() {
		if c != nil {
			c.Close()
		}
	}()
	for _, g := range groups {
		kafkatest.Eventually(t, 90*time.Second, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
			defer cancel()
			if c == nil {
				var err error
				if c, err = wire.Dial(ctx, address, "bench"); err != nil {
					c = nil
					return err
				}
				// Kafka makes its topic of group records when a coordinator is first asked for.
				find := kmsg.NewPtrFindCoordinatorRequest()
				find.SetVersion(4)
				find.CoordinatorKeys = []string{g.id}
				if _, err := c.Exchange(ctx, find); err != nil {
					c.Close()
					c = nil
					return err
				}
			}
			err := do(g, ctx, c)
			var refused *kerr.Error
			if err != nil && !errors.As(err, &refused) {
				c.Close() // after a broken exchange the connection is of no use
				c = nil
			}
			return err
		})
	}
}

// partitionOf is the shard of a group: Java's hash of its name (ASCII here), without the sign, modulo n.
func partitionOf(group string, n int32) int32 {
	var h int32
	for _, c := range []byte(group) {
		h = 31*h + int32(c)
	}
	return int32(max(int64(h), -int64(h)) & 0x7fffffff % int64(n))
}
