package streams

import (
	"errors"
	"strings"

	"streamkeeper/client/explain"
	"streamkeeper/eventlog"
)

// reasonsPerCodeMax bounds the reasons of one kind: a rebalance of a thousand members has as many, and nobody reads them.
const reasonsPerCodeMax = 20

// Explain says why the group is in its state, the most important reason first. It is for people: nothing depends on it. env.Topics has to hold
// the topics of the group's topology as far as they exist. due tells when a running timer ends, in ms since 1970.
func (g *Group) Explain(env Env, due func(TimerKey) (ms int64, running bool)) []explain.Reason {
	x := &explaining{g: g, env: env, due: due, counts: map[explain.Code]int{}}
	switch g.State() {
	case StateEmpty:
		if g.Conversion() != eventlog.ConversionNone {
			x.add(explain.Reason{Code: explain.Converting, Text: "The group is on its way to a classic group of the cluster, because a classic consumer joined; nobody can join it until that is done.",
				Todo: "The next JoinGroup goes on with it; the coordinator's log has what stands in the way."})
			return x.reasons
		}
		x.add(explain.Reason{Code: explain.NoMembers, Text: "The group has no members.",
			Todo: "It is removed when its committed offsets have expired; a member that joins goes on where they stand."})
		return x.reasons
	case StateNotReady:
		x.notReady()
	case StateAssigning:
		x.topicsGone()
		x.assigning()
	case StateReconciling:
		x.topicsGone()
		x.reconciling()
	case StateStable:
		x.topicsGone()
	}
	x.initialDelay()
	x.silentMembers()
	x.oldTopologies()
	x.missingTags()
	if by := g.soft.shutdownBy; by != "" {
		x.add(explain.Reason{Code: explain.ShutdownWished, Member: by, Text: "A member asked for the whole application to be shut down.",
			Todo: "Its log says why; the wish ends when the last member has left."})
	}
	return x.all()
}

// explaining collects reasons.
type explaining struct {
	g       *Group
	env     Env
	due     func(TimerKey) (int64, bool)
	reasons []explain.Reason
	counts  map[explain.Code]int
	order   []explain.Code // of counts
}

func (x *explaining) add(r explain.Reason) {
	if x.counts[r.Code]++; x.counts[r.Code] == 1 {
		x.order = append(x.order, r.Code)
	}
	if x.counts[r.Code] <= reasonsPerCodeMax {
		x.reasons = append(x.reasons, r)
	}
}

// all are the reasons, and how many were left out.
func (x *explaining) all() []explain.Reason {
	for _, code := range x.order {
		if more := x.counts[code] - reasonsPerCodeMax; more > 0 {
			x.reasons = append(x.reasons, explain.Reason{Code: explain.MoreOfTheseLeft, Count: more, Text: itoa(int32(more)) + " more members: " + string(code) + "."})
		}
	}
	return x.reasons
}

// notReady looks at the topics anew: the last heartbeat may have seen others.
func (x *explaining) notReady() {
	if x.g.topology == nil {
		x.add(explain.Reason{Code: explain.NoTopology, Text: "No member has sent the topology of the application."})
		return
	}
	if r := x.topics(); r != nil {
		x.add(*r)
		return
	}
	x.add(explain.Reason{Code: explain.NextHeartbeat, Text: "All topics are there by now; the next heartbeat of a member goes on."})
}

// topics says what is wrong with the topics as they are now; nil: nothing.
func (x *explaining) topics() *explain.Reason {
	conf, err := configure(x.g.topology, x.env.Topics)
	if err != nil {
		text := err.Error()
		var e *Error
		if errors.As(err, &e) {
			text = e.Message
		}
		return &explain.Reason{Code: explain.InvalidTopology, Text: text, Todo: "The application has to be changed."}
	}
	if conf.problem == nil {
		return nil
	}
	r := &explain.Reason{Text: conf.problem.detail, Topics: conf.problem.topics}
	switch conf.problem.code {
	case statusMissingSources:
		r.Code, r.Todo = explain.MissingSourceTopics, "Make them, or correct the application; the group goes on by itself."
	case statusWrongPartitions:
		r.Code, r.Todo = explain.WrongPartitionCounts, "Make the partition counts equal; an internal topic that does not fit can be deleted once the application is stopped, and is made anew."
	case statusMissingInternal:
		r.Code = explain.MissingInternalTopics
	}
	return r
}

// topicsGone: the topics were right when a heartbeat saw them last, and are not any more.
func (x *explaining) topicsGone() {
	if r := x.topics(); r != nil {
		r.Text = strings.TrimSuffix(r.Text, ".") + ", since the last heartbeat; the next one makes the group NotReady."
		x.add(*r)
	}
}

// assigning: the target is older than the group. The initial delay, if that is the reason, is told anyway.
func (x *explaining) assigning() {
	interval := x.env.Config.AssignmentInterval.Milliseconds()
	switch until := x.g.assignmentTimestamp + interval; {
	case x.g.soft.delayed:
	case interval > 0 && x.g.assignmentTimestamp != 0 && x.env.Now < until:
		x.add(explain.Reason{Code: explain.AssignmentInterval, Text: "Assignment delayed due to the configured assignment interval.",
			Since: explain.Millis(x.g.assignmentTimestamp), Until: explain.Millis(until)})
	default:
		x.add(explain.Reason{Code: explain.NextHeartbeat, Text: "The next heartbeat of a member computes the new assignment."})
	}
}

func (x *explaining) initialDelay() {
	if !x.g.soft.delayed {
		return
	}
	r := explain.Reason{Code: explain.InitialDelay, Text: "Assignment delayed due to the configured initial rebalance delay."}
	if ms, ok := x.due(TimerKey{Kind: TimerInitial}); ok {
		r.Since, r.Until = explain.Millis(ms-x.env.Config.InitialRebalanceDelay.Milliseconds()), explain.Millis(ms)
	}
	x.add(r)
}

// Versions says which versions of StreamsGroupHeartbeat the group's members spoke since it is in memory.
func (g *Group) Versions() (old, describing bool) {
	const describingFrom = 1 // the first version in which a member can be asked for a description
	return g.soft.versions&(1<<describingFrom-1) != 0, g.soft.versions>>describingFrom != 0
}

// MembersCurrent is the number of members that run the group's topology or a newer one.
func (g *Group) MembersCurrent() (n int) {
	for _, m := range g.members {
		if m.meta.TopologyEpoch >= g.TopologyEpoch() {
			n++
		}
	}
	return n
}
