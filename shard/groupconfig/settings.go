package groupconfig

import (
	"fmt"
	"math"
	"time"

	"streamkeeper/shard/streams"
)

// Type is the type of a setting, by Kafka's name (ConfigDef.Type).
type Type string

// The types that occur.
const (
	Int     Type = "INT"
	Long    Type = "LONG"
	Boolean Type = "BOOLEAN"
	List    Type = "LIST"
	String  Type = "STRING"
)

// NoMinimum is the Min of a setting without a least value.
const NoMinimum = math.MinInt64

// A Setting is one of Kafka's settings of a broker that streamkeeper understands. Names, types, defaults and bounds are those
// of Kafka 4.4's GroupCoordinatorConfig.
type Setting struct {
	Name    string
	Type    Type
	Default string
	Min     int64 // INT and LONG: the least value
	Doc     string
}

const prefix = "group."

// Names of settings that are looked at by name.
const (
	sessionTimeout     = "streams.session.timeout.ms"
	heartbeatInterval  = "streams.heartbeat.interval.ms"
	numStandbyReplicas = "streams.num.standby.replicas"
	initialDelay       = "streams.initial.rebalance.delay.ms"
	assignmentInterval = "streams.assignment.interval.ms"
	assignorOffload    = "streams.assignor.offload.enable"
	taskOffsetInterval = "streams.task.offset.interval.ms"
	numWarmupReplicas  = "streams.num.warmup.replicas"
	rackAwareTags      = "streams.rack.aware.assignment.tags"
	recoveryLag        = "streams.acceptable.recovery.lag"
	assignorName       = "streams.assignor.name"

	maxSize   = prefix + "streams.max.size"
	assignors = prefix + "streams.assignors"
)

// Settings are the settings of streams groups, in the order in which --help and the README list them.
var Settings = []Setting{
	{prefix + sessionTimeout, Int, "45000", 1, "a member that was not heard of for so long is removed"},
	{"group.streams.min.session.timeout.ms", Int, "45000", 1, "lower bound of the session time-out"},
	{"group.streams.max.session.timeout.ms", Int, "60000", 1, "upper bound of the session time-out"},
	{prefix + heartbeatInterval, Int, "5000", 1, "how often members are told to send heartbeats"},
	{"group.streams.min.heartbeat.interval.ms", Int, "5000", 1, "lower bound of the heartbeat interval"},
	{"group.streams.max.heartbeat.interval.ms", Int, "15000", 1, "upper bound of the heartbeat interval"},
	{maxSize, Int, "2147483647", 1, "most members of one group"},
	{prefix + numStandbyReplicas, Int, "0", 0, "standby tasks per stateful task"},
	{"group.streams.max.standby.replicas", Int, "2", 0, "upper bound of the number of standby replicas"},
	{prefix + initialDelay, Int, "3000", 0, "how long a new or emptied group waits for more members before it assigns tasks"},
	{prefix + assignmentInterval, Int, "1000", 0, "least time between two target assignments of a group"},
	{"group.streams.min.assignment.interval.ms", Int, "0", 0, "lower bound of the assignment interval"},
	{"group.streams.max.assignment.interval.ms", Int, "15000", 0, "upper bound of the assignment interval"},
	{assignors, List, "sticky", 0, "the task assignor; \"sticky\" is the only one"},
	{prefix + rackAwareTags, List, "", 0, "client tags over which standby tasks are spread"},
	{prefix + taskOffsetInterval, Int, "60000", 1, "how often members report the offsets of their tasks"},
	{"group.streams.min.task.offset.interval.ms", Int, "15000", 1, "lower bound of the task offset interval"},
	{prefix + recoveryLag, Long, "10000", 0, "lag up to which a standby counts as caught up"},
	{prefix + numWarmupReplicas, Int, "2", 0, "accepted and, as in Kafka 4.4, without effect"},
	{"group.streams.max.warmup.replicas", Int, "20", 0, "upper bound of the number of warm-up replicas"},
	{prefix + assignorOffload, Boolean, "true", 0, "accepted and, as in Kafka 4.4, without effect on streams groups"},
}

// Broker is what a replica is set to, as a broker's settings are for Kafka's groups. It does not change.
type Broker struct {
	config streams.Config
	values map[string]value
}

// value is one setting as it is in effect.
type value struct {
	setting *Setting
	parsed  parsed
	set     bool // by the operator, perhaps to the default
}

// NewBroker makes a Broker of the settings that an operator gave, by name; names that are not in Settings are none of its business.
// The error is Kafka's text about the first value that can't be read. How settings fit together is not looked at.
func NewBroker(given map[string]string) (*Broker, error) {
	b := &Broker{values: map[string]value{}}
	for i := range Settings {
		s := &Settings[i]
		text, set := given[s.Name]
		if !set {
			text = s.Default
		}
		p, err := parse(s.Type, s.Min, s.Name, text)
		if err != nil {
			return nil, fmt.Errorf("%s", err.Message)
		}
		b.values[s.Name] = value{s, p, set}
	}
	b.config = streams.Config{
		SessionTimeout:        b.ms(sessionTimeout),
		HeartbeatInterval:     b.ms(heartbeatInterval),
		MaxSize:               int(b.number(maxSize)),
		NumStandbyReplicas:    int(b.number(prefix + numStandbyReplicas)),
		InitialRebalanceDelay: b.ms(initialDelay),
		AssignmentInterval:    b.ms(assignmentInterval),
		TaskOffsetInterval:    b.ms(taskOffsetInterval),
		AcceptableRecoveryLag: b.number(prefix + recoveryLag),
		RackAwareTags:         b.values[prefix+rackAwareTags].parsed.list,
	}
	if names := b.values[assignors].parsed.list; len(names) > 0 {
		b.config.Assignor = names[0]
	}
	return b, nil
}

// Default is a Broker with Kafka 4.4's defaults.
func Default() *Broker {
	b, err := NewBroker(nil)
	if err != nil {
		panic(err) // the table is wrong
	}
	return b
}

// Fixed is a Broker with Kafka 4.4's bounds whose groups have config unless something is configured for them: for tests, whose times are
// often shorter than any that Kafka takes.
func Fixed(config streams.Config) *Broker {
	b := Default()
	b.config = config
	return b
}

// Config is the configuration of a group for which nothing is configured.
func (b *Broker) Config() streams.Config { return b.config }

func (b *Broker) number(name string) int64 { return b.values[name].parsed.number }

func (b *Broker) ms(name string) time.Duration {
	return time.Duration(b.number(prefix+name)) * time.Millisecond
}
