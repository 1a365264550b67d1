package sim

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

// fetch asks where to begin for tasks that are new.
func (c *client) fetch() {
	var missing []int32
	floors := map[int32]int64{}
	for _, p := range sortedKeys(c.owned) {
		if _, ok := c.position[p]; !ok {
			missing = append(missing, p)
			floors[p] = c.w.checker.floor(c.group, p)
		}
	}
	if len(missing) == 0 {
		return
	}
	req := kmsg.NewOffsetFetchRequestGroup()
	id := c.id // the replica may look at it when this client is another member
	req.Group, req.MemberID, req.MemberEpoch = c.group, &id, c.epoch
	req.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: source, TopicID: sourceID, Partitions: missing}}
	resp, err := ask(c, func(ctx context.Context, h *shard.Host) (kmsg.OffsetFetchResponseGroup, error) {
		return h.Fetch(ctx, &req, true)
	})
	if err != nil {
		c.offsetsFailed("fetch", err)
		return
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				continue // asked again
			}
			c.w.checker.fetched(c.group, c.id, p.Partition, floors[p.Partition], p.Offset)
			c.position[p.Partition] = max(p.Offset, 0)
		}
	}
}

// work reads some records of each task.
func (c *client) work() {
	for _, p := range sortedKeys(c.position) {
		c.position[p] += c.rng.Int64N(100)
	}
}

// commit commits where the client stands in those of ps whose beginning it knows.
func (c *client) commit(ps []int32) {
	var parts []offsets.CommitPartition
	for _, p := range ps {
		if at, ok := c.position[p]; ok && at > 0 {
			parts = append(parts, offsets.CommitPartition{Partition: p, Offset: at, LeaderEpoch: -1})
		}
	}
	if len(parts) == 0 {
		return
	}
	req := offsets.Commit{Group: c.group, Version: 9, Retention: -1, Topics: []offsets.CommitTopic{{Name: source, ID: sourceID, Partitions: parts}}}
	id, epoch := c.id, c.epoch
	resp, err := ask(c, func(ctx context.Context, h *shard.Host) (*kmsg.OffsetCommitResponse, error) {
		return h.Commit(ctx, req, id, epoch, nil)
	})
	if err != nil {
		c.offsetsFailed("commit", err)
		return
	}
	for _, t := range resp.Topics {
		for i, p := range t.Partitions {
			if p.ErrorCode != 0 {
				c.w.violate("%s: commit of %s to %d: error %d", c.group, c.id, p.Partition, p.ErrorCode)
				continue
			}
			c.w.checker.ackedOffset(c.group, p.Partition, parts[i].Offset)
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
