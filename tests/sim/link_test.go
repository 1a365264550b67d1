package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"streamkeeper/eventlog"
)

// appendDeadline is after what time without an outcome a writer gives up, as the real one does.
const appendDeadline = 30 * time.Second

// link is the network between a replica and the log's brokers. While it is cut, what is sent is under way and arrives when it is
// whole again, in order; the same with the answers.
type link struct {
	delay func(kind string) time.Duration

	mu      sync.Mutex
	cut     bool
	whole   chan struct{} // closed while it is not cut
	there   []func()      // under way to the brokers
	back    []func()
	frozen  bool // the process does not run: what comes back waits
	tailCut bool // the brokers' answers to fetches alone
	tail    chan struct{}
}

func newLink(delay func(string) time.Duration) *link {
	l := &link{delay: delay, whole: make(chan struct{}), tail: make(chan struct{})}
	close(l.whole)
	close(l.tail)
	return l
}

// set cuts the link or makes it whole.
func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cut == l.cut {
		return
	}
	l.cut = cut
	if cut {
		l.whole = make(chan struct{})
		return
	}
	close(l.whole)
	for _, f := range l.there {
		f()
	}
	l.there = nil
	l.deliver()
}

func (l *link) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

// setFrozen stops what comes back alone, or lets it through.
func (l *link) setFrozen(frozen bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = frozen
	l.deliver()
}

// deliver brings what has come back, if it can arrive. l.mu is held.
func (l *link) deliver() {
	if l.cut || l.frozen {
		return
	}
	for _, f := range l.back {
		f()
	}
	l.back = nil
}

// setTail does the same to what is read alone.
func (l *link) setTail(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cut == l.tailCut {
		return
	}
	l.tailCut = cut
	if cut {
		l.tail = make(chan struct{})
	} else {
		close(l.tail)
	}
}

// wait returns when the link is whole, or with ctx's error.
func (l *link) wait(ctx context.Context) error {
	return l.await(ctx, func() chan struct{} { return l.whole })
}

func (l *link) await(ctx context.Context, which func() chan struct{}) error {
	for {
		l.mu.Lock()
		ch := which()
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ch:
		}
		l.mu.Lock()
		same := ch == which()
		l.mu.Unlock()
		if same {
			return nil
		}
	}
}

// send runs f at the brokers, now or when the link is whole; in order.
func (l *link) send(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		l.there = append(l.there, f)
		return
	}
	f()
}

// receive runs f in the process, now or when it can arrive; in order.
func (l *link) receive(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.back = append(l.back, f)
	l.deliver()
}

// linkedLog is the log as one replica sees it through its link.
type linkedLog struct {
	*eventlog.Fake
	l     *link
	gate  *gate
	drop  func(eventlog.Entry) bool // sabotage: what a reader does not get
	lie   func() bool               // sabotage: whether the next append is acknowledged and not made
	hasty bool                      // sabotage: a read barrier is acknowledged and not made
	lag   time.Duration             // sabotage: by how much longer each batch takes
	// soothed: sabotage, while nothing can be read it says that there is nothing to read.
	soothed bool

	mu      sync.Mutex
	writers []*linkedWriter
}

func (g *linkedLog) Claim(ctx context.Context, p int32, o eventlog.Ownership) (eventlog.Writer, error) {
	return g.ClaimAfter(ctx, p, o, nil, 0)
}

// ClaimAfter gives up at a deadline, as the real one; the claim may be in the log all the same.
func (g *linkedLog) ClaimAfter(ctx context.Context, p int32, o eventlog.Ownership, prev *eventlog.Owner, lease time.Duration) (eventlog.Writer, error) {
	ctx, cancel := context.WithTimeout(ctx, appendDeadline+lease)
	defer cancel()
	g.gate.pass()
	if err := g.l.wait(ctx); err != nil {
		return nil, err
	}
	inner, err := g.Fake.ClaimAfter(ctx, p, o, prev, lease)
	if err != nil {
		return nil, err
	}
	pause(g.l.delay(fmt.Sprint("claim ", p)))
	if err := g.l.wait(ctx); err != nil {
		inner.Close()
		return nil, err
	}
	g.gate.pass()
	w := &linkedWriter{inner: inner, l: g.l, gate: g.gate, lie: g.lie, hasty: g.hasty, acks: fmt.Sprint("ack ", p)}
	g.mu.Lock()
	g.writers = append(g.writers, w)
	g.mu.Unlock()
	return w, nil
}

// renew makes a writer renew its claim, as each does every few hours, if none of its appends is under way.
func (g *linkedLog) renew(rng *rand.Rand) {
	g.mu.Lock()
	g.writers = slices.DeleteFunc(g.writers, func(w *linkedWriter) bool { return w.dead() })
	writers := slices.Clone(g.writers)
	g.mu.Unlock()
	if len(writers) == 0 {
		return
	}
	w := writers[rng.IntN(len(writers))]
	w.l.send(func() {
		defer func() { _ = recover() }() // the fake refuses a writer that a fault has ended without our knowledge
		if w.idle() {
			g.Fake.Renew(w.inner)
		}
	})
}

// End implements eventlog.Log.
func (g *linkedLog) End(ctx context.Context, p int32) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, appendDeadline)
	defer cancel()
	g.gate.pass()
	if err := g.l.wait(ctx); err != nil {
		return 0, err
	}
	end, err := g.Fake.End(ctx, p)
	if err != nil {
		return 0, err
	}
	pause(g.l.delay(fmt.Sprint("end ", p)))
	g.gate.pass()
	return end, g.l.wait(ctx)
}

// Follow implements eventlog.Log.
func (g *linkedLog) Follow(ctx context.Context, f eventlog.Follower) error {
	return g.Fake.Follow(ctx, linkedFollower{f, g.l, g.gate, ctx, g.drop, g.lag, g.soothed, new(sync.Map)})
}

type linkedFollower struct {
	eventlog.Follower
	l    *link
	gate *gate
	ctx  context.Context
	drop func(eventlog.Entry) bool // sabotage; nil: everything arrives
	lag  time.Duration             // sabotage
	// soothed: sabotage, while nothing can be read it is told that there is nothing. last is where each partition stood.
	soothed bool
	last    *sync.Map
}

// Batch brings b when the link lets it.
func (f linkedFollower) Batch(p int32, b eventlog.Batch) error {
	pause(f.lag + f.l.delay(fmt.Sprint("batch ", p)))
	if err := f.arrive(p, func() chan struct{} { return f.l.whole }); err != nil {
		return err
	}
	if err := f.arrive(p, func() chan struct{} { return f.l.tail }); err != nil {
		return err
	}
	f.gate.pass()
	f.last.Store(p, eventlog.Batch{Next: b.Next, LeaderEpoch: b.LeaderEpoch, HighWatermark: b.Next, LogStart: b.LogStart})
	if f.drop != nil {
		b.Entries = slices.DeleteFunc(slices.Clone(b.Entries), f.drop)
	}
	return f.Follower.Batch(p, b)
}

// Reset comes the same way: a tail that stands still does not hear that its log was cut off.
func (f linkedFollower) Reset(p int32, why string) error {
	if err := f.l.wait(f.ctx); err != nil {
		return err
	}
	if err := f.l.await(f.ctx, func() chan struct{} { return f.l.tail }); err != nil {
		return err
	}
	f.gate.pass()
	f.last.Delete(p)
	return f.Follower.Reset(p, why)
}

// arrive waits until what was read can arrive.
func (f linkedFollower) arrive(p int32, which func() chan struct{}) error {
	for {
		ctx, cancel := f.ctx, func() {}
		if f.soothed {
			ctx, cancel = context.WithTimeout(f.ctx, idleInterval)
		}
		err := f.l.await(ctx, which)
		cancel()
		if err == nil || !f.soothed || f.ctx.Err() != nil {
			return err
		}
		if b, ok := f.last.Load(p); ok {
			if err := f.Follower.Batch(p, b.(eventlog.Batch)); err != nil {
				return err
			}
		}
	}
}

// linkedWriter is a writer at the near end of a link.
type linkedWriter struct {
	inner eventlog.Writer
	l     *link
	gate  *gate
	lie   func() bool // sabotage
	hasty bool        // sabotage: no read barrier
	acks  string      // kind of its answers

	mu      sync.Mutex
	waiting []*linkedAppend // in the order of the appends
	err     error
	lastAck time.Time
}

type linkedAppend struct {
	done     eventlog.Done
	deadline *time.Timer
	bytes    int
}

func (w *linkedWriter) dead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

// idle says that it lives and waits for nothing.
func (w *linkedWriter) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err == nil && len(w.waiting) == 0
}

func (w *linkedWriter) Claim() eventlog.Claim { return w.inner.Claim() }

func (w *linkedWriter) Renew() { w.inner.Renew() }

func (w *linkedWriter) Backlog() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, a := range w.waiting {
		n += a.bytes
	}
	return n
}

func (w *linkedWriter) Append(timestamp int64, recs []eventlog.Raw, done eventlog.Done) {
	bytes := 0
	for _, r := range recs {
		bytes += len(r.Key) + len(r.Value)
	}
	if w.lie != nil && w.lie() {
		w.op(bytes, done, func(acked eventlog.Done) { w.inner.Barrier(acked) })
		return
	}
	w.op(bytes, done, func(acked eventlog.Done) { w.inner.Append(timestamp, recs, acked) })
}

func (w *linkedWriter) Barrier(done eventlog.Done) {
	if w.hasty {
		go done(w.inner.Claim().Generation, nil)
		return
	}
	w.op(0, done, func(acked eventlog.Done) { w.inner.Barrier(acked) })
}

func (w *linkedWriter) op(bytes int, done eventlog.Done, send func(eventlog.Done)) {
	w.gate.pass()
	w.mu.Lock()
	if err := w.err; err != nil {
		w.mu.Unlock()
		done(-1, err)
		return
	}
	a := &linkedAppend{done: done, bytes: bytes}
	a.deadline = time.AfterFunc(appendDeadline, func() { w.fail(eventlog.ErrOutcomeUnknown) })
	w.waiting = append(w.waiting, a)
	w.mu.Unlock()
	w.l.send(func() {
		send(func(offset int64, err error) {
			// Answers come in order, each a while after the one before.
			w.mu.Lock()
			at := time.Now().Add(w.l.delay(w.acks))
			if !at.After(w.lastAck) {
				at = w.lastAck.Add(1)
			}
			w.lastAck = at
			w.mu.Unlock()
			time.AfterFunc(time.Until(at), func() { w.l.receive(func() { w.finish(a, offset, err) }) })
		})
	})
}

// finish takes the answer to a.
func (w *linkedWriter) finish(a *linkedAppend, offset int64, err error) {
	if err != nil && !errors.Is(err, eventlog.ErrTooLarge) {
		w.fail(err)
		return
	}
	w.mu.Lock()
	i := slices.Index(w.waiting, a)
	if i < 0 { // given up before
		w.mu.Unlock()
		return
	}
	if i > 0 {
		panic("answers of the log came out of order")
	}
	w.waiting = w.waiting[1:]
	a.deadline.Stop()
	w.mu.Unlock()
	a.done(offset, err)
}

// fail ends the writer. What is under way stays so: it may still arrive.
func (w *linkedWriter) fail(err error) {
	w.mu.Lock()
	if w.err != nil {
		w.mu.Unlock()
		return
	}
	w.err = err
	waiting := w.waiting
	w.waiting = nil
	w.mu.Unlock()
	for _, a := range waiting {
		a.deadline.Stop()
		a.done(-1, err)
	}
	go func() { // fail may be called by the link, which is locked then
		w.gate.pass()
		w.l.send(w.inner.Close)
	}()
}

func (w *linkedWriter) Release(ctx context.Context) error {
	w.mu.Lock()
	err := w.err
	w.mu.Unlock()
	if err != nil {
		return err
	}
	defer w.Close()
	w.gate.pass()
	if err := w.l.wait(ctx); err != nil {
		return err
	}
	return w.inner.Release(ctx)
}

func (w *linkedWriter) Close() { w.fail(eventlog.ErrClosed) }
