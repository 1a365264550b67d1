package projection

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"streamkeeper/eventlog"
)

// Held is what a directory holds of a log.
type Held struct {
	Topic      string
	TopicID    [16]byte
	Partitions int32
	Groups     int64 // streams groups
	Configured int64 // groups, existing or not, for which something is configured
	Offsets    int64 // committed offsets
	Values     int64 // records of an annex
	Read       int64 // the offsets up to which the partitions are applied, summed: of two stores of one log the higher one is newer
	// Unread are the partitions that had not been read to the log's end when the store was closed: what it holds of them is a part.
	Unread []int32
	// Skipped are the types, ascending, of which records were skipped because the program that wrote the store did not know them.
	Skipped []eventlog.Type
}

// Empty says that there is nothing that would be missed.
func (h Held) Empty() bool {
	return h.Groups == 0 && h.Configured == 0 && h.Offsets == 0 && h.Values == 0
}

// Look says what a store in cfg.Dir holds, whatever log it is of; nothing where there is none, or one that can't be read. An error is
// that of a directory in use (ErrLocked), or of the disk (ErrStorage).
func Look(cfg Config) (Held, error) {
	var held Held
	err := visit(cfg, func(e *engine) error {
		held = holds(e)
		return nil
	})
	return held, err
}

// Each calls f with every record that a store in cfg.Dir holds, whatever log it is of: partition by partition, a group's in the order of hydration, then its
// offsets. Open transactions and ownership records are left out. It ends with f's first error.
func Each(cfg Config, f func(p int32, r eventlog.Record) error) error {
	return visit(cfg, func(e *engine) error {
		for p := range holds(e).Partitions {
			if err := (view{e.db, p}).each(func(r eventlog.Record) error { return f(p, r) }); err != nil {
				return fmt.Errorf("partition %d: %w", p, err)
			}
		}
		return nil
	})
}

// each calls f with the records of a partition.
func (v view) each(f func(eventlog.Record) error) error {
	seen := map[string]struct{}{}
	for _, names := range []func(func(string) bool) error{v.groups, v.groupsWithConfig, v.groupsWithOffsets} {
		if err := names(func(id string) bool { seen[id] = struct{}{}; return true }); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(seen)) {
		records, err := v.group(id)
		if err != nil {
			return err
		}
		if err := v.offsets(id, func(st Stored) bool { records = append(records, st); return true }); err != nil {
			return err
		}
		for _, st := range records {
			if err := f(st.Record); err != nil {
				return err
			}
		}
	}
	return nil
}

// EachValue calls f with every record of an annex that a store in cfg.Dir holds, whatever annex it is of. f must not keep key and value. It ends
// with f's first error.
func EachValue(cfg Config, f func(p int32, key, value []byte) error) error {
	return visit(cfg, func(e *engine) error {
		for p := range holds(e).Partitions {
			lower := partitionKey(p, kindValue)
			it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: lower.after()})
			if err != nil {
				return err
			}
			for valid := it.First(); valid && err == nil; valid = it.Next() {
				var value []byte
				if _, value, err = splitRecord(it.Value()); err == nil {
					err = f(p, it.Key()[headBytes:], value)
				}
			}
			if err := errors.Join(err, it.Error(), it.Close()); err != nil {
				return fmt.Errorf("partition %d: %w", p, err)
			}
		}
		return nil
	})
}

// visit opens the newest engine of a directory, whatever log it is of, if there is one that can be read.
func visit(cfg Config, do func(*engine) error) error {
	cfg.Identity = eventlog.Identity{Partitions: 1} // of no log
	s, err := newStore(cfg)
	if err != nil {
		return err
	}
	if _, err := s.cfg.FS.Stat(s.cfg.Dir); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrStorage, s.cfg.Dir, err)
	}
	lock, err := s.takeLock()
	if err != nil {
		return err
	}
	defer lock.Close()
	names, err := s.cfg.FS.List(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrStorage, s.cfg.Dir, err)
	}
	numbers := engineNumbers(names)
	if len(numbers) == 0 {
		return nil
	}
	newest := numbers[len(numbers)-1]
	e, err := openEngine(s.disk, s.engineDir(newest), newest, s.cfg.CacheBytes, s.logger)
	switch {
	case err != nil && passing(err):
		return fmt.Errorf("%w: %s: %w", ErrStorage, s.engineDir(newest), err)
	case err != nil:
		return nil // damaged
	}
	return errors.Join(do(e), e.close())
}

// holds is what an engine has; nothing where that can't be read.
func holds(e *engine) Held {
	b, err := get(e.db, storeKey(kindMeta))
	if err != nil || b == nil {
		return Held{}
	}
	var meta storeMeta
	if json.Unmarshal(b, &meta) != nil || meta.Format != storeFormat {
		return Held{}
	}
	h := Held{Topic: meta.Topic, TopicID: meta.TopicID, Partitions: meta.Partitions}
	for p := range meta.Partitions {
		for kind, sum := range map[byte]*int64{kindGroup: &h.Groups, kindConfig: &h.Configured, kindOffset: &h.Offsets, kindValue: &h.Values} {
			n, err := (view{e.db, p}).count(kind)
			if err != nil {
				return Held{}
			}
			*sum += n
		}
		if b, err := get(e.db, partitionKey(p, kindCheckpoint)); err != nil {
			return Held{}
		} else if b != nil {
			at, err := decodeCheckpoint(b)
			if err != nil {
				return Held{}
			}
			h.Read += at.pos.Offset
		}
		part := partition{p: p}
		if _, err := part.loadSkipped(e); err != nil {
			return Held{}
		}
		for t := range part.skipped {
			if at, there := slices.BinarySearch(h.Skipped, t); !there {
				h.Skipped = slices.Insert(h.Skipped, at, t)
			}
		}
		if whole, err := has(e.db, partitionKey(p, kindWhole)); err != nil {
			return Held{}
		} else if !whole {
			h.Unread = append(h.Unread, p)
		}
	}
	return h
}

// uuid prints a topic id as Kafka's tools do.
func uuid(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }
