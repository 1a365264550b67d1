package history

import (
	"fmt"
	"maps"
	"slices"

	"streamkeeper/eventlog"
)

// checkEpochOrder: in the records that count, the epoch of a group, of its target assignment and of its topology, and that of each member, only grow, until
// the group, or the member, is removed.
func checkEpochOrder(r *report, j Judged) {
	for _, p := range slices.Sorted(maps.Keys(j.Records)) {
		last := map[eventlog.Key]Stood{}
		for _, s := range j.Records[p] {
			if s.Void {
				continue
			}
			now, rule, ok := epochIn(s.Record.Value)
			if !ok {
				if s.Record.Value == nil {
					delete(last, s.Record.Key)
				}
				continue
			}
			if now < 0 { // a static member that left, and will be back under another id
				delete(last, s.Record.Key)
				continue
			}
			if before, there := last[s.Record.Key]; there {
				if was, _, _ := epochIn(before.Record.Value); now < was {
					r.add(rule, fmt.Sprintf("%s: epoch %d is followed by %d in the log", s.Record.Key.Group, was, now), []string{before.String(), s.String()})
				}
			}
			last[s.Record.Key] = s
		}
	}
}

// epochIn is the epoch that a record carries, and the rule that it is under.
func epochIn(v eventlog.Value) (epoch int32, rule string, ok bool) {
	switch v := v.(type) {
	case *eventlog.Group:
		return v.Epoch, RuleGroupEpoch, true
	case *eventlog.TargetAssignment:
		return v.AssignmentEpoch, RuleGroupEpoch, true
	case *eventlog.Topology:
		return v.Epoch, RuleGroupEpoch, true
	case *eventlog.CurrentMemberAssignment:
		return v.MemberEpoch, RuleMemberEpoch, true
	}
	return 0, "", false
}
