package streams

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"streamkeeper/shard/assignor"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// noOffsets is what a member that reported nothing has.
var noOffsets = &taskOffsets{}

// takeOffsets takes over the changelog positions of the request; a list that is not given keeps the one before.
func (b *beat) takeOffsets() error {
	if b.req.TaskOffsets == nil && b.req.TaskEndOffsets == nil {
		return nil
	}
	next := *noOffsets
	if o := b.g.soft.offsets[b.now.id]; o != nil {
		next = *o
	}
	for _, l := range []struct {
		list []kmsg.TaskOffset
		into *map[assignor.Task]int64
	}{{b.req.TaskOffsets, &next.current}, {b.req.TaskEndOffsets, &next.end}} {
		if l.list == nil {
			continue
		}
		m := make(map[assignor.Task]int64, len(l.list))
		for _, o := range l.list {
			t := assignor.Task{Subtopology: o.SubtopologyID, Partition: o.Partition}
			if _, twice := m[t]; twice {
				return refuse(codeInvalidRequest, "Task offsets contain a duplicate entry for subtopology %s and partition %d.", t.Subtopology, t.Partition)
			}
			m[t] = o.Offset
		}
		*l.into = m
	}
	b.result.Soft.offsetsOf, b.result.Soft.offsets = b.now.id, &next
	return nil
}

// offsetsOf are the positions that a member reported last, this request included.
func (b *beat) offsetsOf(id string) *taskOffsets {
	if s := b.result.Soft; s.offsets != nil && s.offsetsOf == id {
		return s.offsets
	}
	return b.g.offsetsOf(id)
}

func (g *Group) offsetsOf(id string) *taskOffsets {
	if o := g.soft.offsets[id]; o != nil {
		return o
	}
	return noOffsets
}

// wireOffsets is the form in descriptions, ascending by task.
func wireOffsets(m map[assignor.Task]int64) []kmsg.TaskOffset {
	r := make([]kmsg.TaskOffset, 0, len(m))
	for _, t := range slices.SortedFunc(maps.Keys(m), compareAssignorTasks) {
		o := kmsg.NewTaskOffset()
		o.SubtopologyID, o.Partition, o.Offset = t.Subtopology, t.Partition, m[t]
		r = append(r, o)
	}
	return r
}

func compareAssignorTasks(a, b assignor.Task) int {
	return cmp.Or(strings.Compare(a.Subtopology, b.Subtopology), cmp.Compare(a.Partition, b.Partition))
}
