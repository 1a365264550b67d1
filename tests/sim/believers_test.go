package sim

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

// Two replicas with valid leases on one partition, because a coordinator of the ownership group that was replaced confirms the heartbeats of the
// first, which reads nothing either. What it answers without a write may be old for as long as its last read allows (D3); but it acknowledges no
// write, and does not answer a committed offset that the other one has replaced. Without its read barrier it would. The same where the cluster had forgotten the
// first's producer id when the second claimed; where it doesn't let the second fence that id either, the cluster takes the first's writes, and
// only what it has not read keeps it from answering a fetch.
func TestTwoBelievers(t *testing.T) {
	for _, c := range []believersCase{
		{name: "as it is"},
		{name: "sabotaged", sabotage: hasty, stale: true},
		{name: "the producer id forgotten", forgotten: true},
		{name: "the producer id forgotten, and not to be fenced", forgotten: true, keepsFormer: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { believers(t, c) })
		})
	}
}

type believersCase struct {
	name, sabotage                string
	stale, forgotten, keepsFormer bool
}

func believers(t *testing.T, c believersCase) {
	sabotage, stale := c.sabotage, c.stale
	seed := uint64(1)
	for drawPlan((&world{seed: seed}).rng("plan")).replicas < 2 {
		seed++ // to the first that draws another replica
	}
	w := newWorld(seed, options{verbose: testing.Verbose(), sabotage: sabotage})
	defer w.stop()
	w.follow()
	group := groupName(0)
	wait := func(what string, f func() bool) {
		t.Helper()
		for range 600 {
			if f() {
				return
			}
			pause(100 * time.Millisecond)
		}
		t.Fatalf("not within a minute: %s", what)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	r := w.replicas[0]
	r.start()
	first := r.running()
	part := first.host.Partition(group)
	wait("the first serves", func() bool { return first.host.Owns(part) })

	topic, _ := w.cluster.now(source)
	member := &client{w: w, group: group, id: "m", process: "p"}
	var epoch int32
	beat := func(h *shard.Host) error {
		req := member.request(epoch)
		if epoch == 0 {
			req.RebalanceTimeoutMillis, req.ProcessID, req.Topology = 60000, &member.process, applicationTopology()
			req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
		}
		res, err := h.Heartbeat(ctx, shard.Caller{ClientID: "c", ClientHost: "/10.0.0.1"}, 1, req)
		if err == nil {
			epoch = res.Response.MemberEpoch
		}
		return err
	}
	commit := func(h *shard.Host, offset int64) error {
		_, err := h.Commit(ctx, offsets.Commit{Group: group, Version: 9, Retention: -1, Topics: []offsets.CommitTopic{{
			Name: topic.Name, ID: topic.ID, Partitions: []offsets.CommitPartition{{Partition: 0, Offset: offset, LeaderEpoch: -1}},
		}}}, member.id, epoch, nil)
		return err
	}
	fetch := func(h *shard.Host) (int64, error) {
		req := kmsg.NewOffsetFetchRequestGroup()
		req.Group, req.MemberEpoch = group, -1
		req.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic.Name, TopicID: topic.ID, Partitions: []int32{0}}}
		resp, err := h.Fetch(ctx, &req, true)
		if err != nil {
			return 0, err
		}
		return resp.Topics[0].Partitions[0].Offset, nil
	}
	wait("the member is in the group", func() bool { return beat(first.host) == nil })
	if err := commit(first.host, 5); err != nil {
		t.Fatal(err)
	}
	wait("the first has read it", func() bool { at, err := fetch(first.host); return err == nil && at == 5 })
	pause(time.Second)

	first.member.Depose(true)
	first.link.setTail(true)
	if c.keepsFormer {
		w.log.KeepFormer(part)
	}
	if c.forgotten {
		w.log.ExpireProducer(part)
	}
	w.replicas[1].start()
	second := w.replicas[1].running()
	wait("the second serves", func() bool { return second.host.Owns(part) })
	if err := beat(second.host); err != nil {
		t.Fatalf("a heartbeat to the second: %v", err)
	}
	if err := commit(second.host, 9); err != nil {
		t.Fatalf("a commit to the second: %v", err)
	}
	if !first.host.Owns(part) || !first.host.Holds(group) {
		t.Fatal("the first does not believe any more, and nothing is shown")
	}
	at, err := fetch(first.host)
	switch {
	case stale && (err != nil || at != 5):
		t.Errorf("without a read barrier the first answers %d, %v", at, err)
	case !stale && err == nil:
		t.Errorf("the first answers offset %d after 9 was acknowledged by the second", at)
	}
	// The second made a new epoch for the member, of which the first knows nothing; a refusal would cost the member its tasks.
	var refusal *streams.Error
	if err := beat(first.host); err == nil || errors.As(err, &refusal) != stale {
		t.Errorf("a heartbeat at epoch %d, to the first: %v", epoch, err)
	}
	if err := commit(first.host, 7); err == nil && !c.keepsFormer { // there it can't know (D4)
		t.Error("the first acknowledged a commit, too")
	}
	if at, err := fetch(second.host); err != nil || at != 9 {
		t.Errorf("the second answers %d, %v", at, err)
	}
}
