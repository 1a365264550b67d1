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
	beside := walk{it: offsets}
	end := prefix.after() // not to be looked behind, see scanWith
	for state := groups.SeekGEWithLimit(first, end); state == pebble.IterValid && bytes.HasPrefix(groups.Key(), prefix); state = groups.NextWithLimit(end) {
		k := readKey(groups.Key())
		group := k.str()
		if err := k.end(kindGroup); err != nil {
			return err
		}
		mine := partitionKey(v.p, kindOffset).str(group)
		var failed error
		more := f(group, func(f func(Stored) bool) error {
			failed = beside.offsets(mine, f)
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

// walk is an iterator over offsets that goes on from where it stands.
type walk struct {
	it     *pebble.Iterator
	placed bool // it stands somewhere: at a key, or at the limit of the last call
	state  pebble.IterValidityState
}

// offsets calls f with the offsets whose keys begin with prefix. Prefixes must come in ascending order.
func (w *walk) offsets(prefix key, f func(Stored) bool) error {
	end := prefix.after()
	for n := 0; w.placed; n++ {
		if w.state == pebble.IterValid && bytes.Compare(w.it.Key(), prefix) >= 0 {
			break
		}
		if n == nearMax || w.state == pebble.IterExhausted {
			w.placed = false
			break
		}
		if w.state = w.it.NextWithLimit(end); w.state == pebble.IterAtLimit {
			break
		}
	}
	if !w.placed {
		w.state, w.placed = w.it.SeekGEWithLimit(prefix, end), true
	}
	for ; w.state == pebble.IterValid && bytes.HasPrefix(w.it.Key(), prefix); w.state = w.it.NextWithLimit(end) {
		k := readKey(w.it.Key())
		ok := readOffsetKey(k)
		if err := k.end(kindOffset); err != nil {
			return err
		}
		b, err := w.it.ValueAndErr()
		if err != nil {
			return err
		}
		s, err := stored(ok, b)
		if err != nil {
			return err
		}
		if !f(s) {
			return w.it.Error()
		}
	}
	return w.it.Error()
}
