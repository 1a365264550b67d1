package streams

import (
	"cmp"
	"slices"
	"strings"

	"streamkeeper/eventlog"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// task is one partition of a subtopology. epoch is the assignment epoch at which an active task was given to its
// member; it is 0 in every other set and plays no part in set operations.
type task struct {
	sub       string
	partition int32
	epoch     int32
}

func compareTasks(a, b task) int {
	if c := strings.Compare(a.sub, b.sub); c != 0 {
		return c
	}
	return cmp.Compare(a.partition, b.partition)
}

// tasks is a set, ascending by subtopology and partition. A set is never modified once it is stored in a group.
type tasks []task

// find returns the index of a task.
func (t tasks) find(x task) (int, bool) { return slices.BinarySearchFunc(t, x, compareTasks) }

func (t tasks) has(x task) bool {
	_, ok := t.find(x)
	return ok
}

// walk steps through two sets side by side and calls f with the next task and where it is.
func walk(a, b tasks, f func(x task, inA, inB bool)) {
	for len(a) > 0 || len(b) > 0 {
		c := 0
		switch {
		case len(b) == 0:
			c = -1
		case len(a) == 0:
			c = 1
		default:
			c = compareTasks(a[0], b[0])
		}
		switch {
		case c < 0:
			f(a[0], true, false)
			a = a[1:]
		case c > 0:
			f(b[0], false, true)
			b = b[1:]
		default:
			f(a[0], true, true) // the epoch is a's
			a, b = a[1:], b[1:]
		}
	}
}

// intersect returns the tasks of a that are in b, with a's epochs.
func intersect(a, b tasks) (r tasks) {
	walk(a, b, func(x task, inA, inB bool) {
		if inA && inB {
			r = append(r, x)
		}
	})
	return r
}

// minus returns the tasks of a that are not in b.
func minus(a, b tasks) (r tasks) {
	walk(a, b, func(x task, inA, inB bool) {
		if inA && !inB {
			r = append(r, x)
		}
	})
	return r
}

// union returns the tasks of both; where both have one, the epoch is a's.
func union(a, b tasks) tasks {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	r := make(tasks, 0, len(a)+len(b))
	walk(a, b, func(x task, _, _ bool) { r = append(r, x) })
	return r
}

func overlap(a, b tasks) bool {
	found := false
	walk(a, b, func(_ task, inA, inB bool) { found = found || inA && inB })
	return found
}

// subset says that every task of a is in b.
func subset(a, b tasks) bool {
	all := true
	walk(a, b, func(_ task, inA, inB bool) { all = all && (inB || !inA) })
	return all
}

// same says that both have the same tasks, whatever their epochs.
func same(a, b tasks) bool {
	return slices.EqualFunc(a, b, func(x, y task) bool { return compareTasks(x, y) == 0 })
}

// withEpoch returns a copy in which every task has the epoch.
func (t tasks) withEpoch(epoch int32) tasks {
	r := slices.Clone(t)
	for i := range r {
		r[i].epoch = epoch
	}
	return r
}

// bySubtopology calls f with each subtopology's share of the set.
func (t tasks) bySubtopology(f func(sub string, share tasks)) {
	for len(t) > 0 {
		n := 1
		for n < len(t) && t[n].sub == t[0].sub {
			n++
		}
		f(t[0].sub, t[:n])
		t = t[n:]
	}
}

func (t tasks) partitions() []int32 {
	p := make([]int32, len(t))
	for i, x := range t {
		p[i] = x.partition
	}
	return p
}

// record is the form in records; epochs only for active tasks (AssignmentEpochs of Kafka's value). The partitions of
// all subtopologies lie in one array, as do the epochs: large groups write thousands of sets at once.
func (t tasks) record(epochs bool) []eventlog.TaskIDs {
	if len(t) == 0 {
		return nil
	}
	subs := 0
	t.bySubtopology(func(string, tasks) { subs++ })
	r := make([]eventlog.TaskIDs, 0, subs)
	numbers := make([]int32, 0, 2*len(t))
	take := func(share tasks, number func(task) int32) []int32 {
		from := len(numbers)
		for _, x := range share {
			numbers = append(numbers, number(x))
		}
		return numbers[from:len(numbers):len(numbers)]
	}
	t.bySubtopology(func(sub string, share tasks) {
		ids := eventlog.TaskIDs{SubtopologyID: sub, Partitions: take(share, func(x task) int32 { return x.partition })}
		if epochs {
			ids.Epochs = take(share, func(x task) int32 { return x.epoch })
		}
		r = append(r, ids)
	})
	return r
}

// wire is the form in responses; never nil, because null means "unchanged" there.
func (t tasks) wire() []kmsg.TaskIDs {
	r := []kmsg.TaskIDs{}
	t.bySubtopology(func(sub string, share tasks) {
		ids := kmsg.NewTaskIDs()
		ids.SubtopologyID, ids.Partitions = sub, share.partitions()
		r = append(r, ids)
	})
	return r
}

func (t tasks) sorted() tasks {
	if !slices.IsSortedFunc(t, compareTasks) {
		slices.SortFunc(t, compareTasks)
	}
	return slices.CompactFunc(t, func(a, b task) bool { return compareTasks(a, b) == 0 })
}

// tasksOfRecord reads a list of a record. Where active is set and an entry's epochs are missing or of another
// number than its partitions, each of its tasks gets the member's epoch (TasksTupleWithEpochs of Kafka 4.4).
func tasksOfRecord(list []eventlog.TaskIDs, active bool, memberEpoch int32) tasks {
	n := 0
	for _, ids := range list {
		n += len(ids.Partitions)
	}
	if n == 0 {
		return nil
	}
	t := make(tasks, 0, n)
	for _, ids := range list {
		for i, p := range ids.Partitions {
			x := task{sub: ids.SubtopologyID, partition: p}
			if active {
				x.epoch = memberEpoch
				if len(ids.Epochs) == len(ids.Partitions) {
					x.epoch = ids.Epochs[i]
				}
			}
			t = append(t, x)
		}
	}
	return t.sorted()
}

// tasksOfRequest reads a list of a request; order and repetition do not matter.
func tasksOfRequest(list []kmsg.TaskIDs) (t tasks) {
	for _, ids := range list {
		for _, p := range ids.Partitions {
			t = append(t, task{sub: ids.SubtopologyID, partition: p})
		}
	}
	return t.sorted()
}

// assignment is a set of tasks per role.
type assignment struct{ active, standby, warmup tasks }

func (a assignment) empty() bool { return len(a.active)+len(a.standby)+len(a.warmup) == 0 }

// equal compares epochs too.
func (a assignment) equal(b assignment) bool {
	return slices.Equal(a.active, b.active) && slices.Equal(a.standby, b.standby) && slices.Equal(a.warmup, b.warmup)
}

// same compares without epochs.
func (a assignment) same(b assignment) bool {
	return same(a.active, b.active) && same(a.standby, b.standby) && same(a.warmup, b.warmup)
}

func (a assignment) overlaps(b assignment) bool {
	return overlap(a.active, b.active) || overlap(a.standby, b.standby) || overlap(a.warmup, b.warmup)
}

func (a assignment) within(b assignment) bool {
	return subset(a.active, b.active) && subset(a.standby, b.standby) && subset(a.warmup, b.warmup)
}

func (a assignment) targetRecord() *eventlog.TargetAssignmentMember {
	return &eventlog.TargetAssignmentMember{Active: a.active.record(false), Standby: a.standby.record(false), Warmup: a.warmup.record(false)}
}
