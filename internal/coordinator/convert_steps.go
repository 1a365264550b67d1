package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"streamkeeper/eventlog"
	"streamkeeper/shard"
	"streamkeeper/shard/offsets"
)

var (
	// errNotMoved: the offsets are not all at the cluster; all stays.
	errNotMoved = errors.New("its offsets can't be handed over to the cluster")
	// errLiveAtCluster: the cluster has a group of that id with members, made past this coordinator.
	errLiveAtCluster = errors.New("the cluster has a group of that id with members of its own")
)

// copiedBatchMax is how many partitions are committed with one request at the cluster: small beside its limits of requests and of
// batches, and a group of usual size takes one.
const copiedBatchMax = 1000

// finishingMax bounds the batches in which a group is removed: convertedOffsetsMax tombstones of the longest topic names.
const finishingMax = 1000

// begunConversion is a frozen group.
type begunConversion struct {
	committed  []shard.CommittedOffset
	conversion eventlog.Conversion
}

// beginConversion freezes the group, or finds it frozen.
func (c *Coordinator) beginConversion(ctx context.Context, group string, now eventlog.Conversion) (b begunConversion, err error) {
	over := false
	if now == eventlog.ConversionNone {
		if over, err = c.emptyAtCluster(ctx, group); err != nil {
			return b, err
		}
	}
	writing, done := c.writing(ctx)
	defer done()
	committed, conversion, ok, err := c.conversions.shards.BeginConversion(writing, group, over)
	switch {
	case err != nil:
		return b, err
	case !ok:
		return b, fmt.Errorf("%w: a member has come, or the group is gone", errNotMoved)
	}
	return begunConversion{committed, conversion}, nil
}

// emptyAtCluster says whether the cluster has an empty group of that id. One with members is refused.
func (c *Coordinator) emptyAtCluster(ctx context.Context, group string) (bool, error) {
	asking, done := context.WithTimeout(ctx, foreignTimeout)
	defer done()
	kind, members, err := c.cfg.Foreign.Find(asking, group)
	switch {
	case err != nil:
		return false, fmt.Errorf("%w: whether it has a group of that id is not known: %w", errNotMoved, err)
	case members:
		return false, fmt.Errorf("%w (kind %s)", errLiveAtCluster, kind)
	}
	return kind != "", nil
}

// copyOffsets commits the offsets at the cluster. It succeeds only if every one is acknowledged; sent says that it may have some.
func (c *Coordinator) copyOffsets(ctx context.Context, group string, committed []shard.CommittedOffset) (sent bool, err error) {
	moving, err := c.movable(ctx, group, committed)
	if err != nil {
		return false, err
	}
	for len(moving) > 0 {
		n := min(len(moving), copiedBatchMax)
		if !c.conversions.shards.Holds(group) {
			return sent, shard.ErrNotOwner
		}
		sent = true // also where it is refused: as a whole or in part
		if err := c.conversions.cluster.Commit(ctx, group, moving[:n]); err != nil {
			return sent, fmt.Errorf("%w: %w", errNotMoved, err)
		}
		moving = moving[n:]
	}
	return sent, nil
}

// movable leaves out the offsets of topics that are no more: the cluster takes none of those, and Kafka removed them with the
// topic. Topics count as gone only after they were missing for a while, and if then no broker knows them.
func (c *Coordinator) movable(ctx context.Context, group string, committed []shard.CommittedOffset) ([]ClassicOffset, error) {
	var names []string
	for i := range committed {
		if i == 0 || committed[i].Topic != committed[i-1].Topic {
			names = append(names, committed[i].Topic)
		}
	}
	if err := c.topics.Refresh(ctx, names); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotMoved, err)
	}
	var moving []ClassicOffset
	var missing []string
	var suspects []offsets.TopicRef
	beyond := map[string]int{} // the lowest partition that the topic of that name does not have
	for _, o := range committed {
		t, ok := c.topics.Lookup(o.Topic)
		another := o.TopicID != [16]byte{} && t.ID != [16]byte{} && o.TopicID != t.ID
		if ok && !another && o.Partition < t.Partitions {
			moving = append(moving, ClassicOffset{CommittedOffset: o, TopicID: t.ID})
			continue
		}
		missing = append(missing, fmt.Sprintf("%s-%d@%d", o.Topic, o.Partition, o.Offset))
		if ok && !another {
			if _, lower := beyond[o.Topic]; !lower {
				beyond[o.Topic] = int(o.Partition)
			}
		} else if ref := (offsets.TopicRef{Name: o.Topic, ID: o.TopicID}); !slices.Contains(suspects[max(0, len(suspects)-1):], ref) {
			suspects = append(suspects, ref) // offsets of one topic are side by side
		}
	}
	if len(missing) == 0 {
		c.conversions.complete(group)
		return moving, nil
	}
	shown := missing[:min(20, len(missing))]
	if now := c.cfg.Now(); now.Sub(c.conversions.missing(now, group)) < missingTopicsFor {
		return nil, fmt.Errorf("%w: the cluster does not know the topics of %d of them yet, or no more: %v", errNotMoved, len(missing), shown)
	}
	gone, err := c.topics.Gone(ctx, suspects)
	if err != nil {
		return nil, fmt.Errorf("%w: whether the topics of %d of them are gone is not known: %v: %w", errNotMoved, len(missing), shown, err)
	}
	if i := slices.IndexFunc(suspects, func(ref offsets.TopicRef) bool { return !gone[ref] }); i >= 0 {
		return nil, fmt.Errorf("%w: the topic %s may exist, though a broker says that it does not, or does not let us see it: %v", errNotMoved, suspects[i].Name, shown)
	}
	if len(beyond) > 0 {
		names := slices.Sorted(maps.Keys(beyond))
		counts, err := c.topics.mostPartitions(ctx, names)
		if err != nil {
			return nil, fmt.Errorf("%w: whether the partitions of %d of them are gone is not known: %v: %w", errNotMoved, len(missing), shown, err)
		}
		if i := slices.IndexFunc(names, func(name string) bool { return counts[name] > beyond[name] }); i >= 0 {
			return nil, fmt.Errorf("%w: the partition %s-%d exists, though a broker does not know it: %v", errNotMoved, names[i], beyond[names[i]], shown)
		}
	}
	c.log.Warn("offsets of topics that are no more are left behind by the conversion of their group", "group", group, "count", len(missing), "offsets", shown)
	return moving, nil
}

// finishConversion removes the group and its offsets here, which the cluster has.
func (c *Coordinator) finishConversion(ctx context.Context, group string) error {
	for range finishingMax {
		writing, cancel := c.writing(ctx)
		done, err := c.conversions.shards.FinishConversion(writing, group)
		cancel()
		if err != nil || done {
			return err
		}
	}
	return fmt.Errorf("%w: the tombstones of group %q take more than %d batches", shard.ErrTooLarge, group, finishingMax)
}

// takeBack makes a frozen group an ordinary streams group again, after what the cluster has of it was removed; sent says that it may have
// something: else a group of that id at the cluster is somebody else's. Where that fails the group stays frozen, and the next request that
// meets it after a pause has it settled.
func (c *Coordinator) takeBack(ctx context.Context, group string, begun eventlog.Conversion, sent bool) error {
	v := c.conversions
	ctx, cancel := withTenure(ctx, v.shards.Tenure(group))
	defer cancel()
	ctx, done := context.WithTimeout(ctx, settleTimeout)
	defer done()
	if begun == eventlog.ConversionBegun { // what the cluster has is our copy
		if !v.shards.Holds(group) {
			return shard.ErrNotOwner
		}
		if sent {
			if err := v.cluster.Delete(ctx, group); err != nil && !errors.Is(err, ErrClassicMembers) { // those were let in past us, and keep it
				return fmt.Errorf("the copy at the cluster can't be removed: %w", err)
			}
		}
	}
	writing, cancelWriting := c.writing(ctx)
	defer cancelWriting()
	_, err := v.shards.CancelConversion(writing, group)
	return err
}

// SettleConversion settles the interrupted conversion of a group, unless somebody is about it. It does not wait.
func (c *Coordinator) SettleConversion(group string) {
	v := c.conversions
	if v == nil {
		return
	}
	leave, ok := v.enter(c.cfg.Now(), group)
	if !ok {
		return
	}
	go func() {
		defer leave()
		if err := c.settleConversion(group); err != nil {
			v.failed(c.cfg.Now(), group)
			c.log.Warn("the interrupted conversion of a group is not settled yet", "group", group, "err", err)
		}
	}()
}

func (c *Coordinator) settleConversion(group string) error {
	v := c.conversions
	tenure := v.shards.Tenure(group)
	ctx, cancel := withTenure(v.ended, tenure)
	defer cancel()
	defer context.AfterFunc(v.ended, cancel)()
	ctx, done := context.WithTimeout(ctx, settleTimeout)
	defer done()
	asking, answered := c.writing(ctx)
	standing, err := v.shards.Standing(asking, group)
	answered()
	switch {
	case err != nil:
		return err
	case standing.Conversion == eventlog.ConversionNone:
		return nil
	case standing.Conversion == eventlog.ConversionTaken:
		return c.deleteTaken(ctx, group)
	case standing.Conversion != eventlog.ConversionCopied:
		c.log.Info("an interrupted conversion to a classic group is taken back", "group", group)
		return c.takeBack(ctx, group, standing.Conversion, true) // whatever was sent before
	}
	for range deletionsMax {
		if c.descriptions != nil && standing.Stored != eventlog.EpochNone {
			if f := c.convertDescription(ctx, tenure, group); f.Code != 0 {
				return errors.New("its topology description can't be deleted")
			}
		}
		if err = c.finishConversion(ctx, group); !errors.Is(err, shard.ErrDescribed) {
			break
		}
		standing.Stored = eventlog.EpochUncertain
	}
	if err == nil {
		c.converted(ctx, group, 0)
	}
	return err
}
