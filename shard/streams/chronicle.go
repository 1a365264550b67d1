package streams

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"streamkeeper/eventlog"
)

// EventKind says what an Event is about.
type EventKind int8

// The kinds of events.
const (
	EventMember      EventKind = iota + 1 // a member joined, changed or went
	EventTopology                         // the group got its topology
	EventEpoch                            // a new group epoch: a rebalance begins, or begins anew
	EventTarget                           // the target of a member changed, or that of the group is complete
	EventStep                             // a member took a step towards its target, or was told to
	EventDescription                      // what is known of the topology description
	EventState                            // the state that the group is in after the operation
	EventRemoved                          // the group is gone
)

var eventNames = [...]string{
	EventMember: "member", EventTopology: "topology", EventEpoch: "epoch", EventTarget: "target", EventStep: "step",
	EventDescription: "description", EventState: "state", EventRemoved: "removed",
}

// String is the kind's name, for programs.
func (k EventKind) String() string { return eventNames[k] }

// Event is one thing that records of a group say, for people.
type Event struct {
	Kind   EventKind
	Member string // EventMember, EventStep, and EventTarget of a member
	Epoch  int32  // EventEpoch, EventTarget of the group, EventStep: the epoch it is at; EventState: the group epoch
	State  State  // EventState
	Text   string
	// Because are the reasons of an EventEpoch; Text has them, too.
	Because []string
}

// namesTold bounds the tasks and members that an event names: beyond it a line would be too long to be read.
const namesTold = 12

// Chronicle tells what the records of a group mean: it is told each record before the record is applied to the group. So it reads a log as
// well as what a handler has just decided. It changes nothing.
type Chronicle struct {
	g       *Group
	causes  []string          // of the next epoch, if the operation makes one
	left    map[string]string // static members that the operation removed, by instance
	told    State
	toldAt  int32
	hasTold bool
	// Gone is why a member goes, where that is known: the log does not say.
	Gone string
	// Brief leaves out what single members' targets become.
	Brief bool
}

// NewChronicle begins one in the state it is in.
func NewChronicle(g *Group) *Chronicle {
	return &Chronicle{g: g, told: g.State(), toldAt: g.meta.Epoch, hasTold: g.exists, Gone: "is gone (left, or timed out)"}
}

// Tell returns what a record changes.
func (c *Chronicle) Tell(rec eventlog.Record) []Event {
	switch v := rec.Value.(type) {
	case *eventlog.Member:
		return c.member(rec.Key.Member, v)
	case *eventlog.Topology:
		return c.topology(v)
	case *eventlog.Group:
		return c.epoch(v)
	case *eventlog.TargetAssignmentMember:
		if c.Brief {
			return nil
		}
		return c.target(rec.Key.Member, v)
	case *eventlog.TargetAssignment:
		if v.AssignmentEpoch == c.g.assignmentEpoch {
			return nil
		}
		return []Event{{Kind: EventTarget, Epoch: v.AssignmentEpoch, Text: "target assignment " + itoa(v.AssignmentEpoch)}}
	case *eventlog.CurrentMemberAssignment:
		return c.step(rec.Key.Member, v)
	case nil:
		return c.tombstone(rec.Key)
	}
	return nil
}

// Settled returns the state of the group after an operation, where that is new. It is called when the operation's records are applied.
func (c *Chronicle) Settled() []Event {
	c.causes, c.left = nil, nil
	if !c.g.exists {
		c.hasTold = false
		return nil
	}
	st, epoch := c.g.State(), c.g.meta.Epoch
	if c.hasTold && st == c.told && epoch == c.toldAt {
		return nil
	}
	c.told, c.toldAt, c.hasTold = st, epoch, true
	e := Event{Kind: EventState, Epoch: epoch, State: st}
	switch st {
	case StateStable:
		e.Text = "stable at " + itoa(epoch)
	case StateReconciling:
		e.Text = "reconciling to " + itoa(c.g.assignmentEpoch) + ", waiting for " + some(c.g.Unreconciled())
	case StateAssigning:
		e.Text = "no target for epoch " + itoa(epoch) + " yet"
	case StateNotReady:
		e.Text = "not ready at " + itoa(epoch) + ": topics are missing, or do not fit the topology"
	case StateEmpty:
		e.Text = "empty at " + itoa(epoch)
	}
	return []Event{e}
}

// Unreconciled are the members that have not reached the target assignment, ascending.
func (g *Group) Unreconciled() (ids []string) {
	for id, m := range g.members {
		if !m.reconciledTo(g.assignmentEpoch) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// cause is an event that may lead to a new epoch, short in the epoch's own text.
func (c *Chronicle) cause(e Event, short string) []Event {
	c.causes = append(c.causes, short)
	return []Event{e}
}

func (c *Chronicle) member(id string, v *eventlog.Member) []Event {
	e := Event{Kind: EventMember, Member: id}
	was := c.g.members[id]
	if was == nil || was.meta == bareMeta {
		short := "member " + id + " joined"
		e.Text = short + " (client " + v.ClientID + " at " + v.ClientHost + ", process " + v.ProcessID
		if v.InstanceID != nil {
			e.Text += ", instance " + *v.InstanceID
		}
		if v.RackID != nil {
			e.Text += ", rack " + *v.RackID
		}
		e.Text += ")"
		if v.InstanceID != nil && c.left[*v.InstanceID] != "" {
			e.Text += " in the place of " + c.left[*v.InstanceID]
		}
		return c.cause(e, short)
	}
	var changed []string
	change := func(what string, changes bool) {
		if changes {
			changed = append(changed, what)
		}
	}
	m := was.meta
	change("topology epoch "+itoa(m.TopologyEpoch)+" → "+itoa(v.TopologyEpoch), m.TopologyEpoch != v.TopologyEpoch)
	change("process", m.ProcessID != v.ProcessID)
	change("rack", !equalPtr(m.RackID, v.RackID))
	change("client tags", !slices.Equal(m.ClientTags, v.ClientTags))
	change("endpoint", !equalPtr(m.UserEndpoint, v.UserEndpoint))
	change("client", m.ClientID != v.ClientID || m.ClientHost != v.ClientHost)
	change("rebalance timeout", m.RebalanceTimeoutMs != v.RebalanceTimeoutMs)
	change("instance", !equalPtr(m.InstanceID, v.InstanceID))
	if len(changed) == 0 {
		return nil // a repaired record, or one that compaction left
	}
	e.Text = "member " + id + " changed: " + strings.Join(changed, ", ")
	return c.cause(e, e.Text)
}

func (c *Chronicle) topology(v *eventlog.Topology) []Event {
	e := Event{Kind: EventTopology, Text: "topology " + itoa(v.Epoch) + " with " + count(len(v.Subtopologies), "subtopology", "subtopologies")}
	return []Event{e}
}

func (c *Chronicle) epoch(v *eventlog.Group) []Event {
	was := c.g.meta
	if c.g.exists && v.Epoch == was.Epoch {
		return c.description(was, v)
	}
	if c.g.topology != nil || was.MetadataHash != 0 { // not at the group's first record
		if v.MetadataHash != was.MetadataHash && was.MetadataHash != 0 {
			c.causes = append(c.causes, "topics changed")
		}
	}
	if v.ValidatedTopologyEpoch != was.ValidatedTopologyEpoch {
		if v.ValidatedTopologyEpoch == eventlog.EpochNone {
			c.causes = append(c.causes, "the topology is not ready any more")
		} else {
			c.causes = append(c.causes, "the topology is ready")
		}
	}
	c.causes = append(c.causes, configChanges(was.LastAssignmentConfigs, v.LastAssignmentConfigs)...)
	e := Event{Kind: EventEpoch, Epoch: v.Epoch, Because: c.causes}
	c.causes = nil
	if len(e.Because) == 0 {
		e.Because = []string{"the reason is not in the log"}
	}
	e.Text = "epoch " + itoa(v.Epoch) + ": " + strings.Join(e.Because, "; ")
	return []Event{e}
}

// configChanges tell of settings that were there before and are others now.
func configChanges(was, is []eventlog.KeyValue) (out []string) {
	if len(was) == 0 {
		return nil // the first assignment
	}
	of := func(list []eventlog.KeyValue, key string) string {
		for _, kv := range list {
			if kv.Key == key {
				return kv.Value
			}
		}
		return "none"
	}
	seen := map[string]bool{}
	for _, kv := range append(slices.Clone(was), is...) {
		if a, b := of(was, kv.Key), of(is, kv.Key); a != b && !seen[kv.Key] {
			seen[kv.Key] = true
			out = append(out, kv.Key+" "+a+" → "+b)
		}
	}
	return out
}

func (c *Chronicle) description(was eventlog.Group, v *eventlog.Group) []Event {
	told := func(text string) []Event { return []Event{{Kind: EventDescription, Text: text}} }
	stored, failed := v.StoredDescriptionTopologyEpoch, v.FailedDescriptionTopologyEpoch
	switch {
	case failed != was.FailedDescriptionTopologyEpoch:
		return told("topology description " + itoa(failed) + " refused for good")
	case stored == was.StoredDescriptionTopologyEpoch:
		return nil
	case stored == eventlog.EpochUncertain:
		return told("topology description is being stored or deleted")
	case stored == eventlog.EpochNone:
		return told("topology description deleted")
	}
	return told("topology description " + itoa(stored) + " stored")
}

func (c *Chronicle) target(id string, v *eventlog.TargetAssignmentMember) []Event {
	next := assignment{active: tasksOfRecord(v.Active, false, 0), standby: tasksOfRecord(v.Standby, false, 0), warmup: tasksOfRecord(v.Warmup, false, 0)}
	if text := difference(c.g.targets[id], next); text != "" {
		return []Event{{Kind: EventTarget, Member: id, Text: "target of " + id + ": " + text}}
	}
	return nil
}

// difference is what came and what went, "" for nothing.
func difference(was, is assignment) string {
	var parts []string
	for _, r := range []struct {
		name    string
		was, is tasks
	}{{"", was.active, is.active}, {"standby ", was.standby, is.standby}, {"warm-up ", was.warmup, is.warmup}} {
		if more := minus(r.is, r.was); len(more) > 0 {
			parts = append(parts, r.name+signed("+", more))
		}
		if less := minus(r.was, r.is); len(less) > 0 {
			parts = append(parts, r.name+signed("−", less))
		}
	}
	return strings.Join(parts, ", ")
}

func (c *Chronicle) step(id string, v *eventlog.CurrentMemberAssignment) []Event {
	was := c.g.memberOrBare(id)
	is := was.withCurrent(v)
	e := Event{Kind: EventStep, Member: id, Epoch: is.epoch}
	if is.epoch == epochStaticLeft {
		e.Text = "member " + id + " left for a while"
		return []Event{e}
	}
	var parts []string
	say := func(what string, t tasks) {
		if len(t) > 0 {
			parts = append(parts, what+" "+signed("", t))
		}
	}
	roles := func(a assignment) tasks { return union(a.active, union(a.standby, a.warmup)) }
	held, holds := union(was.assigned.active, was.revoking.active), union(is.assigned.active, is.revoking.active)
	say("has given up", minus(held, holds))
	say("gets", minus(holds, held))
	say("gets standby", minus(is.assigned.standby, was.assigned.standby))
	say("drops standby", minus(was.assigned.standby, is.assigned.standby))
	say("is told to give up", minus(roles(is.revoking), roles(was.revoking)))
	if is.state == eventlog.MemberUnreleasedTasks {
		waits := minus(c.g.targets[id].active, is.assigned.active)
		if was.state != is.state || !same(waits, minus(c.g.targets[id].active, was.assigned.active)) {
			say("waits for others to give up", waits)
		}
	}
	if is.epoch != was.epoch {
		parts = append(parts, "is at epoch "+itoa(is.epoch))
	}
	if len(parts) == 0 {
		return nil
	}
	e.Text = id + " " + strings.Join(parts, ", ")
	return []Event{e}
}

func (c *Chronicle) tombstone(k eventlog.Key) []Event {
	switch k.Type {
	case eventlog.TypeMember:
		m := c.g.members[k.Member]
		if m == nil {
			return nil
		}
		if i := m.meta.InstanceID; i != nil {
			if c.left == nil {
				c.left = map[string]string{}
			}
			c.left[*i] = k.Member
		}
		e := Event{Kind: EventMember, Member: k.Member, Text: "member " + k.Member + " " + c.Gone}
		return c.cause(e, e.Text)
	case eventlog.TypeGroup:
		if !c.g.exists {
			return nil
		}
		c.causes = nil
		return []Event{{Kind: EventRemoved, Text: "group removed"}}
	}
	return nil
}

// signed prints tasks as Kafka Streams names them, each with a sign before it: "+0_1 +0_2".
func signed(sign string, t tasks) string {
	names := make([]string, 0, min(len(t), namesTold))
	for _, x := range t[:min(len(t), namesTold)] {
		names = append(names, sign+x.sub+"_"+strconv.Itoa(int(x.partition)))
	}
	text := strings.Join(names, " ")
	if more := len(t) - namesTold; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// some prints the first of many names.
func some(names []string) string {
	if more := len(names) - namesTold; more > 0 {
		return strings.Join(names[:namesTold], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
