package projection

import (
	"github.com/cockroachdb/pebble/v2"

	"streamkeeper/eventlog"
)

// Snapshot is the store at one moment, for work that goes through all groups off the shards' loops. It holds space on
// disk back until it is closed.
type Snapshot struct {
	e       *engine
	db      *pebble.Snapshot
	applied map[int32]int64 // of the partitions that can be read
}

// Snapshot returns the store as it is now. Close it.
func (s *Store) Snapshot() (*Snapshot, error) {
	e, err := s.current()
	if err != nil {
		return nil, err
	}
	if err := e.err(); err != nil {
		e.release()
		return nil, err
	}
	return newSnapshot(e, s.marks(e)), nil
}

// mark is where a partition stood.
type mark struct {
	part     *partition
	applied  int64
	restarts uint64
}

// marks are those of the partitions that can be read.
func (s *Store) marks(e *engine) []mark {
	var marks []mark
	for _, part := range s.parts {
		if n, ok := part.readable(e.number); ok {
			marks = append(marks, mark{part, s.Applied(part.p), n})
		}
	}
	return marks
}

// newSnapshot takes the snapshot after the marks, so that everything below them is in it. A partition that was forgotten
// in between has another number of restarts.
func newSnapshot(e *engine, marks []mark) *Snapshot {
	sn := &Snapshot{e: e, db: e.db.NewSnapshot(), applied: map[int32]int64{}}
	for _, m := range marks {
		if n, ok := m.part.readable(e.number); ok && n == m.restarts {
			sn.applied[m.part.p] = m.applied
		}
	}
	return sn
}

// Close gives the snapshot back.
func (sn *Snapshot) Close() error {
	err := sn.db.Close()
	sn.e.release()
	return err
}

func (sn *Snapshot) read(p int32, f func(view) error) error {
	if _, ok := sn.applied[p]; !ok {
		return ErrLoading
	}
	return sn.e.failed(f(view{sn.db, p}))
}

// Applied is the first offset of p that may not be in the snapshot.
func (sn *Snapshot) Applied(p int32) int64 { return sn.applied[p] }

// Group returns what Store.Group does.
func (sn *Snapshot) Group(p int32, group string) (records []Stored, err error) {
	err = sn.read(p, func(v view) error {
		records, err = v.group(group)
		return err
	})
	return records, err
}

// Groups returns what Store.Groups does.
func (sn *Snapshot) Groups(p int32, f func(group string) bool) error {
	return sn.read(p, func(v view) error { return v.groups(f) })
}

// GroupsWithMembers returns what Store.GroupsWithMembers does.
func (sn *Snapshot) GroupsWithMembers(p int32, f func(group string) bool) error {
	return sn.read(p, func(v view) error { return v.groupsWithMembers(f) })
}

// GroupsWithOffsets calls f with each group that has a committed offset, ascending by id, until f returns false. There may
// be no other record of such a group.
func (sn *Snapshot) GroupsWithOffsets(p int32, f func(group string) bool) error {
	return sn.read(p, func(v view) error { return v.groupsWithOffsets(f) })
}

// Offset returns what Store.Offset does.
func (sn *Snapshot) Offset(p int32, group, topic string, partition int32) (st Stored, ok bool, err error) {
	k := eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: group, Topic: topic, Partition: partition}
	err = sn.read(p, func(v view) error {
		st, ok, err = v.offset(k)
		return err
	})
	return st, ok && err == nil, err
}

// Offsets returns what Store.Offsets does.
func (sn *Snapshot) Offsets(p int32, group string, f func(Stored) bool) error {
	return sn.read(p, func(v view) error { return v.offsets(group, f) })
}
