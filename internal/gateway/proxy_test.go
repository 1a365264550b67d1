package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
)

// produceNumbers writes n records with the values v0, v1, … to a topic.
func produceNumbers(ctx context.Context, t *testing.T, cl *kgo.Client, topic string, n int) {
	t.Helper()
	for i := range n {
		cl.Produce(ctx, &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// consume reads until n different values have come.
func consume(ctx context.Context, t *testing.T, cl *kgo.Client, n int) {
	t.Helper()
	seen := map[string]bool{}
	for len(seen) < n {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(seen), n, err)
		}
		fs.EachError(func(topic string, p int32, err error) { t.Errorf("%s/%d: %v", topic, p, err) })
		fs.EachRecord(func(r *kgo.Record) { seen[string(r.Value)] = true })
	}
}

func TestProduceAndConsumeThroughTheGateway(t *testing.T) {
	k := cluster(t)
	svc := newService().set("our-app", coordinator.Ours)
	g, _ := start(t, svc, k.ListenAddrs())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	const n = 500
	produceNumbers(ctx, t, client(t, g), "in", n)

	c := client(t, g, kgo.ConsumerGroup("classic"), kgo.ConsumeTopics("in"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	consume(ctx, t, c, n)
	if err := c.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}

	adm := kadm.NewClient(client(t, g))
	nodes, err := adm.ListBrokers(ctx)
	if err != nil || !slices.Equal(nodes.NodeIDs(), []int32{0, 1, 2, testNode}) {
		t.Errorf("nodes %v, %v", nodes.NodeIDs(), err)
	}
	groups, err := adm.ListGroups(ctx)
	if err != nil || !slices.Equal(groups.Groups(), []string{"classic", "our-app"}) {
		t.Errorf("groups %v, %v", groups.Groups(), err)
	}
	if node := groups["our-app"].Coordinator; node != testNode {
		t.Errorf("coordinator of our-app: %d", node)
	}
	described, err := adm.DescribeGroups(ctx, "classic", "our-app")
	if err != nil || described["classic"].State != "Stable" || described["our-app"].State != "Dead" {
		t.Errorf("described %v, %v", described, err)
	}
	committed, err := adm.FetchOffsets(ctx, "classic")
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	committed.Each(func(o kadm.OffsetResponse) { total += o.At })
	if total != n {
		t.Errorf("committed %d of %d", total, n)
	}
	if _, err := adm.DeleteGroups(ctx, "our-app"); err != nil || !slices.Equal(svc.deleted, []string{"our-app"}) {
		t.Errorf("deleted %v, %v", svc.deleted, err)
	}
	dirs, err := adm.DescribeAllLogDirs(ctx, nil)
	if err != nil || len(dirs) != 4 || dirs[testNode].Size() != 0 {
		t.Errorf("log dirs of %d nodes, %v", len(dirs), err)
	}
}

func TestConsumerGroupsOfTheNewProtocol(t *testing.T) {
	k := cluster(t)
	var heartbeats atomic.Int32
	k.ControlKey(consumerGroupHeartbeat, func(kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		heartbeats.Add(1)
		return nil, nil, false
	})
	g, _ := start(t, newService(), k.ListenAddrs())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	produceNumbers(ctx, t, client(t, g), "in", 100)

	c := client(t, g, kgo.ConsumerGroup("modern"), kgo.ServerSideBalancer(), kgo.ConsumeTopics("in"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	consume(ctx, t, c, 100)
	if heartbeats.Load() == 0 {
		t.Error("the client used another protocol")
	}
}

// A consume-transform-produce loop of a foreign group, exactly once, is the cluster's business from end to end.
func TestForeignTransactions(t *testing.T) {
	k := cluster(t)
	g, _ := start(t, newService(), k.ListenAddrs())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	const n = 200
	produceNumbers(ctx, t, client(t, g), "in", n)
	s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(g.Addr().String()), kgo.TransactionalID("app"), kgo.ConsumerGroup("eos"),
		kgo.ConsumeTopics("in"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for done := 0; done < n; {
		fs := s.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			t.Fatal(err)
		}
		if err := s.Begin(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			s.Produce(ctx, &kgo.Record{Topic: "out", Value: r.Value}, nil)
			done++
		})
		if ok, err := s.End(ctx, kgo.TryCommit); err != nil || !ok {
			t.Fatalf("commit: %v, %v", ok, err)
		}
	}
	consume(ctx, t, client(t, g, kgo.ConsumeTopics("out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), n)
}

// Through the gateway a leader change shows no client an address of the cluster.
func TestLeaderChangesKeepClientsAtTheGateway(t *testing.T) {
	k := cluster(t)
	g, _ := start(t, newService(), k.ListenAddrs())
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	dialed := recordDials()
	p := client(t, g, dialed.opt())
	c := client(t, g, dialed.opt(), kgo.ConsumeTopics("in"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for round := range 6 {
		produceNumbers(ctx, t, p, "in", 50)
		for part := range int32(3) {
			if err := k.MoveTopicPartition("in", part, (part+int32(round))%3); err != nil {
				t.Fatal(err)
			}
		}
	}
	consume(ctx, t, c, 50)
	allowed := []string{g.Addr().String()}
	for id := range int32(3) {
		allowed = append(allowed, brokerAddr(t, g, id))
	}
	dialed.only(t, allowed)
}

// shareGroup consumes a topic as a share group: ShareFetch answers are walked, ShareAcknowledge answers decoded.
func shareGroup(ctx context.Context, t *testing.T, g *Gateway, topic string, n int, opts ...kgo.Opt) {
	t.Helper()
	const group = "sharing"
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = "share.auto.offset.reset", kmsg.StringPtr("earliest")
	r.Configs = append(r.Configs, c)
	alter.Resources = append(alter.Resources, r)
	resp, err := alter.RequestWith(ctx, client(t, g))
	if err != nil || resp.Resources[0].ErrorCode != 0 {
		t.Fatalf("group config: %v, %+v", err, resp)
	}
	cl := client(t, g, append(opts, kgo.ShareGroup(group), kgo.ConsumeTopics(topic))...)
	consume(ctx, t, cl, n)
	if err := cl.FlushAcks(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestShareGroupsThroughTheGateway(t *testing.T) {
	k := cluster(t)
	g, _ := start(t, newService(), k.ListenAddrs())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	produceNumbers(ctx, t, client(t, g), "in", 100)
	shareGroup(ctx, t, g, "in", 100)
}
