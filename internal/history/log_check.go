package history

import (
	"cmp"
	"fmt"
	"slices"

	"streamkeeper/eventlog"
)

// CheckLog looks for acknowledgements that the log does not bear out. The log must have been read after the last of them. It also returns what
// it made of the log.
func (h History) CheckLog(l Log) (Judged, []Violation) {
	j, bad := l.Judge()
	r := &report{all: bad}
	h.checkCommitsInLog(r, j)
	h.checkEpochsInLog(r, j)
	checkTasksInLog(r, j)
	checkEpochOrder(r, j)
	return j, r.all
}

// written is where a value of a register was written.
type written struct {
	Stood
	offset int64 // None: removed
	used   bool
}

func (h History) checkCommitsInLog(r *report, j Judged) {
	inLog := map[key][]*written{}
	for _, records := range j.Records {
		for _, s := range records {
			if s.Record.Key.Type != eventlog.TypeOffsetCommit {
				continue
			}
			w := &written{Stood: s, offset: None}
			if v, ok := s.Record.Value.(*eventlog.OffsetCommit); ok {
				w.offset = v.Offset
			}
			k := key{s.Record.Key.Group, s.Record.Key.Topic, s.Record.Key.Partition}
			inLog[k] = append(inLog[k], w)
		}
	}
	acked := map[key][]Op{}
	for _, op := range h.Ops {
		if op.Kind == Commit && op.Outcome == Done {
			acked[op.key()] = append(acked[op.key()], op)
		}
	}
	for _, k := range sortedKeys(acked) {
		h.placeCommits(r, k, acked[k], inLog[k])
	}
}

// placeCommits finds the record of each acknowledged commit: one that counts and has its value, for each another one, and in such an order that
// what was acknowledged before another was sent stands before it. Ops are placed by when they were acknowledged, each as far to
// the front as it goes.
func (h History) placeCommits(r *report, k key, ops []Op, records []*written) {
	slices.SortStableFunc(ops, func(a, b Op) int { return cmp.Compare(a.End, b.End) })
	placed := make([]int64, len(ops))
	story := func(op Op) []string {
		lines := h.story(func(o Op) bool { return o.key() == k && o.Kind == Commit && o.Begin <= op.End })
		if len(lines) > storyMax/2 {
			lines = lines[len(lines)-storyMax/2:]
		}
		for _, w := range records[max(0, len(records)-storyMax/2):] {
			lines = append(lines, w.String())
		}
		return lines
	}
	for i, op := range ops {
		after := int64(-1)
		for n, earlier := range ops[:i] {
			if earlier.End < op.Begin {
				after = max(after, placed[n])
			}
		}
		find := func(ok func(*written) bool) *written {
			for _, w := range records {
				if w.offset == op.Offset && ok(w) {
					return w
				}
			}
			return nil
		}
		counts := func(w *written) bool { return !w.Void && !w.used }
		its := func(w *written) bool {
			return op.Node == NodeUnknown || w.Tenure != nil && w.Tenure.NodeID == op.Node
		}
		w := find(func(w *written) bool { return counts(w) && its(w) && w.Offset > after })
		if w == nil {
			switch {
			case find(func(w *written) bool { return counts(w) && w.Offset > after }) != nil:
				r.add(RuleAnswerer, fmt.Sprintf("%s: %v stands only in tenures of others", k, op), story(op))
			case find(counts) != nil:
				r.add(RuleLogOrder, fmt.Sprintf("%s: %v stands before what was acknowledged before it", k, op), story(op))
			case find(func(w *written) bool { return w.Void }) != nil:
				r.add(RuleInLog, fmt.Sprintf("%s: %v is void", k, op), story(op))
			default:
				r.add(RuleInLog, fmt.Sprintf("%s: %v is nowhere in the log", k, op), story(op))
			}
			placed[i] = after
			continue
		}
		w.used, placed[i] = true, w.Offset
	}
}

func (h History) checkEpochsInLog(r *report, j Judged) {
	type epoch struct {
		group, member string // "" for the group's own
		epoch         int32
	}
	counted := map[epoch]bool{}
	void := map[epoch]Stood{}
	for _, records := range j.Records {
		for _, s := range records {
			e := epoch{group: s.Record.Key.Group}
			switch v := s.Record.Value.(type) {
			case *eventlog.CurrentMemberAssignment:
				e.member, e.epoch = s.Record.Key.Member, v.MemberEpoch
			case *eventlog.Group:
				e.epoch = v.Epoch
			default:
				continue
			}
			if s.Void {
				void[e] = s
			} else {
				counted[e] = true
			}
		}
	}
	for _, op := range h.Ops {
		e := epoch{op.Group, op.Member, op.Epoch}
		if op.Outcome != Done || op.Epoch <= 0 || op.Kind != Heartbeat && op.Kind != Describe || counted[e] {
			continue
		}
		story := h.story(func(o Op) bool {
			return o.Group == op.Group && o.Kind == op.Kind && o.Member == op.Member && o.Begin <= op.Begin
		})
		if s, ok := void[e]; ok {
			r.add(RuleInLog, fmt.Sprintf("%s: %v, and its record is void", op.Group, op), append(story, s.String()))
			continue
		}
		r.add(RuleInLog, fmt.Sprintf("%s: %v, and no record has that epoch", op.Group, op), story)
	}
}
