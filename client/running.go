package client

import (
	"cmp"
	"slices"
	"strings"

	"streamkeeper/client/topology"
)

// RunningTask is a task and a member that runs it, or is to.
type RunningTask struct {
	Subtopology string `json:"subtopology"`
	Task        string `json:"task"`
	Partition   int32  `json:"partition"`
	Role        string `json:"role"` // active, standby, warm-up
	// Pending says that the member is to have the task and has not been given it yet.
	Pending   bool   `json:"pending,omitempty"`
	Member    string `json:"member"`
	ClientID  string `json:"clientId"`
	Host      string `json:"host"`
	ProcessID string `json:"processId"`
}

// RunningTasks says who runs what: every task that a member has or is to have, sorted by subtopology (as numbers where they are), partition,
// role and member.
func (d *GroupDescription) RunningTasks() []RunningTask {
	out := []RunningTask{}
	for i := range d.Members {
		m := &d.Members[i]
		add := func(role string, now, target []TaskID) {
			for _, t := range now {
				out = append(out, RunningTask{t.Subtopology, t.String(), t.Partition, role, false, m.ID, m.ClientID, m.Host, m.ProcessID})
			}
			for _, t := range target {
				if !slices.Contains(now, t) {
					out = append(out, RunningTask{t.Subtopology, t.String(), t.Partition, role, true, m.ID, m.ClientID, m.Host, m.ProcessID})
				}
			}
		}
		add("active", m.Assignment.Active, m.Target.Active)
		add("standby", m.Assignment.Standby, m.Target.Standby)
		add("warm-up", m.Assignment.Warmup, m.Target.Warmup)
	}
	slices.SortFunc(out, func(a, b RunningTask) int {
		return cmp.Or(topology.CompareIDs(a.Subtopology, b.Subtopology), cmp.Compare(a.Partition, b.Partition), strings.Compare(a.Role, b.Role),
			pendingLast(a.Pending, b.Pending), strings.Compare(a.Member, b.Member))
	})
	return out
}

func pendingLast(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// RunningNotes are the tasks and their members as notes of a drawing.
func (d *GroupDescription) RunningNotes() topology.Notes {
	notes := topology.Notes{}
	for _, t := range d.RunningTasks() {
		role := t.Role
		if t.Pending {
			role += " to be"
		}
		notes[t.Subtopology] = append(notes[t.Subtopology], t.Task+" "+role+" "+t.ClientID+" ("+t.Member+")")
	}
	return notes
}
