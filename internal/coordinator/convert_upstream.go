package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// UpstreamClassicGroups speaks to the cluster's own group coordinators with our identity.
type UpstreamClassicGroups struct {
	// Client finds coordinators by itself; *kgo.Client does.
	Client kmsg.Requestor
}

// Commit implements ClassicGroups: a commit without generation and member, as of a simple consumer, which a group with members refuses.
func (u UpstreamClassicGroups) Commit(ctx context.Context, group string, offsets []ClassicOffset) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = group
	for _, o := range offsets { // ascending by topic
		n := len(req.Topics)
		if n == 0 || req.Topics[n-1].Topic != o.Topic {
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic, t.TopicID = o.Topic, o.TopicID
			req.Topics = append(req.Topics, t)
			n++
		}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = o.Partition, o.Offset, o.LeaderEpoch, kmsg.StringPtr(o.Metadata)
		req.Topics[n-1].Partitions = append(req.Topics[n-1].Partitions, p)
	}
	resp, err := req.RequestWith(ctx, u.Client)
	if err != nil {
		return fmt.Errorf("OffsetCommit: %w", err)
	}
	type place struct {
		topic     string
		id        [16]byte
		partition int32
	}
	codes := make(map[place]int16, len(offsets))
	byID := resp.Version >= topicIDsFrom
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			at := place{topic: t.Topic, partition: p.Partition}
			if byID {
				at = place{id: t.TopicID, partition: p.Partition}
			}
			codes[at] = p.ErrorCode
		}
	}
	for _, o := range offsets {
		at := place{topic: o.Topic, partition: o.Partition}
		if byID {
			at = place{id: o.TopicID, partition: o.Partition}
		}
		switch code, answered := codes[at]; {
		case !answered:
			return fmt.Errorf("OffsetCommit: the answer lacks %s-%d", o.Topic, o.Partition)
		case code != 0:
			return fmt.Errorf("OffsetCommit: %s-%d: %w", o.Topic, o.Partition, kerr.ErrorForCode(code))
		}
	}
	return nil
}

// Delete implements ClassicGroups.
func (u UpstreamClassicGroups) Delete(ctx context.Context, group string) error {
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(ctx, u.Client)
	if err != nil {
		return fmt.Errorf("DeleteGroups: %w", err)
	}
	for _, g := range resp.Groups {
		if g.Group != group {
			continue
		}
		switch err := kerr.ErrorForCode(g.ErrorCode); {
		case err == nil, errors.Is(err, kerr.GroupIDNotFound), errors.Is(err, kerr.NonEmptyGroup):
			return nil
		default:
			return fmt.Errorf("DeleteGroups: %w", err)
		}
	}
	return errors.New("DeleteGroups: the answer lacks the group")
}
