package shard

import (
	"context"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/shard/streams"
)

// Heartbeat is the host's, for the many tests that look at the response alone.
func (r *node) Heartbeat(ctx context.Context, c Caller, version int16, req *kmsg.StreamsGroupHeartbeatRequest) (*kmsg.StreamsGroupHeartbeatResponse, error) {
	result, err := r.Host.Heartbeat(ctx, c, version, req)
	return result.Response, err
}

// Whoever heartbeats brings up the topics that the group lacks, until they are there; a member that leaves does not.
func TestHeartbeatTellsWhichTopicsToCreate(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		req := joinRequest("g", "m")
		changelog := kmsg.NewTopicInfo()
		changelog.Topic, changelog.Configs = "g-s-changelog", []kmsg.TopicInfoConfig{{Key: "cleanup.policy", Value: "compact"}}
		req.Topology.Subtopologies[0].StateChangelogTopics = []kmsg.TopicInfo{changelog}
		in, ok := r.cfg.Topics().Topic("in")
		if !ok {
			t.Fatal("no topic to read")
		}
		want := []streams.CreatableTopic{{Name: "g-s-changelog", Partitions: in.Partitions, ReplicationFactor: -1, Configs: []eventlog.KeyValue{{Key: "cleanup.policy", Value: "compact"}}}}
		result, err := r.Host.Heartbeat(t.Context(), Caller{}, 1, req)
		if err != nil || !reflect.DeepEqual(result.Create, want) {
			t.Fatalf("join: %+v, %v; want %+v", result.Create, err, want)
		}
		epoch := result.Response.MemberEpoch
		if result, err = r.Host.Heartbeat(t.Context(), Caller{}, 1, beatRequest("g", "m", epoch)); err != nil || !reflect.DeepEqual(result.Create, want) {
			t.Errorf("beat: %+v, %v; want %+v", result.Create, err, want)
		}
		if result, err = r.Host.Heartbeat(t.Context(), Caller{}, 1, beatRequest("g", "m", -1)); err != nil || result.Create != nil {
			t.Errorf("leave: %+v, %v", result.Create, err)
		}
	})
}
