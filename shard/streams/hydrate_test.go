package streams

import (
	"slices"
	"strings"

	"streamkeeper/eventlog"
)

// hydrationOrder is the order of types in which a projection hands out a group.
var hydrationOrder = []eventlog.Type{
	eventlog.TypeTopology, eventlog.TypeGroup, eventlog.TypeMember, eventlog.TypeCurrentMemberAssignment, eventlog.TypeTargetAssignmentMember, eventlog.TypeTargetAssignment,
	eventlog.TypeDescriptionRefusal,
}

// compacted is what is left of a log when only the last value of each key is, in the order of hydration.
func compacted(log []eventlog.Record) []eventlog.Record {
	last := map[eventlog.Key]eventlog.Value{}
	for _, r := range log {
		last[r.Key] = r.Value
	}
	var left []eventlog.Record
	for k, v := range last {
		if v != nil {
			left = append(left, eventlog.Record{Key: k, Value: v})
		}
	}
	slices.SortFunc(left, func(a, b eventlog.Record) int {
		if c := slices.Index(hydrationOrder, a.Key.Type) - slices.Index(hydrationOrder, b.Key.Type); c != 0 {
			return c
		}
		return strings.Compare(a.Key.Member, b.Key.Member)
	})
	return left
}

// storedRecords are the records that a projection would hold of a group.
func storedRecords(g *Group) []eventlog.Record {
	key := func(t eventlog.Type, member string) eventlog.Key {
		return eventlog.Key{Type: t, Group: g.id, Member: member}
	}
	meta := g.meta
	all := []eventlog.Record{
		{Key: key(eventlog.TypeTopology, ""), Value: g.topology.value}, {Key: key(eventlog.TypeGroup, ""), Value: &meta},
		{Key: key(eventlog.TypeTargetAssignment, ""), Value: &eventlog.TargetAssignment{AssignmentEpoch: g.assignmentEpoch, AssignmentTimestamp: g.assignmentTimestamp}},
	}
	for id, m := range g.members {
		all = append(all, eventlog.Record{Key: key(eventlog.TypeMember, id), Value: m.meta}, eventlog.Record{Key: key(eventlog.TypeCurrentMemberAssignment, id), Value: m.currentRecord()})
	}
	for id, t := range g.targets {
		all = append(all, eventlog.Record{Key: key(eventlog.TypeTargetAssignmentMember, id), Value: t.targetRecord()})
	}
	return compacted(all)
}
