package projection

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// GroupReader reads groups of one partition one after the other, all as they are at one moment. It is for one goroutine, and is of use only
// within the call that gave it.
type GroupReader interface {
	// Group returns what Reader.Group does.
	Group(group string) ([]Stored, error)
	// Offsets calls back as Reader.Offsets does. Groups in ascending order cost least.
	Offsets(group string, f func(Stored) bool) error
	// Pending calls back as Reader.Pending does.
	Pending(group string, f func(producerID int64, s Stored) bool) error
}

// ReadMany implements Reader.
func (s *Store) ReadMany(p int32, f func(GroupReader) error) error {
	return s.read(p, func(v view) error { return v.many(f) })
}

func (v view) many(f func(GroupReader) error) (err error) {
	first, err := v.iterator()
	if err != nil {
		return err
	}
	its := []*pebble.Iterator{first}
	defer func() {
		for _, it := range its {
			err = errors.Join(err, it.Close())
		}
	}()
	for range 4 { // an iterator for each kind of key: one that goes back and forth between kinds reads other blocks each time
		it, err := first.Clone(pebble.CloneOptions{})
		if err != nil {
			return err
		}
		its = append(its, it)
	}
	pending := partitionKey(v.p, kindPending)
	m := &manyReader{groups: groupReader{v.p, its[0], its[1], its[2], its[3]}, offsets: walk{it: its[4]}}
	m.somePending = its[1].SeekGEWithLimit(pending, pending.after()) == pebble.IterValid && bytes.HasPrefix(its[1].Key(), pending)
	if err := its[1].Error(); err != nil {
		return err
	}
	return f(m)
}

// manyReader is the GroupReader of a view.
type manyReader struct {
	groups      groupReader
	offsets     walk
	last        string // whose offsets were read last
	somePending bool   // of any group; as good as always there is nothing
}

func (m *manyReader) Group(group string) ([]Stored, error) { return m.groups.read(group) }

func (m *manyReader) Offsets(group string, f func(Stored) bool) error {
	if group <= m.last {
		m.offsets.placed = false
	}
	m.last = group
	return m.offsets.offsets(partitionKey(m.groups.p, kindOffset).str(group), f)
}

func (m *manyReader) Pending(group string, f func(int64, Stored) bool) error {
	if !m.somePending {
		return nil
	}
	return pendingWith(m.groups.members, m.groups.p, group, f)
}
