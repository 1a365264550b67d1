package shard

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

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

// A join that was judged while its group was there, and gets its turn when it is gone, must not make it anew: nobody has asked the cluster whether it has one of
// that id by now, with the offsets.
func TestAJoinMakesNoGroupThatTheClusterWasNotAskedFor(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		if _, err := r.Host.Heartbeat(t.Context(), Caller{Unasked: true}, 1, joinRequest("g", "m")); !errors.Is(err, ErrGroupGone) || !errors.Is(err, ErrLoading) {
			t.Errorf("a group that is not there: %v", err)
		}
		if known, err := r.Known("g"); known || err != nil {
			t.Errorf("it was made: %v, %v", known, err)
		}
		if _, err := r.Host.Heartbeat(t.Context(), Caller{}, 1, joinRequest("g", "m")); err != nil {
			t.Error(err)
		}
		if _, err := r.Host.Heartbeat(t.Context(), Caller{Unasked: true}, 1, joinRequest("g", "m2")); err != nil {
			t.Errorf("a group that is there: %v", err)
		}
	})
}

// A broken group leaves memory and comes back from the log. Where it can't be read just then, its members' sessions begin when it can: one that is gone must not keep its tasks.
func TestSessionsOfABrokenGroupThatCanNotBeReadAtOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		var epoch int32
		for _, m := range []string{"m", "gone"} {
			result, err := r.Host.Heartbeat(t.Context(), Caller{}, 1, joinRequest("g", m))
			if err != nil {
				t.Fatal(err)
			}
			epoch = result.Response.MemberEpoch
		}
		unreadable := func(group string) {
			r.store.mu.Lock()
			r.store.unreadable = group
			r.store.mu.Unlock()
		}
		time.Sleep(time.Second) // the bubble's clock: all is written, and read
		unreadable("g")
		done := make(chan struct{})
		r.shards[0].post(func(s *Shard) {
			s.groups["g"].broken = true
			s.evict()
			if s.groups["g"] != nil {
				t.Error("it is in memory")
			}
			close(done)
		})
		<-done
		unreadable("")
		for range 40 { // beats of the one that is there
			time.Sleep(5 * time.Second) // the bubble's clock
			result, err := r.Host.Heartbeat(t.Context(), Caller{}, 1, beatRequest("g", "m", epoch))
			if err != nil {
				t.Fatal(err)
			}
			epoch = result.Response.MemberEpoch
		}
		d, err := r.Describe(t.Context(), "g")
		if err != nil || len(d.Members) != 1 || d.Members[0].MemberID != "m" {
			t.Errorf("%d members, %v", len(d.Members), err)
		}
	})
}
