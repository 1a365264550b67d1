package assignor

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
)

// none is the index of no member.
const none int32 = -1

// placement is an assignment in the making. Members, processes and tasks are indexes into slices; those of members
// and tasks are ascending by id, so comparing indexes is comparing ids. A task's index is that of its subtopology's
// first task plus its partition.
type placement struct {
	members   []member
	processes []process

	subtopologies []string
	stateful      []bool
	firstTask     []int32 // by subtopology; one more entry: the number of tasks
	standbys      int     // wanted per stateful task
	lastFound     int     // index of the subtopology that was looked up last

	prevActive []int32       // by task: the member that has it active
	candidates [][]candidate // by task: the members that have state of it, best first

	active  []int32   // by task: its member
	standby [][]int32 // by task: its members

	// Quotas are the fair share of what is not placed yet among the members that have not reached theirs: when one
	// does, it leaves the calculation. They limit sticky placements only.
	quotaActive, quotaAll     int
	totalActive, totalAll     int
	membersActive, membersAll int
}

type member struct {
	id      string
	process int32
	count   int // tasks given so far, active and standby
}

type process struct {
	members []int32 // in the order in which ties are broken
	tasks   int
	heap    minHeap // members by count; nil: to be built
}

// load is the number of tasks per member.
func (p *process) load() float64 { return float64(p.tasks) / float64(len(p.members)) }

type candidate struct {
	member  int32
	standby bool // has the task as a standby now
	offset  int64
}

func newPlacement(spec Spec, order order) *placement {
	p := &placement{standbys: max(0, spec.NumStandbyReplicas)}
	p.addSubtopologies(spec.Subtopologies)
	p.addMembers(spec.Members, order)
	p.membersActive, p.membersAll = len(p.members), len(p.members)
	p.quotaActive = ceilDiv(p.totalActive, p.membersActive)
	p.quotaAll = ceilDiv(p.totalAll, p.membersAll)
	return p
}

func (p *placement) addSubtopologies(subtopologies []Subtopology) {
	sorted := slices.SortedFunc(slices.Values(subtopologies), func(a, b Subtopology) int { return cmp.Compare(a.ID, b.ID) })
	p.firstTask = append(p.firstTask, 0)
	for _, s := range sorted {
		n := max(0, s.Tasks)
		p.subtopologies = append(p.subtopologies, s.ID)
		p.stateful = append(p.stateful, s.Stateful)
		p.firstTask = append(p.firstTask, p.firstTask[len(p.firstTask)-1]+n)
		p.totalActive += int(n)
		p.totalAll += int(n)
		if s.Stateful {
			p.totalAll += int(n) * p.standbys
		}
	}
	p.active = slices.Repeat([]int32{none}, p.totalActive)
	p.standby = make([][]int32, p.totalActive)
	p.prevActive = slices.Repeat([]int32{none}, p.totalActive)
	p.candidates = make([][]candidate, p.totalActive)
}

func (p *placement) addMembers(members []Member, order order) {
	sorted := slices.SortedFunc(slices.Values(members), func(a, b Member) int { return cmp.Compare(a.MemberID, b.MemberID) })
	byProcess := map[string][]string{}
	ofMembers := make([]string, 0, len(sorted))
	for i, m := range sorted {
		ofMembers = append(ofMembers, m.ProcessID)
		byProcess[m.ProcessID] = append(byProcess[m.ProcessID], m.MemberID)
		p.members = append(p.members, member{id: m.MemberID})
		p.addHistory(int32(i), m)
	}
	p.processes = make([]process, len(byProcess))
	for i, id := range order.processes(ofMembers) {
		for _, memberID := range order.members(byProcess[id]) {
			m, _ := slices.BinarySearchFunc(p.members, memberID, func(m member, id string) int { return cmp.Compare(m.id, id) })
			p.members[m].process = int32(i)
			p.processes[i].members = append(p.processes[i].members, int32(m))
		}
	}
	for _, c := range p.candidates {
		slices.SortStableFunc(c, func(a, b candidate) int {
			if a.standby != b.standby {
				if a.standby {
					return -1
				}
				return 1
			}
			return cmp.Compare(b.offset, a.offset)
		})
	}
}

// addHistory notes what the member has now. Tasks that the topology has not (any more) are ignored.
func (p *placement) addHistory(i int32, m Member) {
	for _, x := range m.Active {
		if t := p.task(x); t != none {
			p.prevActive[t] = i // where several claim a task, the last one counts
		}
	}
	for _, x := range m.Standby {
		if t := p.task(x); t != none {
			p.candidates[t] = append(p.candidates[t], candidate{i, true, m.TaskOffsets[x]})
		}
	}
	for x, offset := range m.TaskOffsets {
		t := p.task(x)
		if t == none {
			continue
		}
		if c := p.candidates[t]; len(c) > 0 && c[len(c)-1].member == i {
			continue // listed as a standby
		}
		p.candidates[t] = append(p.candidates[t], candidate{i, false, offset})
	}
}

// task is the index of a task, none if the topology has no such task. Sets are sorted, so the subtopology is most often that of
// the task before.
func (p *placement) task(x Task) int32 {
	s := p.lastFound
	if s >= len(p.subtopologies) || p.subtopologies[s] != x.Subtopology {
		var ok bool
		if s, ok = slices.BinarySearch(p.subtopologies, x.Subtopology); !ok {
			return none
		}
		p.lastFound = s
	}
	if x.Partition < 0 || x.Partition >= p.firstTask[s+1]-p.firstTask[s] {
		return none
	}
	return p.firstTask[s] + x.Partition
}

func (p *placement) subtopologyOf(t int32) int {
	return sort.Search(len(p.subtopologies), func(s int) bool { return p.firstTask[s+1] > t })
}

// taskName is the task as Kafka prints it.
func (p *placement) taskName(t int32) string {
	s := p.subtopologyOf(t)
	return fmt.Sprintf("%s_%d", p.subtopologies[s], t-p.firstTask[s])
}

// tasksByPartition lists all tasks by partition, then subtopology, so that a quota is used up evenly over the
// subtopologies.
func (p *placement) tasksByPartition() []int32 {
	tasks := make([]int32, 0, len(p.active))
	for partition := int32(0); len(tasks) < cap(tasks); partition++ {
		for s := range p.subtopologies {
			if t := p.firstTask[s] + partition; t < p.firstTask[s+1] {
				tasks = append(tasks, t)
			}
		}
	}
	return tasks
}

// holds says that some member of the process was given the task.
func (p *placement) holds(process, t int32) bool {
	if m := p.active[t]; m != none && p.members[m].process == process {
		return true
	}
	return slices.ContainsFunc(p.standby[t], func(m int32) bool { return p.members[m].process == process })
}

// place gives the task to the member. sticky says that the member was chosen for what it has, not from the
// process's heap, which is then out of date.
func (p *placement) place(t, m int32, active, sticky bool) {
	if active {
		p.active[t] = m
	} else {
		p.standby[t] = append(p.standby[t], m)
	}
	mem := &p.members[m]
	mem.count++
	pr := &p.processes[mem.process]
	pr.tasks++
	if sticky {
		pr.heap = nil
	} else if len(pr.members) > 1 {
		pr.heap.push(entry{float64(mem.count), m})
	}
	if active && mem.count == p.quotaActive {
		p.membersActive--
		p.totalActive -= mem.count
		p.quotaActive = ceilDiv(p.totalActive, p.membersActive)
	}
	if mem.count == p.quotaAll {
		p.membersAll--
		p.totalAll -= mem.count
		p.quotaAll = ceilDiv(p.totalAll, p.membersAll)
	}
}

// leastLoaded takes the member with the fewest tasks out of the process's heap; place puts it back. A process has at
// least one member, so Kafka's "No member available to assign active task" can't happen here.
func (p *placement) leastLoaded(i int32) int32 {
	pr := &p.processes[i]
	if len(pr.members) == 1 {
		return pr.members[0]
	}
	if pr.heap == nil {
		for _, m := range pr.members {
			pr.heap.push(entry{float64(p.members[m].count), m})
		}
	}
	return pr.heap.pop().index
}

func (p *placement) processHeap() minHeap {
	heap := make(minHeap, 0, len(p.processes))
	for i := range p.processes {
		heap.push(p.processEntry(int32(i)))
	}
	return heap
}

func (p *placement) processEntry(i int32) entry { return entry{p.processes[i].load(), i} }

// targets is the result, by member id. Every member has an entry. All sets lie side by side in one array, each with no room to
// grow.
func (p *placement) targets() map[string]Target {
	active, standby := make([]int, len(p.members)), make([]int, len(p.members))
	all := 0
	for t, m := range p.active {
		if m != none {
			active[m]++
			all++
		}
		for _, m := range p.standby[t] {
			standby[m]++
			all++
		}
	}
	room := make(Tasks, all)
	take := func(n int) (set Tasks) {
		if n > 0 {
			set, room = room[:0:n], room[n:]
		}
		return set
	}
	sets := make([]Target, len(p.members))
	for i := range sets {
		sets[i] = Target{Active: take(active[i]), Standby: take(standby[i])}
	}
	for s, id := range p.subtopologies {
		for t := p.firstTask[s]; t < p.firstTask[s+1]; t++ {
			x := Task{id, t - p.firstTask[s]}
			if m := p.active[t]; m != none {
				sets[m].Active = append(sets[m].Active, x)
			}
			for _, m := range p.standby[t] {
				sets[m].Standby = append(sets[m].Standby, x)
			}
		}
	}
	result := make(map[string]Target, len(p.members))
	for i := range sets {
		result[p.members[i].id] = sets[i]
	}
	return result
}

// ceilDiv is ⌈total/n⌉, 0 for n = 0. A member that reaches a risen quota again is counted twice, as in Kafka, so
// both numbers can become negative; then the quota is too, and nothing sticks any more.
func ceilDiv(total, n int) int {
	if n == 0 {
		return 0
	}
	q := total / n
	if total%n > 0 {
		q++
	}
	return q
}
