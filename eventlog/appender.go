package eventlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"streamkeeper/internal/wall"
)

// BacklogBytesMax is how many bytes of one partition may wait to be acknowledged. An append beyond it ends the writer
// with ErrBacklog, because its records are applied already; owners look at Backlog first and refuse requests in time.
const BacklogBytesMax = 64 << 20

var (
	// ErrBacklog: more than BacklogBytesMax wait to be acknowledged.
	ErrBacklog = errors.New("too much waits to be appended")
	// ErrAppendRefused: the cluster refused a batch for good; the error says why.
	ErrAppendRefused = errors.New("append refused")
	// ErrClaimExpired: the cluster has forgotten the claim's producer id, so that the claim can't be renewed.
	ErrClaimExpired = errors.New("the cluster has forgotten the producer id of the claim")
)

// appender is the Writer of one partition. Life of a batch: operations gather in queue; when the sender asks (load) as
// many as fit are sealed into under, which from then on keeps its bytes and its sequence; the sender tells the outcome
// (landed): acknowledged, to be repeated byte for byte after a pause, or the end of the writer.
type appender struct {
	k       *Kafka
	p       int32         // partition
	claimed chan struct{} // closed when the first ownership record has an outcome

	mu       sync.Mutex
	owner    Ownership // as in the claim's ownership record; Released once the record that says so is sealed
	current  Claim
	err      error // why the writer is dead
	queue    []*pending
	backlog  int
	under    *sealed
	busy     bool // a sender has it, or a repeat or a renewal is under way
	sequence int32
	next     int64     // the offset after the last acknowledged batch
	since    time.Time // when what is at the head of the line got there; zero: nothing is
	attempt  int       // failed sends of under
	last     error     // the last one's reason
	sealedAt time.Time // when under was made
	renewal  renewal
	renewAt  time.Time
	adopting bool // the claim is another writer's (annex.go)
}

// pending is an operation that waits, with the barriers that wait for it.
type pending struct {
	op       operation
	size     int // in the batch, at most
	came     time.Time
	done     Done
	barriers []Done
	awaited  bool  // somebody waits until it is read
	refusal  error // it is not to be sent; this is its outcome when its turn comes
	repeats  bool  // it is the ownership record, which seal writes anew
	released bool  // and says that the partition is released
}

// sealed is a batch with its bytes.
type sealed struct {
	bytes   []byte
	records int
	ops     []*pending
	claim   *Claim // a claim or a renewal: the one that begins with this batch (Generation is still missing)
}

// Claim implements Writer.
func (a *appender) Claim() Claim {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current
}

// Append implements Writer.
func (a *appender) Append(timestamp int64, recs []Raw, done Done) {
	op := &pending{op: operation{timestamp, recs}, done: done}
	switch op.size = recordsSizeMax(recs); {
	case len(recs) == 0:
		op.refusal = ErrEmptyAppend
	case batchOverhead+op.size > a.k.BatchBytesMax():
		op.refusal = fmt.Errorf("%w: up to %d bytes, %d fit", ErrTooLarge, batchOverhead+op.size, a.k.BatchBytesMax())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.push(op)
}

// push queues op. a.mu is held.
func (a *appender) push(op *pending) {
	if a.err != nil {
		a.tell(op, -1, a.err)
		return
	}
	if op.refusal != nil {
		op.size = 0
	}
	op.came = time.Now()
	a.queue = append(a.queue, op)
	a.backlog += op.size
	if a.backlog > BacklogBytesMax {
		a.die(fmt.Errorf("%w: partition %d: %d bytes", ErrBacklog, a.p, a.backlog))
		return
	}
	a.kick()
}

// Barrier implements Writer.
func (a *appender) Barrier(done Done) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.queue); n > 0 && a.queue[n-1].refusal == nil && a.err == nil {
		a.queue[n-1].barriers = append(a.queue[n-1].barriers, done)
		a.queue[n-1].awaited = true
		return
	}
	op := a.ownership(false, done)
	op.awaited = true
	a.push(op)
}

// ownership is the ownership record, to be written again under the claim that is in force by then: a renewal may come first, and readers take only a
// record that names the epoch of its batch, and the last claim. What it has until it is sealed is a record of the largest size. a.mu is held.
func (a *appender) ownership(released bool, done Done) *pending {
	o := a.owner
	o.ProducerEpoch, o.Claim, o.Released = math.MaxInt16, math.MaxInt64, false
	recs := []Raw{ownershipRaw(o)}
	return &pending{op: operation{wall.Now().UnixMilli(), recs}, size: recordsSizeMax(recs), done: done, repeats: true, released: released}
}

// repeat is the ownership record under the claim in force. Once one says that the partition is released, those behind it say so too, a renewal's included:
// the newest is what compaction leaves. a.mu is held, and no claim is being made.
func (a *appender) repeat(released bool) Raw {
	a.owner.Released = a.owner.Released || released
	o := a.owner
	o.Claim = a.current.Generation
	return ownershipRaw(o)
}

// Backlog implements Writer.
func (a *appender) Backlog() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.backlog
}

// Release implements Writer.
func (a *appender) Release(ctx context.Context) error {
	outcome := make(chan error, 1)
	a.mu.Lock()
	a.push(a.ownership(true, func(_ int64, err error) { outcome <- err }))
	a.mu.Unlock()
	defer a.Close()
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		return fmt.Errorf("release of %s-%d: %w", a.k.id.Topic, a.p, ctx.Err())
	}
}

// Close implements Writer.
func (a *appender) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.die(ErrClosed)
}

// tell has op's Done functions called, in the order of the appends. a.mu is held.
func (a *appender) tell(op *pending, offset int64, err error) {
	call := func(done Done) {
		if done != nil {
			a.k.calls.add(func() { done(offset, err) })
		}
	}
	call(op.done)
	for _, done := range op.barriers {
		call(done)
	}
}

// kick starts what there is to do. a.mu is held.
func (a *appender) kick() {
	switch {
	case a.err != nil || a.busy:
	case a.renewal == renewalWanted:
		a.busy = true
		a.renewal = renewalUnderWay
		a.k.goes(a.renew)
	case len(a.queue) > 0:
		a.busy = true
		a.since = time.Now()
		a.send()
	}
}

// send gives the appender to the sender of the partition's leader. a.mu is held.
func (a *appender) send() {
	l := a.k.leaders.get(a.p)
	if l.node < 0 {
		a.k.leaders.refresh()
		a.again(errNoLeader)
		return
	}
	if s := a.k.sender(l.node); s != nil {
		s.add((*appenderParcel)(a))
	}
}

// again repeats the batch under way after a pause. a.mu is held.
func (a *appender) again(why error) {
	if err := a.k.leaders.failed(); err != nil {
		a.die(err)
		return
	}
	a.last = why
	pause := retryPause(a.attempt)
	a.attempt++
	time.AfterFunc(pause, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.err == nil {
			a.send()
		}
	})
}

// appenderParcel is an appender as a sender sees it.
type appenderParcel appender

func (a *appenderParcel) partition() int32 { return a.p }

// load implements parcel.
func (p *appenderParcel) load() ([]byte, int) {
	a := (*appender)(p)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil && a.under == nil {
		a.seal()
	}
	if a.err != nil || a.under == nil {
		a.busy = false
		a.since = time.Time{}
		return nil, 0
	}
	return a.under.bytes, a.under.records
}

// seal makes a batch of as many operations as fit. a.mu is held.
func (a *appender) seal() {
	b := &sealed{}
	size := batchOverhead
	var ops []operation
	n := 0
	for _, op := range a.queue {
		if op.refusal != nil && len(ops) > 0 || size+op.size > a.k.BatchBytesMax() && len(ops) > 0 {
			break
		}
		n++
		if op.refusal != nil {
			a.tell(op, -1, op.refusal)
			continue
		}
		size += op.size
		if op.repeats {
			op.op.recs = []Raw{a.repeat(op.released)}
		}
		ops = append(ops, op.op)
		b.ops = append(b.ops, op)
		b.records += len(op.op.recs)
	}
	clear(a.queue[:n])
	if a.queue = a.queue[n:]; len(a.queue) == 0 {
		a.queue = nil
	}
	if len(ops) > 0 {
		b.bytes = appendBatch(nil, a.current.ProducerID, a.current.ProducerEpoch, a.sequence, ops)
		a.under = b
		a.sealedAt = time.Now()
		a.k.timings.Linger.Record(a.sealedAt.Sub(b.ops[0].came))
	}
}

// landed implements parcel.
func (p *appenderParcel) landed(offset int64, err error) {
	a := (*appender)(p)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.err != nil: // too late: everybody was told
	case err == nil && offset < a.next:
		// Also where the broker took it for a repeat and doesn't say of what.
		a.die(fmt.Errorf("%w: %s-%d: acknowledged at offset %d, but the log reached to %d already", ErrOutcomeUnknown, a.k.id.Topic, a.p, offset, a.next))
	case err == nil && a.under.claim != nil:
		a.claimLanded(offset)
	case err == nil:
		a.acknowledged(offset)
	case errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.ProducerFenced):
		a.die(fmt.Errorf("%w (%s-%d, generation %d)", ErrFenced, a.k.id.Topic, a.p, a.current.Generation))
	case retriable(err):
		a.again(err)
	case errors.Is(err, kerr.OutOfOrderSequenceNumber), errors.Is(err, kerr.UnknownProducerID),
		errors.Is(err, kerr.DuplicateSequenceNumber), errors.Is(err, kerr.InvalidProducerIDMapping):
		// The broker's memory of this producer is not ours. Whether an earlier attempt is in the log can't be told.
		a.die(fmt.Errorf("%w: %s-%d: %w", ErrOutcomeUnknown, a.k.id.Topic, a.p, err))
	case errors.Is(err, kerr.InvalidTimestamp):
		a.die(fmt.Errorf("%w: %s-%d: this machine's clock says %s, which is too far from the brokers' (message.timestamp.after.max.ms ahead, an hour by default, or message.timestamp.before.max.ms behind): set the clock: %w",
			ErrAppendRefused, a.k.id.Topic, a.p, wall.Now().UTC().Format(time.RFC3339), err))
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		a.die(fmt.Errorf("%w: %s-%d: the process needs WRITE on the topic: %w", ErrAppendRefused, a.k.id.Topic, a.p, err))
	default:
		a.die(fmt.Errorf("%w: %s-%d: %w", ErrAppendRefused, a.k.id.Topic, a.p, err))
	}
}

// acknowledged ends the batch under way well. a.mu is held.
func (a *appender) acknowledged(offset int64) {
	b := a.under
	a.k.timings.Flush.Record(time.Since(a.sealedAt))
	a.next = offset + int64(b.records)
	a.sequence = nextSequence(a.sequence, b.records)
	if slices.ContainsFunc(b.ops, func(op *pending) bool { return op.awaited }) {
		a.read()
	}
	for _, op := range b.ops {
		a.backlog -= op.size
		a.tell(op, offset, nil)
		offset += int64(len(op.op.recs))
	}
	a.idle()
	a.kick()
}

// read has the tail read the partition soon. a.mu is held.
func (a *appender) read() {
	if l := a.k.leaders.get(a.p); l.node >= 0 {
		a.k.awaited.from(l.node)
	}
}

// idle says that nothing is under way. a.mu is held.
func (a *appender) idle() {
	a.under, a.busy, a.since, a.attempt, a.last = nil, false, time.Time{}, 0, nil
}

// die ends the writer; everything that waits fails with err. Only the first time counts. a.mu is held.
func (a *appender) die(err error) {
	if a.err != nil {
		return
	}
	a.err = err
	if a.under != nil {
		for _, op := range a.under.ops {
			a.tell(op, -1, err)
		}
	}
	for _, op := range a.queue {
		a.tell(op, -1, err)
	}
	a.idle()
	a.queue, a.backlog = nil, 0
	select {
	case <-a.claimed:
	default:
		close(a.claimed)
	}
	a.k.forget(a)
}

// check is called again and again: deadline and renewal.
func (a *appender) check(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.err != nil:
	case !a.since.IsZero() && now.Sub(a.since) > a.k.cfg.AppendDeadline:
		a.die(fmt.Errorf("%w: %s-%d: no answer that counts in %v, after %d failed attempts; the last: %v", ErrOutcomeUnknown, a.k.id.Topic, a.p, a.k.cfg.AppendDeadline, a.attempt, a.last))
	case a.renewal == renewalNone && now.After(a.renewAt):
		a.renewal = renewalWanted
		a.kick()
	}
}
