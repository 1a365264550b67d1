package streams

// State is the state of a group (StreamsGroupState of Kafka 4.4).
type State int8

// The states, in the order in which they are ruled out.
const (
	StateEmpty       State = iota // no members
	StateNotReady                 // the topology was not found valid: topics are missing or do not fit
	StateAssigning                // the target assignment is older than the group
	StateReconciling              // some member has not reached the target
	StateStable
)

// States are all of them, each at its own index.
var States = [...]State{StateEmpty, StateNotReady, StateAssigning, StateReconciling, StateStable}

var stateNames = [...]string{StateEmpty: "Empty", StateNotReady: "NotReady", StateAssigning: "Assigning", StateReconciling: "Reconciling", StateStable: "Stable"}

var stateFilters = [...]string{StateEmpty: "empty", StateNotReady: "not_ready", StateAssigning: "assigning", StateReconciling: "reconciling", StateStable: "stable"}

// String is the name of the state in ListGroups and StreamsGroupDescribe.
func (s State) String() string { return stateNames[s] }

// Filter is the name that ListGroups compares a state filter with, in lower case.
func (s State) Filter() string { return stateFilters[s] }

// State computes the state of the group.
func (g *Group) State() State {
	switch {
	case len(g.members) == 0:
		return StateEmpty
	case g.topology == nil || g.topology.value.Epoch != g.meta.ValidatedTopologyEpoch:
		return StateNotReady
	case g.meta.Epoch > g.assignmentEpoch:
		return StateAssigning
	}
	for _, m := range g.members {
		if !m.reconciledTo(g.assignmentEpoch) {
			return StateReconciling
		}
	}
	return StateStable
}
