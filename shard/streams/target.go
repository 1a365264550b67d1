package streams

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/shard/assignor"
)

// assignors are the known ones by name.
var assignors = map[string]assignor.Assignor{"sticky": assignor.NewSticky()}

const defaultAssignor = "sticky"

// assignorNamed is the assignor of that name, or the default one: a name is checked where it is configured.
func assignorNamed(name string) assignor.Assignor {
	if a, ok := assignors[name]; ok {
		return a
	}
	return assignors[defaultAssignor]
}

// updateTarget decides which target this heartbeat reconciles with, and computes a new one if it is time.
func (b *beat) updateTarget() error {
	g, cfg := b.g, b.env.Config
	delayed := g.soft.delayed
	if len(g.members) == 0 && cfg.InitialRebalanceDelay > 0 && !delayed {
		delayed = true
		b.result.Soft.delay = delayBegins
		b.timer(Timer{Key: TimerKey{Kind: TimerInitial}, After: cfg.InitialRebalanceDelay})
	}
	b.targetEpoch, b.target = g.assignmentEpoch, assignment{}
	if delayed {
		b.status(statusAssignmentDelayed, "Assignment delayed due to the configured initial rebalance delay.")
		return nil
	}
	b.target, _ = b.targetOf(b.now.id)
	if g.assignmentEpoch >= b.meta.Epoch {
		return nil
	}
	if g.assignedLately(b.env.Now, cfg.AssignmentInterval) {
		b.status(statusAssignmentDelayed, "Assignment delayed due to the configured assignment interval.")
		return nil
	}
	t := targeting{
		group: g.id, epoch: b.meta.Epoch, now: b.env.Now, conf: b.conf, members: b.members(),
		configs: b.meta.LastAssignmentConfigs, rackTags: cfg.RackAwareTags, assignor: assignorNamed(cfg.Assignor),
		offsets: b.offsetsOf, before: b.targetOf,
	}
	found, records, err := t.compute()
	if err != nil {
		return err
	}
	b.targetEpoch, b.target = b.meta.Epoch, targetOfAssignor(found[b.now.id])
	b.result.Records = append(b.result.Records, records...)
	return nil
}

// assignedLately says that the last target is younger than the assignment interval. No timer ends that wait: the first heartbeat after it
// computes, as in Kafka 4.4. A target from the future (the owner's clock was set back, or the owner before had another one) holds
// nobody up; with Kafka it does until that time has come.
func (g *Group) assignedLately(now int64, interval time.Duration) bool {
	age := now - g.assignmentTimestamp
	return g.assignmentTimestamp != 0 && age >= 0 && age < interval.Milliseconds()
}

// targetOf is a member's target before this heartbeat; a member that takes another's place has that one's.
func (b *beat) targetOf(id string) (assignment, bool) {
	if b.replaces != "" && id == b.now.id {
		id = b.replaces
	}
	t, ok := b.g.targets[id]
	return t, ok
}

// members are all members with this one as it is now, ascending by id.
func (b *beat) members() []*member {
	var r []*member
	for id, m := range b.g.members {
		if id != b.now.id && id != b.replaces {
			r = append(r, m)
		}
	}
	return sortMembers(append(r, b.now))
}

func sortMembers(m []*member) []*member {
	slices.SortFunc(m, func(a, b *member) int { return strings.Compare(a.id, b.id) })
	return m
}

// targeting is one computation of the targets of a group (TargetAssignmentBuilder of Kafka 4.4).
type targeting struct {
	group    string
	epoch    int32 // of the group
	now      int64
	conf     *configured
	members  []*member // ascending by id
	configs  []eventlog.KeyValue
	rackTags []string
	assignor assignor.Assignor
	offsets  func(id string) *taskOffsets
	before   func(id string) (assignment, bool)
}

// compute returns the target of every member that has tasks, and the records of those that changed with the epoch's behind them.
// While the topology is not ready nobody has any task.
func (t targeting) compute() (found map[string]assignor.Target, records []eventlog.Record, err error) {
	if t.conf.ready() {
		if found, err = t.assignor.Assign(t.spec()); err != nil {
			return nil, nil, refuse(codeUnknownServerError, "Failed to compute a new target assignment for epoch %d: %s", t.epoch, err)
		}
	}
	for _, m := range t.members {
		target := found[m.id]
		before, had := t.before(m.id)
		if had && len(before.warmup) == 0 && before.active.equalsAssignor(target.Active) && before.standby.equalsAssignor(target.Standby) {
			continue
		}
		records = append(records, eventlog.Record{
			Key: eventlog.Key{Type: eventlog.TypeTargetAssignmentMember, Group: t.group, Member: m.id}, Value: targetOfAssignor(target).targetRecord(),
		})
	}
	records = append(records, eventlog.Record{
		Key:   eventlog.Key{Type: eventlog.TypeTargetAssignment, Group: t.group},
		Value: &eventlog.TargetAssignment{AssignmentEpoch: t.epoch, AssignmentTimestamp: t.now},
	})
	return found, records, nil
}

// spec is the assignor's input. What a member is giving up it does not have any more.
func (t targeting) spec() assignor.Spec {
	s := assignor.Spec{Members: make([]assignor.Member, len(t.members)), RackAwareTags: t.rackTags}
	for i, m := range t.members {
		s.Members[i] = assignor.Member{
			MemberID: m.id, ProcessID: m.meta.ProcessID,
			Active: m.assigned.active.assignor(), Standby: m.assigned.standby.assignor(), Warmup: m.assigned.warmup.assignor(),
			TaskOffsets: t.offsets(m.id).current,
		}
		if m.meta.InstanceID != nil {
			s.Members[i].InstanceID = *m.meta.InstanceID
		}
		if m.meta.RackID != nil {
			s.Members[i].RackID = *m.meta.RackID
		}
		if len(m.meta.ClientTags) > 0 {
			s.Members[i].ClientTags = make(map[string]string, len(m.meta.ClientTags))
			for _, kv := range m.meta.ClientTags {
				s.Members[i].ClientTags[kv.Key] = kv.Value
			}
		}
	}
	for _, sub := range t.conf.subs {
		s.Subtopologies = append(s.Subtopologies, assignor.Subtopology{ID: sub.id, Tasks: sub.tasks, Stateful: len(sub.changelogs) > 0})
	}
	for _, kv := range t.configs {
		if kv.Key == configStandbys {
			s.NumStandbyReplicas, _ = strconv.Atoi(kv.Value) // we wrote it as a number; anything else in a log means none
		}
	}
	return s
}

func (t tasks) assignor() assignor.Tasks {
	if len(t) == 0 {
		return nil
	}
	r := make(assignor.Tasks, len(t))
	for i, x := range t {
		r[i] = assignor.Task{Subtopology: x.sub, Partition: x.partition}
	}
	return r
}

// equalsAssignor says that the assignor's set is this one: most members keep their target, and then nothing is built.
func (t tasks) equalsAssignor(a assignor.Tasks) bool {
	if len(t) != len(a) {
		return false
	}
	for i, x := range t {
		if x.partition != a[i].Partition || x.sub != a[i].Subtopology {
			return false
		}
	}
	return true
}

func targetOfAssignor(a assignor.Target) assignment {
	return assignment{active: tasksOfAssignor(a.Active), standby: tasksOfAssignor(a.Standby)}
}

// tasksOfAssignor takes over a set, which an assignor returns in order.
func tasksOfAssignor(a assignor.Tasks) tasks {
	if len(a) == 0 {
		return nil
	}
	t := make(tasks, len(a))
	for i, x := range a {
		t[i] = task{sub: x.Subtopology, partition: x.Partition}
	}
	return t
}
