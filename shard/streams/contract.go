package streams

import (
	"fmt"
	"time"

	"streamkeeper/eventlog"
)

// Error is a refusal: a Kafka error code and the text that goes with it on the wire ("" : null).
type Error struct {
	Code    int16
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("error %d: %s", e.Code, e.Message) }

// Topic is what assignment needs to know of a topic.
type Topic struct {
	Name       string
	ID         [16]byte
	Partitions int32
	Racks      [][]string // per partition, the known racks of its replicas
}

// Topics is a snapshot of the cluster's topics. It never changes; a newer one has another Version.
type Topics interface {
	Topic(name string) (Topic, bool)
	Version() int64
}

// Config is the effective configuration of a group.
type Config struct {
	SessionTimeout        time.Duration
	HeartbeatInterval     time.Duration
	MaxSize               int
	NumStandbyReplicas    int
	InitialRebalanceDelay time.Duration
	AssignmentInterval    time.Duration
	TaskOffsetInterval    time.Duration
	AcceptableRecoveryLag int64
	RackAwareTags         []string
	Assignor              string
}

// DefaultConfig is Kafka 4.4's.
func DefaultConfig() Config {
	return Config{
		SessionTimeout: 45 * time.Second, HeartbeatInterval: 5 * time.Second, MaxSize: 1<<31 - 1,
		InitialRebalanceDelay: 3 * time.Second, AssignmentInterval: time.Second, TaskOffsetInterval: time.Minute,
		AcceptableRecoveryLag: 10000, Assignor: "sticky",
	}
}

// Env is everything outside the group that a handler may look at.
type Env struct {
	Now        int64 // ms since 1970; also the time in records
	Topics     Topics
	Config     Config
	APIVersion int16
	ClientID   string
	ClientHost string // Java's form, "/10.0.0.1"
	// Quirks makes the group behave like Kafka 4.4 where it otherwise knows better; for comparisons only.
	Quirks Quirks
}

// Quirks are known defects of Kafka 4.4 that comparisons with it need. The zero value has none of them.
type Quirks int8

const (
	// QuirkFirstSoftLost: the soft facts of the heartbeat that creates a group are lost. So the topology is configured again
	// by the next one, and the initial delay usually ends without a target.
	QuirkFirstSoftLost Quirks = 1 << iota
	// QuirkAssignmentNotRepeated: a member that missed the response with its new assignment is not told again.
	QuirkAssignmentNotRepeated
)

// TimerKind says what a timer is for.
type TimerKind int8

const (
	TimerSession   TimerKind = iota + 1 // of a member
	TimerRebalance                      // of a member
	TimerInitial                        // of the group: the initial rebalance delay
)

// TimerKey identifies a timer in a group; scheduling a key again replaces it.
type TimerKey struct {
	Kind   TimerKind
	Member string
}

// Timer asks the shard to call Fire after the delay. After < 0 cancels the key.
type Timer struct {
	Key   TimerKey
	After time.Duration
	Epoch int32 // TimerRebalance: the member epoch it was started at
}

// CreatableTopic is an internal topic that the group needs and the cluster has not.
type CreatableTopic struct {
	Name              string
	Partitions        int32
	ReplicationFactor int16
	Configs           []eventlog.KeyValue
}
