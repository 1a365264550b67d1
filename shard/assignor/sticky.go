package assignor

import (
	"cmp"
	"fmt"
	"slices"
)

// StickyName is the name of the built-in assignor, as clients see it and group.streams.assignors names it.
const StickyName = "sticky"

// order says in which order the processes, and the members of one process, are gone through where Kafka iterates
// hash maps. Ties between equally loaded ones are broken by it.
type order struct {
	processes func(ofMembers []string) []string // from the process id of each member, each process once
	members   func(ids []string) []string       // of one process
}

// ascending is our order. It does not depend on hash values, so that anyone can follow an assignment by hand.
var ascending = order{
	processes: func(ofMembers []string) []string { return slices.Compact(slices.Sorted(slices.Values(ofMembers))) },
	members:   func(ids []string) []string { return slices.Sorted(slices.Values(ids)) },
}

type sticky struct{ order order }

// NewSticky returns Kafka 4.4's assignor "sticky" (StickyTaskAssignor). A task stays with its active owner, else
// goes to a member that has its state, else to the least loaded process; standbys likewise. Rack ids, client tags
// and warm-up tasks have no part in it, as in Kafka.
//
// Assign gives the same result as Kafka's class for the same iteration order of members and processes, which here
// is ascending by id (Kafka: that of hash maps). It fails only where there are tasks and no members.
func NewSticky() Assignor { return sticky{ascending} }

func (sticky) Name() string { return StickyName }

func (a sticky) Assign(spec Spec) (map[string]Target, error) {
	p := newPlacement(spec, a.order)
	p.restoreActive(p.keepActive(p.tasksByPartition()))
	if err := p.spreadActive(); err != nil {
		return nil, err
	}
	if p.standbys > 0 {
		p.spreadStandbys(p.keepStandbys())
	}
	return p.targets(), nil
}

// keepActive is pass 1: each task to the member that has it active, within the quota. It returns the tasks left.
func (p *placement) keepActive(tasks []int32) []int32 {
	left := tasks[:0]
	for _, t := range tasks {
		if m := p.prevActive[t]; m != none && p.members[m].count < p.quotaActive {
			p.place(t, m, true, true)
		} else {
			left = append(left, t)
		}
	}
	return left
}

// restoreActive is pass 2: each task to the best member that has state of it, within the quota. Only the best one is
// tried: the next best would cost more restoring than it saves.
func (p *placement) restoreActive(tasks []int32) {
	for _, t := range tasks {
		if m := p.best(t, false); m != none && p.members[m].count < p.quotaActive {
			p.place(t, m, true, true)
		}
	}
}

// spreadActive is pass 3: what is left goes to the least loaded process, whatever its quota.
func (p *placement) spreadActive() error {
	heap := p.processHeap()
	for t := range int32(len(p.active)) { // by subtopology, then partition
		if p.active[t] != none {
			continue
		}
		if len(heap) == 0 {
			return fmt.Errorf("No process available to assign active task %s.", p.taskName(t)) //nolint:staticcheck // Kafka's text
		}
		process := heap.pop().index
		p.place(t, p.leastLoaded(process), true, false)
		heap.push(p.processEntry(process))
	}
	return nil
}

// wanted is a task that still lacks standbys.
type wanted struct {
	task     int32
	replicas int
}

// keepStandbys is the sticky part of the standby phase: a standby goes to the former active owner if the task has
// left it (S1), else to the best member with state of it (S2). It returns what is still wanted.
func (p *placement) keepStandbys() []wanted {
	tasks := p.tasksByPartition()
	slices.Reverse(tasks)
	var left []wanted
	for _, t := range tasks {
		if !p.stateful[p.subtopologyOf(t)] {
			continue
		}
		for i := range p.standbys {
			if m := p.prevActive[t]; m != none && !p.holds(p.members[m].process, t) && p.members[m].count < p.quotaAll {
				p.place(t, m, false, true)
				continue
			}
			if m := p.best(t, true); m != none && p.members[m].count < p.quotaAll {
				p.place(t, m, false, true)
				continue
			}
			left = append(left, wanted{t, p.standbys - i})
			break
		}
	}
	return left
}

// spreadStandbys gives what is still wanted to the least loaded processes that lack the task (S3). Where every
// process has it already the remaining replicas are not placed: two copies in one process protect from nothing.
func (p *placement) spreadStandbys(queue []wanted) {
	slices.SortFunc(queue, func(a, b wanted) int { return cmp.Compare(b.task, a.task) })
	heap := p.processHeap()
	var tried []int32
	for _, w := range queue {
		for range w.replicas {
			tried = tried[:0]
			placed := false
			for !placed && len(heap) > 0 {
				process := heap.pop().index
				tried = append(tried, process)
				if !p.holds(process, w.task) {
					p.place(w.task, p.leastLoaded(process), false, false)
					placed = true
				}
			}
			// Kafka tries the next process by recursion and puts each back on the way out: the last one first.
			for _, process := range slices.Backward(tried) {
				heap.push(p.processEntry(process))
			}
			if !placed {
				break
			}
		}
	}
}

// best is the member with the best claim to the task: the first candidate, unless a later one has both a less loaded
// process and fewer tasks. With lacking set, members of a process that has the task already don't count.
func (p *placement) best(t int32, lacking bool) int32 {
	held := none
	for _, c := range p.candidates[t] {
		m := &p.members[c.member]
		if lacking && p.holds(m.process, t) {
			continue
		}
		if held == none ||
			p.processes[m.process].load() < p.processes[p.members[held].process].load() && m.count < p.members[held].count {
			held = c.member
		}
	}
	return held
}
