package history

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// register is a committed offset: commits set it, removals make it None, fetches say what it is.
var register = porcupine.Model{
	Init: func() any { return None },
	Step: func(state, input, output any) (bool, any) {
		op := input.(Op)
		switch op.Kind {
		case Commit:
			return true, op.Offset
		case Remove:
			return true, None
		}
		return state.(int64) == op.Offset, state
	},
	Equal: func(a, b any) bool { return a.(int64) == b.(int64) },
}

// checkOffsets checks every register by itself: linearizability of all of them together follows from that of each.
func (h History) checkOffsets(r *report, o Options) {
	byKey := map[key][]Op{}
	for _, op := range h.Ops {
		switch {
		case op.Kind != Commit && op.Kind != Fetch && op.Kind != Remove:
		case op.Outcome == Refused, op.Kind == Fetch && op.Outcome != Done:
		default:
			byKey[op.key()] = append(byKey[op.key()], op)
		}
	}
	for _, k := range sortedKeys(byKey) {
		h.checkRegister(r, k, byKey[k], o.DecideWithin)
	}
}

func (h History) checkRegister(r *report, k key, ops []Op, within time.Duration) {
	var in []porcupine.Operation
	for _, op := range relevant(ops) {
		// Whoever waits for no answer any more may see the effect at any time after.
		end := int64(math.MaxInt64)
		if op.Outcome == Done {
			end = int64(op.End)
		}
		in = append(in, porcupine.Operation{Input: op, Call: int64(op.Begin), Return: end})
	}
	of := func(o Op) bool {
		return o.key() == k && (o.Kind == Commit || o.Kind == Fetch || o.Kind == Remove) && o.Outcome != Refused
	}
	switch porcupine.CheckOperationsTimeout(register, in, within) {
	case porcupine.Illegal:
		what, until := firstIllegal(in, within)
		r.add(RuleLinearizable, k.String()+": "+what, h.story(func(o Op) bool { return of(o) && o.Begin <= until }))
	case porcupine.Unknown:
		r.add(RuleUndecided, fmt.Sprintf("%s: no order of %d operations was found or excluded within %v", k, len(in), within), h.story(of))
	}
}

// relevant leaves out writes without an answer whose value nobody ever saw: where such a write has no effect nothing else changes. It keeps the
// search short, for each of them may stand anywhere behind its beginning.
func relevant(ops []Op) []Op {
	seen := map[int64]bool{}
	for _, op := range ops {
		if op.Kind == Fetch {
			seen[op.Offset] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(ops), func(op Op) bool {
		value := op.Offset
		if op.Kind == Remove {
			value = None
		}
		return op.Kind != Fetch && op.Outcome != Done && !seen[value]
	})
}

// firstIllegal finds the first answer after which there is no order any more.
func firstIllegal(in []porcupine.Operation, within time.Duration) (string, time.Duration) {
	// What had not ended by then stays as if without an answer.
	cut := func(end int64) []porcupine.Operation {
		var out []porcupine.Operation
		for _, op := range in {
			if op.Call > end {
				continue
			}
			if op.Return > end {
				if op.Input.(Op).Kind == Fetch {
					continue
				}
				op.Return = math.MaxInt64
			}
			out = append(out, op)
		}
		return out
	}
	ends := []int64{}
	for _, op := range in {
		if op.Return != math.MaxInt64 {
			ends = append(ends, op.Return)
		}
	}
	slices.Sort(ends)
	// A prefix of a history that has an order has one, so the first that has none can be searched by halves.
	i, _ := slices.BinarySearchFunc(ends, 0, func(end int64, _ int) int {
		if porcupine.CheckOperationsTimeout(register, cut(end), within) == porcupine.Illegal {
			return 1
		}
		return -1
	})
	if i == len(ends) {
		return "there is no order in which these answers are right", math.MaxInt64
	}
	var at []string
	for _, op := range in {
		if op.Return == ends[i] {
			at = append(at, op.Input.(Op).String())
		}
	}
	return "nothing explains " + strings.Join(at, " and "), time.Duration(ends[i])
}

func sortedKeys[V any](m map[key]V) []key {
	ks := make([]key, 0, len(m))
	for k := range m {
		ks = append(ks, k)
	}
	slices.SortFunc(ks, func(a, b key) int { return strings.Compare(a.String(), b.String()) })
	return ks
}
