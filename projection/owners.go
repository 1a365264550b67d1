package projection

import (
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"streamkeeper/eventlog"
)

// ReplicaKept is how long a replica is remembered after its last ownership record: a day, as long as it is listed among
// the nodes of the cluster (design D9), and the longest time between two claims of one that runs.
const ReplicaKept = 24*time.Hour + 6*time.Hour

// replicasMax bounds the table of replicas, against a deployment that draws a new node id at every start. The ones not
// heard of for longest are forgotten.
const replicasMax = 1000

// logIDBytesMax bounds what is kept of the log's random id.
const logIDBytesMax = 255

// ownership applies an ownership record.
func (a *apply) ownership(e *eventlog.Entry) error {
	if e.Value == nil { // nobody deletes them; the last claim stands
		a.after.fence.Void(*e)
		a.void(e, eventlog.Key{Type: eventlog.TypeOwnership}, nil)
		return nil
	}
	v, err := eventlog.DecodeValue(eventlog.TypeOwnership, e.Value)
	if err != nil && !eventlog.Forged(*e, err) {
		return err
	}
	if err != nil {
		a.s.logger.Warn("projection: something that is no ownership record was written as one into the log topic by somebody else; it does not count",
			"partition", a.part.p, "offset", e.Offset, "producer", e.ProducerID, "error", err)
		a.after.fence.Void(*e)
		a.void(e, eventlog.Key{Type: eventlog.TypeOwnership}, nil)
		return nil
	}
	o := v.(*eventlog.Ownership)
	if err := a.logID(o); err != nil {
		return err
	}
	if !a.after.fence.Observe(*e, o) {
		a.void(e, eventlog.Key{Type: eventlog.TypeOwnership}, nil)
		return nil
	}
	generation, _ := a.after.fence.Generation()
	a.owners = append(a.owners, eventlog.Owner{
		Ownership: *o, Offset: e.Offset, Generation: generation, Timestamp: e.Timestamp, Seen: a.s.cfg.Now().Round(0),
	})
	return nil
}

// logID compares the log's random id, which all its ownership records carry, with the one known from an earlier time. A
// topic that was deleted and made again on a cluster without topic ids is noticed by it. Within one reading of the log the
// last one counts: two replicas may have drawn one at the same time.
func (a *apply) logID(o *eventlog.Ownership) error {
	id := o.LogID[:min(len(o.LogID), logIDBytesMax)]
	if id == "" {
		return nil
	}
	if known := a.after.logID; known != "" && known != id && !a.logIDSeen {
		return otherLog{known, id}
	}
	a.after.logID, a.logIDSeen = id, true
	return nil
}

// otherLog is found instead of a record of the log that was applied so far.
type otherLog struct{ known, found string }

func (e otherLog) Error() string {
	return fmt.Sprintf("the store is of the log %q, an ownership record is of %q", e.known, e.found)
}

// Owner implements Reader.
func (s *Store) Owner(p int32) (eventlog.Owner, bool) {
	part, err := s.part(p)
	if err != nil {
		return eventlog.Owner{}, false
	}
	part.mu.Lock()
	defer part.mu.Unlock()
	o := part.owner
	if part.owned {
		o.Former = part.fence.Former()
	}
	return o, part.owned
}

// Owners are the last ownership records of all partitions that have one, by partition.
func (s *Store) Owners() map[int32]eventlog.Owner {
	owners := map[int32]eventlog.Owner{}
	for _, part := range s.parts {
		if o, ok := s.Owner(part.p); ok {
			owners[part.p] = o
		}
	}
	return owners
}

// Replicas are the last ownership records of each node id that wrote one within the last day, dead ones too, ascending by
// node id. They outlive restarts and the rebuilding of partitions. The caller judges their Timestamp: a replica that
// was seen a little longer ago may be among them.
func (s *Store) Replicas() []eventlog.Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest := s.cfg.Now().Add(-ReplicaKept).UnixMilli()
	var replicas []eventlog.Owner
	for _, o := range s.replicas {
		if o.Timestamp >= oldest {
			replicas = append(replicas, o)
		}
	}
	slices.SortFunc(replicas, func(a, b eventlog.Owner) int { return int(a.NodeID) - int(b.NodeID) })
	return replicas
}

// remember keeps an ownership record if it is its node's newest. The table is not part of what is applied: it tells of
// all partitions, so it is written on its own and survives the rebuilding of one.
func (s *Store) remember(e *engine, o eventlog.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, ok := s.replicas[o.NodeID]; ok {
		if outlasts(was, o) {
			return
		}
		if was.Instance == o.Instance {
			o.Order = max(o.Order, was.Order)
		}
	}
	b := e.db.NewBatch()
	defer b.Close()
	err := b.Set(nodeKey(o.NodeID), encodeOwner(o), nil)
	s.replicas[o.NodeID] = o
	for _, node := range s.outdated() {
		delete(s.replicas, node)
		err = firstError(err, b.Delete(nodeKey(node), nil))
	}
	if err = firstError(err, b.Commit(pebble.NoSync)); err != nil {
		e.breakDown(err)
	}
}

// outlasts says that what is remembered of a node is newer than o. Two processes of a node, which may have had two addresses, are told apart by the order of
// their claims, since the clock of one may have been fast; the records of one process by when it was heard of last. Without an order, which
// replicas of earlier versions don't write, the clocks have to do.
func outlasts(was, o eventlog.Owner) bool {
	if was.Instance != o.Instance && was.Order > 0 && o.Order > 0 {
		return was.Order > o.Order
	}
	return was.Timestamp > o.Timestamp
}

// outdated are the nodes that can be forgotten. s.mu is held.
func (s *Store) outdated() []int32 {
	var nodes, kept []int32
	oldest := s.cfg.Now().Add(-ReplicaKept).UnixMilli()
	for node, o := range s.replicas {
		if o.Timestamp < oldest {
			nodes = append(nodes, node)
		} else {
			kept = append(kept, node)
		}
	}
	if len(kept) > replicasMax {
		slices.SortFunc(kept, func(a, b int32) int {
			return int(s.replicas[a].Timestamp - s.replicas[b].Timestamp)
		})
		nodes = append(nodes, kept[:len(kept)-replicasMax]...)
	}
	return nodes
}

func (s *Store) loadReplicas(e *engine) error {
	return scan(e.db, storeKey(kindNode), func(_ *keyReader, value []byte) (bool, error) {
		o, err := decodeOwner(value)
		if err != nil {
			return false, err
		}
		s.replicas[o.NodeID] = o
		return true, nil
	})
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
