package shard

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"streamkeeper/eventlog"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

// HeartbeatResult is what an accepted heartbeat leads to.
type HeartbeatResult struct {
	Response *kmsg.StreamsGroupHeartbeatResponse
	// Create lists the internal topics that the group needs and the cluster lacks, ascending by name. It is the group's own and
	// must not be modified.
	Create []streams.CreatableTopic
	// Wants says that the member should be asked for a description of the topology of TopologyEpoch, unless somebody was asked
	// lately (KIP-1331). It is never set where Config.Descriptions is not.
	Wants         bool
	TopologyEpoch int32
}

// Heartbeat runs a StreamsGroupHeartbeat: join, beat, leave. A refusal is a *streams.Error.
func (h *Host) Heartbeat(ctx context.Context, c Caller, version int16, req *kmsg.StreamsGroupHeartbeatRequest) (HeartbeatResult, error) {
	return h.heartbeat(ctx, c, version, req, nil)
}

// heartbeat runs a heartbeat; takeOver, where there is one, gets the records of one that makes a group, and returns what is to be
// written instead.
func (h *Host) heartbeat(ctx context.Context, c Caller, version int16, req *kmsg.StreamsGroupHeartbeatRequest,
	takeOver func(t *turn, made []eventlog.Record) ([]eventlog.Record, error)) (HeartbeatResult, error) {
	if err := streams.Validate(req); err != nil {
		return HeartbeatResult{}, err
	}
	result, err := call(ctx, h, "heartbeat", req.Group, func(t *turn) (*HeartbeatResult, effect, error) {
		if err := h.unfrozen(t); err != nil {
			return nil, effect{}, err
		}
		if c.Unasked && req.MemberEpoch == 0 && !t.g.Exists() {
			return nil, effect{}, ErrGroupGone
		}
		before := t.g.Epoch()
		r, err := t.g.Heartbeat(t.env(c, version), req)
		if err != nil {
			return nil, effect{soft: r.Soft}, err // a refusal may still have told something: a shutdown request of a member that is gone
		}
		if takeOver != nil && !t.g.Exists() {
			if r.Records, err = takeOver(t, r.Records); err != nil {
				return nil, effect{}, err
			}
		}
		for _, rec := range r.Records {
			if v, ok := rec.Value.(*eventlog.Group); ok && v.Epoch != before && req.MemberEpoch >= 0 {
				h.stats.rebalances.Add(1)
			}
		}
		trace.SpanFromContext(ctx).SetAttributes(attribute.String("member", req.MemberID), attribute.Int("epoch", int(req.MemberEpoch)))
		result := &HeartbeatResult{Response: r.Response, Create: r.Create}
		return result, effect{records: r.Records, soft: r.Soft, timers: r.Timers, settled: h.wants(t, version, req, result), why: left(req)}, nil
	})
	if err != nil {
		return HeartbeatResult{}, err
	}
	return *result, nil
}

// left is why a heartbeat takes a member out.
func left(req *kmsg.StreamsGroupHeartbeatRequest) string {
	if req.MemberEpoch < 0 {
		return "left"
	}
	return "was replaced" // a static member, by another one of its instance id
}

// Describe describes one group. A group that does not exist is a *streams.Error with GROUP_ID_NOT_FOUND.
func (h *Host) Describe(ctx context.Context, group string) (kmsg.StreamsGroupDescribeResponseGroup, error) {
	d, err := h.DescribeStored(ctx, group)
	return d.Group, err
}

func notFound(group string) error {
	return &streams.Error{Code: codeGroupIDNotFound, Message: "Group " + group + " not found."}
}

// DeleteGroup removes an empty group and its offsets. It fails with ErrDescribed, and changes nothing, while a description of
// the group may be stored.
func (h *Host) DeleteGroup(ctx context.Context, group string) error {
	_, err := call(ctx, h, "delete", group, func(t *turn) (struct{}, effect, error) {
		if !t.g.Exists() {
			return struct{}{}, effect{}, notFound(group)
		}
		if err := h.settled(t); err != nil {
			return struct{}{}, effect{}, err
		}
		recs, err := t.g.Delete()
		if err != nil {
			return struct{}{}, effect{}, err
		}
		if h.mayBeDescribed(t) {
			return struct{}{}, effect{}, ErrDescribed
		}
		v := t.s.view(group)
		gone := offsets.Tombstones(v, group)
		if v.err != nil {
			return struct{}{}, effect{}, v.failed()
		}
		h.stats.offsetDeletions.Add(int64(len(gone)))
		return struct{}{}, effect{records: append(gone, recs...)}, nil
	})
	return err
}

// do runs f on the loop of a serving shard, and returns when what f saw is durable. It may be told only inside the lease, like every answer without a write (D3).
func (s *Shard) do(ctx context.Context, f func(*Shard)) error {
	return s.onLoop(ctx, func(s *Shard, done chan<- error) {
		f(s)
		w := waiter{answer: func() { done <- nil }, fail: func(err error) { done <- err }}
		if n := len(s.inflight); n > 0 {
			s.inflight[n-1].waiters = append(s.inflight[n-1].waiters, w)
			return
		}
		s.hand(w)
	})
}

// peek runs f on the loop of a serving shard and waits for no more: what f saw may be told only after do.
func (s *Shard) peek(ctx context.Context, f func(*Shard)) error {
	return s.onLoop(ctx, func(s *Shard, done chan<- error) {
		f(s)
		done <- nil
	})
}

// onLoop has f run on the loop of a serving shard, and returns what f sends, once, sooner or later.
func (s *Shard) onLoop(ctx context.Context, f func(*Shard, chan<- error)) error {
	done := make(chan error, 1)
	s.post(func(s *Shard) {
		if s.state != active {
			done <- ErrNotOwner
			return
		}
		f(s, done)
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.host.ended:
		return ErrUnavailable
	}
}
