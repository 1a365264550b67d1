package streams

import (
	"slices"

	"streamkeeper/client/explain"
	"streamkeeper/eventlog"
)

// tasksTold bounds the tasks that a reason names, for the same reason as reasonsPerCodeMax.
const tasksTold = 100

// silentHeartbeats is after how many heartbeat intervals without a heartbeat a member is worth a word: one may be late.
const silentHeartbeats = 2

// reconciling says of each member that has not reached its target what it waits for, members ascending by id.
func (x *explaining) reconciling() {
	for _, id := range x.g.memberIDs() {
		m := x.g.members[id]
		if m.reconciledTo(x.g.assignmentEpoch) {
			continue
		}
		switch {
		case m.epoch == epochStaticLeft:
			x.staticOut(m)
		case m.state == eventlog.MemberUnrevokedTasks:
			x.givingUp(m)
		case m.state == eventlog.MemberUnreleasedTasks && x.waiting(m):
		default:
			x.add(explain.Reason{Code: explain.BehindTarget, Member: id, Text: "Member " + id + " has not heard of the new assignment yet; its next heartbeat moves it on."})
		}
	}
}

func (x *explaining) staticOut(m *member) {
	r := explain.Reason{Code: explain.StaticMemberOut, Member: m.id,
		Text: "Static member " + m.id + " left for a while and keeps its tasks until its session ends."}
	if m.meta.InstanceID != nil {
		r.Text = "Static member " + *m.meta.InstanceID + " left for a while and keeps its tasks until its session ends."
	}
	if ms, ok := x.due(TimerKey{Kind: TimerSession, Member: m.id}); ok {
		r.Until = explain.Millis(ms)
	}
	x.add(r)
}

// givingUp: the member has to say that it gave tasks up, or is removed when its time is over.
func (x *explaining) givingUp(m *member) {
	revoking := union(union(m.revoking.active, m.revoking.standby), m.revoking.warmup)
	r := explain.Reason{Code: explain.GivingUpTasks, Member: m.id, Tasks: taskNames(revoking),
		Text: "Member " + m.id + " has to give up tasks " + explain.Names(taskNames(revoking)) + " and has not said that it did.",
		Todo: "A task that is long in processing or closing holds it up; the member is removed when its rebalance time-out (max.poll.interval.ms) is over."}
	if ms, ok := x.due(TimerKey{Kind: TimerRebalance, Member: m.id}); ok {
		r.Since, r.Until = explain.Millis(ms-int64(max(m.meta.RebalanceTimeoutMs, 0))), explain.Millis(ms)
	}
	x.add(r)
}

// waiting: tasks of the member's target are with others. false: they are free by now.
func (x *explaining) waiting(m *member) bool {
	target := x.g.targets[m.id]
	step := reconciliation{g: x.g, m: m, epoch: x.g.assignmentEpoch, target: target}
	var held tasks
	var holders []string
	note := func(wanted, has tasks, unreleased func(task) bool) {
		for _, t := range minus(wanted, has) {
			if !unreleased(t) {
				continue
			}
			held = append(held, t)
			for r := range roles {
				for _, id := range x.g.holders.of[r][taskID{t.sub, t.partition}] {
					if id != m.id && !slices.Contains(holders, id) && len(holders) < tasksTold {
						holders = append(holders, id)
					}
				}
			}
		}
	}
	note(target.active, m.assigned.active, step.unreleasedActive)
	note(target.standby, m.assigned.standby, step.unreleasedStandby)
	note(target.warmup, m.assigned.warmup, step.unreleasedWarmup)
	if len(held) == 0 {
		return false
	}
	slices.Sort(holders)
	names := taskNames(held.sorted())
	x.add(explain.Reason{Code: explain.WaitingForTasks, Member: m.id, Tasks: names, Holders: holders,
		Text: "Member " + m.id + " waits for tasks " + explain.Names(names) + ", held by " + explain.Names(holders) + "."})
	return true
}

// silentMembers are those whose session runs on without a heartbeat.
func (x *explaining) silentMembers() {
	session := x.env.Config.SessionTimeout.Milliseconds()
	patience := silentHeartbeats * x.env.Config.HeartbeatInterval.Milliseconds()
	for _, id := range x.g.memberIDs() {
		m := x.g.members[id]
		ms, ok := x.due(TimerKey{Kind: TimerSession, Member: id})
		if heard := ms - session; ok && m.epoch != epochStaticLeft && x.env.Now-heard > patience {
			x.add(explain.Reason{Code: explain.SilentMember, Member: id, Since: explain.Millis(heard), Until: explain.Millis(ms),
				Text: "Member " + id + " (client " + m.meta.ClientID + ", host " + m.meta.ClientHost + ") is not heard of; it is removed when its session time-out is over."})
		}
	}
}

func (x *explaining) oldTopologies() {
	for _, id := range x.g.memberIDs() {
		if epoch := x.g.members[id].meta.TopologyEpoch; epoch < x.g.TopologyEpoch() {
			x.add(explain.Reason{Code: explain.OldTopology, Member: id,
				Text: "The topology epoch " + itoa(epoch) + " of member " + id + " is behind the group's topology epoch " + itoa(x.g.TopologyEpoch()) + "."})
		}
	}
}

func (x *explaining) missingTags() {
	for _, id := range x.g.memberIDs() {
		missing := missingTags(x.g.members[id], x.env.Config.RackAwareTags)
		if len(missing) > 0 {
			x.add(explain.Reason{Code: explain.MissingClientTags, Member: id,
				Text: "Member " + id + " lacks the client tags " + explain.Names(missing) + ", over which standby tasks are spread.",
				Todo: "Set client.tag.<key> in the application, or take the tags out of group.streams.rack.aware.assignment.tags."})
		}
	}
}

// taskNames names tasks as Kafka Streams does, a bounded number of them.
func taskNames(t tasks) []string {
	var names []string
	for _, x := range t[:min(len(t), tasksTold)] {
		if name := x.sub + "_" + itoa(x.partition); len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	return names
}
