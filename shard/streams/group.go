package streams

import (
	"maps"
	"slices"

	"streamkeeper/eventlog"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// firstEpoch is the group and assignment epoch of a group before its first record of types 17 and 20
// (StreamsGroup and TargetAssignmentMetadata of Kafka 4.4): the first join makes the group epoch 2.
const firstEpoch int32 = 1

// Group is a streams group: the logged state, which only Apply changes, and soft facts, which only ApplySoft
// changes (and Apply where a fact's ground disappears: a member, the group). Everything it points to is immutable, so a handler
// can put a group's parts into records, responses and views without copying them.
type Group struct {
	id string

	// The logged state.
	exists              bool
	meta                eventlog.Group // type 17
	assignmentEpoch     int32          // type 20
	assignmentTimestamp int64          // ms; 0: no throttling
	topology            *topology      // type 23; nil: none
	members             map[string]*member
	targets             map[string]assignment        // type 21; without epochs
	holders             holders                      // follows from members
	instances           map[string]string            // static members: instance id → member id; follows from members
	refusal             *eventlog.DescriptionRefusal // type 32002; nil: none, or not known

	// config is what was configured for the group (type 32001), nil where nothing was; never modified, only replaced. It is not part of
	// the group's life: it may be there before the group and stays when the group goes, as in Kafka.
	config *eventlog.GroupConfig

	soft softState
}

// Result is what a handler decided. The shard applies Records in order, then Soft, and starts Timers; Response is nil
// where nobody asked. Together with an error only Soft can be set, and should be applied too: a member that is not known any
// more can still ask for the shutdown of the application.
type Result struct {
	Response *kmsg.StreamsGroupHeartbeatResponse
	Records  []eventlog.Record
	Soft     Soft
	Timers   []Timer
	Create   []CreatableTopic // internal topics that are missing, ascending by name
}

// NewGroup returns a group of which nothing is known yet.
func NewGroup(id string) *Group {
	g := &Group{id: id}
	g.reset()
	return g
}

// reset forgets everything but the id and what was configured.
func (g *Group) reset() {
	*g = Group{
		id: g.id, config: g.config,
		meta: eventlog.Group{
			Epoch: firstEpoch, ValidatedTopologyEpoch: eventlog.EpochNone,
			StoredDescriptionTopologyEpoch: eventlog.EpochNone, FailedDescriptionTopologyEpoch: eventlog.EpochNone,
		},
		assignmentEpoch: firstEpoch,
		members:         map[string]*member{}, targets: map[string]assignment{}, holders: newHolders(), instances: map[string]string{},
	}
}

// ID is the group id.
func (g *Group) ID() string { return g.id }

// Exists says that some record of the group was applied and its type-17 tombstone was not.
func (g *Group) Exists() bool { return g.exists }

// Config is what was configured for the group, as it was written, also where the group does not exist; nil where nothing was. It must
// not be modified, and is another one after every change.
func (g *Group) Config() *eventlog.GroupConfig { return g.config }

// Empty says that the group has no members.
func (g *Group) Empty() bool { return len(g.members) == 0 }

// Members is the number of members.
func (g *Group) Members() int { return len(g.members) }

// Epoch is the group epoch.
func (g *Group) Epoch() int32 { return g.meta.Epoch }

// AssignmentEpoch is the epoch of the target assignment.
func (g *Group) AssignmentEpoch() int32 { return g.assignmentEpoch }

// TopologyEpoch is the epoch of the group's topology, eventlog.EpochNone where it has none.
func (g *Group) TopologyEpoch() int32 {
	if g.topology == nil {
		return eventlog.EpochNone
	}
	return g.topology.value.Epoch
}

// StoredDescriptionTopologyEpoch and FailedDescriptionTopologyEpoch are those of the type-17 record (KIP-1331).
func (g *Group) StoredDescriptionTopologyEpoch() int32 { return g.meta.StoredDescriptionTopologyEpoch }

// FailedDescriptionTopologyEpoch is the epoch whose description was refused for good.
func (g *Group) FailedDescriptionTopologyEpoch() int32 { return g.meta.FailedDescriptionTopologyEpoch }

// Refusal is why FailedDescriptionTopologyEpoch was refused; nil where that is not known: nothing was refused, or before such reasons
// were recorded.
func (g *Group) Refusal() *eventlog.DescriptionRefusal {
	if g.refusal == nil || g.refusal.TopologyEpoch != g.meta.FailedDescriptionTopologyEpoch {
		return nil
	}
	return g.refusal
}

// MemberEpoch is the epoch of a member; ok is false where the group has no such member.
func (g *Group) MemberEpoch(member string) (epoch int32, ok bool) {
	m := g.members[member]
	if m == nil {
		return 0, false
	}
	return m.epoch, true
}

// RequiredTopics are the topics that the assignment depends on: sources, repartition sources and changelogs of the topology,
// each once. The caller must not modify the slice.
func (g *Group) RequiredTopics() []string {
	if g.topology == nil {
		return nil
	}
	return g.topology.required
}

// Subscribed says that a non-empty group reads the topic as a source or repartition source: its committed offsets
// do not expire and can't be deleted.
func (g *Group) Subscribed(topic string) bool {
	if len(g.members) == 0 || g.topology == nil {
		return false
	}
	_, reads := g.topology.reads[topic]
	return reads
}

// memberIDs are the ids of all members, ascending: the order wherever members reach records, responses or the assignor.
func (g *Group) memberIDs() []string { return slices.Sorted(maps.Keys(g.members)) }
