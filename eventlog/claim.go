package eventlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"streamkeeper/internal/wall"
)

// A claim, step by step (design D4):
//
//  1. InitProducerId with the transactional id "<topic>-<partition>": a producer id and the next epoch of it. Where no claim can be made by that
//     producer id any more, with the next transactional id of the partition (spent.go).
//  2. The ownership record as the first batch under that epoch, sequence 0. Until it is in the log the old epoch is
//     still accepted, so everything before it counts; from then on the leader refuses the old epoch.
//  3. Once per process: a write under the old epoch, which must be refused.
//
// Where the producer id is another one than the predecessor's, the new epochs fence nobody. So before step 2 the predecessor's own producer id is fenced
// (former.go). Where the cluster does not let us do that, one lease is waited after step 2, in which the predecessor, who hears nothing from
// its group any more, stops by itself.
//
// A renewal is steps 1 and 2 between two batches, but names the epoch in force: the coordinator refuses it where
// somebody else claimed. Not every cluster checks that, so what was written between our last batch and the new
// ownership record is looked through for a claim of somebody else's.

// transactionTimeout is what InitProducerId wants to know; no transaction is ever begun. Brokers refuse more than their transaction.max.timeout.ms.
const transactionTimeout = time.Second

// TransactionalID is the transactional id whose producer epoch fences partition p of a log topic. The process needs
// WRITE and DESCRIBE on it. The first, number 0, is "<topic>-<partition>", and the next ones are "<topic>-<partition>.<number>", which is no id of the log
// "<topic>-<partition>". See spent.go.
func TransactionalID(topic string, p, number int32) string {
	if number == 0 {
		return fmt.Sprintf("%s-%d", topic, p)
	}
	return fmt.Sprintf("%s-%d.%d", topic, p, number)
}

// Claim implements Log.
func (k *Kafka) Claim(ctx context.Context, p int32, o Ownership) (Writer, error) {
	return k.ClaimAfter(ctx, p, o, nil, 0)
}

// ClaimAfter implements Log.
func (k *Kafka) ClaimAfter(ctx context.Context, p int32, o Ownership, prev *Owner, lease time.Duration) (Writer, error) {
	ctx, cancel := mergeContext(ctx, k.ctx)
	defer cancel()
	a, err := k.claim(ctx, p, o, prev)
	if err != nil {
		return nil, fmt.Errorf("claim of %s-%d: %w", k.cfg.Topic, p, err)
	}
	if c := a.Claim(); c.FreshProducer && lease > 0 {
		k.log.Warn("the cluster gave another producer id than the last owner's, and can't be made to refuse that one: one lease is waited", "topic", k.id.Topic, "partition", p,
			"producerId", c.ProducerID, "previous", prev.ProducerID, "lease", lease)
		t := time.NewTimer(lease)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			a.Close()
			return nil, fmt.Errorf("claim of %s-%d: waiting one lease: %w", k.cfg.Topic, p, context.Cause(ctx))
		}
	}
	return a, nil
}

// freshProducer says that the epochs of c's producer id do not fence the previous owner. One that released the partition has ended.
func freshProducer(prev *Owner, c Claim) bool {
	return prev != nil && !prev.Released && prev.ProducerID != c.ProducerID
}

func (k *Kafka) claim(ctx context.Context, p int32, o Ownership, prev *Owner) (*appender, error) {
	if p < 0 || p >= k.id.Partitions {
		return nil, fmt.Errorf("the log has %d partitions", k.id.Partitions)
	}
	if err := k.leaders.failed(); err != nil {
		return nil, err
	}
	var number int32
	if prev != nil {
		number = max(0, prev.Number)
	}
	for tries := 1; ; tries++ {
		a, err := k.claimBy(ctx, p, number, o, prev)
		if !errors.Is(err, errSpent) || tries >= numbersTried {
			return a, err
		}
		k.log.Warn("no claim can be made by the producer id that the cluster gives: another transactional id is taken", "topic", k.id.Topic, "partition", p,
			"transactionalId", TransactionalID(k.id.Topic, p, number), "next", TransactionalID(k.id.Topic, p, number+1), "err", err)
		number++
	}
}

// claimBy claims p with one of its transactional ids; errSpent: the next one has to be taken.
func (k *Kafka) claimBy(ctx context.Context, p, number int32, o Ownership, prev *Owner) (*appender, error) {
	prove, err := k.fence.begin(ctx)
	if err != nil {
		return nil, err
	}
	if !prove {
		c, err := k.initProducer(ctx, Claim{Partition: p, Number: number, ProducerID: -1, ProducerEpoch: -1})
		if err != nil {
			return nil, err
		}
		return k.claimAs(ctx, c, o, prev)
	}
	a, proof, err := k.firstClaim(ctx, p, number, o, prev)
	k.fence.end(proof)
	return a, err
}

// claimAs makes the claim by the producer that c names.
func (k *Kafka) claimAs(ctx context.Context, c Claim, o Ownership, prev *Owner) (*appender, error) {
	err := spent(c, prev)
	if err != nil {
		return nil, err
	}
	if c.FreshProducer, err = k.fenceFormer(ctx, c, o, prev); err != nil {
		return nil, err
	}
	a, err := k.writeClaim(ctx, c, o)
	if errors.Is(err, ErrFenced) {
		return nil, k.whyRefused(ctx, c, prev, err)
	}
	k.mu.Lock()
	delete(k.refused, c.Partition)
	k.mu.Unlock()
	return a, err
}

// writeClaim writes the ownership record of c and returns the writer that it begins.
func (k *Kafka) writeClaim(ctx context.Context, c Claim, o Ownership) (*appender, error) {
	return k.startClaim(ctx, c, &appender{k: k, p: c.Partition, owner: o, claimed: make(chan struct{}), renewal: renewalUnderWay})
}

// startClaim has a begin with the ownership record of c, and waits until it is in the log.
func (k *Kafka) startClaim(ctx context.Context, c Claim, a *appender) (*appender, error) {
	a.owner.Format, a.owner.Released = OwnershipFormat, false
	a.mu.Lock()
	a.current = c
	a.begin(c)
	a.mu.Unlock()
	k.mu.Lock()
	k.appenders[a] = struct{}{}
	k.mu.Unlock()
	select {
	case <-a.claimed:
	case <-ctx.Done():
		a.Close()
		return nil, context.Cause(ctx)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a, a.err
}

// begin sends the ownership record of c as the first batch of its epoch. a.mu is held, and the appender busy.
func (a *appender) begin(c Claim) {
	o := a.owner
	o.ProducerID, o.ProducerEpoch, o.Claim, o.Number = c.ProducerID, c.ProducerEpoch, -1, c.Number
	op := operation{wall.Now().UnixMilli(), []Raw{ownershipRaw(o)}}
	a.busy, a.since, a.attempt, a.last = true, time.Now(), 0, nil
	a.under = &sealed{bytes: appendBatch(nil, c.ProducerID, c.ProducerEpoch, 0, []operation{op}), records: 1, claim: &c}
	a.owner = o
	a.send()
}

// claimLanded takes the acknowledgement of an ownership record that begins an epoch. a.mu is held.
func (a *appender) claimLanded(offset int64) {
	c := *a.under.claim
	c.Generation = offset
	if from := a.next; a.current.ProducerEpoch != c.ProducerEpoch && from != offset {
		a.since = time.Time{}
		a.k.goes(func() { a.lookThrough(from, c) })
		return
	}
	a.takeClaim(c)
}

// takeClaim puts c into force. a.mu is held.
func (a *appender) takeClaim(c Claim) {
	c.FreshProducer = a.current.FreshProducer
	a.current = c
	a.read()
	a.next, a.sequence = c.Generation+1, 1
	a.renewal = renewalNone
	if a.adopting {
		a.renewal = renewalNever
	}
	a.renewAt = renewTime(a.k.RenewInterval())
	select {
	case <-a.claimed:
	default:
		close(a.claimed)
	}
	a.idle()
	a.kick()
}

// renewTime is when what is to be renewed within interval, from now, is. Partitions take turns.
func renewTime(interval time.Duration) time.Time {
	return time.Now().Add(interval - time.Duration(rand.Int64N(int64(interval)/4+1)))
}

// renewWithin has the claim renewed within interval from now, if it would be later.
func (a *appender) renewWithin(interval time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if sooner := renewTime(interval); sooner.Before(a.renewAt) {
		a.renewAt = sooner
	}
}

// renewal is how far the renewal of a writer is.
type renewal int8

const (
	renewalNone renewal = iota
	renewalWanted
	renewalUnderWay
	renewalNever // an adopted claim is renewed by the writer that has it
)

// Renew implements Writer.
func (a *appender) Renew() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil && a.renewal == renewalNone {
		a.renewal = renewalWanted
		a.kick()
	}
}

// renewTimeout is how long appends may wait for the answer to a renewal; after that they go on under the old epoch.
const renewTimeout = 5 * time.Second

// renew raises the producer epoch between two batches.
func (a *appender) renew() {
	a.mu.Lock()
	was := a.current
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(a.k.ctx, renewTimeout)
	defer cancel()
	c, err := a.k.initProducer(ctx, was)
	a.mu.Lock()
	defer a.mu.Unlock()
	id := TransactionalID(a.k.id.Topic, a.p, was.Number)
	switch {
	case a.err != nil:
	case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch):
		a.die(fmt.Errorf("%w (renewal of %s)", ErrFenced, id))
	case errors.Is(err, kerr.InvalidProducerIDMapping):
		a.die(fmt.Errorf("%w: renewal of %s: %w", ErrClaimExpired, id, err))
	case err != nil:
		a.k.log.Warn("claim not renewed, tried again soon", "topic", a.k.id.Topic, "partition", a.p, "err", err)
		a.renewal = renewalNone
		a.renewAt = time.Now().Add(a.k.RenewInterval() / 8)
		a.idle()
		// The partition's leader forgets a producer that has written nothing for producer.id.expiration.ms, and then accepts older epochs again.
		a.push(a.ownership(false, nil))
	case c.ProducerID != was.ProducerID || c.ProducerEpoch <= was.ProducerEpoch:
		a.die(fmt.Errorf("%w: renewal of %s gave producer id %d epoch %d after %d epoch %d", ErrClaimExpired, id, c.ProducerID, c.ProducerEpoch, was.ProducerID, was.ProducerEpoch))
	default:
		a.begin(c)
	}
}

// lookThrough reads what others wrote between our last batch, which ended before from, and the ownership record of c.
func (a *appender) lookThrough(from int64, c Claim) {
	ctx, cancel := context.WithTimeout(a.k.ctx, a.k.cfg.AppendDeadline)
	defer cancel()
	err := a.k.scan(ctx, a.p, from, c.Generation, func(e Entry) error {
		if key, err := DecodeKey(e.Key); err == nil && key.Type == TypeOwnership && e.Control == ControlNone && !e.Transactional {
			return fmt.Errorf("%w: offset %d, found when the claim was renewed", ErrFenced, e.Offset)
		}
		return nil
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.err != nil:
	case err != nil:
		a.die(fmt.Errorf("renewal of %s-%d: %w", a.k.id.Topic, a.p, err))
	default:
		a.takeClaim(c)
	}
}

// goes runs f on a goroutine that Close waits for; nothing after Close.
func (k *Kafka) goes(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() == nil {
		k.wg.Go(f)
	}
}

// forget drops a dead appender.
func (k *Kafka) forget(a *appender) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.appenders, a)
}

// fenceProof is whether the cluster was seen to refuse an old epoch.
type fenceProof struct {
	once  sync.Once
	token chan struct{} // held by the claim that proves it
	mu    sync.Mutex
	state proof
}

type proof struct {
	proven bool
	err    error // ErrFenceUnproven: it is proven that there is no fence
}

// proofPatience is how long claims wait for the one that proves the fence. That one may have met a broker that hangs; the others prove it for themselves
// then, which costs each a write.
const proofPatience = time.Second

// begin says whether the caller is to prove the fence; if so it must call end. Others wait for its outcome, for a while.
func (f *fenceProof) begin(ctx context.Context) (prove bool, err error) {
	f.once.Do(func() { f.token = make(chan struct{}, 1) })
	if state := f.known(); state != (proof{}) {
		return false, state.err
	}
	late := time.NewTimer(proofPatience)
	defer late.Stop()
	select {
	case f.token <- struct{}{}:
	case <-late.C:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	if state := f.known(); state != (proof{}) {
		f.end(state)
		return false, state.err
	}
	return true, nil
}

func (f *fenceProof) known() proof {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// end tells the outcome; the zero proof (the attempt itself failed) leaves it open. Whoever waits goes on.
func (f *fenceProof) end(p proof) {
	f.mu.Lock()
	if p != (proof{}) && f.state.err == nil { // that there is none stays
		f.state = p
	}
	f.mu.Unlock()
	select {
	case <-f.token:
	default: // several prove it at once
	}
}
