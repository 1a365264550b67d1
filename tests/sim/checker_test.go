package sim

import (
	"fmt"
	"sync"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/internal/history"
	"streamkeeper/shard/groupconfig"
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
	// whole is the log as if it were never compacted, and removals what took committed offsets away: for the histories of clients.
	whole   history.Log
	removed []history.Op
	left    []history.Op // what the log had after it lost something
	// conversions counts groups that went from one protocol to the other, spoils what nothing prevents (spoil).
	conversions, spoils int
	quiet               bool // what is applied was judged before
}

// firstEpoch is the group and assignment epoch of a group before its first records of types 17 and 20.
const firstEpoch = 1

type checkedPartition struct {
	fence eventlog.Fence
	next  int64
	voids int
	owner ownership
	// starts are the first offsets of the last batches. The rest is about what the log lost, see lose.
	starts  []int64
	cutting bool
	cut     int64         // -1: nothing was ever lost
	epoch   int32         // of the leader since
	lostAt  time.Duration // since the world began; 0: never
}

// startsMax is how many batches a partition may lose at a time, and more.
const startsMax = 32

// observe follows an ownership record, and says whether it counts.
func (part *checkedPartition) observe(e eventlog.Entry, o *eventlog.Ownership) bool {
	counts := part.fence.Observe(e, o)
	if counts && (o.Claim < 0 || o.Released) {
		generation, _ := part.fence.Generation()
		part.owner = ownership{o.NodeID, generation, o.Released, time.Now()}
	}
	return counts
}

// checkedGroup is what the records of one group say.
type checkedGroup struct {
	applied    *streams.Group // by the state machine's own Apply
	exists     bool
	since      time.Time // it exists, or does not
	removals   int
	epoch      int32 // of the group
	assignment int32 // epoch of the target assignment
	members    map[string]bool
	current    map[string]*eventlog.CurrentMemberAssignment
	process    map[string]string
	offsets    map[topicPartition]committed
	config     map[string]string
	// offsetRemovals counts tombstones, and offsets of another topic of the name.
	offsetRemovals map[topicPartition]int
	// seen is everything that was ever there: an acknowledgement of something else is a lie.
	seenEpochs  map[string]map[int32]bool
	seenOffsets map[topicPartition]map[committed]bool
	seenConfigs map[string]map[string]string // by their text
	seenStored  map[int32]bool               // topology epochs whose descriptions were stored
	// acked is what clients may rely on; reset when the offset is removed or is one of another topic of the name.
	acked map[topicPartition]committed

	// What the cluster's coordinator has under the group's id: its own offsets, or a copy. See conversion_test.go.
	cluster         map[topicPartition]committed
	clusterRemovals int
	begins          bool          // it was made in the batch that is applied
	stale           bool          // the cluster has a copy by a conversion that was given up before its commits came
	spoiledAt       time.Duration // since the world began; 0: never
}

type topicPartition struct {
	topic     string
	partition int32
}

func (t topicPartition) String() string { return fmt.Sprintf("%s-%d", t.topic, t.partition) }

// committed is an offset in the topic of that id.
type committed struct {
	topic  [16]byte
	offset int64
}

func (c committed) String() string { return fmt.Sprintf("%d of topic %d", c.offset, c.topic[15]) }

func newChecker(w *world) *checker {
	c := &checker{w: w, groups: map[string]*checkedGroup{}, whole: history.Log{}}
	for range w.partitions {
		c.parts = append(c.parts, &checkedPartition{cut: -1, owner: ownership{generation: -1}})
	}
	return c
}

func (c *checker) group(name string) *checkedGroup {
	g := c.groups[name]
	if g == nil {
		g = &checkedGroup{
			applied: streams.NewGroup(name), epoch: firstEpoch, assignment: firstEpoch, members: map[string]bool{}, current: map[string]*eventlog.CurrentMemberAssignment{},
			process: map[string]string{}, offsets: map[topicPartition]committed{}, offsetRemovals: map[topicPartition]int{}, seenEpochs: map[string]map[int32]bool{},
			seenOffsets: map[topicPartition]map[committed]bool{}, acked: map[topicPartition]committed{}, seenStored: map[int32]bool{}, seenConfigs: map[string]map[string]string{"": {}},
			cluster: map[topicPartition]committed{},
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
	c.mu.Lock()
	defer c.mu.Unlock()
	switch part := c.parts[p]; {
	case part.cutting:
		return errCutting
	case part.cut < 0:
		c.w.violate("the checker was told that partition %d is not what it was: %s", p, why)
		return eventlog.ErrRefused
	}
	return nil // rebuilt already
}

// Batch implements eventlog.Follower. What it holds are whole appends, so the state at its end is one that a reader can see.
func (c *checker) Batch(p int32, b eventlog.Batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	part := c.parts[p]
	if part.cutting || part.cut >= 0 && b.Next > part.cut && (b.LeaderEpoch < part.epoch || len(b.Entries) > 0 && b.Entries[0].Offset != part.next) {
		return errCutting // read before the log lost it
	}
	c.whole[p] = append(c.whole[p], b.Entries...)
	if len(b.Entries) > 0 {
		part.starts = append(part.starts, b.Entries[0].Offset)
		part.starts = part.starts[max(0, len(part.starts)-startsMax):]
	}
	touched := map[string]bool{}
	for _, e := range b.Entries {
		r, err := eventlog.Decode(eventlog.Raw{Key: e.Key, Value: e.Value})
		if err != nil {
			c.w.violate("record at %d of partition %d: %v", e.Offset, p, err)
			return eventlog.ErrRefused
		}
		if o, ok := r.Value.(*eventlog.Ownership); ok {
			counts := part.observe(e, o)
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

func (c *checker) note(format string, args ...any) {
	if !c.quiet {
		c.w.note(format, args...)
	}
}

func (c *checker) violate(format string, args ...any) {
	if !c.quiet {
		c.w.violate(format, args...)
	}
}

func (c *checker) apply(p int32, offset int64, r eventlog.Record) {
	k := r.Key
	g := c.group(k.Group)
	where := func() string { return fmt.Sprintf("log %d@%d, %s", p, offset, k.Group) }
	if c.w.losses[p].Load() > 0 && !c.quiet {
		if v, ok := r.Value.(*eventlog.OffsetCommit); ok {
			c.stands(k.Group, topicPartition{k.Topic, k.Partition}, committed{v.TopicID, v.Offset})
		}
	}
	existed, was := g.exists, g.applied.Conversion()
	if k.Type != eventlog.TypeOffsetCommit {
		if err := g.applied.Apply(r); err != nil {
			c.violate("%s: Apply: %v", where(), err)
		}
	}
	switch v := r.Value.(type) {
	case *eventlog.Group:
		if g.exists && v.Epoch < g.epoch {
			c.violate("%s: group epoch went back from %d to %d", where(), g.epoch, v.Epoch)
		}
		if g.epoch != v.Epoch {
			c.note("%s: group epoch %d", where(), v.Epoch)
		}
		if !g.exists {
			g.since = time.Now()
		}
		g.exists, g.epoch = true, v.Epoch
		c.converts(k.Group, g, was, existed, v.Conversion)
		g.seenStored[v.StoredDescriptionTopologyEpoch] = true
	case *eventlog.TargetAssignment:
		if v.AssignmentEpoch < g.assignment {
			c.violate("%s: assignment epoch went back from %d to %d", where(), g.assignment, v.AssignmentEpoch)
		}
		g.assignment = v.AssignmentEpoch
	case *eventlog.Member:
		if was.Frozen() {
			c.violate("%s: %s joins, and the group is on its way to a classic one (%v)", where(), k.Member, was)
		}
		g.members[k.Member], g.process[k.Member] = true, v.ProcessID
	case *eventlog.CurrentMemberAssignment:
		if old := g.current[k.Member]; old != nil && v.MemberEpoch < old.MemberEpoch && v.MemberEpoch > 0 {
			c.violate("%s: epoch of member %s went back from %d to %d", where(), k.Member, old.MemberEpoch, v.MemberEpoch)
		}
		c.note("%s: %s epoch %d state %d active %v pending %v standby %v", where(), k.Member, v.MemberEpoch, v.State, v.Active, v.ActivePendingRevocation, v.Standby)
		c.released(k, v, where)
		g.current[k.Member] = v
		if g.seenEpochs[k.Member] == nil {
			g.seenEpochs[k.Member] = map[int32]bool{}
		}
		g.seenEpochs[k.Member][v.MemberEpoch] = true
	case *eventlog.GroupConfig:
		c.note("%s: configured as %v", where(), v.Configs)
		g.config = v.Configs
		g.seenConfigs[fmt.Sprint(v.Configs)] = v.Configs
	case *eventlog.OffsetCommit:
		tp, next := topicPartition{k.Topic, k.Partition}, committed{v.TopicID, v.Offset}
		if old, ok := g.offsets[tp]; ok && old.topic == next.topic && next.offset < old.offset && c.w.losses[p].Load() == 0 {
			// Where the log forgot who has a task two may work on it, each with an epoch that is valid.
			c.violate("%s: committed offset of %v went back from %v to %v: a replaced owner committed", where(), tp, old, next)
		}
		if old, ok := g.offsets[tp]; ok && old.topic != next.topic {
			c.removes(k, old)
			g.offsetRemovals[tp]++
		}
		if was.Frozen() {
			c.violate("%s: offset of %v is committed, and the group is on its way to a classic one (%v)", where(), tp, was)
		}
		c.note("%s: offset of %v is %v", where(), tp, next)
		g.offsets[tp] = next
		g.sees(tp, next)
		if g.acked[tp].topic != next.topic {
			delete(g.acked, tp)
		}
	case nil:
		c.remove(g, k, was, where)
	}
}

func (c *checker) remove(g *checkedGroup, k eventlog.Key, was eventlog.Conversion, where func() string) {
	switch k.Type {
	case eventlog.TypeGroup:
		if len(g.members) > 0 {
			c.violate("%s: removed with members %v", where(), sortedKeys(g.members))
		}
		c.note("%s: group removed", where())
		g.removals++
		existed := g.exists
		if g.exists, g.epoch, g.since = false, firstEpoch, time.Now(); existed { // else a void record was repaired
			c.gone(k.Group, g, was)
		}
	case eventlog.TypeTargetAssignment:
		g.assignment = firstEpoch
	case eventlog.TypeMember:
		c.note("%s: %s removed", where(), k.Member)
		delete(g.members, k.Member)
		delete(g.process, k.Member)
	case eventlog.TypeCurrentMemberAssignment:
		delete(g.current, k.Member)
	case eventlog.TypeGroupConfig:
		g.config = nil
	case eventlog.TypeOffsetCommit:
		tp := topicPartition{k.Topic, k.Partition}
		c.note("%s: offset of %v removed", where(), tp)
		old, ok := g.offsets[tp]
		delete(g.offsets, tp)
		switch {
		case was == eventlog.ConversionCopied: // judged when the mark was read
		case was.Frozen() && ok:
			c.handsOver(k.Group, g, tp, old)
		default:
			if ok {
				c.removes(k, old)
			}
			g.offsetRemovals[tp]++
			delete(g.acked, tp)
		}
	}
}

// released: a member that is not removed gives an active task up only by saying so. So what the log takes away from it the client
// behind it does not work on any more.
func (c *checker) released(k eventlog.Key, v *eventlog.CurrentMemberAssignment, where func() string) {
	if c.quiet || v.MemberEpoch <= 0 { // joins, or has left for a while
		return
	}
	held := recorded(v.Active, v.ActivePendingRevocation)
	active, epoch := c.w.worksOn(k.Group, k.Member)
	for _, x := range active {
		if epoch > 0 && !held[x] {
			c.violate("%s: task %v is taken from %s, which works on it", where(), x, k.Member)
		}
	}
}

// check judges the state of a group after a batch.
func (c *checker) check(name string, next int64) {
	g := c.groups[name]
	if g.begins {
		c.begun(name, g)
	}
	active, inProcess := map[task]string{}, map[string]string{} // → member
	for _, id := range sortedKeys(g.current) {
		cur := g.current[id]
		if !g.members[id] {
			c.w.violate("%s before %d: %s has an assignment and is no member", name, next, id)
		}
		if g.exists && cur.MemberEpoch > g.assignment {
			c.w.violate("%s before %d: %s is at epoch %d, beyond the assignment's %d", name, next, id, cur.MemberEpoch, g.assignment)
		}
		for x := range recorded(cur.Active, cur.ActivePendingRevocation) {
			if other, ok := active[x]; ok {
				c.w.violate("%s before %d: active task %v belongs to %s and %s", name, next, x, other, id)
			}
			active[x] = id
		}
		for x := range recorded(cur.Active, cur.ActivePendingRevocation, cur.Standby, cur.StandbyPendingRevocation) {
			place := g.process[id] + " " + x.String()
			if other, ok := inProcess[place]; ok {
				c.w.violate("%s before %d: %s and %s of one process (%s) both have task %v", name, next, other, id, g.process[id], x)
			}
			inProcess[place] = id
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
	if !g.exists && len(g.offsets) > 0 {
		c.w.violate("%s before %d: removed, and has offsets of %v", name, next, sortedOffsets(g.offsets))
	}
}

// The rest is what clients ask and tell.

// ackedEpoch: a heartbeat of the member was answered with the epoch. loss is what the partition had lost when it was sent.
func (c *checker) ackedEpoch(group, member string, epoch, loss int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.w.options.silent || loss != c.w.loss(group) {
		return
	}
	if !c.group(group).seenEpochs[member][epoch] {
		c.w.violate("%s: %s was told epoch %d, which the log has not", group, member, epoch)
	}
}

// stored is what the log says of the group's topology description.
func (c *checker) stored(group string) (exists bool, epoch int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.group(group)
	return g.exists, g.applied.StoredDescriptionTopologyEpoch()
}

// ackedDescription: a push was answered with success.
func (c *checker) ackedDescription(group string, epoch, loss int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if loss == c.w.loss(group) && !c.group(group).seenStored[epoch] {
		c.w.violate("%s: the push of its description at topology epoch %d was acknowledged, and the log has it not", group, epoch)
	}
}

// ackedConfig: these changes were answered with success. A change that makes no difference writes nothing; one that was sent on twice has
// been made twice.
func (c *checker) ackedConfig(group string, changes []groupconfig.Change, loss int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if loss != c.w.loss(group) {
		return
	}
	for _, was := range c.group(group).seenConfigs {
		made := true
		for _, x := range changes {
			v, set := was[x.Name]
			made = made && (x.Op == groupconfig.Set && set && v == x.Value || x.Op == groupconfig.Delete && !set)
		}
		if made {
			return
		}
	}
	c.w.violate("%s: its configuration with %v was acknowledged, and the log has it not", group, changes)
}

// effective is the configuration that the log makes of the replicas' settings.
func (c *checker) effective(group string) streams.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	cfg, _ := c.w.settings.Effective(c.group(group).config)
	return cfg
}

// ackedOffset: the commit was answered with success. loss is what the partition had lost when it was sent.
func (c *checker) ackedOffset(group, topic string, p int32, id [16]byte, offset int64, loss int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.w.options.silent || loss != c.w.loss(group) {
		return
	}
	g := c.group(group)
	tp, told := topicPartition{topic, p}, committed{id, offset}
	if !g.seenOffsets[tp][told] {
		c.w.violate("%s: the commit of %v to %v was acknowledged, and the log has it not", group, told, tp)
	}
	if is, ok := g.standing(tp); ok && is.topic == id {
		if was, ok := g.acked[tp]; !ok || was.offset < offset {
			g.acked[tp] = told
		}
	}
}

// arrival is what the log has of an offset when a request for it is sent: an answer is not older.
type arrival struct {
	offset   int64 // -1: none
	removals int
}

func (c *checker) arrival(group, topic string, p int32, id [16]byte) arrival {
	c.mu.Lock()
	defer c.mu.Unlock()
	g, tp := c.group(group), topicPartition{topic, p}
	a := arrival{-1, g.offsetRemovals[tp]}
	if v, ok := g.standing(tp); ok && v.topic == id {
		a.offset = v.offset
	}
	return a
}

// floor is the least offset that a fetch of a topic of that id that begins now may answer; -1: none.
func (c *checker) floor(group, topic string, p int32, id [16]byte) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.group(group).acked[topicPartition{topic, p}]; ok && v.topic == id {
		return v.offset
	}
	return -1
}

// fetched: a fetch that began when floor was the least was answered with offset.
func (c *checker) fetched(group, member, topic string, p int32, id [16]byte, floor, offset int64, had arrival) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.w.options.silent {
		return
	}
	g := c.group(group)
	tp := topicPartition{topic, p}
	// The offset may have been removed while the fetch was under way, or replaced by one of another topic.
	// Then something else may have been committed since, so that there is an acknowledged one again.
	if now, still := g.acked[tp]; still && now.topic == id && offset < floor && g.offsetRemovals[tp] == had.removals {
		c.w.violate("%s: %s fetched %d for %v although %d was acknowledged before", group, member, offset, tp, floor)
	}
	if offset < had.offset && g.offsetRemovals[tp] == had.removals {
		c.w.violate("%s: %s fetched %d for %v, and the log had %d when it was asked", group, member, offset, tp, had.offset)
	}
	if offset >= 0 && !g.seenOffsets[tp][committed{id, offset}] {
		c.w.violate("%s: %s fetched %d for %v, which the log has not", group, member, offset, tp)
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

// snapshot is what the log says of a group now.
func (c *checker) snapshot(group string) (exists bool, members []string, epoch, assignment int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.group(group)
	return g.exists, sortedKeys(g.members), g.epoch, g.assignment
}
