package streams

import (
	"streamkeeper/eventlog"
)

// Topology descriptions (KIP-1331) as far as the group's log knows of them: which epoch the plugin holds for sure, and which it
// refused for good. The descriptions themselves are the plugin's.
//
// Before each call that changes what the plugin holds the group is marked uncertain, and that mark is durable before the
// call is made; the outcome is written relative to what is found then. So after any crash or race the group says "uncertain", which
// asks again and deletes again, and never names an epoch that may not be there.
//
// A record of these changes neither the group epoch nor anything else; no rebalance follows.

// WantsDescription says that a member should be asked to push a description after the heartbeat just applied, but for the
// back-off, which is not the group's: the version has the field, the member is not leaving and not behind the group's topology, and
// that topology's description is neither stored nor refused for good.
func (g *Group) WantsDescription(member string, memberEpoch int32, version int16) bool {
	m := g.members[member]
	if version < 1 || memberEpoch < 0 || m == nil || g.topology == nil {
		return false
	}
	epoch := g.TopologyEpoch()
	return epoch >= 0 && m.meta.TopologyEpoch >= epoch &&
		g.meta.StoredDescriptionTopologyEpoch != epoch && g.meta.FailedDescriptionTopologyEpoch != epoch
}

// AdmitPush judges a push of a description: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, or INVALID_REQUEST where the epoch is
// not the group's. The member's own epoch is not asked, nor whether the push was asked for.
func (g *Group) AdmitPush(member string, topologyEpoch int32) error {
	switch {
	case !g.exists:
		return refuse(codeGroupIDNotFound, "Group %s not found.", g.id)
	case g.members[member] == nil:
		return refuse(codeUnknownMember, "Member %s is not a member of group %s.", member, g.id)
	case topologyEpoch != g.TopologyEpoch():
		return refuse(codeInvalidRequest, "Topology epoch %d does not match the group's current topology epoch %d.", topologyEpoch, g.TopologyEpoch())
	}
	return nil
}

// MarkUncertain is the barrier before a push: no record where the group is uncertain already.
func (g *Group) MarkUncertain() []eventlog.Record {
	return g.withStored(eventlog.EpochUncertain)
}

// MarkForDelete is the barrier before a deletion at the plugin. ok is false where there is nothing to delete: the group has
// members, does not exist, or surely has no description.
func (g *Group) MarkForDelete() (records []eventlog.Record, ok bool) {
	if !g.exists || len(g.members) > 0 || g.meta.StoredDescriptionTopologyEpoch == eventlog.EpochNone {
		return nil, false
	}
	return g.withStored(eventlog.EpochUncertain), true
}

// DescriptionStored is the outcome of a push that the plugin took. Where the group says "none" by now, a deletion finished while
// the push was under way, and which of the two the plugin saw last can't be known.
func (g *Group) DescriptionStored(topologyEpoch int32) []eventlog.Record {
	if g.meta.StoredDescriptionTopologyEpoch == eventlog.EpochNone {
		return g.withStored(eventlog.EpochUncertain)
	}
	return g.withStored(max(g.meta.StoredDescriptionTopologyEpoch, topologyEpoch))
}

// Described is the fact, beside the record of DescriptionStored, that the plugin took a description just now.
func Described(env Env) Soft { return Soft{describedAt: env.Now} }

// DescribedAt is when the plugin took the description that it has, in ms since 1970; 0 where that is not known: nothing is stored, or it
// was before the group came into memory.
func (g *Group) DescribedAt() int64 {
	if g.meta.StoredDescriptionTopologyEpoch < 0 {
		return 0
	}
	return g.soft.describedAt
}

// DescriptionRefused is the outcome of a push that the plugin refused for good, and why. What is stored stays uncertain.
func (g *Group) DescriptionRefused(why eventlog.DescriptionRefusal) []eventlog.Record {
	if !g.exists || g.meta.FailedDescriptionTopologyEpoch >= why.TopologyEpoch {
		return nil
	}
	next := g.meta
	next.FailedDescriptionTopologyEpoch = why.TopologyEpoch
	return append(g.metaRecord(next), eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeDescriptionRefusal, Group: g.id}, Value: &why})
}

// DescriptionDeleted is the outcome of a deletion that the plugin did. An epoch that is named by now is of a push that
// finished while the deletion was under way: uncertain again.
func (g *Group) DescriptionDeleted() []eventlog.Record {
	switch {
	case !g.exists || g.meta.StoredDescriptionTopologyEpoch == eventlog.EpochNone:
		return nil
	case g.meta.StoredDescriptionTopologyEpoch == eventlog.EpochUncertain:
		return g.withStored(eventlog.EpochNone)
	}
	return g.withStored(eventlog.EpochUncertain)
}

// DescriptionLost is what the plugin's "I have none" means where the log says that it has: uncertain, unless something else was recorded
// in the meantime.
func (g *Group) DescriptionLost(topologyEpoch int32) []eventlog.Record {
	if g.meta.StoredDescriptionTopologyEpoch != topologyEpoch {
		return nil
	}
	return g.withStored(eventlog.EpochUncertain)
}

// withStored is the group's record with another stored epoch; nothing where it is that already.
func (g *Group) withStored(epoch int32) []eventlog.Record {
	if !g.exists || g.meta.StoredDescriptionTopologyEpoch == epoch {
		return nil
	}
	next := g.meta
	next.StoredDescriptionTopologyEpoch = epoch
	return g.metaRecord(next)
}

func (g *Group) metaRecord(m eventlog.Group) []eventlog.Record {
	return []eventlog.Record{{Key: eventlog.Key{Type: eventlog.TypeGroup, Group: g.id}, Value: &m}}
}
