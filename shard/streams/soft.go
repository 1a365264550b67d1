package streams

import "streamkeeper/shard/assignor"

// softState are the facts that are not in the log and are lost when the group is hydrated again: all of them can be
// computed or reported again.
type softState struct {
	// configured is the topology with its partition counts; nil: to be computed.
	configured *configured
	// topicsSeen is the version of the cluster's topics for which the metadata hash was last computed. It has no
	// meaning while configured is nil.
	topicsSeen int64
	// endpointEpoch counts changes of what members with an endpoint hold.
	endpointEpoch int32
	// shutdownBy is the member that asked for the application to be shut down; "" if none did.
	shutdownBy string
	// delayed: the initial rebalance delay is running.
	delayed bool
	// versions are the versions of StreamsGroupHeartbeat that members spoke, a bit each: what the group can be asked depends on it.
	versions uint16
	// describedAt is when the plugin took the description that is stored, ms since 1970; 0: not known.
	describedAt int64
	// offsets are the changelog positions that members reported.
	offsets map[string]*taskOffsets
}

// taskOffsets are the positions that a member reported last; never modified.
type taskOffsets struct {
	current, end map[assignor.Task]int64
}

// Soft is a change of the soft facts; the zero value changes nothing. It is opaque: a handler makes it and
// ApplySoft takes it.
type Soft struct {
	configured    *configured
	topicsSeen    int64
	hasTopicsSeen bool

	endpointEpoch    int32
	hasEndpointEpoch bool

	shutdownBy string

	delay       delayChange
	versions    uint16
	describedAt int64

	offsetsOf string
	offsets   *taskOffsets
}

type delayChange int8

const (
	delayKeep delayChange = iota
	delayBegins
	delayEnds
)

// ApplySoft applies a change of soft facts.
func (g *Group) ApplySoft(s Soft) {
	if s.configured != nil && g.topology != nil {
		g.soft.configured = s.configured
	}
	if s.hasTopicsSeen {
		g.soft.topicsSeen = s.topicsSeen
	}
	if s.hasEndpointEpoch {
		g.soft.endpointEpoch = s.endpointEpoch
	}
	// The first one who asks is named. An empty group has nobody to shut down, and a later start of the application
	// must not meet the request.
	if s.shutdownBy != "" && g.soft.shutdownBy == "" && len(g.members) > 0 {
		g.soft.shutdownBy = s.shutdownBy
	}
	g.soft.versions |= s.versions
	if s.describedAt != 0 {
		g.soft.describedAt = s.describedAt
	}
	switch s.delay {
	case delayBegins:
		g.soft.delayed = true
	case delayEnds:
		g.soft.delayed = false
	}
	if s.offsets != nil && g.members[s.offsetsOf] != nil {
		if g.soft.offsets == nil {
			g.soft.offsets = map[string]*taskOffsets{}
		}
		g.soft.offsets[s.offsetsOf] = s.offsets
	}
}

// memberRemoved forgets what belonged to the member, and to the application when it was the last one.
func (s *softState) memberRemoved(id string, left int) {
	delete(s.offsets, id)
	if left == 0 {
		s.shutdownBy, s.versions = "", 0
	}
}
