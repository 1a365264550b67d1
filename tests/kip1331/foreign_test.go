package kip1331

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/kafkatest"
)

// TestAStreamsGroupOfTheClusterIsNotMadeAgain: before a cluster that coordinates streams groups itself, an application whose group is there would
// start over without its offsets if it got another one here.
func TestAStreamsGroupOfTheClusterIsNotMadeAgain(t *testing.T) {
	kafka := kafkatest.Shared(t, kafkaWith("FaultyPlugin"))
	prepare(t, kafka.Bootstrap())
	join := func(bootstrap, group string) *kmsg.StreamsGroupHeartbeatResponse {
		t.Helper()
		resp, err := kafkatest.Ask(t.Context(), bootstrap, joining(0, group, "AAAAAAAAAAAAAAAAAAAAAA", 0))
		if err != nil {
			t.Fatal(err)
		}
		return resp.(*kmsg.StreamsGroupHeartbeatResponse)
	}
	const group, fresh = "theirs-already", "nobodys-yet"
	if code := join(kafka.Bootstrap(), group).ErrorCode; code != 0 {
		t.Fatalf("the cluster's coordinator answers %d", code)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(kafka.Bootstrap()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for id, want := range map[string]string{group: "streams", fresh: ""} {
		if kind, _, err := coordinator.NewUpstreamGroups(cl).Find(t.Context(), id); err != nil || kind != want {
			t.Errorf("group %s at the cluster: %q, %v; want %q", id, kind, err, want)
		}
	}
	keeper := kafkatest.StartStreamkeeper(t, "serve", "--bootstrap-servers", kafka.Bootstrap(), "--log-partitions", "2", "--log-topic", "__log_theirs")
	kafkatest.Eventually(t, time.Minute, func() error { // shards serve a moment after the replica is ready
		resp := join(keeper.Bootstrap(), group)
		const want = "Group " + group + " is a streams group of the cluster's own coordinator, and can't be another one here."
		if resp.ErrorCode != 69 || resp.ErrorMessage == nil || *resp.ErrorMessage != want {
			return &unexpected{resp}
		}
		return nil
	})
	kafkatest.Eventually(t, time.Minute, func() error { // in the other shard
		if resp := join(keeper.Bootstrap(), fresh); resp.ErrorCode != 0 {
			return &unexpected{resp}
		}
		return nil
	})
}

// unexpected is an answer that is not the right one yet.
type unexpected struct {
	resp *kmsg.StreamsGroupHeartbeatResponse
}

func (u *unexpected) Error() string {
	if u.resp.ErrorMessage != nil {
		return fmt.Sprintf("error %d: %s", u.resp.ErrorCode, *u.resp.ErrorMessage)
	}
	return fmt.Sprintf("error %d without a message", u.resp.ErrorCode)
}
