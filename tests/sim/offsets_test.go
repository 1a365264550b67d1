package sim

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/history"
	"streamkeeper/shard"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

// position is where a client stands in a partition of that topic id.
type position struct {
	topic [16]byte
	next  int64
}

// fetch asks where to begin for active tasks that are new. A position in a topic that was made again is none.
func (c *client) fetch() {
	floors := map[task]int64{}
	topics := map[string]*kmsg.OffsetFetchRequestGroupTopic{}
	for _, x := range c.owned.sorted(false) {
		t, there := c.w.cluster.now(topicOf(x.sub))
		if !there || x.partition >= t.Partitions {
			continue
		}
		if at, ok := c.position[x]; ok && at.topic == t.ID {
			continue
		}
		delete(c.position, x)
		if topics[x.sub] == nil {
			topics[x.sub] = &kmsg.OffsetFetchRequestGroupTopic{Topic: t.Name, TopicID: t.ID}
		}
		topics[x.sub].Partitions = append(topics[x.sub].Partitions, x.partition)
		floors[x] = c.w.checker.floor(c.group, t.Name, x.partition, t.ID)
	}
	if len(topics) == 0 {
		return
	}
	req := kmsg.NewOffsetFetchRequestGroup()
	id := c.id // the replica may look at it when this client is another member
	req.Group, req.MemberID, req.MemberEpoch = c.group, &id, c.epoch
	for _, sub := range sortedKeys(topics) {
		req.Topics = append(req.Topics, *topics[sub])
	}
	requests := map[task]*history.Request{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			for sub, its := range topics {
				if its.TopicID == t.TopicID {
					requests[task{sub, p}] = c.w.recorder.Begin(c.register(history.Fetch, t.Topic, p, t.TopicID))
				}
			}
		}
	}
	resp, err := ask(c, func(ctx context.Context, h *shard.Host) (kmsg.OffsetFetchResponseGroup, error) {
		return h.Fetch(ctx, &req, true)
	})
	if err != nil {
		for _, r := range requests {
			failed(r, err)
		}
		c.offsetsFailed("fetch", err)
		return
	}
	for i, sub := range sortedKeys(topics) {
		t := resp.Topics[i]
		asked := topics[sub]
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				continue // asked again
			}
			x := task{sub, p.Partition}
			by := c.coordinator.node
			requests[x].Done(func(o *history.Op) { o.Node, o.Offset = by, p.Offset })
			c.w.checker.fetched(c.group, c.id, asked.Topic, p.Partition, asked.TopicID, floors[x], p.Offset)
			c.position[x] = position{asked.TopicID, max(p.Offset, 0)}
		}
	}
}

// work reads some records of each active task, if there are any. Groups whose topics are silent never commit: their coordinator
// writes nothing, and only its lease tells it that it has been replaced.
func (c *client) work() {
	if c.w.silent[c.group] {
		return
	}
	for _, x := range c.owned.sorted(false) {
		if at, ok := c.position[x]; ok {
			at.next += c.rng.Int64N(100)
			c.position[x] = at
		}
	}
}

// commit commits, at the epoch, where the client stands in those of the active tasks whose beginning it knows.
func (c *client) commit(of tasks, epoch int32) {
	if epoch <= 0 {
		return
	}
	var topics []offsets.CommitTopic
	for _, x := range of.sorted(false) {
		at, ok := c.position[x]
		t, there := c.w.cluster.now(topicOf(x.sub))
		if !ok || at.next == 0 || !there || at.topic != t.ID {
			continue
		}
		if len(topics) == 0 || topics[len(topics)-1].Name != t.Name {
			topics = append(topics, offsets.CommitTopic{Name: t.Name, ID: t.ID})
		}
		last := &topics[len(topics)-1]
		next := at.next
		if c.w.options.sabotages(backslider) {
			next = c.rng.Int64N(next + 1)
		}
		last.Partitions = append(last.Partitions, offsets.CommitPartition{Partition: x.partition, Offset: next, LeaderEpoch: -1})
	}
	if len(topics) == 0 {
		return
	}
	req := offsets.Commit{Group: c.group, Version: 9, Retention: -1, Topics: topics}
	id, instance := c.id, c.instance
	var requests []*history.Request
	for _, t := range topics {
		for _, p := range t.Partitions {
			op := c.register(history.Commit, t.Name, p.Partition, t.ID)
			op.Offset, op.Sent = p.Offset, epoch
			requests = append(requests, c.w.recorder.Begin(op))
		}
	}
	resp, err := ask(c, func(ctx context.Context, h *shard.Host) (*kmsg.OffsetCommitResponse, error) {
		return h.Commit(ctx, req, id, epoch, instance)
	})
	if err != nil {
		for _, r := range requests {
			failed(r, err)
		}
		c.offsetsFailed("commit", err)
		return
	}
	for i, t := range resp.Topics {
		for j, p := range t.Partitions {
			if p.ErrorCode != 0 {
				c.w.violate("%s: commit of %s to %s-%d: error %d", c.group, c.id, topics[i].Name, p.Partition, p.ErrorCode)
				continue
			}
			by := c.coordinator.node
			requests[0].Done(func(o *history.Op) { o.Node = by })
			requests = requests[1:]
			c.w.checker.ackedOffset(c.group, topics[i].Name, p.Partition, topics[i].ID, topics[i].Partitions[j].Offset)
		}
	}
}

// offsetsFailed takes the error of a commit or fetch; the next heartbeat tells what is wrong with the member.
func (c *client) offsetsFailed(what string, err error) {
	var refusal *streams.Error
	if !errors.As(err, &refusal) {
		c.retry(err)
		return
	}
	switch refusal.Code {
	case codeUnknownMember, codeStaleMemberEpoch, codeGroupNotFound:
		c.full = true
		c.beatAt = time.Now()
	default:
		c.w.violate("%s: %s of %s at epoch %d: %v", c.group, what, c.id, c.epoch, err)
	}
}
