package eventlog

import (
	"fmt"
	"strconv"
)

// Type is the record type: the first two bytes of every key. The numbers are Kafka 4.4's
// (CoordinatorRecordType); those from 32000 on are our own, which Kafka's tools skip.
type Type int16

const (
	TypeLegacyOffsetCommit      Type = 0 // read only
	TypeOffsetCommit            Type = 1
	TypeClassicGroup            Type = 2 // GroupMetadata of a classic group
	TypeGroup                   Type = 17
	TypeMember                  Type = 19
	TypeTargetAssignment        Type = 20
	TypeTargetAssignmentMember  Type = 21
	TypeCurrentMemberAssignment Type = 22
	TypeTopology                Type = 23
	TypeOwnership               Type = 32000 // ours: who owns the partition
	TypeGroupConfig             Type = 32001 // ours: the configuration of a group; Kafka keeps it with the controller
	// TypeDescriptionRefusal says why the plugin refused a topology description for good: Kafka's record of type 17 has only its epoch.
	TypeDescriptionRefusal Type = 32002
)

// Key is the decoded key of a record. Fields that a type has not stay zero, so that Key is comparable and two
// records of one key are one entry of the compacted log.
type Key struct {
	Type      Type
	Group     string // every type but TypeOwnership
	Member    string // 19, 21, 22
	Topic     string // 0, 1
	Partition int32  // 0, 1
}

// Value is the decoded value of a record: one of the pointer types below.
type Value interface{ Type() Type }

// Record is one entry of the log. A nil Value is a tombstone.
type Record struct {
	Key   Key
	Value Value
}

// Epochs that have a meaning of their own.
const (
	EpochNone      int32 = -1 // nothing validated, stored, or failed
	EpochUncertain int32 = -2 // a description may or may not be stored (KIP-1331)
)

// OffsetCommit is the value of type 1 (and of type 0, with defaults). Times are milliseconds since 1970.
type OffsetCommit struct {
	Offset          int64
	LeaderEpoch     int32 // -1: unknown
	Metadata        string
	CommitTimestamp int64
	ExpireTimestamp int64    // -1: none; a value with one is written as version 1
	TopicID         [16]byte // zero: unknown
}

// ClassicGroup is the value of type 2, which we read in order to convert or to leave alone.
type ClassicGroup struct {
	ProtocolType          string
	Generation            int32
	Protocol              *string
	Leader                *string
	CurrentStateTimestamp int64
	Members               []ClassicMember
}

// ClassicMember is a member of a ClassicGroup.
type ClassicMember struct {
	MemberID         string
	GroupInstanceID  *string
	ClientID         string
	ClientHost       string
	RebalanceTimeout int32
	SessionTimeout   int32
	Subscription     []byte
	Assignment       []byte
}

// KeyValue is a string pair: a configuration, a client tag.
type KeyValue struct{ Key, Value string }

// Group is the value of type 17: it always carries the whole state of the group itself.
type Group struct {
	Epoch                          int32
	MetadataHash                   int64
	ValidatedTopologyEpoch         int32      // EpochNone: not validated
	LastAssignmentConfigs          []KeyValue // ascending by key
	StoredDescriptionTopologyEpoch int32      // EpochNone, EpochUncertain, or an epoch
	FailedDescriptionTopologyEpoch int32      // EpochNone or an epoch
	Conversion                     Conversion // ConversionNone unless its offsets are on their way to the cluster
}

// Conversion says how far a group is on its way between streams groups, which are ours, and classic groups of the cluster (D10). It is
// in the log so that whoever owns the group after a crash knows what the cluster may hold.
type Conversion int8

const (
	// ConversionNone: the group is ours.
	ConversionNone Conversion = iota
	// ConversionBegun: the group is ours and frozen; the cluster had no group of that id when this was written, so that what it
	// has now is our copy, whole or in part.
	ConversionBegun
	// ConversionBegunOver is ConversionBegun where the cluster had an empty group of that id before.
	ConversionBegunOver
	// ConversionCopied: the cluster has acknowledged every offset, and the group is its own; what is left here only goes.
	ConversionCopied
	// ConversionTaken goes the other way: the group is ours, and was made of an empty classic group of the cluster, whose own copy is
	// still to be deleted. It is not frozen.
	ConversionTaken
)

// Frozen says that nobody may join the group, and nothing of it may change.
func (c Conversion) Frozen() bool { return c != ConversionNone && c != ConversionTaken }

func (c Conversion) String() string {
	switch c {
	case ConversionNone:
		return "none"
	case ConversionBegun:
		return "begun"
	case ConversionBegunOver:
		return "begun-over"
	case ConversionCopied:
		return "copied"
	case ConversionTaken:
		return "taken"
	}
	return "conversion " + strconv.Itoa(int(c))
}

// Endpoint is a member's interactive-query endpoint.
type Endpoint struct {
	Host string
	Port uint16
}

// Member is the value of type 19.
type Member struct {
	InstanceID         *string
	RackID             *string
	ClientID           string
	ClientHost         string // Java's form, "/10.0.0.1"
	RebalanceTimeoutMs int32
	TopologyEpoch      int32
	ProcessID          string
	UserEndpoint       *Endpoint
	ClientTags         []KeyValue // ascending by key
}

// TargetAssignment is the value of type 20.
type TargetAssignment struct {
	AssignmentEpoch     int32
	AssignmentTimestamp int64 // ms; 0: no throttling
}

// TaskIDs are the tasks of one subtopology, partitions ascending. Epochs is parallel to Partitions in the two
// active lists of type 22 and nil elsewhere.
type TaskIDs struct {
	SubtopologyID string
	Partitions    []int32
	Epochs        []int32
}

// TargetAssignmentMember is the value of type 21. Lists are ascending by subtopology id.
type TargetAssignmentMember struct {
	Active, Standby, Warmup []TaskIDs
}

// MemberState is the reconciliation state in type 22.
type MemberState int8

const (
	MemberStable          MemberState = 1
	MemberUnrevokedTasks  MemberState = 2
	MemberUnreleasedTasks MemberState = 3
	MemberUnknown         MemberState = 127
)

// CurrentMemberAssignment is the value of type 22.
type CurrentMemberAssignment struct {
	MemberEpoch              int32
	PreviousMemberEpoch      int32
	State                    MemberState
	Active                   []TaskIDs // with Epochs
	Standby                  []TaskIDs
	Warmup                   []TaskIDs
	ActivePendingRevocation  []TaskIDs // with Epochs
	StandbyPendingRevocation []TaskIDs
	WarmupPendingRevocation  []TaskIDs
}

// Topology is the value of type 23. List order is the order of the request that brought it.
type Topology struct {
	Epoch         int32
	Subtopologies []Subtopology
}

// Subtopology is a part of a Topology.
type Subtopology struct {
	SubtopologyID           string
	SourceTopics            []string
	SourceTopicRegex        []string
	StateChangelogTopics    []TopicInfo
	RepartitionSinkTopics   []string
	RepartitionSourceTopics []TopicInfo
	CopartitionGroups       []CopartitionGroup
}

// TopicInfo describes an internal topic. Partitions 0: free; ReplicationFactor 0: the cluster's default.
type TopicInfo struct {
	Name              string
	Partitions        int32
	ReplicationFactor int16
	TopicConfigs      []KeyValue
}

// CopartitionGroup holds indexes into the arrays of its subtopology.
type CopartitionGroup struct {
	SourceTopics            []int16
	SourceTopicRegex        []int16
	RepartitionSourceTopics []int16
}

// OwnershipFormat is the newest format of Ownership that this program reads and writes. A reader that meets a
// newer one refuses the partition (design D4).
const OwnershipFormat = 1

// Ownership is the value of TypeOwnership, encoded as JSON. Its offset in the log is the generation of the claim.
type Ownership struct {
	Format        int    `json:"format"`
	NodeID        int32  `json:"nodeId"`
	Address       string `json:"address"` // host:port that clients are told
	ProducerID    int64  `json:"producerId"`
	ProducerEpoch int16  `json:"producerEpoch"`
	// Claim is the offset of the claim that this record repeats (a read barrier or a renewal without a new
	// epoch writes the record again); -1 in the claim itself, whose own offset is the generation.
	Claim    int64  `json:"claim"`
	Released bool   `json:"released"`
	Instance string `json:"instance"` // random per process: tells two processes with one node id apart
	LogID    string `json:"logId"`    // random id of the log, drawn at its first claim of partition 0 and copied; "" if unknown
	// Partitions is the number of partitions that the log had for the owner; 0 where it was written before there was this field.
	Partitions int32 `json:"partitions,omitempty"`
	// Order is one more than the highest Order of any partition that the claimer had read, so it orders the claims of a node's processes, which the clock
	// does not; a record that repeats a claim repeats it. 0 where it was written before there was this field.
	Order int64 `json:"order,omitempty"`
	// Number is which transactional id of the partition the claimer had its producer id from (TransactionalID): the next claimer begins with it.
	Number int32 `json:"number,omitempty"`
}

// DescriptionRefusalFormat is the newest format of DescriptionRefusal that this program reads and writes.
const DescriptionRefusalFormat = 1

// DescriptionRefusal is the value of TypeDescriptionRefusal, encoded as JSON: why FailedDescriptionTopologyEpoch is what it is. It is
// written with that epoch, replaced by the next refusal, and goes with the group.
type DescriptionRefusal struct {
	Format        int    `json:"format"`
	TopologyEpoch int32  `json:"topologyEpoch"` // it explains this failed epoch and no other
	Plugin        string `json:"plugin"`
	Member        string `json:"member"`    // whose push it was
	Reason        string `json:"reason"`    // the plugin's words
	Timestamp     int64  `json:"timestamp"` // ms since 1970
}

// GroupConfigFormat is the newest format of GroupConfig that this program reads and writes; a reader refuses a newer one.
const GroupConfigFormat = 1

// GroupConfig is the value of TypeGroupConfig, encoded as JSON: what was configured for one group (resource type GROUP of
// IncrementalAlterConfigs), by Kafka's names, as it was written. It outlives the group, and may be there before it. An empty one is
// not written: a tombstone is.
type GroupConfig struct {
	Format  int               `json:"format"`
	Configs map[string]string `json:"configs"`
}

func (*OffsetCommit) Type() Type            { return TypeOffsetCommit }
func (*ClassicGroup) Type() Type            { return TypeClassicGroup }
func (*Group) Type() Type                   { return TypeGroup }
func (*Member) Type() Type                  { return TypeMember }
func (*TargetAssignment) Type() Type        { return TypeTargetAssignment }
func (*TargetAssignmentMember) Type() Type  { return TypeTargetAssignmentMember }
func (*CurrentMemberAssignment) Type() Type { return TypeCurrentMemberAssignment }
func (*Topology) Type() Type                { return TypeTopology }
func (*Ownership) Type() Type               { return TypeOwnership }
func (*DescriptionRefusal) Type() Type      { return TypeDescriptionRefusal }
func (*GroupConfig) Type() Type             { return TypeGroupConfig }

// Raw is an encoded record; a nil Value is a tombstone.
type Raw struct{ Key, Value []byte }

func (t Type) String() string {
	switch t {
	case TypeLegacyOffsetCommit:
		return "LegacyOffsetCommit"
	case TypeOffsetCommit:
		return "OffsetCommit"
	case TypeClassicGroup:
		return "GroupMetadata"
	case TypeGroup:
		return "StreamsGroupMetadata"
	case TypeMember:
		return "StreamsGroupMemberMetadata"
	case TypeTargetAssignment:
		return "StreamsGroupTargetAssignmentMetadata"
	case TypeTargetAssignmentMember:
		return "StreamsGroupTargetAssignmentMember"
	case TypeCurrentMemberAssignment:
		return "StreamsGroupCurrentMemberAssignment"
	case TypeTopology:
		return "StreamsGroupTopology"
	case TypeOwnership:
		return "Ownership"
	case TypeDescriptionRefusal:
		return "TopologyDescriptionRefusal"
	case TypeGroupConfig:
		return "GroupConfig"
	}
	return fmt.Sprintf("Type(%d)", int16(t))
}
