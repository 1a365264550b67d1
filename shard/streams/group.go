package streams

import (
	"streamkeeper/eventlog"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Group is a streams group.
type Group struct {
	id string
}

// Soft is a change of the facts that are not in the log; the zero value changes nothing. It is opaque: a
// handler makes it and ApplySoft takes it.
type Soft struct {
	changed bool
}

// Result is what a handler decided. The shard applies Records, then Soft, and starts Timers; Response is nil
// where nobody asked.
type Result struct {
	Response *kmsg.StreamsGroupHeartbeatResponse
	Records  []eventlog.Record
	Soft     Soft
	Timers   []Timer
	Create   []CreatableTopic
}

// NewGroup returns a group of which nothing is known yet.
func NewGroup(id string) *Group { return &Group{id: id} }

// State is the state of a group.
type State int8

// Apply applies a record.
func (g *Group) Apply(rec eventlog.Record) error { return nil }

// ApplySoft applies soft facts.
func (g *Group) ApplySoft(s Soft) {}

// Exists says that the group is in the log.
func (g *Group) Exists() bool { return false }

// ID is the group id.
func (g *Group) ID() string { return g.id }

// Empty says that the group has no members.
func (g *Group) Empty() bool { return true }

// State is the state of the group.
func (g *Group) State() State { return 0 }

func (s State) String() string { return "Empty" }

// Epoch is the group epoch.
func (g *Group) Epoch() int32 { return 0 }

// AssignmentEpoch is the epoch of the target assignment.
func (g *Group) AssignmentEpoch() int32 { return 0 }

// RequiredTopics lists the topics.
func (g *Group) RequiredTopics() []string { return nil }

// Subscribed says that the group reads the topic.
func (g *Group) Subscribed(topic string) bool { return false }

// Validate checks a heartbeat.
func Validate(req *kmsg.StreamsGroupHeartbeatRequest) *Error { return nil }

// Heartbeat handles a heartbeat.
func (g *Group) Heartbeat(env Env, req *kmsg.StreamsGroupHeartbeatRequest) (Result, error) {
	return Result{}, nil
}

// Fire handles a timer.
func (g *Group) Fire(env Env, t Timer) Result { return Result{} }

// Restore returns the timers of a hydrated group.
func (g *Group) Restore(env Env) []Timer { return nil }

// Describe describes the group.
func (g *Group) Describe(env Env) kmsg.StreamsGroupDescribeResponseGroup {
	return kmsg.NewStreamsGroupDescribeResponseGroup()
}

// Delete returns the tombstones of the group.
func (g *Group) Delete() ([]eventlog.Record, error) { return nil, nil }

// AdmitCommit checks an offset commit.
func (g *Group) AdmitCommit(member string, epoch int32, instance *string, version int16, transactional bool) (func(topic string, partition int32) error, error) {
	return nil, nil
}

// AdmitFetch checks an offset fetch.
func (g *Group) AdmitFetch(member *string, epoch int32) error { return nil }
