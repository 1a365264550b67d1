package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// checkEpochs: an epoch that one answer told stays the least for every answer to what was asked afterwards.
//
// A member's epoch is compared within one membership: a join (Sent 0) and everything of that member id up to its next join. A group's
// epoch is compared until the group was removed.
func (h History) checkEpochs(r *report, o Options) {
	type member struct {
		group, id string
		joins     int // before: a member that joined again may have joined a group that was removed meanwhile
	}
	joins := map[member]int{}
	members, groups := map[member][]Op{}, map[string][]Op{}
	for _, op := range h.Ops {
		whose := member{op.Group, op.Member, 0}
		if op.Kind == Heartbeat && op.Sent == 0 {
			joins[whose]++
		}
		if op.Outcome != Done {
			continue
		}
		switch op.Kind {
		case Heartbeat:
			if op.Epoch > 0 {
				k := member{op.Group, op.Member, joins[whose]}
				members[k] = append(members[k], op)
			}
		case Describe:
			groups[op.Group] = append(groups[op.Group], op)
		}
	}
	// The group's epoch is never below a member's.
	for k, ops := range members {
		groups[k.group] = append(groups[k.group], ops...)
		for a, b := range backwards(ops, o.Stale) {
			r.add(RuleMemberEpoch, fmt.Sprintf("%s: member %s was told epoch %d, and later %d", k.group, k.id, a.Epoch, b.Epoch),
				h.around(a, b, func(x Op) bool { return x.Group == k.group && x.Kind == Heartbeat && x.Member == k.id }))
		}
	}
	for group, ops := range groups {
		for a, b := range backwards(ops, o.Stale) {
			if b.Kind != Describe || h.removedSince(group, a.Begin) {
				continue
			}
			r.add(RuleGroupEpoch, fmt.Sprintf("%s: its epoch was at least %d, and later it was told as %d", group, a.Epoch, b.Epoch),
				h.around(a, b, func(x Op) bool { return x.Group == group && (x.Kind == Heartbeat || x.Kind == Describe) }))
		}
	}
}

// backwards yields pairs of which the second was asked more than stale after the first was answered, with a lower epoch: for each second the
// first with the highest epoch.
func backwards(ops []Op, stale time.Duration) func(yield func(a, b Op) bool) {
	return func(yield func(a, b Op) bool) {
		byEnd := slices.Clone(ops)
		slices.SortStableFunc(byEnd, func(a, b Op) int { return cmp.Compare(a.End, b.End) })
		byBegin := slices.Clone(ops)
		slices.SortStableFunc(byBegin, func(a, b Op) int { return cmp.Compare(a.Begin, b.Begin) })
		var highest *Op
		i := 0
		for _, b := range byBegin {
			for ; i < len(byEnd) && byEnd[i].End+stale < b.Begin; i++ {
				if highest == nil || byEnd[i].Epoch > highest.Epoch {
					highest = &byEnd[i]
				}
			}
			if highest != nil && b.Epoch < highest.Epoch && !yield(*highest, b) {
				return
			}
		}
	}
}

func (h History) removedSince(group string, since time.Duration) bool {
	return slices.ContainsFunc(h.Ops, func(o Op) bool {
		return o.Kind == Remove && o.Group == group && o.Topic == "" && o.Outcome != Refused && (o.Outcome != Done || o.End >= since)
	})
}

// around tells the ops between a and b.
func (h History) around(a, b Op, f func(Op) bool) []string {
	return h.story(func(o Op) bool { return f(o) && o.Begin >= a.Begin && o.Begin <= b.Begin })
}
