package streams

import "slices"

// taskID names a task without its epoch, as a map key.
type taskID struct {
	sub       string
	partition int32
}

// role is what a member does with a task.
type role int8

const (
	roleActive role = iota
	roleStandby
	roleWarmup
	roles
)

// holders says which members hold a task in which role, tasks pending revocation included: a member gives
// a task up only when it says so. It follows from the members alone, so it is the same live and after hydration.
type holders struct {
	of [roles]map[taskID][]string // member ids; nearly always one
}

func newHolders() holders {
	var h holders
	for r := range h.of {
		h.of[r] = map[taskID][]string{}
	}
	return h
}

// replace takes a member's tasks out and those of its successor in; either may be nil.
func (h holders) replace(old, next *member) {
	if old != nil {
		h.each(old, func(r role, id taskID) {
			l := h.of[r][id]
			if i := slices.Index(l, old.id); i >= 0 {
				if len(l) == 1 {
					delete(h.of[r], id)
				} else {
					h.of[r][id] = slices.Delete(l, i, i+1)
				}
			}
		})
	}
	if next != nil {
		h.each(next, func(r role, id taskID) {
			if l := h.of[r][id]; !slices.Contains(l, next.id) {
				h.of[r][id] = append(l, next.id)
			}
		})
	}
}

func (h holders) each(m *member, f func(role, taskID)) {
	for r, sets := range [roles][2]tasks{
		{m.assigned.active, m.revoking.active}, {m.assigned.standby, m.revoking.standby}, {m.assigned.warmup, m.revoking.warmup},
	} {
		for _, set := range sets {
			for _, x := range set {
				f(role(r), taskID{x.sub, x.partition})
			}
		}
	}
}

// anywhere says that some member holds the task in the role.
func (g *Group) anywhere(r role, x task) bool {
	return len(g.holders.of[r][taskID{x.sub, x.partition}]) > 0
}

// inProcess says that some member of the process does.
func (g *Group) inProcess(r role, x task, process string) bool {
	for _, id := range g.holders.of[r][taskID{x.sub, x.partition}] {
		if g.members[id].meta.ProcessID == process {
			return true
		}
	}
	return false
}
