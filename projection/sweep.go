package projection

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// GroupsAndOffsets calls f with each streams group whose id is above after, ascending, until f returns false. offsets calls back with its
// committed offsets, as Offsets does, and is for use within f. All is of one moment. It costs one scan of both, where Groups and Offsets cost a search
// for each group.
func (s *Store) GroupsAndOffsets(p int32, after string, f func(group string, offsets func(func(Stored) bool) error) bool) error {
	return s.read(p, func(v view) error { return v.groupsAndOffsets(after, f) })
}

func (v view) groupsAndOffsets(after string, f func(string, func(func(Stored) bool) error) bool) (err error) {
	groups, err := v.db.NewIter(&pebble.IterOptions{LowerBound: partitionPrefix(v.p), UpperBound: partitionEnd(v.p)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, groups.Close()) }()
	offsets, err := groups.Clone(pebble.CloneOptions{}) // of the same moment
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, offsets.Close()) }()

	prefix := partitionKey(v.p, kindGroup)
	first := prefix
	if after != "" {
		first = partitionKey(v.p, kindGroup).str(after).after()
	}
	placed := false // offsets stands somewhere
	for valid := groups.SeekGE(first); valid && bytes.HasPrefix(groups.Key(), prefix); valid = groups.Next() {
		k := readKey(groups.Key())
		group := k.str()
		if err := k.end(kindGroup); err != nil {
			return err
		}
		mine := partitionKey(v.p, kindOffset).str(group)
		var failed error
		more := f(group, func(f func(Stored) bool) error {
			failed = offsetsAt(offsets, mine, &placed, f)
			return failed
		})
		if failed != nil {
			return failed
		}
		if !more {
			return nil
		}
	}
	return groups.Error()
}

// nearMax is how many keys are stepped over before a search is cheaper: offsets of a group that nobody asked for, or of none.
const nearMax = 16

// offsetsAt calls f with the offsets whose keys begin with prefix. The iterator is behind those of groups before.
func offsetsAt(it *pebble.Iterator, prefix key, placed *bool, f func(Stored) bool) error {
	valid := *placed && it.Valid()
	for n := 0; valid && bytes.Compare(it.Key(), prefix) < 0; n++ {
		if n == nearMax {
			valid = false
			break
		}
		valid = it.Next()
	}
	if !valid {
		valid = it.SeekGE(prefix)
		*placed = true
	}
	for ; valid && bytes.HasPrefix(it.Key(), prefix); valid = it.Next() {
		k := readKey(it.Key())
		ok := readOffsetKey(k)
		if err := k.end(kindOffset); err != nil {
			return err
		}
		b, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		s, err := stored(ok, b)
		if err != nil {
			return err
		}
		if !f(s) {
			return it.Error()
		}
	}
	return it.Error()
}
