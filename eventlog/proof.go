package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"streamkeeper/internal/wall"
)

// epochsTried is how often a claim that has to prove the fence asks for an epoch that has one before it.
const epochsTried = 3

// firstClaim claims p and proves the fence: a write under the epoch before must be refused. The probe repeats the
// ownership record; a cluster that accepts it gets no further record from us. The verdict holds for the life of the process, so what may be
// otherwise the next time is none: a refusal that is about rights or the clock, and an acceptance by a log that has lost our claim.
func (k *Kafka) firstClaim(ctx context.Context, p, number int32, o Ownership, prev *Owner) (*appender, proof, error) {
	asked := Claim{Partition: p, Number: number, ProducerID: -1, ProducerEpoch: -1}
	c, err := k.initProducer(ctx, asked)
	for tries := 1; err == nil && c.ProducerEpoch < 1; tries++ {
		if tries >= epochsTried {
			err = fmt.Errorf("%w: InitProducerId of %s gives epoch %d again and again", ErrFenceUnproven, TransactionalID(k.id.Topic, p, number), c.ProducerEpoch)
			return nil, proof{err: err}, err
		}
		c, err = k.initProducer(ctx, asked)
	}
	if err != nil {
		return nil, proof{}, err
	}
	a, err := k.claimAs(ctx, c, o, prev)
	if err != nil {
		return nil, proof{}, err
	}
	a.mu.Lock()
	c, o = a.current, a.owner
	a.mu.Unlock()
	switch err := k.probe(ctx, c, o); {
	case errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.ProducerFenced):
		k.log.Debug("the cluster refuses an older producer epoch", "topic", k.id.Topic, "partition", p)
		return a, proof{proven: true}, nil
	case errors.Is(err, kerr.InvalidTimestamp), errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		a.Close()
		return nil, proof{}, fmt.Errorf("%w: proving the fence of %s-%d: %w", ErrAppendRefused, k.id.Topic, p, err)
	case err == nil:
		if err := k.stands(ctx, c); err != nil {
			a.Close()
			return nil, proof{}, err
		}
		err = fmt.Errorf("%w: %s-%d accepted epoch %d of producer id %d after epoch %d", ErrFenceUnproven, k.id.Topic, p, c.ProducerEpoch-1, c.ProducerID, c.ProducerEpoch)
		a.end(err)
		return nil, proof{err: err}, err
	case retriable(err) || errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
		a.Close()
		return nil, proof{}, err
	default:
		err = fmt.Errorf("%w: %s-%d refused epoch %d of producer id %d for another reason: %w", ErrFenceUnproven, k.id.Topic, p, c.ProducerEpoch-1, c.ProducerID, err)
		a.end(err)
		return nil, proof{err: err}, err
	}
}

// stands looks whether the ownership record of c is in the log where it was acknowledged. Where it was lost, by an unclean election or because the topic was
// made again, the leader knows nothing of its epoch.
func (k *Kafka) stands(ctx context.Context, c Claim) error {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.AppendDeadline)
	defer cancel()
	end, err := k.End(ctx, c.Partition)
	there := false
	if err == nil && end > c.Generation {
		err = k.scan(ctx, c.Partition, c.Generation, c.Generation+1, func(e Entry) error {
			there = e.ProducerID == c.ProducerID && e.ProducerEpoch == c.ProducerEpoch
			return nil
		})
	}
	switch {
	case err != nil:
		return fmt.Errorf("proving the fence of %s-%d: %w", k.id.Topic, c.Partition, err)
	case !there:
		return fmt.Errorf("%w: proving the fence of %s-%d: the claim at offset %d is not in the log any more", ErrOutcomeUnknown, k.id.Topic, c.Partition, c.Generation)
	}
	return nil
}

// end is die for those who don't hold a.mu.
func (a *appender) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.die(err)
}

// probe repeats c's ownership record under the epoch before and returns the leader's answer.
func (k *Kafka) probe(ctx context.Context, c Claim, o Ownership) error {
	o.Claim = c.Generation
	return k.sendOnce(ctx, c.Partition, c.ProducerID, c.ProducerEpoch-1, o)
}

// sendOnce sends an ownership record as the first batch of an epoch, byte for byte again where that may go better, and returns the leader's answer.
func (k *Kafka) sendOnce(ctx context.Context, p int32, producer int64, epoch int16, o Ownership) error {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.AppendDeadline)
	defer cancel()
	op := operation{wall.Now().UnixMilli(), []Raw{ownershipRaw(o)}}
	batch := appendBatch(nil, producer, epoch, 0, []operation{op})
	return k.atLeader(ctx, p, func(ctx context.Context, l leadership) error {
		s := k.sender(l.node)
		if s == nil {
			return ErrClosed
		}
		once := &onceParcel{p: p, batch: batch, outcome: make(chan error, 1)}
		s.add(once)
		select {
		case err := <-once.outcome:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// onceParcel is a batch that is sent as it is.
type onceParcel struct {
	p       int32
	batch   []byte
	outcome chan error
}

func (p *onceParcel) partition() int32          { return p.p }
func (p *onceParcel) load() ([]byte, int)       { return p.batch, 1 }
func (p *onceParcel) landed(_ int64, err error) { p.outcome <- err }
