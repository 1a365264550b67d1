package projection

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"streamkeeper/eventlog"
)

// view reads the records of a partition from a Pebble reader: the store as it is, or a snapshot.
type view struct {
	db pebble.Reader
	p  int32
}

// get returns a copy of the value of a key, nil if there is none.
func get(db pebble.Reader, k key) ([]byte, error) {
	b, closer, err := db.Get(k)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, len(b)), b...) // not nil for an empty value
	return out, closer.Close()
}

// scan calls f with the keys that begin with prefix until f returns false. The key reader stands behind the kind.
func scan(db pebble.Reader, prefix key, f func(k *keyReader, value []byte) (bool, error)) (err error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefix.after()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	return scanWith(it, prefix, f)
}

// scanWith is scan with an iterator: what several calls see is of one moment. It never looks behind the prefix: what follows there may be a hundred
// thousand keys that were deleted, and are stepped over one by one until a compaction has removed them.
func scanWith(it *pebble.Iterator, prefix key, f func(k *keyReader, value []byte) (bool, error)) error {
	end := prefix.after()
	for state := it.SeekGEWithLimit(prefix, end); state == pebble.IterValid && bytes.HasPrefix(it.Key(), prefix); state = it.NextWithLimit(end) {
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if more, err := f(readKey(it.Key()), value); err != nil || !more {
			return err
		}
	}
	return it.Error()
}

// group reads the records of a streams group in the order of hydration: the topology, the group, its members, the assignments, and
// its configuration. They are those of one moment.
func (v view) group(group string) (out []Stored, err error) {
	it, err := v.iterator()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	return groupReader{v.p, it, it, it, it}.read(group)
}

// groupsToHydrate calls f with the records of each group with members, as group returns them, ascending by id. All are those of one moment.
func (v view) groupsToHydrate(f func(group string, records []Stored) bool) (err error) {
	var ids []string
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
	if err := namesWith(first, partitionKey(v.p, kindMember), func(id string) bool { ids = append(ids, id); return true }); err != nil {
		return err
	}
	// Each kind of key has an iterator of its own, which only goes forward: that is a scan, where a new one for each group would be a search.
	for range 3 {
		it, err := first.Clone(pebble.CloneOptions{})
		if err != nil {
			return err
		}
		its = append(its, it)
	}
	r := groupReader{v.p, its[0], its[1], its[2], its[3]}
	for _, id := range ids {
		records, err := r.read(id)
		if err != nil {
			return err
		}
		if !f(id, records) {
			return nil
		}
	}
	return nil
}

// iterator is one over all keys of the partition.
func (v view) iterator() (*pebble.Iterator, error) {
	return v.db.NewIter(&pebble.IterOptions{LowerBound: partitionPrefix(v.p), UpperBound: partitionEnd(v.p)})
}

// groupReader reads the records of groups with an iterator for each kind of key; they may be one and the same.
type groupReader struct {
	p                                int32
	groups, members, records, config *pebble.Iterator
}

func (r groupReader) read(group string) (out []Stored, err error) {
	collect := func(it *pebble.Iterator, kind byte, into *[]Stored, read func(k *keyReader) eventlog.Key) error {
		return scanWith(it, partitionKey(r.p, kind).str(group), func(k *keyReader, value []byte) (bool, error) {
			rk := read(k)
			if err := k.end(kind); err != nil {
				return false, err
			}
			if rk.Type == eventlog.TypeClassicGroup {
				return true, nil
			}
			s, err := stored(rk, value)
			*into = append(*into, s)
			return true, err
		})
	}
	if err := collect(r.groups, kindGroup, &out, func(k *keyReader) eventlog.Key {
		return eventlog.Key{Type: eventlog.TypeGroup, Group: k.str()}
	}); err != nil {
		return nil, err
	}
	if err := collect(r.members, kindMember, &out, func(k *keyReader) eventlog.Key {
		return eventlog.Key{Type: eventlog.TypeMember, Group: k.str(), Member: k.str()}
	}); err != nil {
		return nil, err
	}
	var records []Stored
	if err := collect(r.records, kindRecord, &records, func(k *keyReader) eventlog.Key {
		rk := eventlog.Key{Group: k.str()}
		rk.Type = typeOfRank[k.byte()]
		switch rk.Type {
		case eventlog.TypeCurrentMemberAssignment, eventlog.TypeTargetAssignmentMember:
			rk.Member = k.str()
		}
		return rk
	}); err != nil {
		return nil, err
	}
	if len(records) > 0 && records[0].Record.Key.Type == eventlog.TypeTopology {
		out = append(records[:1:1], out...)
		records = records[1:]
	}
	out = append(out, records...)
	err = collect(r.config, kindConfig, &out, func(k *keyReader) eventlog.Key {
		return eventlog.Key{Type: eventlog.TypeGroupConfig, Group: k.str()}
	})
	return out, err
}

// names calls f with the first string of each key of a kind and prefix, once per string, ascending.
func (v view) names(prefix key, f func(string) bool) (err error) {
	it, err := v.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefix.after()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	return namesWith(it, prefix, f)
}

// namesWith is names with an iterator; as scanWith it never looks behind the prefix.
func namesWith(it *pebble.Iterator, prefix key, f func(string) bool) error {
	end := prefix.after()
	for state := it.SeekGEWithLimit(prefix, end); state == pebble.IterValid && bytes.HasPrefix(it.Key(), prefix); {
		k := keyReader{rest: it.Key()[len(prefix):]}
		name := k.str()
		if k.bad {
			return fmt.Errorf("%w: key of kind %q", errDamaged, prefix[headBytes-1])
		}
		if !f(name) {
			return nil
		}
		if len(k.rest) == 0 {
			state = it.NextWithLimit(end)
		} else { // more of the same name
			state = it.SeekGEWithLimit(append(key(nil), prefix...).str(name).after(), end)
		}
	}
	return it.Error()
}

func (v view) groupConfig(group string) (map[string]string, error) {
	k := eventlog.Key{Type: eventlog.TypeGroupConfig, Group: group}
	b, err := get(v.db, recordKey(v.p, k))
	if err != nil || b == nil {
		return nil, err
	}
	s, err := stored(k, b)
	if err != nil {
		return nil, err
	}
	return s.Record.Value.(*eventlog.GroupConfig).Configs, nil
}

func (v view) groupsWithConfig(f func(string) bool) error {
	return v.names(partitionKey(v.p, kindConfig), f)
}

// count is the number of keys of a kind.
func (v view) count(kind byte) (n int64, err error) {
	prefix := partitionKey(v.p, kind)
	it, err := v.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefix.after()})
	if err != nil {
		return 0, err
	}
	for valid := it.First(); valid; valid = it.Next() {
		n++
	}
	return n, it.Close()
}

func (v view) groups(f func(string) bool) error { return v.names(partitionKey(v.p, kindGroup), f) }

func (v view) groupsWithMembers(f func(string) bool) error {
	return v.names(partitionKey(v.p, kindMember), f)
}

func (v view) groupsWithOffsets(f func(string) bool) error {
	return v.names(partitionKey(v.p, kindOffset), f)
}

func (v view) groupsOfTopic(topic string, f func(string) bool) error {
	return v.names(partitionKey(v.p, kindTopic).str(topic), f)
}

func (v view) offset(k eventlog.Key) (Stored, bool, error) {
	b, err := get(v.db, recordKey(v.p, k))
	if err != nil || b == nil {
		return Stored{}, false, err
	}
	s, err := stored(k, b)
	return s, err == nil, err
}

func readOffsetKey(k *keyReader) eventlog.Key {
	return eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: k.str(), Topic: k.str(), Partition: k.int32()}
}

func (v view) offsets(group string, f func(Stored) bool) error {
	return scan(v.db, partitionKey(v.p, kindOffset).str(group), func(k *keyReader, value []byte) (bool, error) {
		ok := readOffsetKey(k)
		if err := k.end(kindOffset); err != nil {
			return false, err
		}
		s, err := stored(ok, value)
		return err == nil && f(s), err
	})
}

func (v view) pending(group string, f func(int64, Stored) bool) (err error) {
	it, err := v.iterator()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	return pendingWith(it, v.p, group, f)
}

// pendingWith is pending with an iterator.
func pendingWith(it *pebble.Iterator, p int32, group string, f func(int64, Stored) bool) error {
	return scanWith(it, partitionKey(p, kindPending).str(group), func(k *keyReader, value []byte) (bool, error) {
		ok := readOffsetKey(k)
		producerID := k.int64()
		if err := k.end(kindPending); err != nil {
			return false, err
		}
		s, err := stored(ok, value)
		return err == nil && f(producerID, s), err
	})
}

// read calls f with the records of p. While p is read again after a rebuild, or when that began during the call, the
// error is ErrLoading: what f saw may be a part.
func (s *Store) read(p int32, f func(view) error) error {
	part, err := s.part(p)
	if err != nil {
		return err
	}
	e, err := s.current()
	if err != nil {
		return err
	}
	defer e.release()
	if err := e.err(); err != nil {
		return err
	}
	restarts, ok := part.readable(e.number)
	if !ok {
		return fmt.Errorf("%w: partition %d", ErrLoading, p)
	}
	if err := e.failed(f(view{e.db, p})); err != nil {
		return err
	}
	if now, ok := part.readable(e.number); !ok || now != restarts {
		return fmt.Errorf("%w: partition %d", ErrLoading, p)
	}
	return nil
}

func (part *partition) readable(engine int) (restarts uint64, ok bool) {
	part.mu.Lock()
	defer part.mu.Unlock()
	return part.restarts, part.engine == engine && !part.loading
}

// Group implements Reader.
func (s *Store) Group(p int32, group string) (records []Stored, err error) {
	err = s.read(p, func(v view) error {
		records, err = v.group(group)
		return err
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// HasGroup implements Reader.
func (s *Store) HasGroup(p int32, group string) (has bool, err error) {
	err = s.read(p, func(v view) error {
		b, err := get(v.db, recordKey(p, eventlog.Key{Type: eventlog.TypeGroup, Group: group}))
		has = b != nil
		return err
	})
	return has && err == nil, err
}

// GroupConfig implements Reader.
func (s *Store) GroupConfig(p int32, group string) (configs map[string]string, err error) {
	err = s.read(p, func(v view) error {
		configs, err = v.groupConfig(group)
		return err
	})
	if err != nil {
		return nil, err
	}
	return configs, nil
}

// GroupsWithConfig implements Reader.
func (s *Store) GroupsWithConfig(p int32, f func(group string) bool) error {
	return s.read(p, func(v view) error { return v.groupsWithConfig(f) })
}

// Groups implements Reader.
func (s *Store) Groups(p int32, f func(group string) bool) error {
	return s.read(p, func(v view) error { return v.groups(f) })
}

// GroupsWithMembers implements Reader.
func (s *Store) GroupsWithMembers(p int32, f func(group string) bool) error {
	return s.read(p, func(v view) error { return v.groupsWithMembers(f) })
}

// GroupsToHydrate implements Reader.
func (s *Store) GroupsToHydrate(p int32, f func(group string, records []Stored) bool) error {
	return s.read(p, func(v view) error { return v.groupsToHydrate(f) })
}

// GroupsOfTopic implements Reader.
func (s *Store) GroupsOfTopic(p int32, topic string, f func(group string) bool) error {
	return s.read(p, func(v view) error { return v.groupsOfTopic(topic, f) })
}

// Counts returns how many streams groups and how many committed offsets the partition has, by reading their keys.
func (s *Store) Counts(p int32) (groups, offsets int64, err error) {
	err = s.read(p, func(v view) error {
		if groups, err = v.count(kindGroup); err != nil {
			return err
		}
		offsets, err = v.count(kindOffset)
		return err
	})
	return groups, offsets, err
}

// Offset implements Reader.
func (s *Store) Offset(p int32, group, topic string, partition int32) (st Stored, ok bool, err error) {
	k := eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: group, Topic: topic, Partition: partition}
	err = s.read(p, func(v view) error {
		st, ok, err = v.offset(k)
		return err
	})
	if err != nil {
		return Stored{}, false, err
	}
	return st, ok, nil
}

// Offsets implements Reader.
func (s *Store) Offsets(p int32, group string, f func(Stored) bool) error {
	return s.read(p, func(v view) error { return v.offsets(group, f) })
}

// Pending implements Reader.
func (s *Store) Pending(p int32, group string, f func(producerID int64, s Stored) bool) error {
	return s.read(p, func(v view) error { return v.pending(group, f) })
}

// has says that there is a value, be it an empty one.
func has(db pebble.Reader, k key) (bool, error) {
	b, err := get(db, k)
	return b != nil, err
}
