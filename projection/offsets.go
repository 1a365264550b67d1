package projection

import (
	"fmt"

	"streamkeeper/eventlog"
)

// Committed and pending offsets, by the rules of Kafka's OffsetMetadataManager, with one difference: plain or pending is
// the batch's transactional bit, not the presence of a producer id (design D4).
//
//	plain value          replaces the committed one
//	transactional value  becomes pending under (producer, group, topic, partition)
//	tombstone, any       removes the committed value and every pending one of that partition
//	commit marker        each pending value of the producer is committed, unless the committed one is from a later
//	                     offset of the log
//	abort marker         drops the producer's pending values

// offset applies a record of type 0 or 1.
func (a *apply) offset(e *eventlog.Entry, k eventlog.Key) error {
	value := e.Value
	if value != nil {
		v, err := eventlog.DecodeValue(k.Type, value)
		if err != nil {
			return err
		}
		if k.Type == eventlog.TypeLegacyOffsetCommit {
			value = eventlog.AppendValue(nil, v) // kept as type 1, whose version 4 has the defaults
		}
	}
	k.Type = eventlog.TypeOffsetCommit
	if value == nil {
		if err := a.dropPending(k); err != nil {
			return storageError{err}
		}
		return storage(a.batch.Delete(recordKey(a.part.p, k), nil))
	}
	a.value = recordValue(a.value[:0], e.Offset, value)
	if !e.Transactional {
		return storage(a.batch.Set(recordKey(a.part.p, k), a.value, nil))
	}
	return storage(a.setPending(k, e.ProducerID, a.value))
}

func (a *apply) setPending(k eventlog.Key, producerID int64, value []byte) error {
	at := pendingKey(a.part.p, k, producerID)
	was, err := get(a.batch, at)
	if err != nil {
		return err
	}
	if was == nil {
		a.pending++
	}
	if err := a.batch.Set(at, value, nil); err != nil {
		return err
	}
	return a.batch.Set(pendingOfKey(a.part.p, k, producerID), nil, nil)
}

// dropPending removes what is pending for a partition of a group, of whichever producer.
func (a *apply) dropPending(k eventlog.Key) error {
	if a.pending == 0 {
		return nil // as nearly always
	}
	var producers []int64
	err := scan(a.batch, offsetKey(a.part.p, kindPending, k), func(r *keyReader, _ []byte) (bool, error) {
		readOffsetKey(r)
		producers = append(producers, r.int64())
		return true, r.end(kindPending)
	})
	if err != nil {
		return err
	}
	for _, id := range producers {
		if err := a.unset(k, id); err != nil {
			return err
		}
	}
	return nil
}

// unset removes one pending value.
func (a *apply) unset(k eventlog.Key, producerID int64) error {
	a.pending--
	if err := a.batch.Delete(pendingKey(a.part.p, k, producerID), nil); err != nil {
		return err
	}
	return a.batch.Delete(pendingOfKey(a.part.p, k, producerID), nil)
}

// settle applies a control record.
func (a *apply) settle(e *eventlog.Entry) error {
	if e.Control != eventlog.ControlCommit && e.Control != eventlog.ControlAbort {
		return nil
	}
	var keys []eventlog.Key
	err := scan(a.batch, partitionKey(a.part.p, kindPendingOf).int64(e.ProducerID), func(r *keyReader, _ []byte) (bool, error) {
		r.int64()
		keys = append(keys, readOffsetKey(r))
		return true, r.end(kindPendingOf)
	})
	if err != nil {
		return storageError{err}
	}
	for _, k := range keys {
		if e.Control == eventlog.ControlCommit {
			if err := a.commit(k, e.ProducerID); err != nil {
				return storageError{err}
			}
		}
		if err := a.unset(k, e.ProducerID); err != nil {
			return storageError{err}
		}
	}
	return nil
}

// commit makes a pending value the committed one, unless that is newer.
func (a *apply) commit(k eventlog.Key, producerID int64) error {
	pending, err := get(a.batch, pendingKey(a.part.p, k, producerID))
	if err != nil {
		return err
	}
	if pending == nil {
		return fmt.Errorf("%w: a pending offset is listed and not there", errDamaged)
	}
	offset, _, err := splitRecord(pending)
	if err != nil {
		return err
	}
	committed, err := get(a.batch, recordKey(a.part.p, k))
	if err != nil {
		return err
	}
	if committed != nil {
		was, _, err := splitRecord(committed)
		if err != nil || was > offset {
			return err
		}
	}
	return a.batch.Set(recordKey(a.part.p, k), pending, nil)
}
