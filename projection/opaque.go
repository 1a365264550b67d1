package projection

import (
	"bytes"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"streamkeeper/eventlog"
)

// The records of an annex (Config.Opaque): the latest value of each key, whatever it means. Records that do not count are not kept, but
// their keys are, until something that counts is written under them: compaction takes a void record for the latest, so the owner of the
// partition writes the right value again.

func valueKey(p int32, k []byte) key { return append(partitionKey(p, kindValue), k...) }

func voidKey(p int32, k []byte) key { return append(partitionKey(p, kindVoid), k...) }

// opaque applies an entry of an annex.
func (a *apply) opaque(e *eventlog.Entry) error {
	switch {
	case e.Control != eventlog.ControlNone:
		a.after.fence.Void(*e)
		return nil
	case eventlog.IsOwnershipKey(e.Key):
		return a.ownership(e)
	case e.Key == nil: // a compacted topic takes none
		a.after.fence.Void(*e)
		a.counts.unknown++
		return nil
	case a.after.fence.Void(*e) || e.Transactional:
		a.counts.void++
		return storage(a.batch.Set(voidKey(a.part.p, e.Key), binary.BigEndian.AppendUint64(nil, uint64(e.Offset)), nil))
	}
	if err := a.batch.Delete(voidKey(a.part.p, e.Key), nil); err != nil {
		return storage(err)
	}
	if e.Value == nil {
		return storage(a.batch.Delete(valueKey(a.part.p, e.Key), nil))
	}
	a.value = recordValue(a.value[:0], e.Offset, e.Value)
	return storage(a.batch.Set(valueKey(a.part.p, e.Key), a.value, nil))
}

// Value returns the latest value of a key of an annex, as a copy; ok is false where there is none.
func (s *Store) Value(p int32, k []byte) (value []byte, ok bool, err error) {
	err = s.read(p, func(v view) error {
		b, err := get(v.db, valueKey(p, k))
		if err != nil || b == nil {
			return err
		}
		ok = true
		_, value, err = splitRecord(b)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return value, ok, nil
}

// Keys calls f with the keys of an annex that begin with prefix and come after after (all where that is nil), ascending, until f returns
// false. f must not keep the key.
func (s *Store) Keys(p int32, prefix, after []byte, f func(k []byte) bool) error {
	return s.opaqueKeys(p, kindValue, prefix, after, f)
}

// Voids does the same with the keys whose newest record is void.
func (s *Store) Voids(p int32, f func(k []byte) bool) error {
	return s.opaqueKeys(p, kindVoid, nil, nil, f)
}

func (s *Store) opaqueKeys(p int32, kind byte, prefix, after []byte, f func(k []byte) bool) error {
	return s.read(p, func(v view) (err error) {
		lower := append(partitionKey(p, kind), prefix...)
		upper := lower.after()
		if bytes.Compare(after, prefix) >= 0 && after != nil {
			lower = append(append(partitionKey(p, kind), after...), 0)
		}
		it, err := v.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			return err
		}
		defer func() { err = firstError(err, it.Close()) }()
		for valid := it.First(); valid; valid = it.Next() {
			if !f(it.Key()[headBytes:]) {
				break
			}
		}
		return it.Error()
	})
}
