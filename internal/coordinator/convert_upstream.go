package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/shard"
)

// UpstreamClassicGroups speaks to the cluster's own group coordinators with our identity.
type UpstreamClassicGroups struct {
	Client *kgo.Client
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
		case err == nil, errors.Is(err, kerr.GroupIDNotFound):
			return nil
		case errors.Is(err, kerr.NonEmptyGroup):
			return fmt.Errorf("DeleteGroups: %w", ErrClassicMembers)
		default:
			return fmt.Errorf("DeleteGroups: %w", err)
		}
	}
	return errors.New("DeleteGroups: the answer lacks the group")
}

// Hold implements ClassicGroups.
func (u UpstreamClassicGroups) Hold(ctx context.Context, group string) (HeldGroup, error) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.ProtocolType = group, TakeOverProtocol
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(holdSession.Milliseconds()), int32(holdSession.Milliseconds())
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = TakeOverProtocol, []byte{}
	req.Protocols = append(req.Protocols, protocol)
	for {
		resp, err := req.RequestWith(ctx, u.Client)
		if err != nil {
			return nil, fmt.Errorf("JoinGroup: %w", err)
		}
		switch err := kerr.ErrorForCode(resp.ErrorCode); {
		case err == nil:
			return &heldGroup{client: u.Client, group: group, member: resp.MemberID, generation: resp.Generation}, nil
		case errors.Is(err, kerr.MemberIDRequired) && req.MemberID == "":
			req.MemberID = resp.MemberID
		case errors.Is(err, kerr.InconsistentGroupProtocol):
			return nil, ErrClassicMembers
		default:
			return nil, fmt.Errorf("JoinGroup: %w", err)
		}
	}
}

// heldGroup is our membership of a classic group. It is not synced: a member that has joined counts as one, and there is nothing to assign.
type heldGroup struct {
	client     *kgo.Client
	group      string
	member     string
	generation int32
}

func (h *heldGroup) Offsets(ctx context.Context) ([]shard.CommittedOffset, error) {
	fetched, err := kadm.NewClient(h.client).FetchOffsets(kadm.RequireStable(ctx), h.group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // some clusters say so of a group without offsets
		return nil, fmt.Errorf("OffsetFetch: %w", err)
	}
	var committed []shard.CommittedOffset
	for topic, partitions := range fetched {
		for p, o := range partitions {
			switch {
			case o.Err != nil:
				return nil, fmt.Errorf("OffsetFetch: %s-%d: %w", topic, p, o.Err)
			case o.At < 0:
				continue // nothing is committed
			case len(committed) == convertedOffsetsMax:
				return nil, shard.ErrTooManyOffsets
			}
			committed = append(committed, shard.CommittedOffset{Topic: topic, Partition: p, OffsetCommit: eventlog.OffsetCommit{
				Offset: o.At, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata, ExpireTimestamp: -1, TopicID: [16]byte(o.TopicID),
			}})
		}
	}
	slices.SortFunc(committed, func(a, b shard.CommittedOffset) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return committed, nil
}

func (h *heldGroup) Still(ctx context.Context) error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = h.group, h.member, h.generation
	resp, err := req.RequestWith(ctx, h.client)
	if err != nil {
		return fmt.Errorf("Heartbeat: %w", err)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("%w: Heartbeat: %w", errLetGo, err)
	}
	return nil
}

func (h *heldGroup) Leave(ctx context.Context) error {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = h.group, h.member
	member := kmsg.NewLeaveGroupRequestMember() // from version 3 on
	member.MemberID = h.member
	req.Members = append(req.Members, member)
	resp, err := req.RequestWith(ctx, h.client)
	if err != nil {
		return fmt.Errorf("LeaveGroup: %w", err)
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}
