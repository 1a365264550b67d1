package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client"
	"streamkeeper/internal/kafkatest"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

// beat sends a heartbeat to the group's coordinator and returns a successful answer.
func beat(t *testing.T, c *Client, group string, epoch int32, edit func(*kmsg.StreamsGroupHeartbeatRequest)) *kmsg.StreamsGroupHeartbeatResponse {
	t.Helper()
	r := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	r.Group, r.MemberID, r.MemberEpoch = group, "member-1", epoch
	edit(r)
	var resp *kmsg.StreamsGroupHeartbeatResponse
	kafkatest.Eventually(t, time.Minute, func() error { // the coordinator of a broker that has just started is not there yet
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorKey, find.CoordinatorKeys = group, []string{group}
		found, err := find.RequestWith(t.Context(), c.Kafka())
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(found.Coordinators[0].ErrorCode); err != nil {
			return err
		}
		kresp, err := c.Kafka().Broker(int(found.Coordinators[0].NodeID)).RetriableRequest(t.Context(), r)
		if err != nil {
			return err
		}
		resp = kresp.(*kmsg.StreamsGroupHeartbeatResponse)
		return kerr.ErrorForCode(resp.ErrorCode)
	})
	return resp
}

// The same calls that are made of streamkeeper, made of Kafka's own coordinator.
func TestAgainstKafkasOwnCoordinator(t *testing.T) {
	cluster := kafkatest.Start(t, kafkatest.Options{Version: "4.4.0", Streams: true, Properties: map[string]string{
		"group.streams.initial.rebalance.delay.ms": "0",
	}})
	kafkatest.CreateTopics(t, cluster.Bootstrap(), 4, "in")
	c, err := New([]string{cluster.Bootstrap()}, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for range 3 {
		if err := c.Kafka().ProduceSync(ctx, &kgo.Record{Topic: "in", Partition: 2, Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}

	resp := beat(t, c, "orders", 0, func(r *kmsg.StreamsGroupHeartbeatRequest) {
		r.RebalanceTimeoutMillis, r.ProcessID = 60_000, kmsg.StringPtr("process-1")
		r.UserEndpoint = &kmsg.StreamsGroupHeartbeatRequestUserEndpoint{Host: "app", Port: 7}
		r.ActiveTasks, r.StandbyTasks, r.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
		s := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
		s.SubtopologyID, s.SourceTopics = "0", []string{"in"}
		r.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{s}}
	})
	epoch := resp.MemberEpoch
	for len(resp.ActiveTasks) == 0 || len(resp.ActiveTasks[0].Partitions) < 4 {
		if ctx.Err() != nil {
			t.Fatal("the tasks did not come")
		}
		time.Sleep(100 * time.Millisecond) // the target is computed by a heartbeat, at the group's own pace
		resp = beat(t, c, "orders", epoch, func(*kmsg.StreamsGroupHeartbeatRequest) {})
		epoch = resp.MemberEpoch
	}

	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, "orders"
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = "streams.task.offset.interval.ms", kmsg.StringPtr("20000")
	res.Configs = append(res.Configs, config)
	alter.Resources = append(alter.Resources, res)
	if resp, err := alter.RequestWith(ctx, c.Kafka()); err != nil || resp.Resources[0].ErrorCode != 0 {
		t.Fatalf("configure: %+v, %v", resp, err)
	}

	listed, err := c.List(ctx, nil)
	if err != nil || len(listed) != 1 || listed[0].Group != "orders" || listed[0].State != "Stable" {
		t.Fatalf("list: %+v, %v", listed, err)
	}
	if empty, err := c.List(ctx, []string{"Empty"}); err != nil || len(empty) != 0 {
		t.Errorf("list of empty groups: %+v, %v", empty, err)
	}
	var d *Description
	kafkatest.Eventually(t, time.Minute, func() error { // a broker hears of a change after it is acknowledged
		if d, err = c.Describe(ctx, "orders"); err != nil {
			return err
		}
		if len(d.Settings) == 0 {
			return errors.New("no settings")
		}
		return nil
	})
	var text bytes.Buffer
	if err := d.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`[ \t]+`).ReplaceAllString(text.String(), " ")
	for _, line := range []string{
		fmt.Sprintf("orders Stable %d %d 0 sticky %s (1) 1\n", d.Epoch, d.AssignmentEpoch, cluster.Bootstrap()),
		fmt.Sprintf("member-1 %d streamkeeper-cli 127.0.0.1 process-1 active 0_0 0_1 0_2 0_3\n", epoch),
		"streams.task.offset.interval.ms 20000 60000\n",
		"in 2 - 3 3 0_2 member-1\n",
		"in 3 - 0 0 0_3 member-1\n",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("describe lacks %q:\n%s", line, got)
		}
	}
	if d.Explanation != nil || strings.Contains(text.String(), "Why ") {
		t.Errorf("Kafka explained itself: %+v\n%s", d.Explanation, text.String())
	}
	if *d.Members[0].Endpoint != (client.Endpoint{Host: "app", Port: 7}) || d.Subtopologies[0].SourceTopics[0] != "in" {
		t.Errorf("description %+v", d)
	}

	if err := c.Forget(ctx, 1); !errors.Is(err, errNoReplica) { // the id of the broker, which must not be unregistered
		t.Errorf("forget, asked of a broker: %v", err)
	}
	if err := c.Delete(ctx, "orders"); !errors.Is(err, kerr.NonEmptyGroup) {
		t.Errorf("delete of a group with a member: %v", err)
	}
	beat(t, c, "orders", -1, func(*kmsg.StreamsGroupHeartbeatRequest) {})
	if err := c.Delete(ctx, "orders"); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := c.Delete(ctx, "orders"); !errors.Is(err, kerr.GroupIDNotFound) {
		t.Errorf("second delete: %v", err)
	}
	if _, err := c.Describe(ctx, "orders"); err == nil || err.Error() != "Group orders not found." {
		t.Errorf("describe of a deleted group: %v", err)
	}
}
