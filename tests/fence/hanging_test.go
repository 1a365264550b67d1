package fence

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// hangingExtra is how much longer a takeover may take than the cluster does to have new leaders, and than one without a broker that hangs: coordinators
// load, and requests are repeated. It is two seconds on a quiet machine, and less than one request is waited for.
const hangingExtra = 4 * time.Second

// TestTakeoverMeetsAHangingBroker: a replica dies while a broker of three hangs. Every partition has the broker among its in-sync replicas, so nothing
// is acknowledged before the cluster has given it up; the shards are served right after that, whoever led them or coordinated their transactional ids.
func TestTakeoverMeetsAHangingBroker(t *testing.T) {
	const shards = 12 // each broker leads some, and coordinates some
	c := kafkatest.Shared(t, threeBrokers(kafkatest.V44))
	args := func(node int32) []string {
		return []string{"serve", "--bootstrap-servers", c.Bootstrap(), "--log-topic", "__log_hanging", "--log-partitions", fmt.Sprint(shards), "--node-id", fmt.Sprint(node),
			"--ownership-session-timeout", session.String(), "--shutdown-timeout", session.String(), "--plugin", "none"}
	}
	dies, stays := kafkatest.NewStreamkeeper(t, args(nodeOne)...), kafkatest.NewStreamkeeper(t, args(nodeTwo)...)
	dies.Start()
	stays.Start()
	dies.WaitReady()
	stays.WaitReady()
	kafkatest.Eventually(t, patience, func() error {
		if a, b := served(t, dies), served(t, stays); len(a) != shards/2 || len(b) != shards/2 {
			return fmt.Errorf("served are %v and %v", a, b)
		}
		return nil
	})

	hangs := bystander(t, c, "streamkeeper-__log_hanging")
	began := time.Now()
	c.Pause(hangs)
	dies.Kill()
	defer c.Resume(hangs)
	elected := make(chan time.Duration, 1)
	go func() {
		elected <- ledByOthers(t.Context(), c.Addr(1+hangs%c.Brokers()), int32(hangs)).Sub(began)
	}()
	seen := map[int32]time.Duration{}
	for len(seen) < shards {
		for _, p := range served(t, stays) {
			if _, ok := seen[p]; !ok {
				seen[p] = time.Since(began)
			}
		}
		if time.Since(began) > patience {
			t.Fatalf("broker %d hangs, and after %v these are served: %v", hangs, patience, seen)
		}
		time.Sleep(20 * time.Millisecond) // between looks
	}
	took, led := time.Since(began), <-elected
	t.Logf("broker %d hangs, others lead after %v: all shards are served by the other replica after %v: %v", hangs, led, took, seen)
	if most := max(led, session+session/2) + hangingExtra; took > most {
		t.Errorf("the takeover took %v, want at most %v", took, most)
	}
}

// ledByOthers is when a broker says that nothing is led by the one that hangs any more, of all topics, the cluster's own among them. The zero time: ctx ended.
func ledByOthers(ctx context.Context, address string, hangs int32) time.Time {
	for ctx.Err() == nil {
		client, err := kgo.NewClient(kgo.SeedBrokers(address)) // which knows that one alone
		if err != nil {
			return time.Time{}
		}
		req := kmsg.NewPtrMetadataRequest()
		resp, err := req.RequestWith(ctx, client.SeedBrokers()[0])
		now := time.Now()
		client.Close()
		led := err != nil || len(resp.Topics) == 0
		for i := 0; !led && i < len(resp.Topics); i++ {
			led = slices.ContainsFunc(resp.Topics[i].Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader == hangs || p.Leader < 0 })
		}
		if !led {
			return now
		}
		time.Sleep(50 * time.Millisecond) // between looks
	}
	return time.Time{}
}

// served are the shards that a replica serves.
func served(t *testing.T, k *kafkatest.Keeper) (ps []int32) {
	t.Helper()
	status, body := k.Get("/shards")
	if status != 200 {
		return nil
	}
	var s struct {
		Shards []struct {
			Partition int32
			Serving   bool
		}
	}
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Fatalf("/shards: %v: %s", err, body)
	}
	for _, p := range s.Shards {
		if p.Serving {
			ps = append(ps, p.Partition)
		}
	}
	return ps
}

// bystander is a broker that neither coordinates the group nor is the active controller: those have time-outs of their own before anybody takes
// over for them.
func bystander(t *testing.T, c *kafkatest.Cluster, group string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	coordinator := kafkatest.Admin(t, c.Bootstrap()).FindGroupCoordinators(ctx, group)[group]
	if coordinator.Err != nil {
		t.Fatal(coordinator.Err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addr(1)))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	req := kmsg.NewPtrDescribeQuorumRequest()
	rt := kmsg.NewDescribeQuorumRequestTopic()
	rt.Topic = "__cluster_metadata"
	rt.Partitions = append(rt.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	controller := resp.Topics[0].Partitions[0].LeaderID
	for b := 1; b <= c.Brokers(); b++ {
		if int32(b) != coordinator.NodeID && int32(b) != controller {
			return b
		}
	}
	t.Fatalf("no broker of %d is neither the coordinator %d nor the controller %d", c.Brokers(), coordinator.NodeID, controller)
	return 0
}
