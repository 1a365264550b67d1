package coordinator

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

func TestUpstreamGroupsAreFound(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range []struct {
		name    string
		version *kversion.Versions
	}{{"newest", nil}, {"3.9", kversion.V3_9_0()}, {"2.8", kversion.V2_8_0()}} {
		t.Run(c.name, func(t *testing.T) {
			opts := []kfake.Opt{kfake.NumBrokers(3), kfake.SeedTopics(1, "t")}
			if c.version != nil {
				opts = append(opts, kfake.MaxVersions(c.version))
			}
			cluster, err := kfake.NewCluster(opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			client := func(opts ...kgo.Opt) *kgo.Client {
				cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(cluster.ListenAddrs()...))...)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(cl.Close)
				return cl
			}
			plain := client()
			u := NewUpstreamGroups(plain)
			find := func(group, kind string, members bool) {
				t.Helper()
				k, m, err := u.Find(ctx, group)
				if err != nil || k != kind || m != members {
					t.Errorf("group %s: %q, members %v, %v; want %q, %v", group, k, m, err, kind, members)
				}
			}
			find("nobody", "", false)

			if err := plain.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			member := client(kgo.ConsumerGroup("with-member"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			if err := member.PollFetches(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			find("with-member", "classic", true)

			var offsets kadm.Offsets
			offsets.AddOffset("t", 0, 1, -1)
			if _, err := kadm.NewClient(plain).CommitOffsets(ctx, "offsets-only", offsets); err != nil {
				t.Fatal(err)
			}
			find("offsets-only", "classic", false)

			if c.version != nil {
				return // the consumer protocol came later
			}
			join := kmsg.NewPtrConsumerGroupHeartbeatRequest()
			join.Group, join.MemberID, join.RebalanceTimeoutMillis = "next", "m", 10_000
			join.SubscribedTopicNames, join.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
			resp, err := join.RequestWith(ctx, plain)
			if err != nil || resp.ErrorCode != 0 {
				t.Fatalf("join: %v, %+v", err, resp)
			}
			find("next", "consumer", true)

			// All of them and many more at once: each asker gets the answer about its own group.
			var wg sync.WaitGroup
			for i := range 3 * foreignBatchMax {
				wg.Go(func() {
					switch i % 4 {
					case 0:
						find("next", "consumer", true)
					case 1:
						find("with-member", "classic", true)
					default:
						find(fmt.Sprint("nobody", i), "", false)
					}
				})
			}
			wg.Wait()
		})
	}
}

// A group that can't be made because the cluster does not say whether it has it: members try again for ever, so there must be a line.
func TestClusterThatDoesNotTellWhetherItHasAGroupIsLogged(t *testing.T) {
	w := newWorld(t)
	w.shards.owned[1] = true
	var lines bytes.Buffer
	w.Coordinator.log = slog.New(slog.NewTextHandler(&lines, nil))
	w.foreign.err = kerr.GroupAuthorizationFailed
	for range 5 {
		if resp := w.Heartbeat(t.Context(), Caller{}, join("g1", "in")); resp.ErrorCode != 14 {
			t.Fatalf("code %d, want 14", resp.ErrorCode)
		}
	}
	w.now = w.now.Add(foreignUnknownEvery)
	w.Heartbeat(t.Context(), Caller{}, join("g1", "in"))
	if got := lines.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "group=g1") || !strings.Contains(got, "GROUP_AUTHORIZATION_FAILED") ||
		!strings.Contains(got, "since_last_line=4") {
		t.Errorf("log lines:\n%s", got)
	}
}
