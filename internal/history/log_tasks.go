package history

import (
	"fmt"
	"maps"
	"slices"

	"streamkeeper/eventlog"
)

// checkTasksInLog: an active task belongs to one member at a time, from where its current assignment names it until that says no more of it
// (it was given back) or is removed (the member left or was expired). A task that is being revoked is its member's still.
func checkTasksInLog(r *report, j Judged) {
	type task struct {
		group, subtopology string
		partition          int32
	}
	type member struct{ group, id string }
	for _, p := range slices.Sorted(maps.Keys(j.Records)) {
		owner := map[task]Stood{}
		tasksOf := map[member][]task{}
		for _, s := range j.Records[p] {
			if s.Void || s.Record.Key.Type != eventlog.TypeCurrentMemberAssignment {
				continue
			}
			m := member{s.Record.Key.Group, s.Record.Key.Member}
			for _, t := range tasksOf[m] {
				delete(owner, t)
			}
			delete(tasksOf, m)
			v, ok := s.Record.Value.(*eventlog.CurrentMemberAssignment)
			if !ok {
				continue
			}
			for _, ids := range append(slices.Clone(v.Active), v.ActivePendingRevocation...) {
				for _, partition := range ids.Partitions {
					t := task{m.group, ids.SubtopologyID, partition}
					if before, taken := owner[t]; taken && before.Record.Key.Member != m.id {
						r.add(RuleOneOwner, fmt.Sprintf("%s: task %s_%d is given to %s while it is %s's", t.group, t.subtopology, t.partition, m.id, before.Record.Key.Member),
							[]string{before.String(), s.String()})
						continue
					}
					owner[t] = s
					tasksOf[m] = append(tasksOf[m], t)
				}
			}
		}
	}
}
