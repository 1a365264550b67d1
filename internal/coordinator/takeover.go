package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

// The first streams heartbeat for the id of an empty classic group makes a streams group of it that keeps the offsets
// (GroupMetadataManager.getOrMaybeCreateStreamsGroup of Kafka 4.4). Here the offsets come from the cluster (D10):
//
//	1 this replica joins the classic group, with a protocol of its own   → no consumer can join it, and no commit gets in
//	2 its offsets are fetched
//	3 they are appended with the group's first records, in one batch      → the group is ours, with all of them
//	4 this replica leaves, and the classic group is deleted at the cluster
//
// A crash before 3 leaves the classic group, whose member is forgotten when its session ends; until then members that come are told
// to try again. A crash after 3 leaves a streams group with a mark that says so, and 4 is done by whoever owns it. The group can be used
// meanwhile, but not removed: the classic group of before would be there again.

const (
	// TakeOverProtocol is the protocol type of the member that holds a classic group; by it other replicas know it.
	TakeOverProtocol = "streamkeeper"
	// takeOverTimeout bounds a take-over: below the clients' request time-out of 30 s, and above a cluster's initial rebalance
	// delay, for which the first member of a group waits (3 s by default).
	takeOverTimeout = 20 * time.Second
	// holdSession is the session of that member. Nothing but the fetch of the offsets happens in it; after a crash it stands
	// in the way for so long.
	holdSession = 10 * time.Second
)

var (
	// ErrClassicMembers: a classic group of the cluster has members.
	ErrClassicMembers = errors.New("the group has members")
	// errLetGo: the member that held a classic group is not in it any more.
	errLetGo = errors.New("the classic group is not held any more")
)

// HeldGroup is a classic group of the cluster whose only member we are.
type HeldGroup interface {
	// Offsets fetches its committed offsets; a partition with an open transaction is an error.
	Offsets(ctx context.Context) ([]shard.CommittedOffset, error)
	// Still says that we are in it; else errLetGo, or why that is not known.
	Still(ctx context.Context) error
	// Leave leaves it.
	Leave(ctx context.Context) error
}

// takenOver makes a streams group of an empty classic one, and its member that sends the heartbeat the first.
func (c *Coordinator) takenOver(ctx context.Context, caller Caller, r *kmsg.StreamsGroupHeartbeatRequest) (shard.HeartbeatResult, error) {
	v, group := c.conversions, r.Group
	leave, ok := v.enter(c.cfg.Now(), group)
	if !ok {
		return shard.HeartbeatResult{}, shard.ErrConverting
	}
	result, err := c.takeOver(ctx, caller, r)
	leave()
	var refusal *streams.Error
	switch {
	case err == nil:
		v.toStreams.Add(1)
		c.log.Info("classic group taken over: it is a streams group now", "group", group)
		c.SettleConversion(group)
	case errors.Is(err, ErrClassicMembers):
		err = notStreams(group)
	case errors.Is(err, shard.ErrTooManyOffsets):
		err = &streams.Error{Code: codeNoGroup, Message: "Group " + group + " is not a streams group: the cluster behind this coordinator has a classic group " +
			"of that name without members, and more committed offsets than can be taken over at once. Delete some there, or use another application.id."}
	case !errors.As(err, &refusal) && !errors.Is(err, context.Canceled):
		v.failed(c.cfg.Now(), group)
		c.log.Warn("classic group not taken over, its members are told to try again", "group", group, "err", err)
		err = fmt.Errorf("%w: %w", shard.ErrConverting, err)
	}
	return result, err
}

func (c *Coordinator) takeOver(ctx context.Context, caller Caller, r *kmsg.StreamsGroupHeartbeatRequest) (shard.HeartbeatResult, error) {
	v, group := c.conversions, r.Group
	ctx, cancel := withTenure(ctx, v.shards.Tenure(group)) // a client that left has joined the classic group all the same
	defer cancel()
	ctx, done := context.WithTimeout(ctx, takeOverTimeout)
	defer done()
	held, err := v.cluster.Hold(ctx, group)
	if err != nil {
		return shard.HeartbeatResult{}, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), foreignTimeout)
		defer cancel()
		if err := held.Leave(ctx); err != nil {
			c.log.Debug("a classic group that was held is not left in order, its session will end", "group", group, "err", err)
		}
	}()
	committed, err := held.Offsets(ctx)
	if err != nil {
		return shard.HeartbeatResult{}, fmt.Errorf("its offsets can't be read: %w", err)
	}
	if err := held.Still(ctx); err != nil {
		return shard.HeartbeatResult{}, err
	}
	writing, cancelWriting := c.writing(ctx)
	defer cancelWriting()
	return v.shards.TakeOver(writing, caller.shard(), r.Version, r, committed)
}

// deleteTaken deletes the classic group that a streams group was made of, and lifts the mark. Members that somebody let in past this
// coordinator keep it.
func (c *Coordinator) deleteTaken(ctx context.Context, group string) error {
	v := c.conversions
	if !v.shards.Holds(group) {
		return shard.ErrNotOwner
	}
	if err := v.cluster.Delete(ctx, group); errors.Is(err, ErrClassicMembers) {
		kind, _, failed := c.cfg.Foreign.Find(ctx, group)
		if failed != nil || kind == TakeOverProtocol || kind == "" {
			return fmt.Errorf("the cluster's copy of it can't be deleted yet: %w", err)
		}
		c.log.Warn("the classic group that a streams group was made of has members again, made past this coordinator; it stays", "group", group, "kind", kind)
	} else if err != nil {
		return fmt.Errorf("the cluster's copy of it can't be deleted: %w", err)
	}
	writing, cancel := c.writing(ctx)
	defer cancel()
	_, err := v.shards.CancelConversion(writing, group)
	return err
}

func notStreams(group string) error {
	return &streams.Error{Code: codeNoGroup, Message: "Group " + group + " is not a streams group."}
}

// withoutTaken makes sure that the cluster has no copy left of a group that is converted back.
func (c *Coordinator) withoutTaken(ctx context.Context, group string, standing *shard.Standing) error {
	if standing.Conversion != eventlog.ConversionTaken {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if err := c.deleteTaken(ctx, group); err != nil {
		return err
	}
	standing.Conversion = eventlog.ConversionNone
	return nil
}
