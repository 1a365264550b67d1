package streams

import (
	"fmt"

	"streamkeeper/eventlog"
)

// Apply applies a record of this group: the only function that changes logged state, live, on replay and at
// hydration. Values create what they speak of (a group, a bare member), because compaction may have removed what was
// there before; tombstones of what is not there are ignored. An error means that tombstones come in an order that no
// operation writes; the group is unchanged then (GroupMetadataManager.replay of Kafka 4.4 fails in the same cases).
func (g *Group) Apply(rec eventlog.Record) error {
	if rec.Key.Group != g.id {
		return fmt.Errorf("record of group %q can't be applied to group %q", rec.Key.Group, g.id)
	}
	switch rec.Key.Type {
	case eventlog.TypeGroup:
		return apply(g, rec, g.applyGroup, g.removeGroup)
	case eventlog.TypeMember:
		return apply(g, rec, g.applyMember, g.removeMember)
	case eventlog.TypeTargetAssignment:
		return apply(g, rec, g.applyTargetAssignment, g.removeTargetAssignment)
	case eventlog.TypeTargetAssignmentMember:
		return apply(g, rec, g.applyTarget, g.removeTarget)
	case eventlog.TypeCurrentMemberAssignment:
		return apply(g, rec, g.applyCurrent, g.removeCurrent)
	case eventlog.TypeTopology:
		return apply(g, rec, g.applyTopology, g.removeTopology)
	case eventlog.TypeDescriptionRefusal:
		return g.applyRefusal(rec)
	case eventlog.TypeGroupConfig:
		return g.applyConfig(rec)
	}
	return fmt.Errorf("record of type %s is not of a streams group", rec.Key.Type)
}

// apply hands the value, or its absence, to the function for it.
func apply[V eventlog.Value](g *Group, rec eventlog.Record, set func(eventlog.Key, V), remove func(eventlog.Key) error) error {
	if rec.Value == nil {
		if !g.exists {
			return nil
		}
		return remove(rec.Key)
	}
	v, ok := rec.Value.(V)
	if !ok {
		return fmt.Errorf("record with a key of type %s has a value of type %s", rec.Key.Type, rec.Value.Type())
	}
	g.exists = true
	set(rec.Key, v)
	return nil
}

// applyConfig does not make a group exist, and its tombstone needs none.
func (g *Group) applyConfig(rec eventlog.Record) error {
	if rec.Value == nil {
		g.config = nil
		return nil
	}
	v, ok := rec.Value.(*eventlog.GroupConfig)
	if !ok {
		return fmt.Errorf("record with a key of type %s has a value of type %s", rec.Key.Type, rec.Value.Type())
	}
	g.config = v
	return nil
}

func (g *Group) applyGroup(_ eventlog.Key, v *eventlog.Group) { g.meta = *v }

func (g *Group) removeGroup(eventlog.Key) error {
	if len(g.members) > 0 {
		return fmt.Errorf("tombstone of group %s: it has %d members", g.id, len(g.members))
	}
	if g.assignmentEpoch != eventlog.EpochNone {
		return fmt.Errorf("tombstone of group %s: its target assignment (epoch %d) was not removed", g.id, g.assignmentEpoch)
	}
	g.reset()
	return nil
}

// put replaces a member, and what follows from members with it. A nil next removes it.
func (g *Group) put(id string, next *member) {
	old := g.members[id]
	if old != nil && old.meta.InstanceID != nil && g.instances[*old.meta.InstanceID] == id {
		delete(g.instances, *old.meta.InstanceID)
	}
	g.holders.replace(old, next)
	if next == nil {
		delete(g.members, id)
		return
	}
	g.members[id] = next
	if next.meta.InstanceID != nil {
		g.instances[*next.meta.InstanceID] = id
	}
}

// memberOrBare is the member of that id, or a bare one.
func (g *Group) memberOrBare(id string) *member {
	if m := g.members[id]; m != nil {
		return m
	}
	return bareMember(id)
}

func (g *Group) applyMember(k eventlog.Key, v *eventlog.Member) {
	m := *g.memberOrBare(k.Member)
	m.meta = v
	g.put(k.Member, &m)
}

func (g *Group) removeMember(k eventlog.Key) error {
	m := g.members[k.Member]
	if m == nil {
		return nil
	}
	if m.epoch != epochGone {
		return fmt.Errorf("tombstone of member %s of group %s: its assignment (epoch %d) was not removed", m.id, g.id, m.epoch)
	}
	if _, ok := g.targets[m.id]; ok {
		return fmt.Errorf("tombstone of member %s of group %s: its target was not removed", m.id, g.id)
	}
	g.put(m.id, nil)
	g.soft.memberRemoved(m.id, len(g.members))
	return nil
}

func (g *Group) applyTargetAssignment(_ eventlog.Key, v *eventlog.TargetAssignment) {
	g.assignmentEpoch, g.assignmentTimestamp = v.AssignmentEpoch, v.AssignmentTimestamp
}

func (g *Group) removeTargetAssignment(eventlog.Key) error {
	if len(g.targets) > 0 {
		return fmt.Errorf("tombstone of the target assignment of group %s: %d members still have a target", g.id, len(g.targets))
	}
	g.assignmentEpoch, g.assignmentTimestamp = eventlog.EpochNone, 0
	return nil
}

func (g *Group) applyTarget(k eventlog.Key, v *eventlog.TargetAssignmentMember) {
	g.targets[k.Member] = assignment{
		active: tasksOfRecord(v.Active, false, 0), standby: tasksOfRecord(v.Standby, false, 0), warmup: tasksOfRecord(v.Warmup, false, 0),
	}
}

func (g *Group) removeTarget(k eventlog.Key) error {
	delete(g.targets, k.Member)
	return nil
}

func (g *Group) applyCurrent(k eventlog.Key, v *eventlog.CurrentMemberAssignment) {
	g.put(k.Member, g.memberOrBare(k.Member).withCurrent(v))
}

func (g *Group) removeCurrent(k eventlog.Key) error {
	if m := g.members[k.Member]; m != nil {
		g.put(k.Member, m.withoutCurrent())
	}
	return nil
}

func (g *Group) applyTopology(_ eventlog.Key, v *eventlog.Topology) {
	g.topology = newTopology(v)
	g.soft.configured = nil
}

func (g *Group) removeTopology(eventlog.Key) error {
	g.topology, g.soft.configured = nil, nil
	return nil
}

// applyRefusal takes the reason of a refusal. It makes no group: a version of this program that does not know the type may have removed
// the group and left the reason behind. It may come before the group's own record, which is written again and again.
func (g *Group) applyRefusal(rec eventlog.Record) error {
	if rec.Value == nil {
		g.refusal = nil
		return nil
	}
	v, ok := rec.Value.(*eventlog.DescriptionRefusal)
	if !ok {
		return fmt.Errorf("record with a key of type %s has a value of type %s", rec.Key.Type, rec.Value.Type())
	}
	g.refusal = v
	return nil
}
