package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/internal/coordinator"
	"streamkeeper/shard"
)

// Groups that go from one protocol to the other (D10): replicas hold classic groups of the cluster's, commit and delete there, over a network that is
// late, or cut, and a cluster that now and then has no answer.

// conversion is what one life of a replica does at the cluster for conversions. It implements coordinator.ClassicGroups, and ForeignGroups.
type conversion struct {
	w     *world
	r     *replica
	p     *process
	delay func(kind string) time.Duration

	mu    sync.Mutex
	rng   *rand.Rand
	looks map[string]time.Time // when the lease was found to hold last, by group
}

var errNoAnswer = errors.New("the cluster has no answer (simulated)")

func (w *world) conversionOf(r *replica, p *process, delay func(kind string) time.Duration) *conversion {
	return &conversion{w: w, r: r, p: p, delay: delay, rng: w.rng(fmt.Sprintf("conversions of replica %d life %d", r.node, r.life)), looks: map[string]time.Time{}}
}

// lookingShards notes when a conversion looks at the lease.
type lookingShards struct {
	*shard.Host
	v *conversion
}

// Holds implements coordinator.ConversionShards.
func (s lookingShards) Holds(group string) bool {
	holds := s.Host.Holds(group)
	if holds {
		s.v.mu.Lock()
		s.v.looks[group] = time.Now()
		s.v.mu.Unlock()
	}
	return holds
}

// BeginConversion implements coordinator.ConversionShards.
func (s lookingShards) BeginConversion(ctx context.Context, group string, over bool) ([]shard.CommittedOffset, eventlog.Conversion, bool, error) {
	committed, c, ok, err := s.Host.BeginConversion(ctx, group, over)
	if s.v.w.options.sabotages(thawed) && err == nil && ok {
		if _, err := s.Host.CancelConversion(ctx, group); err != nil {
			return nil, c, false, err
		}
	}
	return committed, c, ok, err
}

// FinishConversion implements coordinator.ConversionShards.
func (s lookingShards) FinishConversion(ctx context.Context, group string) (bool, error) {
	if s.v.w.options.sabotages(thawed) {
		if _, _, _, err := s.Host.BeginConversion(ctx, group, true); err != nil {
			return false, err
		}
	}
	return s.Host.FinishConversion(ctx, group)
}

// looked is a request of a conversion, and when the lease was looked at that it rests on.
type looked struct {
	*conversion
	at time.Time
}

func (v *conversion) looked(group string) *looked {
	v.mu.Lock()
	defer v.mu.Unlock()
	return &looked{v, v.looks[group]}
}

// lateMost is by how much a request of a conversion may come after the look at the lease that it rests on, and still be sure to come from the owner:
// what a lease's margin leaves where clocks are as wrong as they are here (driftMost). What is under way for longer nothing fences (D10).
const lateMost = 400 * time.Millisecond

// reach runs do at the cluster: after a while, or when the way there is whole again, whether the process still waits or not.
func (v *conversion) reach(ctx context.Context, do func() error) error {
	v.p.gate.pass()
	if err := v.p.link.wait(ctx); err != nil {
		return err
	}
	v.mu.Lock()
	fails, forgets := !v.w.isCalm() && v.rng.IntN(20) == 0, !v.w.isCalm() && v.rng.IntN(20) == 0
	v.mu.Unlock()
	pause(v.delay("to the cluster's coordinator"))
	answer := make(chan error, 1)
	v.p.link.send(func() {
		if fails {
			answer <- errNoAnswer
			return
		}
		answer <- do()
	})
	var err error
	select {
	case err = <-answer:
	case <-ctx.Done():
		return ctx.Err()
	}
	pause(v.delay("from the cluster's coordinator"))
	if err := v.p.link.wait(ctx); err != nil {
		return err
	}
	v.p.gate.pass()
	if forgets {
		return errNoAnswer
	}
	return err
}

// Find implements coordinator.ForeignGroups.
func (v *conversion) Find(ctx context.Context, group string) (kind string, members bool, err error) {
	var found struct {
		kind    string
		members bool
	}
	if err := v.reach(ctx, func() error { found.kind, found.members = v.w.brokers.find(group); return nil }); err != nil {
		return "", false, err
	}
	return found.kind, found.members, nil
}

// Commit implements coordinator.ClassicGroups.
func (v *conversion) Commit(ctx context.Context, group string, offsets []coordinator.ClassicOffset) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group = offsetsVersion, group
	for i, o := range offsets {
		if v.w.options.sabotages(careless) && i == len(offsets)-1 {
			continue
		}
		t := kmsg.NewOffsetCommitRequestTopic()
		t.TopicID = o.TopicID
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = o.Partition, o.Offset
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	by := v.looked(group)
	return v.reach(ctx, func() error {
		for _, t := range v.w.brokers.commit(req, by).Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 {
					return kerr.ErrorForCode(p.ErrorCode)
				}
			}
		}
		return nil
	})
}

// Delete implements coordinator.ClassicGroups.
func (v *conversion) Delete(ctx context.Context, group string) error {
	if v.w.options.sabotages(untidy) {
		return nil
	}
	by := v.looked(group)
	return v.reach(ctx, func() error {
		switch code := v.w.brokers.remove(group, by); code {
		case 0, codeGroupNotFound:
			return nil
		case codeNonEmpty:
			return coordinator.ErrClassicMembers
		default:
			return kerr.ErrorForCode(code)
		}
	})
}

// Hold implements coordinator.ClassicGroups.
func (v *conversion) Hold(ctx context.Context, group string) (coordinator.HeldGroup, error) {
	h := &holding{conversion: v, group: group}
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.ProtocolType, req.SessionTimeoutMillis = group, coordinator.TakeOverProtocol, int32(holdSession.Milliseconds())
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name = coordinator.TakeOverProtocol
	req.Protocols = append(req.Protocols, protocol)
	if v.w.options.sabotages(unlocked) {
		return h, nil
	}
	for {
		var resp *kmsg.JoinGroupResponse
		asked := *req
		if err := v.reach(ctx, func() error { resp = v.w.brokers.join(&asked); return nil }); err != nil {
			return nil, err
		}
		switch resp.ErrorCode {
		case 0:
			h.member, h.generation = resp.MemberID, resp.Generation
			return h, nil
		case codeMemberIDRequired:
			req.MemberID = resp.MemberID
		case codeInconsistentProtocol:
			return nil, coordinator.ErrClassicMembers
		default:
			return nil, kerr.ErrorForCode(resp.ErrorCode)
		}
	}
}

// holdSession is the session of the member that holds a group, as the coordinator has it.
const holdSession = 10 * time.Second

// holding is a membership of a classic group.
type holding struct {
	*conversion
	group, member string
	generation    int32
}

// Offsets implements coordinator.HeldGroup.
func (h *holding) Offsets(ctx context.Context) (all []shard.CommittedOffset, err error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = h.group
	req.Groups = append(req.Groups, g)
	var resp *kmsg.OffsetFetchResponse
	if err := h.reach(ctx, func() error { resp = h.w.brokers.fetch(req).(*kmsg.OffsetFetchResponse); return nil }); err != nil {
		return nil, err
	}
	for _, t := range resp.Groups[0].Topics {
		for _, p := range t.Partitions {
			if p.Offset >= 0 {
				all = append(all, shard.CommittedOffset{Topic: t.Topic, Partition: p.Partition, OffsetCommit: eventlog.OffsetCommit{
					Offset: p.Offset, LeaderEpoch: -1, ExpireTimestamp: -1, TopicID: t.TopicID,
				}})
			}
		}
	}
	return all, nil
}

// Still implements coordinator.HeldGroup.
func (h *holding) Still(ctx context.Context) error {
	if h.w.options.sabotages(unlocked) {
		pause(slow) // so that somebody may come
		return nil
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = h.group, h.member, h.generation
	return h.reach(ctx, func() error { return kerr.ErrorForCode(h.w.brokers.beat(req).ErrorCode) })
}

// Leave implements coordinator.HeldGroup.
func (h *holding) Leave(ctx context.Context) error {
	req := kmsg.NewPtrLeaveGroupRequest()
	member := kmsg.NewLeaveGroupRequestMember()
	req.Group, member.MemberID = h.group, h.member
	req.Members = append(req.Members, member)
	return h.reach(ctx, func() error { return kerr.ErrorForCode(h.w.brokers.leave(req).Members[0].ErrorCode) })
}

// What the checker makes of it. The committed offsets of a group are the log's as long as it has the group, and then the cluster's: one register
// for each partition over all conversions.

// theirs says that the group is the cluster's. c.mu is held.
func (g *checkedGroup) theirs() bool {
	return !g.exists || g.applied.Conversion() == eventlog.ConversionCopied
}

// standing is the committed offset of a partition, whoever has it. c.mu is held.
func (g *checkedGroup) standing(tp topicPartition) (committed, bool) {
	if g.theirs() {
		is, ok := g.cluster[tp]
		return is, ok
	}
	is, ok := g.offsets[tp]
	return is, ok
}

// there says that the topic of an offset is in the cluster now: what is committed for one that is gone goes with it. c.mu is held.
func (c *checker) there(tp topicPartition, is committed) bool {
	t, ok := c.w.cluster.now(tp.topic)
	return ok && t.ID == is.topic && tp.partition < t.Partitions
}

// sees notes that an offset was there once. c.mu is held.
func (g *checkedGroup) sees(tp topicPartition, is committed) {
	if g.seenOffsets[tp] == nil {
		g.seenOffsets[tp] = map[committed]bool{}
	}
	g.seenOffsets[tp][is] = true
}

// theirCommit: the cluster's coordinator takes an offset, of a client where by is nil, else of a conversion.
func (c *checker) theirCommit(group string, tp topicPartition, is committed, by *looked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.group(group)
	old, had := g.cluster[tp]
	switch {
	case by == nil && !g.theirs():
		c.violate("%s: the cluster takes %v for %v from a classic member, and the group is a streams group", group, is, tp)
	case by == nil && had && old.topic == is.topic && is.offset < old.offset:
		c.violate("%s: committed offset of %v at the cluster went back from %v to %v", group, tp, old, is)
	case by == nil:
	case g.theirs() || !g.applied.Conversion().Frozen():
		if !c.late(group, "a commit", by) {
			return
		}
		switch g.cluster[tp] = is; {
		case !g.theirs():
			g.stale = true
		case !had || old != is:
			c.spoil(group, g)
		}
		return
	case g.offsets[tp] != is:
		c.violate("%s: a conversion commits %v for %v at the cluster, the log has %v", group, is, tp, g.offsets[tp])
	}
	c.note("%s: the cluster's offset of %v is %v", group, tp, is)
	if g.cluster[tp] = is; by != nil {
		return
	}
	g.sees(tp, is)
	if had && old.topic != is.topic {
		c.removes(eventlog.Key{Group: group, Topic: tp.topic, Partition: tp.partition}, old)
		g.offsetRemovals[tp]++
	}
	if g.acked[tp].topic != is.topic {
		delete(g.acked, tp)
	}
}

// theirRemoval: the cluster's coordinator removes a group.
func (c *checker) theirRemoval(group string, by *looked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.group(group)
	c.note("%s: the cluster removes its group (by a conversion: %v)", group, by != nil)
	if g.theirs() {
		if by != nil {
			if !c.late(group, "a removal", by) {
				return
			}
			clear(g.cluster)
			c.spoil(group, g)
		}
		for _, tp := range sortedOffsets(g.cluster) {
			c.removes(eventlog.Key{Group: group, Topic: tp.topic, Partition: tp.partition}, g.cluster[tp])
			g.offsetRemovals[tp]++
			delete(g.acked, tp)
		}
	}
	clear(g.cluster)
	g.stale = false
	g.clusterRemovals++
}

// removedAtCluster is how often the cluster removed a group of its own.
func (c *checker) removedAtCluster(group string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.group(group).clusterRemovals
}

// late says that what a conversion sends to the cluster at a wrong time was under way for longer than the lease that was looked at before, which
// nothing can prevent (D10); else it is a violation. c.mu is held.
func (c *checker) late(group, what string, by *looked) bool {
	if d := time.Since(by.at); d <= lateMost {
		c.violate("%s: %s of a conversion of replica %d comes to the cluster %v after the look at its lease, and the group is not being converted", group, what, by.r.node, d)
		return false
	}
	c.note("%s: %s of a conversion of replica %d comes to the cluster late", group, what, by.r.node)
	return true
}

// spoil: what the cluster has of the group is not what it was, by something that nothing prevents. What was told before does not bind any more. c.mu is held.
func (c *checker) spoil(group string, g *checkedGroup) {
	c.note("%s: its offsets are spoiled by a conversion that came late", group)
	c.spoils++
	c.w.spoils[group].Add(1)
	for tp := range g.acked {
		g.offsetRemovals[tp]++
	}
	for tp := range g.cluster {
		g.offsetRemovals[tp]++
	}
	clear(g.acked)
	g.spoiledAt = time.Since(c.w.start)
	for _, tp := range sortedOffsets(g.cluster) {
		c.stands(group, tp, g.cluster[tp])
	}
}

// handsOver: an offset of the log goes, because the cluster has it. c.mu is held.
func (c *checker) handsOver(group string, g *checkedGroup, tp topicPartition, is committed) {
	switch theirs, ok := g.cluster[tp]; {
	case !c.there(tp, is):
		c.removes(eventlog.Key{Group: group, Topic: tp.topic, Partition: tp.partition}, is)
		g.offsetRemovals[tp]++
		delete(g.acked, tp)
	case !ok || theirs != is:
		c.violate("%s: the conversion to a classic group lost the offset of %v: it was %v, and the cluster has %v (%v)", group, tp, is, theirs, ok)
	}
}

// converts judges a change of the group's record. c.mu is held.
func (c *checker) converts(group string, g *checkedGroup, was eventlog.Conversion, existed bool, now eventlog.Conversion) {
	if was == now && existed {
		return
	}
	if now != eventlog.ConversionNone || existed {
		c.note("%s: conversion %v", group, now)
	}
	switch {
	case !existed:
		g.begins = true // judged with the rest of the batch
	case now == eventlog.ConversionCopied:
		for _, tp := range sortedOffsets(g.offsets) {
			c.handsOver(group, g, tp, g.offsets[tp])
		}
	}
}

// begun judges a group that was made in the batch that ends: it has the offsets of the classic group that it takes the place of. c.mu is held.
func (c *checker) begun(group string, g *checkedGroup) {
	if g.begins = false; !g.exists {
		return
	}
	took := g.applied.Conversion() == eventlog.ConversionTaken
	for _, tp := range sortedOffsets(g.cluster) {
		theirs := g.cluster[tp]
		if is, ok := g.offsets[tp]; c.there(tp, theirs) && (!ok || is != theirs) {
			c.violate("%s: a streams group was made over a classic one (taken over: %v), and the offset of %v is lost: the cluster has %v, the log %v (%v)", group, took, tp, theirs, is, ok)
		}
	}
	if took {
		c.conversions++
	}
}
