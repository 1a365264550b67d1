package eventlog

import (
	"context"
	"fmt"
	"math"
)

// Annex is a second compacted topic beside a Log, with as many partitions, for what belongs to the groups of the log and is too
// large for it. Its records are opaque, but for ownership records, which are those of the log.
//
// Its writers have no claims of their own. They adopt the claim, that is producer id and epoch, that the owner of the same
// partition of the log holds: with a transactional id of its own, a former owner that hangs could take the present owner's place in the
// annex. A broker keeps the epochs of each partition apart, so the fence of the log does not reach here by itself; from the
// ownership record on that an adopted claim begins with, the annex refuses former owners as the log does, and what reaches it before
// that record counts: who deletes must see it. Readers void what slipped through (Fence).
type Annex interface {
	Identity() Identity
	// BatchBytesMax is the size of the largest batch that the topic takes (max.message.bytes), in bytes.
	BatchBytesMax() int
	// Adopt writes o, under the producer id and epoch of c, a claim of the same partition of the log, and returns the writer that
	// begins with it. Writer.Claim names the offset of that record as generation. The writer does not renew itself: once the log's
	// writer has, the next Adopt takes the new epoch. A claim can be adopted once in each partition (ErrClaimUsed): its sequence numbers
	// must not begin again.
	Adopt(ctx context.Context, o Ownership, c Claim) (Writer, error)
	// End asks the leader of p for its high watermark.
	End(ctx context.Context, p int32) (int64, error)
	// Follow reads all partitions, as Log.Follow.
	Follow(ctx context.Context, f Follower) error
	Close()
}

// Annexing says how a topic is the annex of a log.
type Annexing struct {
	// What the topic is, for errors and log lines: "topology description topic".
	What string
	// Advice is what to do where its partition count is not that of the log.
	Advice string
	// BatchBytesWanted is the max.message.bytes that the topic is created with where the cluster allows it; 0: the cluster's own.
	BatchBytesWanted int
}

var (
	_ Annex = (*Kafka)(nil)
	_ Annex = (*Fake)(nil)
)

// OpenAnnex opens an annex, as OpenKafka opens a log. cfg.Partitions is the log's partition count.
func OpenAnnex(ctx context.Context, cfg KafkaConfig, a Annexing) (*Kafka, error) {
	if a.What == "" || cfg.Partitions <= 0 || cfg.Topic == "" {
		return nil, fmt.Errorf("annex %q of a log: what it is (%q), or its partition count (%d), is not given", cfg.Topic, a.What, cfg.Partitions)
	}
	cfg.annex, cfg.MayCreate = a, nil // of the log itself
	return OpenKafka(ctx, cfg)
}

// partitionsAdvice is what to do about a wrong partition count.
func (k *Kafka) partitionsAdvice() string {
	if k.cfg.annex.What != "" {
		return k.cfg.annex.Advice
	}
	return "groups belong to partitions by that count, so it must stay: leave the setting out, or name another topic"
}

// Adopt implements Annex.
func (k *Kafka) Adopt(ctx context.Context, o Ownership, c Claim) (Writer, error) {
	a, err := k.adopt(ctx, o, c)
	if err != nil {
		return nil, fmt.Errorf("adoption of a claim in %s-%d: %w", k.cfg.Topic, c.Partition, err)
	}
	return a, nil
}

func (k *Kafka) adopt(ctx context.Context, o Ownership, c Claim) (*appender, error) {
	if c.Partition < 0 || c.Partition >= k.id.Partitions {
		return nil, fmt.Errorf("it has %d partitions", k.id.Partitions)
	}
	if err := k.leaders.failed(); err != nil {
		return nil, err
	}
	k.mu.Lock()
	last, ok := k.adopted[c.Partition]
	if ok && last.ProducerID == c.ProducerID && last.ProducerEpoch >= c.ProducerEpoch {
		k.mu.Unlock()
		return nil, fmt.Errorf("%w (producer id %d, epoch %d)", ErrClaimUsed, c.ProducerID, c.ProducerEpoch)
	}
	k.adopted[c.Partition] = c
	k.mu.Unlock()
	ctx, cancel := mergeContext(ctx, k.ctx)
	defer cancel()
	o.LogID = "" // that of the log; the annex is told apart by its topic id
	return k.startClaim(ctx, adoptedClaim(c), &appender{
		k: k, p: c.Partition, owner: o, claimed: make(chan struct{}), renewal: renewalUnderWay, adopting: true,
	})
}

// adoptedClaim is the claim c in another topic.
func adoptedClaim(c Claim) Claim {
	return Claim{Partition: c.Partition, Number: c.Number, ProducerID: c.ProducerID, ProducerEpoch: c.ProducerEpoch, FreshProducer: c.FreshProducer}
}

// ValueBytesMax is the size of the largest value that fits a batch of batchBytesMax bytes alone with a key of that many bytes; 0 where
// the key alone does not fit.
func ValueBytesMax(keyBytes, batchBytesMax int) int {
	largest := recordSizeMax(Raw{Key: make([]byte, 0), Value: nil}) // of a record of nothing
	overhead := batchOverhead + largest + keyBytes + 3*varintSize(math.MaxInt32)
	return max(0, batchBytesMax-overhead)
}

// IsOwnershipKey says that a record of an annex is an ownership record.
func IsOwnershipKey(key []byte) bool { return string(key) == ownershipKey }

var ownershipKey = string(AppendKey(nil, Key{Type: TypeOwnership}))
