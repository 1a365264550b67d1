package sim

import (
	"fmt"
	"sync"

	"streamkeeper/eventlog"
	"streamkeeper/shard/streams"
)

// checker reads the log as it grows, past all faults, and checks every state that it passes through. It decodes the records
// by itself and knows nothing of the state machine, but for the groups it keeps to compare with in the end.
type checker struct {
	w *world

	mu    sync.Mutex
	parts []*checkedPartition
	// groups by name.
	groups map[string]*checkedGroup
}

// firstEpoch is the group and assignment epoch of a group before its first records of types 17 and 20.
const firstEpoch = 1

type checkedPartition struct {
	fence eventlog.Fence
	next  int64
	voids int
}

// checkedGroup is what the records of one group say.
type checkedGroup struct {
	applied    *streams.Group // by the state machine's own Apply
	exists     bool
	removals   int
	epoch      int32 // of the group
	assignment int32 // epoch of the target assignment
	members    map[string]bool
	current    map[string]*eventlog.CurrentMemberAssignment
	process    map[string]string
	offsets    map[int32]int64
	// seen is everything that was ever there: an acknowledgement of something else is a lie.
	seenEpochs  map[string]map[int32]bool
	seenOffsets map[int32]map[int64]bool
	// acked is what clients may rely on; reset when the offset is removed.
	acked map[int32]int64
}

func newChecker(w *world) *checker {
	c := &checker{w: w, groups: map[string]*checkedGroup{}}
	for range w.partitions {
		c.parts = append(c.parts, &checkedPartition{})
	}
	return c
}

func (c *checker) group(name string) *checkedGroup {
	g := c.groups[name]
	if g == nil {
		g = &checkedGroup{
			applied: streams.NewGroup(name), epoch: firstEpoch, assignment: firstEpoch, members: map[string]bool{}, current: map[string]*eventlog.CurrentMemberAssignment{},
			process: map[string]string{}, offsets: map[int32]int64{}, seenEpochs: map[string]map[int32]bool{},
			seenOffsets: map[int32]map[int64]bool{}, acked: map[int32]int64{},
		}
		c.groups[name] = g
	}
	return g
}

// Resume implements eventlog.Follower.
func (c *checker) Resume(p int32) eventlog.Position {
	c.mu.Lock()
	defer c.mu.Unlock()
	return eventlog.Position{Offset: c.parts[p].next, LeaderEpoch: eventlog.EpochNone}
}

// Reset implements eventlog.Follower.
func (c *checker) Reset(p int32, why string) error {
	c.w.violate("the checker was told that partition %d is not what it was: %s", p, why)
	return eventlog.ErrRefused
}

// Batch implements eventlog.Follower. What it holds are whole appends, so the state at its end is one that a reader can see.
func (c *checker) Batch(p int32, b eventlog.Batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	part := c.parts[p]
	touched := map[string]bool{}
	for _, e := range b.Entries {
		r, err := eventlog.Decode(eventlog.Raw{Key: e.Key, Value: e.Value})
		if err != nil {
			c.w.violate("record at %d of partition %d: %v", e.Offset, p, err)
			return eventlog.ErrRefused
		}
		if o, ok := r.Value.(*eventlog.Ownership); ok {
			counts := part.fence.Observe(e, o)
			if o.Claim < 0 || o.Released || !counts {
				c.w.note("log %d@%d: ownership of node %d (%s), epoch %d, released %v, counts %v", p, e.Offset, o.NodeID, o.Instance, o.ProducerEpoch, o.Released, counts)
			}
			continue
		}
		if part.fence.Void(e) {
			part.voids++
			c.w.note("log %d@%d: void: %v", p, e.Offset, r.Key)
			continue
		}
		c.apply(p, e.Offset, r)
		touched[r.Key.Group] = true
	}
	part.next = b.Next
	for _, name := range sortedKeys(touched) {
		c.check(name, b.Next)
	}
	return nil
}

func (c *checker) apply(p int32, offset int64, r eventlog.Record) {
	k := r.Key
	g := c.group(k.Group)
	where := func() string { return fmt.Sprintf("log %d@%d, %s", p, offset, k.Group) }
	if k.Type != eventlog.TypeOffsetCommit {
		if err := g.applied.Apply(r); err != nil {
			c.w.violate("%s: Apply: %v", where(), err)
		}
	}
	switch v := r.Value.(type) {
	case *eventlog.Group:
		if g.exists && v.Epoch < g.epoch {
			c.w.violate("%s: group epoch went back from %d to %d", where(), g.epoch, v.Epoch)
		}
		if g.epoch != v.Epoch {
			c.w.note("%s: group epoch %d", where(), v.Epoch)
		}
		g.exists, g.epoch = true, v.Epoch
	case *eventlog.TargetAssignment:
		if v.AssignmentEpoch < g.assignment {
			c.w.violate("%s: assignment epoch went back from %d to %d", where(), g.assignment, v.AssignmentEpoch)
		}
		g.assignment = v.AssignmentEpoch
	case *eventlog.Member:
		g.members[k.Member], g.process[k.Member] = true, v.ProcessID
	case *eventlog.CurrentMemberAssignment:
		if old := g.current[k.Member]; old != nil && v.MemberEpoch < old.MemberEpoch && v.MemberEpoch > 0 {
			c.w.violate("%s: epoch of member %s went back from %d to %d", where(), k.Member, old.MemberEpoch, v.MemberEpoch)
		}
		c.w.note("%s: %s epoch %d state %d active %v pending %v", where(), k.Member, v.MemberEpoch, v.State, v.Active, v.ActivePendingRevocation)
		g.current[k.Member] = v
		if g.seenEpochs[k.Member] == nil {
			g.seenEpochs[k.Member] = map[int32]bool{}
		}
		g.seenEpochs[k.Member][v.MemberEpoch] = true
	case *eventlog.OffsetCommit:
		if old, ok := g.offsets[k.Partition]; ok && v.Offset < old {
			c.w.violate("%s: committed offset of %d went back from %d to %d: a replaced owner committed", where(), k.Partition, old, v.Offset)
		}
		c.w.note("%s: offset of %d is %d", where(), k.Partition, v.Offset)
		g.offsets[k.Partition] = v.Offset
		if g.seenOffsets[k.Partition] == nil {
			g.seenOffsets[k.Partition] = map[int64]bool{}
		}
		g.seenOffsets[k.Partition][v.Offset] = true
	case nil:
		c.remove(g, k, where)
	}
}

func (c *checker) remove(g *checkedGroup, k eventlog.Key, where func() string) {
	switch k.Type {
	case eventlog.TypeGroup:
		if len(g.members) > 0 {
			c.w.violate("%s: removed with members %v", where(), sortedKeys(g.members))
		}
		c.w.note("%s: group removed", where())
		g.removals++
		g.exists, g.epoch = false, firstEpoch
	case eventlog.TypeTargetAssignment:
		g.assignment = firstEpoch
	case eventlog.TypeMember:
		c.w.note("%s: %s removed", where(), k.Member)
		delete(g.members, k.Member)
		delete(g.process, k.Member)
	case eventlog.TypeCurrentMemberAssignment:
		delete(g.current, k.Member)
	case eventlog.TypeOffsetCommit:
		c.w.note("%s: offset of %d removed", where(), k.Partition)
		delete(g.offsets, k.Partition)
		delete(g.acked, k.Partition)
	}
}

// check judges the state of a group after a batch.
func (c *checker) check(name string, next int64) {
	g := c.groups[name]
	holder := map[string]string{} // task → member
	for _, id := range sortedKeys(g.current) {
		cur := g.current[id]
		if !g.members[id] {
			c.w.violate("%s before %d: %s has an assignment and is no member", name, next, id)
		}
		if g.exists && cur.MemberEpoch > g.assignment {
			c.w.violate("%s before %d: %s is at epoch %d, beyond the assignment's %d", name, next, id, cur.MemberEpoch, g.assignment)
		}
		for _, list := range [][]eventlog.TaskIDs{cur.Active, cur.ActivePendingRevocation} {
			for _, t := range list {
				for _, p := range t.Partitions {
					task := fmt.Sprintf("%s_%d", t.SubtopologyID, p)
					if other, ok := holder[task]; ok {
						c.w.violate("%s before %d: active task %s belongs to %s and %s", name, next, task, other, id)
					}
					holder[task] = id
				}
			}
		}
	}
	if g.exists && g.assignment > g.epoch {
		c.w.violate("%s before %d: assignment epoch %d is beyond the group epoch %d", name, next, g.assignment, g.epoch)
	}
	if g.exists && len(g.members) == 0 && g.assignment != g.epoch {
		c.w.violate("%s before %d: empty, with group epoch %d and assignment epoch %d", name, next, g.epoch, g.assignment)
	}
	if !g.exists && (len(g.members) > 0 || len(g.current) > 0) {
		c.w.violate("%s before %d: removed, and has members %v", name, next, sortedKeys(g.members))
	}
}

// The rest is what clients ask and tell.

// ackedEpoch: a heartbeat of the member was answered with the epoch.
func (c *checker) ackedEpoch(group, member string, epoch int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.group(group).seenEpochs[member][epoch] {
		c.w.violate("%s: %s was told epoch %d, which the log has not", group, member, epoch)
	}
}

// ackedOffset: the commit was answered with success.
func (c *checker) ackedOffset(group string, p int32, offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.group(group)
	if !g.seenOffsets[p][offset] {
		c.w.violate("%s: the commit of %d to %d was acknowledged, and the log has it not", group, offset, p)
	}
	if _, ok := g.offsets[p]; ok {
		g.acked[p] = max(g.acked[p], offset)
	}
}

// floor is the least offset that a fetch that begins now may answer; -1: none.
func (c *checker) floor(group string, p int32) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.group(group).acked[p]; ok {
		return v
	}
	return -1
}

// fetched: a fetch that began when floor was the least was answered with offset.
func (c *checker) fetched(group, member string, p int32, floor, offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.group(group)
	// The offset may have been removed while the fetch was under way.
	if _, still := g.acked[p]; still && offset < floor {
		c.w.violate("%s: %s fetched %d for %d although %d was acknowledged before", group, member, offset, p, floor)
	}
	if offset >= 0 && !g.seenOffsets[p][offset] {
		c.w.violate("%s: %s fetched %d for %d, which the log has not", group, member, offset, p)
	}
}

// memberEpoch is the epoch of a member as the log has it now.
func (c *checker) memberEpoch(group, member string) (int32, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cur := c.group(group).current[member]
	if cur == nil {
		return 0, false
	}
	return cur.MemberEpoch, true
}

// removals is how often the group was removed.
func (c *checker) removals(group string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.group(group).removals
}

// snapshot is what the log says of a group now.
func (c *checker) snapshot(group string) (exists bool, members []string, epoch, assignment int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.group(group)
	return g.exists, sortedKeys(g.members), g.epoch, g.assignment
}
