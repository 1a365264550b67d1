package coordinator

import (
	"strconv"

	"streamkeeper/client/explain"
	"streamkeeper/eventlog"
	"streamkeeper/plugin"
)

// explainDescription says where the topology description of a group is, or why it is not there. got is what the plugin answered; nil where it
// was not asked, because nothing is stored.
func (c *Coordinator) explainDescription(d *described, got *plugin.GetResult) {
	e := &d.explain.Description
	epoch := eventlog.EpochNone
	if d.Group.Topology != nil {
		epoch = d.Group.Topology.Epoch
	}
	e.TopologyEpoch, e.StoredEpoch, e.FailedEpoch = epoch, d.Stored, d.Failed
	if c.descriptions == nil {
		e.Cause, e.Text = explain.NoPlugin, "This coordinator keeps no topology descriptions."
		e.Todo = "Start all replicas without --plugin none."
		return
	}
	e.Plugin = c.descriptions.plugin.Name()
	entry, known := c.descriptions.backoff.Entry(d.Group.Group)
	known = known && entry.TopologyEpoch == epoch
	if known {
		e.Asked, e.AskedAt, e.Member, e.Failures = entry.Asked, explain.At(entry.AskedAt), entry.Member, entry.Failures
		e.Lost, e.LostAt, e.NextAsk = entry.Lost, explain.At(entry.LostAt), explain.At(entry.Next)
	}
	switch {
	case epoch < 0:
		e.Cause, e.Text = explain.NoneToAsk, "The group has no topology yet."
	case d.Stored == epoch && got != nil:
		if d.DescribedAt != 0 {
			e.StoredAt = explain.Millis(d.DescribedAt)
		}
		c.explainStored(e, got)
	case d.Failed == epoch:
		e.Cause, e.Text, e.NextAsk = explain.Refused, "The plugin "+e.Plugin+" refused the topology description for good; nobody is asked again.", nil
		if r := d.Refusal; r != nil {
			e.Reason, e.ReasonAt, e.Member = r.Reason, explain.Millis(r.Timestamp), r.Member
			e.Text = "The plugin " + r.Plugin + " refused the topology description for good; nobody is asked again."
		} else {
			e.Text += " Why is not known: it was refused before reasons were recorded."
		}
		e.Todo = "Kafka Streams never changes its topology epoch: cure the reason, then stop the application and delete the group, or run it under another application.id."
	case c.descriptions.pushing.has(d.Group.Group):
		e.Cause, e.Text = explain.Pushing, "A member is pushing the topology description right now."
	case known && entry.Failures > 0 && !entry.AskedAt.After(entry.FailedAt):
		e.Cause, e.Text = explain.Failed, "The last push of the topology description failed for now ("+strconv.Itoa(entry.Failures)+" in a row)."
		e.Reason, e.ReasonAt = entry.Failure, explain.At(entry.FailedAt)
		e.Todo = "Look at the plugin's backend; the member is asked again."
	default:
		c.explainUnanswered(e, d, entry, known)
	}
}

// explainStored: the log says that the plugin has it.
func (c *Coordinator) explainStored(e *explain.Description, got *plugin.GetResult) {
	switch {
	case got.Description != nil:
		e.Cause, e.Text = explain.Stored, "The topology description is stored."
	case got.Outcome.OK():
		e.Cause, e.Text = explain.Lost, "The topology description was stored, and the plugin "+e.Plugin+" does not have it any more."
		if e.Todo = "With --plugin-reask-lost its members would be asked again."; c.descriptions.reask {
			e.Todo = "Its members are asked again."
		}
	default:
		e.Cause, e.Text = explain.Unavailable, "The topology description is stored, and the plugin "+e.Plugin+" can't be read right now."
		e.Reason, e.Todo = got.Outcome.Message, "Look at the plugin's backend and the coordinator's log."
	}
}

// explainUnanswered: nothing is stored, nothing was refused, and no push failed.
func (c *Coordinator) explainUnanswered(e *explain.Description, d *described, entry plugin.BackoffEntry, known bool) {
	members := len(d.Group.Members)
	switch {
	case known && entry.Asked == 1 && c.cfg.Now().Before(entry.Next):
		e.Cause, e.Text = explain.Waiting, "A member was asked for the topology description and has not pushed it yet."
	case known && entry.Asked > 0:
		e.Cause, e.Text = explain.NoAnswer, "The members do not answer: they were asked for the topology description and did not push it."
		e.Todo = "Check topology.description.push.enabled of the application, and its log."
	case members == 0:
		e.Cause, e.Text = explain.NobodyThere, "The group has no members that could be asked for the topology description."
	case d.SpeakOld && !d.SpeakDesc:
		e.Cause, e.Text = explain.OldClient, "The members can't be asked for the topology description: their client is older than Kafka 4.4."
	case d.Current == 0:
		e.Cause, e.Text = explain.AllBehind, "No member runs the group's topology, so none can be asked for its description."
	case known && entry.Lost > 0:
		e.Cause, e.Text = explain.NeverAsked, "The plugin "+e.Plugin+" lost the topology description; a member is going to be asked again."
	default:
		e.Cause, e.Text = explain.NeverAsked, "Nobody was asked for the topology description yet; the next heartbeat of a member is."
	}
}
