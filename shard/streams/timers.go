package streams

import (
	"time"

	"streamkeeper/eventlog"
)

func cancelTimer(kind TimerKind, member string) Timer {
	return Timer{Key: TimerKey{Kind: kind, Member: member}, After: -1}
}

// rebalanceTimer starts the time a member has to give tasks up, or ends it.
func rebalanceTimer(m *member) Timer {
	if m.state != eventlog.MemberUnrevokedTasks {
		return cancelTimer(TimerRebalance, m.id)
	}
	// A negative time-out ends at once, as it does in Kafka; it must not be taken for a cancellation.
	after := max(0, time.Duration(m.meta.RebalanceTimeoutMs)*time.Millisecond)
	return Timer{Key: TimerKey{Kind: TimerRebalance, Member: m.id}, After: after, Epoch: m.epoch}
}

// Fire handles the expiry of a timer. What it was started for may be gone; then nothing happens. Result.Response is nil.
func (g *Group) Fire(env Env, t Timer) Result {
	m := g.members[t.Key.Member]
	switch t.Key.Kind {
	case TimerSession:
		if m != nil {
			return g.remove(m)
		}
	case TimerRebalance:
		if m != nil && m.epoch == t.Epoch {
			return g.remove(m)
		}
	case TimerInitial:
		return g.endDelay(env)
	}
	return Result{}
}

// endDelay ends the initial rebalance delay: all who joined meanwhile get their targets at once. Where the topology is not
// configured (the group was hydrated meanwhile), or for other topics than those of the record, the next heartbeat does it.
func (g *Group) endDelay(env Env) Result {
	if !g.soft.delayed {
		return Result{}
	}
	r := Result{Soft: Soft{delay: delayEnds}}
	if !g.exists || len(g.members) == 0 || g.soft.configured == nil || g.soft.configured.hash != g.meta.MetadataHash || g.assignmentEpoch >= g.meta.Epoch {
		return r
	}
	t := targeting{
		group: g.id, epoch: g.meta.Epoch, now: env.Now, conf: g.soft.configured,
		configs: g.meta.LastAssignmentConfigs, rackTags: env.Config.RackAwareTags, assignor: assignorNamed(env.Config.Assignor),
		offsets: g.offsetsOf, before: func(id string) (assignment, bool) { a, ok := g.targets[id]; return a, ok },
	}
	for _, id := range g.memberIDs() {
		t.members = append(t.members, g.members[id])
	}
	_, records, err := t.compute()
	if err != nil {
		return r // the next heartbeat tries again and can tell somebody
	}
	r.Records = records
	return r
}

// Restore returns the timers of a group that was hydrated: sessions at full length, and for those who are giving tasks up
// the time they have for it. The initial delay is not restored: a group that was waiting gets its target at the next heartbeat.
func (g *Group) Restore(env Env) []Timer {
	var timers []Timer
	for _, id := range g.memberIDs() {
		m := g.members[id]
		timers = append(timers, Timer{Key: TimerKey{Kind: TimerSession, Member: id}, After: env.Config.SessionTimeout})
		if m.state == eventlog.MemberUnrevokedTasks {
			timers = append(timers, rebalanceTimer(m))
		}
	}
	return timers
}
