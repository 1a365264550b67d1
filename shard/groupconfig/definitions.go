package groupconfig

// definition is something that can be configured for a group (GroupConfig of Kafka 4.4). The least value is that of the setting which it
// overrides.
type definition struct {
	name string
	typ  Type
	// twin is the setting that counts where nothing is configured.
	twin string
	// hidden ones are internal in Kafka: they can be configured, and are described only where they are.
	hidden bool
	min    int64
	// lower and upper say which of the bounds that an operator can set there are, and what they are called.
	lower, upper string
}

// definitions are in the order in which Kafka 4.4 reads values: the first that can't be read is told.
var definitions = []definition{
	{name: sessionTimeout, typ: Int, twin: prefix + sessionTimeout, min: 1, lower: "min", upper: "max"},
	{name: heartbeatInterval, typ: Int, twin: prefix + heartbeatInterval, min: 1, lower: "min", upper: "max"},
	{name: numStandbyReplicas, typ: Int, twin: prefix + numStandbyReplicas, upper: "max.standby.replicas"},
	{name: initialDelay, typ: Int, twin: prefix + initialDelay},
	{name: assignmentInterval, typ: Int, twin: prefix + assignmentInterval, lower: "min", upper: "max"},
	{name: assignorOffload, typ: Boolean, twin: prefix + assignorOffload, hidden: true},
	{name: taskOffsetInterval, typ: Int, twin: prefix + taskOffsetInterval, min: 1, lower: "min", hidden: true},
	{name: numWarmupReplicas, typ: Int, twin: prefix + numWarmupReplicas, upper: "max.warmup.replicas", hidden: true},
	{name: rackAwareTags, typ: List, twin: prefix + rackAwareTags},
	{name: recoveryLag, typ: Long, twin: prefix + recoveryLag, hidden: true},
	{name: assignorName, typ: String, twin: assignors},
}

// bounded are the names whose bounds can be set, in the order in which Kafka 4.4 compares.
var bounded = []string{heartbeatInterval, sessionTimeout, numStandbyReplicas, assignmentInterval, taskOffsetInterval, numWarmupReplicas}

var byName = func() map[string]*definition {
	m := map[string]*definition{}
	for i := range definitions {
		m[definitions[i].name] = &definitions[i]
	}
	return m
}()

// Prefix is what the names begin with that are about streams groups: only these are ours.
const Prefix = "streams."
