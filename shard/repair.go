package shard

import (
	"context"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
)

// A void record (D4) is nobody's state, but it is the newest record of its key for the cleaner, which would remove the right one and keep it.
// So the owner appends the right value behind it, or a tombstone where there is none. Every replica remembers the keys it
// read; whoever owns the partition writes. Writing the right value once too often does no harm.

// repairsMax bounds the keys that are remembered. Void records come from an owner that was replaced while the cluster could not
// refuse it, for one lease at most; what is beyond this is logged and left to the next write of the key.
const repairsMax = 100_000

// repairsPerTurn bounds how many keys are repaired at one go, so that requests are not held up.
const repairsPerTurn = 200

func (s *Shard) postVoids(voids []projection.Void) {
	if len(voids) == 0 {
		return
	}
	s.post(func(s *Shard) {
		for _, v := range voids {
			if len(s.repairs) >= repairsMax {
				s.log.Error("too many void records to remember, some are left to the next write of their keys", "max", repairsMax)
				return
			}
			s.repairs[v.Key] = struct{}{}
		}
		s.log.Warn("records of a replaced owner were read and do not count", "records", len(voids), "first", voids[0].Offset)
	})
}

// repair writes the right values of some of the remembered keys. A group with appends that the projection has not applied waits:
// only then is what the projection holds the newest.
func (s *Shard) repair() {
	if s.state != active || len(s.repairs) == 0 || s.forgotten() {
		return
	}
	n := 0
	for key := range s.repairs {
		if n++; n > repairsPerTurn {
			return
		}
		if !repairable(key.Type) {
			delete(s.repairs, key)
			continue
		}
		g, err := s.group(key.Group)
		if err != nil || g.broken || !s.written(g) {
			continue
		}
		value, err := s.rightValue(key)
		if err != nil {
			s.log.Error("void record can't be repaired yet", "group", key.Group, "type", key.Type.String(), "err", err)
			return
		}
		delete(s.repairs, key)
		raw, err := eventlog.TryEncode(eventlog.Record{Key: key, Value: value})
		if err != nil {
			continue // what can't be encoded is not in the log either
		}
		s.seq++
		s.host.stats.repairs.Add(1)
		// Not applied: memory and projection hold this value already.
		s.append(context.Background(), s.host.cfg.Now(), []eventlog.Raw{raw}, inflight{g: g, records: 1})
	}
}

func repairable(t eventlog.Type) bool {
	switch t {
	case eventlog.TypeOffsetCommit, eventlog.TypeGroup, eventlog.TypeMember, eventlog.TypeTargetAssignment,
		eventlog.TypeTargetAssignmentMember, eventlog.TypeCurrentMemberAssignment, eventlog.TypeTopology,
		eventlog.TypeDescriptionRefusal, eventlog.TypeGroupConfig:
		return true
	}
	return false // the ownership record is written again by its owner; classic groups are not written here
}

// rightValue is the value of a key as the projection has it; nil: there is none, and a tombstone is right.
func (s *Shard) rightValue(key eventlog.Key) (eventlog.Value, error) {
	if key.Type == eventlog.TypeOffsetCommit {
		st, ok, err := s.host.cfg.Store.Offset(s.partition, key.Group, key.Topic, key.Partition)
		if err != nil || !ok {
			return nil, err
		}
		return st.Record.Value, nil
	}
	stored, err := s.host.cfg.Store.Group(s.partition, key.Group)
	if err != nil {
		return nil, err
	}
	for _, st := range stored {
		if st.Record.Key == key {
			return st.Record.Value, nil
		}
	}
	return nil, nil
}
