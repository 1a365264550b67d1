package client

import (
	"time"

	"streamkeeper/client/explain"
)

// Explain is the coordinator's explanation, or where it gave none (it is not streamkeeper, or was not asked) what follows from the
// description alone.
func (d *GroupDescription) Explain() *explain.Group {
	if d.Explanation != nil {
		return d.Explanation
	}
	g := &explain.Group{Format: explain.Format, At: time.Now(), State: d.State, Reasons: []explain.Reason{}}
	add := func(code explain.Code, member, text, todo string) {
		g.Reasons = append(g.Reasons, explain.Reason{Code: code, Member: member, Text: text, Todo: todo})
	}
	switch d.State {
	case "Empty":
		add(explain.NoMembers, "", "The group has no members.", "")
	case "NotReady":
		add(explain.Untold, "", "Topics are missing, or their partition counts do not fit; the coordinator does not say which.", "The application's log has what its members are told.")
	case "Assigning":
		add(explain.Untold, "", "The new assignment is not computed yet.", "")
	case "Reconciling":
		for _, m := range d.Members {
			switch {
			case m.Assignment.Equal(m.Target):
			case m.Epoch < d.AssignmentEpoch:
				add(explain.BehindTarget, m.ID, "Member "+m.ID+" is still at an older assignment: it has not heard of the new one, or has tasks to give up.", "")
			default:
				add(explain.WaitingForTasks, m.ID, "Member "+m.ID+" waits for tasks that others hold.", "")
			}
		}
	}
	g.Description = d.explainStatus()
	return g
}

// explainStatus is what a status says of itself.
func (d *GroupDescription) explainStatus() explain.Description {
	e := explain.Description{Cause: explain.NotTold, TopologyEpoch: d.TopologyEpoch, StoredEpoch: -1, FailedEpoch: -1}
	switch d.TopologyStatus {
	case TopologyAvailable:
		e.Cause, e.Text, e.StoredEpoch = explain.Stored, "The topology description is stored.", d.TopologyEpoch
	case TopologyFailed:
		e.Cause, e.Text = explain.Unavailable, "The topology description is stored, and the coordinator can't read it."
		e.Todo = "The broker's log says why."
	case TopologyNotStored:
		e.Text = "No topology description is stored, and the coordinator does not say why: it keeps none, or no member has pushed one."
		e.Todo = "Check group.streams.topology.description.plugin.class of the brokers, and topology.description.push.enabled of the application."
	case TopologyNotRequested:
		e.Text = "The topology description was not asked for."
	}
	return e
}
