package shard

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard/offsets"
)

func joinRequest(group, member string) *kmsg.StreamsGroupHeartbeatRequest {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Version = 1
	req.Group, req.MemberID, req.RebalanceTimeoutMillis = group, member, 300_000
	process := "p-" + member
	req.ProcessID = &process
	req.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{{SubtopologyID: "0", SourceTopics: []string{"in"}}}}
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	return req
}

func beatRequest(group, member string, epoch int32) *kmsg.StreamsGroupHeartbeatRequest {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Version = 1
	req.Group, req.MemberID, req.MemberEpoch = group, member, epoch
	return req
}

func (r *node) join(t *testing.T, group, member string) *kmsg.StreamsGroupHeartbeatResponse {
	t.Helper()
	resp, err := r.Heartbeat(t.Context(), Caller{ClientID: "c", ClientHost: "/127.0.0.1"}, 1, joinRequest(group, member))
	if err != nil {
		t.Fatalf("join of %s: %v", member, err)
	}
	return resp
}

// answerMax is how long an answer is waited for in a bubble, where time passes at once: a test that waits for ever would keep a processor busy for as long.
const answerMax = 10 * time.Minute

func (r *node) beat(group, member string, epoch int32) (*kmsg.StreamsGroupHeartbeatResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerMax)
	defer cancel()
	return r.Heartbeat(ctx, Caller{ClientID: "c", ClientHost: "/127.0.0.1"}, 1, beatRequest(group, member, epoch))
}

func (r *node) commit(group, member string, epoch int32, offset int64) error {
	c := offsets.Commit{Group: group, Version: 9, Retention: -1, Topics: []offsets.CommitTopic{{Name: "in", ID: [16]byte{1},
		Partitions: []offsets.CommitPartition{{Partition: 0, Offset: offset, LeaderEpoch: -1}}}}}
	ctx, cancel := context.WithTimeout(context.Background(), answerMax)
	defer cancel()
	_, err := r.Commit(ctx, c, member, epoch, nil)
	return err
}

// fetched is the committed offset of in-0; -1 is none.
func (r *node) fetched(group string) (int64, error) {
	req := kmsg.NewOffsetFetchRequestGroup()
	req.Group = group
	req.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "in", Partitions: []int32{0}}}
	req.MemberEpoch = -1
	ctx, cancel := context.WithTimeout(context.Background(), answerMax)
	defer cancel()
	resp, err := r.Fetch(ctx, &req, true)
	if err != nil {
		return 0, err
	}
	return resp.Topics[0].Partitions[0].Offset, nil
}

// async runs f in a goroutine of the bubble and returns a function that says whether it has returned, and what.
func async[T any](f func() (T, error)) func() (v T, err error, done bool) {
	var mu sync.Mutex
	var v T
	var err error
	var done bool
	go func() {
		gv, gerr := f()
		mu.Lock()
		v, err, done = gv, gerr, true
		mu.Unlock()
	}()
	return func() (T, error, bool) {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return v, err, done
	}
}
