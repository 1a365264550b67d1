package streams

import (
	"maps"
	"slices"

	"streamkeeper/eventlog"
)

// Delete returns the tombstones of the group in the order that Apply demands. A group with members is refused with
// NON_EMPTY_GROUP (*Error).
func (g *Group) Delete() ([]eventlog.Record, error) {
	if len(g.members) > 0 {
		return nil, refuse(codeNonEmptyGroup, "Group %s is not empty.", g.id)
	}
	var records []eventlog.Record
	tombstone := func(t eventlog.Type, member string) {
		records = append(records, eventlog.Record{Key: eventlog.Key{Type: t, Group: g.id, Member: member}})
	}
	for _, id := range slices.Sorted(maps.Keys(g.targets)) { // none unless a log was damaged
		tombstone(eventlog.TypeTargetAssignmentMember, id)
	}
	if g.refusal != nil {
		tombstone(eventlog.TypeDescriptionRefusal, "")
	}
	tombstone(eventlog.TypeTargetAssignment, "")
	tombstone(eventlog.TypeGroup, "")
	tombstone(eventlog.TypeTopology, "")
	return records, nil
}
