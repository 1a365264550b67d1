package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// checkTasks: two members may work on one task at a time only as long as one of them has not been told yet that it was removed (its session
// ended, nobody reaches it). So it is a violation when one of them is still recognized by a request it sends while the other has
// the task already: an acknowledged heartbeat or commit with a member epoch.
func (h History) checkTasks(r *report, o Options) {
	type task struct{ group, task string }
	byTask := map[task][]Hold{}
	for _, hold := range h.Holds {
		k := task{hold.Group, hold.Task}
		byTask[k] = append(byTask[k], hold)
	}
	recognized := map[[2]string][]Op{}
	for _, op := range h.Ops {
		if op.Outcome == Done && op.Member != "" && op.Sent > 0 && (op.Kind == Heartbeat && op.Epoch > 0 || op.Kind == Commit) {
			k := [2]string{op.Group, op.Member}
			recognized[k] = append(recognized[k], op)
		}
	}
	for k, holds := range byTask {
		slices.SortStableFunc(holds, func(a, b Hold) int { return cmp.Compare(a.From, b.From) })
		for i, a := range holds {
			for _, b := range holds[i+1:] {
				if b.From >= a.To {
					break
				}
				if b.Member == a.Member {
					continue
				}
				if op, ok := recognizedWithin(recognized[[2]string{k.group, a.Member}], b.From+o.Stale, a.To); ok {
					r.add(RuleOneOwner, fmt.Sprintf("%s: %s has task %s from %v to %v, %s from %v to %v, and %v", k.group,
						a.Member, k.task, a.From, a.To, b.Member, b.From, b.To, op), h.around(Op{Begin: a.From}, Op{Begin: b.To}, func(x Op) bool {
						return x.Group == k.group && (x.Member == a.Member || x.Member == b.Member)
					}))
				}
			}
		}
	}
}

// recognizedWithin is the first op of a member, by its beginning, that lies within a time.
func recognizedWithin(ops []Op, from, to time.Duration) (Op, bool) {
	i, _ := slices.BinarySearchFunc(ops, from, func(o Op, t time.Duration) int { return cmp.Compare(o.Begin, t+1) })
	if i < len(ops) && ops[i].End < to {
		return ops[i], true
	}
	return Op{}, false
}
