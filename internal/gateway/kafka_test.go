package gateway

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/kafkatest"
)

// The tests here run real clients through the gateway against real brokers. That a Streams application runs is
// tested end to end elsewhere; here it is everything that is not ours.

// tool runs a Kafka tool through the gateway and fails the test if it fails.
func tool(t *testing.T, g *Gateway, name string, args ...string) string {
	t.Helper()
	out, errs, code := kafkatest.Tool(t, g.Addr().String(), name, args...)
	if code != 0 {
		t.Errorf("%s %v: exit %d\n%s%s", name, args, code, out, errs)
	}
	return out
}

func TestKafka39ThroughTheGateway(t *testing.T) {
	kafkatest.NeedJava(t)
	k := kafkatest.Start(t, kafkatest.Options{Version: kafkatest.V391})
	svc := newService().set("our-app", coordinator.Ours)
	g, _ := start(t, svc, strings.Split(k.Bootstrap(), ","))
	everydayLife(t, g, k, "")
}

func TestKafka44ThroughTheGateway(t *testing.T) {
	kafkatest.NeedJava(t)
	k := kafkatest.Start(t, kafkatest.Options{Brokers: 3, Properties: map[string]string{"group.coordinator.rebalance.protocols": "classic,consumer,share", "share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1"}})
	svc := newService().set("our-app", coordinator.Ours)
	g, _ := start(t, svc, strings.Split(k.Bootstrap(), ","))
	everydayLife(t, g, k, "consumer")
	t.Run("every node's listener compares with its own id", func(t *testing.T) { identities(t, g) })
	t.Run("share groups", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		dialed := recordDials()
		shareGroup(ctx, t, g, "in", 2000, dialed.opt())
		dialed.only(t, clientAddrs(t, g, k))
	})
	t.Run("leaders move", func(t *testing.T) { leadersMove(t, g, k) })
}

// everydayLife is what people do with a cluster: topics, records, groups, transactions, and the tools.
func everydayLife(t *testing.T, g *Gateway, k *kafkatest.Cluster, protocol string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dialed := recordDials()
	cl := client(t, g, dialed.opt())
	adm := kadm.NewClient(cl)
	replicas := int16(k.Brokers())
	if _, err := adm.CreateTopics(ctx, 4, replicas, nil, "in", "out", logTopic, descriptionTopic); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log topic's id", func() bool {
		ask[kmsg.Response](t, raw(t, g.Addr().String()), 12, kmsg.NewPtrMetadataRequest())
		return g.own.identified()
	})

	const n = 2000
	produceNumbers(ctx, t, cl, "in", n)
	noAcks := client(t, g, dialed.opt(), kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	if err := noAcks.ProduceSync(ctx, &kgo.Record{Topic: "out", Value: []byte("unacknowledged")}).FirstErr(); err != nil {
		t.Error(err)
	}
	reader := client(t, g, dialed.opt(), kgo.ConsumeTopics("out"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	consume(ctx, t, reader, 1)
	classic := client(t, g, dialed.opt(), kgo.ConsumerGroup("classic"), kgo.ConsumeTopics("in"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	consume(ctx, t, classic, n)
	if err := classic.CommitUncommittedOffsets(ctx); err != nil {
		t.Error(err)
	}

	s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(g.Addr().String()), dialed.opt(), kgo.TransactionalID("app"), kgo.ConsumerGroup("eos"),
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

	// The log topic, in Produce by the newest version that the cluster has.
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: logTopic, Value: []byte("x")}).FirstErr(); err == nil || !strings.Contains(err.Error(), "TOPIC_AUTHORIZATION_FAILED") {
		t.Errorf("a write to the log topic: %v", err)
	}
	if ends := kafkatest.EndOffsets(t, k.Bootstrap(), logTopic); ends[0]+ends[1]+ends[2]+ends[3] != 0 {
		t.Errorf("the log topic has records: %v", ends)
	}

	dialed.only(t, clientAddrs(t, g, k))

	// Java.
	if out := tool(t, g, "kafka-console-consumer", "--topic", "in", "--from-beginning", "--max-messages", "100", "--timeout-ms", "30000", "--group", "java"); strings.Count(out, "v") != 100 {
		t.Errorf("console consumer: %s", out)
	}
	if protocol != "" {
		if out := tool(t, g, "kafka-console-consumer", "--topic", "in", "--from-beginning", "--max-messages", "100", "--timeout-ms", "30000", "--group", "java-"+protocol,
			"--command-property", "group.protocol="+protocol); strings.Count(out, "v") != 100 {
			t.Errorf("console consumer: %s", out)
		}
	}
	if out := tool(t, g, "kafka-topics", "--describe", "--topic", "in"); strings.Count(out, "Leader:") != 4 {
		t.Errorf("kafka-topics: %s", out)
	}
	if out := tool(t, g, "kafka-groups", "--list"); !strings.Contains(out, "our-app") || strings.Count(out, "classic ") == 0 {
		t.Errorf("kafka-groups: %s", out)
	}
	if out := tool(t, g, "kafka-consumer-groups", "--describe", "--group", "classic", "--offsets"); strings.Count(out, "in ") != 4 {
		t.Errorf("kafka-consumer-groups: %s", out)
	}
	tool(t, g, "kafka-configs", "--describe", "--entity-type", "brokers")
	if out := tool(t, g, "kafka-transactions", "list"); strings.Count(out, "app") != 1 {
		t.Errorf("kafka-transactions: %s", out)
	}
	tool(t, g, "kafka-metadata-quorum", "describe", "--status")
	tool(t, g, "kafka-features", "describe")
	if out := tool(t, g, "kafka-broker-api-versions"); strings.Count(out, "StreamsGroupHeartbeat(88): 0 to 1") != k.Brokers()+1 {
		t.Errorf("kafka-broker-api-versions: %s", out)
	}
	tool(t, g, "kafka-topics", "--delete", "--topic", "out")
	if out, errs, code := kafkatest.Tool(t, g.Addr().String(), "kafka-topics", "--delete", "--topic", logTopic); code == 0 || !strings.Contains(out+errs, "record log of streamkeeper") {
		t.Errorf("deleting the log topic: exit %d %s%s", code, out, errs)
	}
}

// identities asks each listener as the Java client does that learned the nodes from Metadata.
func identities(t *testing.T, g *Gateway) {
	id := *g.clusterID.Load()
	for _, n := range []int32{1, 2, 3, testNode} {
		addr := g.Addr().String()
		if n != testNode {
			addr = brokerAddr(t, g, n)
		}
		for _, as := range []int32{1, 2, 3, testNode} {
			req := kmsg.NewPtrApiVersionsRequest()
			req.ClientSoftwareName, req.ClientSoftwareVersion, req.ClusterID, req.NodeID = "c", "1", &id, as
			r := ask[*kmsg.ApiVersionsResponse](t, raw(t, addr), 5, req)
			if (r.ErrorCode == 129) != (as != n) || r.ErrorCode != 0 && r.ErrorCode != 129 {
				t.Errorf("listener %d asked as %d: %d", n, as, r.ErrorCode)
			}
		}
	}
}

// leadersMove stops and starts brokers under load: NOT_LEADER answers come with the addresses of new leaders, and
// no client may learn one of the cluster.
func leadersMove(t *testing.T, g *Gateway, k *kafkatest.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	dialed := recordDials()
	p := client(t, g, dialed.opt(), kgo.RetryTimeout(time.Minute), kgo.RecordDeliveryTimeout(time.Minute))
	c := client(t, g, dialed.opt(), kgo.ConsumeTopics("moving"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if _, err := kadm.NewClient(p).CreateTopics(ctx, 6, 3, nil, "moving"); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				p.Flush(ctx)
				stopped <- n
				return
			default:
			}
			p.Produce(ctx, &kgo.Record{Topic: "moving", Value: fmt.Appendf(nil, "v%d", n)}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
			time.Sleep(time.Millisecond) // a steady load through the moves, not a burst before them
		}
	}()
	for i := range 2 {
		k.Stop(i + 1)
		k.Restart(i + 1)
		tool(t, g, "kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
	}
	close(stop)
	consume(ctx, t, c, <-stopped)
	dialed.only(t, clientAddrs(t, g, k))
}

// clientAddrs are the only addresses that clients may connect to.
func clientAddrs(t *testing.T, g *Gateway, k *kafkatest.Cluster) []string {
	t.Helper()
	addrs := []string{g.Addr().String()}
	for id := range int32(k.Brokers()) {
		addrs = append(addrs, brokerAddr(t, g, id+1))
	}
	return addrs
}
