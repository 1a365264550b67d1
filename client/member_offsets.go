package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Offset is a position to commit: that of the next record to read.
type Offset struct {
	Offset      int64
	LeaderEpoch int32 // of the record before, -1 if it is not known
	Metadata    string
}

// byNameCommit is an OffsetCommit that names topics; see byName.
type byNameCommit struct{ *kmsg.OffsetCommitRequest }

func (byNameCommit) MaxVersion() int16 { return 9 }

// ErrNotMember says that a member is not in the group (not yet, or not any more) and can't commit.
var ErrNotMember = errors.New("not a member of the group now")

// Commit commits offsets of tasks that the member has, with its id and epoch, and waits until they are durable. It repeats what a
// coordinator that moves, loads or is away, or a newer epoch, made fail (CommitRequestManager's table), until ctx ends, or a minute if it has no deadline,
// with pauses of 100 ms to 1 s. A node that takes a request and never answers is given up when the client gives it up (kgo.RequestTimeoutOverhead, 10 s by default).
// An error of one partition does not hold the others up; it is joined to the result with the partition's name. After UNKNOWN_MEMBER_ID the tasks
// are lost, and Lose is or will be called. A member that is thrown out meanwhile, and may be back, has lost them as well: what is not committed by then
// fails with ErrNotMember. It may be called from any goroutine, also from Revoke.
func (m *Member) Commit(ctx context.Context, offsets map[TopicPartition]Offset) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	epoch, life := m.membership()
	if epoch == joining && len(offsets) > 0 {
		return fmt.Errorf("commit offsets of group %q: %w", m.cfg.Group, ErrNotMember)
	}
	pending := maps.Clone(offsets)
	var refusedFor []error
	err := m.repeat(ctx, func(ctx context.Context, node Node) error {
		if len(pending) == 0 {
			return nil
		}
		epoch, now := m.membership()
		if epoch == joining || now != life {
			return ErrNotMember
		}
		kresp, err := m.net.request(ctx, node, byNameCommit{m.commitOf(epoch, pending)})
		if err != nil {
			return err
		}
		var again error
		for _, t := range kresp.(*kmsg.OffsetCommitResponse).Topics {
			for _, p := range t.Partitions {
				tp := TopicPartition{t.Topic, p.Partition}
				err := refusal(p.ErrorCode, nil)
				if err != nil && m.repeats(err) {
					again = err
					continue
				}
				if _, asked := pending[tp]; asked && err != nil {
					refusedFor = append(refusedFor, fmt.Errorf("%s-%d: %w", tp.Topic, tp.Partition, err))
				}
				delete(pending, tp)
			}
		}
		if again == nil && len(pending) > 0 {
			return fmt.Errorf("the answer says nothing about %d partitions", len(pending))
		}
		return again
	})
	if err = errors.Join(errors.Join(refusedFor...), err); err != nil {
		return fmt.Errorf("commit offsets of group %q: %w", m.cfg.Group, err)
	}
	return nil
}

func (m *Member) commitOf(epoch int32, offsets map[TopicPartition]Offset) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = m.cfg.Group, epoch, m.id, text(m.cfg.InstanceID)
	for _, tp := range slices.SortedFunc(maps.Keys(offsets), comparePartitions) {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != tp.Topic {
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic = tp.Topic
			req.Topics = append(req.Topics, t)
		}
		o, metadata := offsets[tp], offsets[tp].Metadata
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = tp.Partition, o.Offset, o.LeaderEpoch, &metadata
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	return req
}

// Committed reads committed offsets of partitions, in no order but topic and partition; those without one have NoOffset. It waits for
// transactions that are committing offsets for them, and for coordinators, as Commit does.
func (m *Member) Committed(ctx context.Context, partitions ...TopicPartition) ([]CommittedOffset, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if len(partitions) == 0 {
		return nil, nil
	}
	var out []CommittedOffset
	err := m.repeat(ctx, func(ctx context.Context, node Node) error {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.RequireStable = true
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.Topics = m.cfg.Group, offsetTopics(partitions)
		if epoch := m.Epoch(); epoch != joining {
			g.MemberID, g.MemberEpoch = &m.id, epoch
		}
		req.Groups = append(req.Groups, g)
		kresp, err := m.net.request(ctx, node, byName{req})
		if err != nil {
			return err
		}
		resp := kresp.(*kmsg.OffsetFetchResponse)
		if len(resp.Groups) != 1 {
			return fmt.Errorf("the answer is about %d groups", len(resp.Groups))
		}
		if err := refusal(resp.Groups[0].ErrorCode, nil); err != nil {
			return err
		}
		out = committedOffsets(&resp.Groups[0])
		for _, o := range out {
			if o.Err != nil {
				return fmt.Errorf("%s-%d: %w", o.Topic, o.Partition, o.Err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("fetch offsets of group %q: %w", m.cfg.Group, err)
	}
	return out, nil
}

// repeats says that a refusal may pass: the coordinator is elsewhere or loads, a topic is not known yet, offsets are being committed, or
// the member has a newer epoch by now or will hear of it.
func (m *Member) repeats(err error) bool {
	again, _ := moved(err)
	for _, e := range []error{kerr.RequestTimedOut, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.UnstableOffsetCommit} {
		again = again || errors.Is(err, e)
	}
	return again || errors.Is(err, kerr.StaleMemberEpoch) && m.Epoch() != joining
}

// repeat calls f with the coordinator until it returns nil or an error that will not pass, or ctx ends.
func (m *Member) repeat(ctx context.Context, f func(context.Context, Node) error) error {
	for failures := 1; ; failures++ {
		node, err := m.coordinator(ctx)
		if err == nil {
			attempt, cancel := context.WithTimeout(ctx, requestTimeout)
			err = f(attempt, node)
			cancel()
			if _, elsewhere := moved(err); elsewhere || passing(err) {
				m.setCoordinator(nil)
			}
		}
		if err == nil || !m.repeats(err) && !passing(err) {
			return err
		}
		if cause := pause(ctx, retryDelay(failures)); cause != nil {
			return fmt.Errorf("%w (%w)", err, cause)
		}
	}
}

// coordinator is where the session says, or where a lookup finds it, whichever is known first.
func (m *Member) coordinator(ctx context.Context) (Node, error) {
	if node, _ := m.whereabouts(); node != nil {
		return *node, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	done := make(chan lookedUp, 1)
	go func() {
		node, err := m.net.coordinator(ctx, m.cfg.Group)
		done <- lookedUp{node, err}
	}()
	for {
		node, located := m.whereabouts()
		if node != nil {
			return *node, nil
		}
		select {
		case f := <-done:
			if f.err == nil {
				m.setCoordinator(&f.node)
			}
			return f.node, f.err
		case <-located:
		}
	}
}

// whereabouts is the coordinator, or nil and what is closed when it is known.
func (m *Member) whereabouts() (*Node, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node, m.located
}

func (m *Member) setCoordinator(n *Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.node == nil && n != nil {
		close(m.located)
	} else if m.node != nil && n == nil {
		m.located = make(chan struct{})
	}
	m.node = n
}
