package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
)

// tasks says of each task that a client has whether it is a standby.
type tasks map[task]bool

func (t tasks) clone() tasks { return maps.Clone(t) }

func (t tasks) equal(o tasks) bool { return maps.Equal(t, o) }

func (t tasks) active(x task) bool {
	standby, has := t[x]
	return has && !standby
}

func compareTasks(a, b task) int {
	return cmp.Or(strings.Compare(a.sub, b.sub), cmp.Compare(a.partition, b.partition))
}

// sorted are the tasks in a role, ascending.
func (t tasks) sorted(standby bool) (list []task) {
	for x, s := range t {
		if s == standby {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, compareTasks)
	return list
}

func (t tasks) String() string {
	return fmt.Sprintf("active %v standby %v", t.sorted(false), t.sorted(true))
}

// wire is a role's tasks as heartbeats list them.
func (t tasks) wire(standby bool) []kmsg.TaskIDs {
	out := []kmsg.TaskIDs{}
	for _, x := range t.sorted(standby) {
		if len(out) == 0 || out[len(out)-1].SubtopologyID != x.sub {
			ids := kmsg.NewTaskIDs()
			ids.SubtopologyID = x.sub
			out = append(out, ids)
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, x.partition)
	}
	return out
}

func tasksOf(active, standby []kmsg.TaskIDs) tasks {
	t := tasks{}
	for i, list := range [][]kmsg.TaskIDs{active, standby} {
		for _, ids := range list {
			for _, p := range ids.Partitions {
				t[task{ids.SubtopologyID, p}] = i == 1
			}
		}
	}
	return t
}

// recorded are the tasks of lists in a record.
func recorded(lists ...[]eventlog.TaskIDs) map[task]bool {
	t := map[task]bool{}
	for _, list := range lists {
		for _, ids := range list {
			for _, p := range ids.Partitions {
				t[task{ids.SubtopologyID, p}] = true
			}
		}
	}
	return t
}

// topologyEpoch is that of the topology that every member brings.
const topologyEpoch = 0

// applicationTopology is what every member brings.
func applicationTopology() *kmsg.StreamsGroupHeartbeatRequestTopology {
	store := kmsg.NewTopicInfo()
	store.Topic = changelog
	return &kmsg.StreamsGroupHeartbeatRequestTopology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{
		{SubtopologyID: sourced, SourceTopics: []string{source}},
		{SubtopologyID: stateful, SourceTopics: []string{side}, StateChangelogTopics: []kmsg.TopicInfo{store}},
	}}
}

// fits says that the topics have all tasks that a heartbeat claims to own, as every replica sees them.
func (w *world) fits(req *kmsg.StreamsGroupHeartbeatRequest) bool {
	for _, r := range w.replicas {
		p := r.running()
		if p == nil {
			return false
		}
		seen := p.topics.Snapshot()
		for _, list := range [][]kmsg.TaskIDs{req.ActiveTasks, req.StandbyTasks} {
			for _, ids := range list {
				for _, p := range ids.Partitions {
					if t, _ := seen.Topic(topicOf(ids.SubtopologyID)); p >= t.Partitions {
						return false
					}
				}
			}
		}
	}
	return true
}

// restored are changelog positions that the client reports.
func (c *client) restored() []kmsg.TaskOffset {
	out := []kmsg.TaskOffset{}
	for _, standby := range []bool{false, true} {
		for _, x := range c.owned.sorted(standby) {
			if x.sub == stateful {
				o := kmsg.NewTaskOffset()
				o.SubtopologyID, o.Partition, o.Offset = x.sub, x.partition, c.rng.Int64N(1000)
				out = append(out, o)
			}
		}
	}
	return out
}

// closingLong is for how long a task may close without that the client hears of anything meanwhile.
const closingLong = time.Second

// reconcile makes what the client owns what it was assigned: first it gives up, which takes time, then it takes.
func (c *client) reconcile() {
	if c.owned.equal(c.assigned) || c.epoch == 0 {
		return
	}
	revoke := tasks{}
	for x, standby := range c.owned {
		if _, keeps := c.assigned[x]; !keeps || !standby && c.assigned[x] {
			revoke[x] = standby
		}
	}
	if len(revoke) > 0 {
		closing := time.Duration(c.rng.Int64N(int64(300 * time.Millisecond)))
		if c.rng.IntN(30) == 0 && !c.w.isCalm() {
			closing = time.Duration(c.rng.Int64N(int64(90 * time.Second))) // a task that does not close in time
		}
		pause(closing)
		if c.killed() {
			return
		}
		c.commit(revoke, c.epoch)
		if closing > closingLong {
			// Its heartbeats went on meanwhile, as those of the Java client do, so that it would have heard of another assignment, or that it is
			// no member any more: what it was assigned before is not what it takes.
			kept := c.owned.clone()
			for x := range revoke {
				delete(kept, x)
				delete(c.position, x)
			}
			c.mu.Lock()
			c.owned = kept
			c.mu.Unlock()
			c.beatAt = time.Now()
			return
		}
	}
	for x, standby := range c.owned {
		if !standby && !c.assigned.active(x) && !c.w.options.sabotages(hoarder) {
			delete(c.position, x)
		}
	}
	owned := c.assigned.clone()
	if c.w.options.sabotages(hoarder) { // says that it gave up, and works on
		for x := range revoke {
			owned[x] = false
		}
	}
	for _, x := range c.assigned.sorted(false) {
		if !c.owned.active(x) {
			c.take(x)
		}
	}
	c.mu.Lock()
	c.owned = owned
	c.mu.Unlock()
	c.beatAt = time.Now()
}

// take checks that nobody else works on the task with a right to.
func (c *client) take(x task) {
	c.w.mu.Lock()
	others := slices.Clone(c.w.clients)
	c.w.mu.Unlock()
	for _, o := range others {
		if o == c || o.group != c.group {
			continue
		}
		o.mu.Lock()
		id, epoch, works := o.id, o.epoch, o.alive && o.owned.active(x) && !o.misled()
		o.mu.Unlock()
		if valid, ok := c.w.checker.memberEpoch(c.group, id); works && ok && valid == epoch {
			c.w.violate("%s: %s takes task %v, and %s works on it at its epoch %d", c.group, c.id, x, id, epoch)
		}
	}
}

// worksOn are the active tasks of the living client that is that member now, with its epoch.
func (w *world) worksOn(group, member string) (active []task, epoch int32) {
	w.mu.Lock()
	clients := slices.Clone(w.clients)
	w.mu.Unlock()
	for _, c := range clients {
		c.mu.Lock()
		if c.group == group && c.id == member && c.alive && !c.misled() {
			active, epoch = c.owned.sorted(false), c.epoch
		}
		c.mu.Unlock()
	}
	return active, epoch
}
