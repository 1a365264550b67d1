package eventlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// formerEpoch is the epoch under which a producer id is written to that nobody gets from the cluster any more: the last one there is, so that it fences
// all that were ever given out. A coordinator gives the next producer id before it comes to this one.
const formerEpoch = math.MaxInt16

// fenceFormer makes the partition's leader refuse what the previous owner still sends, where the cluster has given our claim c another producer id than
// that owner's: its transactional id had expired, or its epochs were used up. The epochs of our own id then fence nobody. But the leader of a partition compares
// a batch that is in no transaction with the batches before it alone, by producer id and epoch; so we write one under the former id, with an epoch that
// is higher than all that were given out. It is an ownership record of ours and a claim like any other. What is before it in the log counts, the
// leader refuses what comes later from the former owner, and readers follow it to our own claim, which comes next. From here on an
// acknowledgement means as much as where the producer id has stayed the same.
//
// fresh says that the cluster would not have it: the former owner can still write, and has to be waited for.
//
// The previous owner that the caller knows of need not be the last: claims behind it are looked up in the log, for as long as an append may take. A tail that
// takes longer would do so at each try, so then those that were found are fenced, and the others waited for.
func (k *Kafka) fenceFormer(ctx context.Context, c Claim, o Ownership, prev *Owner) (fresh bool, err error) {
	if !freshProducer(prev, c) {
		return false, nil
	}
	p, id := c.Partition, TransactionalID(k.id.Topic, c.Partition, c.Number)
	former, whole, err := k.formerProducers(ctx, c, prev)
	if err != nil {
		if retriable(err) || ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
			return false, err
		}
		k.log.Warn("what is behind the last known claim can't be read", "topic", k.id.Topic, "partition", p, "err", err)
		return true, nil
	}
	o.Format, o.Released, o.Claim, o.Number = OwnershipFormat, false, -1, c.Number
	for _, producer := range former {
		o.ProducerID, o.ProducerEpoch = producer, formerEpoch
		err := k.sendOnce(ctx, p, producer, formerEpoch, o)
		switch {
		case err == nil:
			k.log.Info("the cluster gave another producer id than the last owner's, which is fenced by hand", "topic", k.id.Topic, "partition", p, "producerId", c.ProducerID, "former", producer)
		case errors.Is(err, kerr.OutOfOrderSequenceNumber), errors.Is(err, kerr.DuplicateSequenceNumber):
			// There are batches of this epoch already: another claimer was here before us.
		case retriable(err), ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrClosed):
			return false, fmt.Errorf("fencing producer id %d, which %s had: %w", producer, id, err)
		default:
			k.log.Warn("the cluster does not let a producer id be fenced that it has forgotten", "topic", k.id.Topic, "partition", p, "former", producer, "err", err)
			return true, nil
		}
	}
	return !whole, nil
}

// formerProducers are the producer ids under which others than c may still write: prev's, and those of claims behind it. whole says that the log was read
// to its end for them.
func (k *Kafka) formerProducers(ctx context.Context, c Claim, prev *Owner) (former []int64, whole bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, k.cfg.AppendDeadline)
	defer cancel()
	former = []int64{prev.ProducerID}
	end, err := k.End(bounded, c.Partition)
	if err != nil {
		return nil, false, err
	}
	scanning, cancel := context.WithTimeout(ctx, k.cfg.AppendDeadline)
	defer cancel()
	err = k.scan(scanning, c.Partition, prev.Offset+1, end, func(e Entry) error {
		former = formerProducer(former, c, e)
		return nil
	})
	if err != nil && ctx.Err() == nil && scanning.Err() != nil {
		k.log.Warn("what is behind the last known claim can't be read in time", "topic", k.id.Topic, "partition", c.Partition, "from", prev.Offset+1, "end", end, "err", err)
		return former, false, nil
	}
	return former, err == nil, err
}

// formerProducer adds the producer of e to former, if e is a claim by another id than c's.
func formerProducer(former []int64, c Claim, e Entry) []int64 {
	key, err := DecodeKey(e.Key)
	if err != nil || key.Type != TypeOwnership || e.Control != ControlNone || e.Transactional || e.ProducerID < 0 ||
		e.ProducerID == c.ProducerID || slices.Contains(former, e.ProducerID) {
		return former
	}
	return append(former, e.ProducerID)
}
