package streams

import (
	"slices"
	"strings"

	"streamkeeper/eventlog"
)

// Member epochs with a meaning of their own, in requests and (epochStaticLeft) in records.
const (
	epochJoin       int32 = 0
	epochLeave      int32 = -1
	epochStaticLeft int32 = -2 // a static member left for a while
	epochGone       int32 = -1 // of a member whose type-22 tombstone was applied
)

// member is the logged state of one member. It is never modified: changing a member means replacing it.
type member struct {
	id            string
	meta          *eventlog.Member // type 19; never nil
	epoch         int32
	previousEpoch int32
	state         eventlog.MemberState
	assigned      assignment
	revoking      assignment // pending revocation
}

// bareMeta is what a member has before its type-19 record.
var bareMeta = &eventlog.Member{RebalanceTimeoutMs: -1, TopologyEpoch: eventlog.EpochNone}

// bareMember is a member of which only the id is known. A log of Kafka may hold a member without a type-22 record, so
// it gets values that a heartbeat can go on from.
func bareMember(id string) *member {
	return &member{id: id, meta: bareMeta, epoch: epochJoin, previousEpoch: epochJoin, state: eventlog.MemberStable}
}

// reconciledTo says that the member has reached the target of the epoch.
func (m *member) reconciledTo(epoch int32) bool {
	return m.state == eventlog.MemberStable && m.epoch == epoch
}

func (m *member) equalAssignment(o *member) bool {
	return m.epoch == o.epoch && m.previousEpoch == o.previousEpoch && m.state == o.state &&
		m.assigned.equal(o.assigned) && m.revoking.equal(o.revoking)
}

func (m *member) hasEndpoint() bool { return m.meta.UserEndpoint != nil }

// currentRecord is the member's type-22 value.
func (m *member) currentRecord() *eventlog.CurrentMemberAssignment {
	return &eventlog.CurrentMemberAssignment{
		MemberEpoch: m.epoch, PreviousMemberEpoch: m.previousEpoch, State: m.state,
		Active: m.assigned.active.record(true), Standby: m.assigned.standby.record(false), Warmup: m.assigned.warmup.record(false),
		ActivePendingRevocation: m.revoking.active.record(true), StandbyPendingRevocation: m.revoking.standby.record(false),
		WarmupPendingRevocation: m.revoking.warmup.record(false),
	}
}

// withCurrent is the member after a type-22 value.
func (m *member) withCurrent(v *eventlog.CurrentMemberAssignment) *member {
	n := *m
	n.epoch, n.previousEpoch, n.state = v.MemberEpoch, v.PreviousMemberEpoch, knownState(v.State)
	n.assigned = assignment{
		active:  tasksOfRecord(v.Active, true, v.MemberEpoch),
		standby: tasksOfRecord(v.Standby, false, 0),
		warmup:  tasksOfRecord(v.Warmup, false, 0),
	}
	n.revoking = assignment{
		active:  tasksOfRecord(v.ActivePendingRevocation, true, v.MemberEpoch),
		standby: tasksOfRecord(v.StandbyPendingRevocation, false, 0),
		warmup:  tasksOfRecord(v.WarmupPendingRevocation, false, 0),
	}
	return &n
}

// withoutCurrent is the member after a type-22 tombstone.
func (m *member) withoutCurrent() *member {
	n := *m
	n.epoch, n.previousEpoch, n.assigned, n.revoking = epochGone, epochGone, assignment{}, assignment{}
	return &n
}

// knownState maps every state that a record may hold to one that reconciliation knows.
func knownState(s eventlog.MemberState) eventlog.MemberState {
	switch s {
	case eventlog.MemberStable, eventlog.MemberUnrevokedTasks, eventlog.MemberUnreleasedTasks:
		return s
	}
	return eventlog.MemberUnknown
}

func equalMeta(a, b *eventlog.Member) bool {
	return equalPtr(a.InstanceID, b.InstanceID) && equalPtr(a.RackID, b.RackID) && a.ClientID == b.ClientID &&
		a.ClientHost == b.ClientHost && a.RebalanceTimeoutMs == b.RebalanceTimeoutMs && a.TopologyEpoch == b.TopologyEpoch &&
		a.ProcessID == b.ProcessID && equalPtr(a.UserEndpoint, b.UserEndpoint) && slices.Equal(a.ClientTags, b.ClientTags)
}

func equalPtr[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func compareKeys(a, b eventlog.KeyValue) int { return strings.Compare(a.Key, b.Key) }
