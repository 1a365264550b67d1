package eventlog

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// FakeOptions configure a Fake. The zero value is a log of one partition.
type FakeOptions struct {
	Topic         string // default "__streams_groups"
	Partitions    int32  // default 1
	BatchBytesMax int    // default 1,048,588, Kafka's max.message.bytes
	// IdleInterval is how often a follower that stands at the end is told so again; default 500 ms, negative: only
	// once after Resume and after each change.
	IdleInterval time.Duration
	// EntriesPerRead bounds how many entries one Follower.Batch call brings (whole batches, at least one); 0: all.
	EntriesPerRead int
}

// Fake is a Log in memory, for tests. It behaves as a Kafka topic does, with every fault of the real one at hand
// (fake_faults.go), transactional records and compaction (fake_compact.go). Each append is a batch of its own.
//
// Everything happens in a fixed order: an append is in the log, acknowledged and visible to followers when Append
// returns, unless a fault says otherwise; Done functions are called by one goroutine, in order. It works in a
// testing/synctest bubble when NewFake was called inside it; Close ends all its goroutines.
type Fake struct {
	options FakeOptions

	mu      sync.Mutex
	id      Identity
	parts   []*fakePartition
	changed chan struct{} // closed and replaced at every change
	gone    error         // why following is impossible
	topics  int           // how often the topic was replaced
	closed  bool
	calls   []func()      // Done calls that wait
	wake    chan struct{} // tells the caller of calls; closed by Close
	ended   sync.WaitGroup
}

var _ Log = (*Fake)(nil)

type fakePartition struct {
	p        int32
	batches  []fakeBatch
	end      int64 // the next offset
	logStart int64
	epoch    int32           // leader epoch
	epochs   []fakeEpoch     // where each leader epoch began
	producer int64           // producer id of the partition's transactional id
	issued   int16           // its last epoch given out
	ids      int64           // producer ids given after the first
	seen     map[int64]int16 // the newest epoch in the log, by producer id: what the broker fences by
	begun    []fakeBegun     // when those came into the log
	writers  []*fakeWriter   // live ones
	faults   fakeFaults

	adopted   Claim // as an annex: the last claim adopted
	adoptions int
}

type fakeBatch struct {
	first, last int64
	epoch       int32
	entries     []Entry // may be fewer than the offsets, or none, after compaction
}

// fakeBegun is the first batch of a producer's epoch.
type fakeBegun struct {
	offset int64
	id     int64
	epoch  int16
}

type fakeEpoch struct {
	epoch int32
	start int64
}

// NewFake makes an empty log.
func NewFake(options FakeOptions) *Fake {
	if options.Topic == "" {
		options.Topic = "__streams_groups"
	}
	if options.Partitions == 0 {
		options.Partitions = 1
	}
	if options.BatchBytesMax == 0 {
		options.BatchBytesMax = 1048588
	}
	if options.IdleInterval == 0 {
		options.IdleInterval = 500 * time.Millisecond
	}
	f := &Fake{
		options: options,
		id:      Identity{Topic: options.Topic, TopicID: [16]byte{15: 1}, Partitions: options.Partitions},
		changed: make(chan struct{}),
		wake:    make(chan struct{}, 1),
	}
	for p := range options.Partitions {
		f.parts = append(f.parts, &fakePartition{
			p: p, producer: firstProducer(p), issued: -1, seen: map[int64]int16{}, epochs: []fakeEpoch{{0, 0}},
		})
	}
	f.ended.Add(1)
	go f.callDones()
	return f
}

// Identity implements Log.
func (f *Fake) Identity() Identity {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id
}

// BatchBytesMax implements Log.
func (f *Fake) BatchBytesMax() int { return f.options.BatchBytesMax }

// End implements Log.
func (f *Fake) End(ctx context.Context, p int32) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if f.closed {
		return 0, ErrClosed
	}
	part, err := f.part(p)
	if err != nil {
		return 0, err
	}
	if errs := part.faults.endErrors; len(errs) > 0 {
		part.faults.endErrors = errs[1:]
		return 0, errs[0]
	}
	return part.end, nil
}

// Close ends the log: writers and followers fail with ErrClosed. It returns when all Done functions were called.
func (f *Fake) Close() {
	f.mu.Lock()
	if !f.closed {
		for _, part := range f.parts {
			for _, w := range append([]*fakeWriter(nil), part.writers...) {
				w.die(ErrClosed)
			}
		}
		f.closed = true
		close(f.wake)
		f.notify()
	}
	f.mu.Unlock()
	f.ended.Wait()
}

// Claim implements Log.
func (f *Fake) Claim(ctx context.Context, p int32, o Ownership) (Writer, error) {
	return f.ClaimAfter(ctx, p, o, nil, 0)
}

// ClaimAfter implements Log.
func (f *Fake) ClaimAfter(ctx context.Context, p int32, o Ownership, prev *Owner, lease time.Duration) (Writer, error) {
	w, err := f.claim(ctx, p, o, prev)
	if err != nil || !w.current.FreshProducer || lease <= 0 {
		return w, err
	}
	t := time.NewTimer(lease)
	defer t.Stop()
	select {
	case <-t.C:
		return w, nil
	case <-ctx.Done():
		w.Close()
		return nil, ctx.Err()
	}
}

func (f *Fake) claim(ctx context.Context, p int32, o Ownership, prev *Owner) (*fakeWriter, error) {
	for {
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			return nil, ErrClosed
		}
		part, err := f.part(p)
		if err != nil {
			f.mu.Unlock()
			return nil, err
		}
		if !part.faults.holdClaims {
			break // with f.mu held
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	part := f.parts[p]
	if errs := part.faults.claimErrors; len(errs) > 0 {
		part.faults.claimErrors = errs[1:]
		return nil, errs[0]
	}
	o.Number = 0
	if prev != nil {
		o.Number = prev.Number
	}
	for spent(Claim{ProducerID: part.producer}, prev) != nil { // another transactional id
		o.Number++
		part.expire()
	}
	w := &fakeWriter{f: f, part: part, owner: o}
	fresh := w.fenceFormer(prev)
	w.take()
	w.current.FreshProducer = fresh
	part.writers = append(part.writers, w)
	return w, nil
}

func (f *Fake) part(p int32) (*fakePartition, error) {
	if p < 0 || int(p) >= len(f.parts) {
		return nil, fmt.Errorf("log topic %s has no partition %d (it has %d)", f.id.Topic, p, len(f.parts))
	}
	return f.parts[p], nil
}

// notify wakes everybody who waits for a change. f.mu is held.
func (f *Fake) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// later queues the call of a Done function. f.mu is held.
func (f *Fake) later(done Done, offset int64, err error) {
	if done == nil {
		return
	}
	f.calls = append(f.calls, func() { done(offset, err) })
	if !f.closed {
		select {
		case f.wake <- struct{}{}:
		default: // it was told already
		}
	}
}

func (f *Fake) callDones() {
	defer f.ended.Done()
	for {
		_, open := <-f.wake
		f.mu.Lock()
		calls := f.calls
		f.calls = nil
		f.mu.Unlock()
		for _, call := range calls {
			call()
		}
		if !open && len(calls) == 0 {
			return
		}
	}
}

// write puts entries into the log as one batch: offsets, and the broker's fence, are set here. f.mu is held.
func (part *fakePartition) write(f *Fake, entries []Entry) int64 {
	first := part.end
	for i := range entries {
		entries[i].Offset = first + int64(i)
		e := entries[i]
		if newest, known := part.seen[e.ProducerID]; e.ProducerID >= 0 && (!known || e.ProducerEpoch > newest) {
			part.seen[e.ProducerID] = e.ProducerEpoch
			part.begun = append(part.begun, fakeBegun{e.Offset, e.ProducerID, e.ProducerEpoch})
		}
	}
	part.end = first + int64(len(entries))
	part.batches = append(part.batches, fakeBatch{first: first, last: part.end - 1, epoch: part.epoch, entries: entries})
	f.notify()
	return first
}
