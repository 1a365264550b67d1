package eventlog

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// gatherMax is how long a fetch waits for partitions whose last read is being applied: applying takes less as a rule,
	// and a fetch without a partition would keep it waiting for as long as nothing is read of the others.
	gatherMax = 10 * time.Millisecond
	// shortWait is how long a fetch waits on the broker when a partition missed it all the same.
	shortWait = 50 * time.Millisecond
	// fetchPace is the least time between two fetches that bring records. A log that is written to all the time would otherwise be
	// fetched once per batch, and a fetch of fifty partitions costs a broker more than the append that it reads.
	fetchPace = 5 * time.Millisecond
	// awaitedPace is the same where somebody waits until a record is read: a claim, a read barrier.
	awaitedPace = time.Millisecond
)

// decompressor is for batches that somebody else compressed (compression.type of the topic).
var decompressor = kgo.DefaultDecompressor()

// fetcher fetches all partitions that one broker leads.
type fetcher struct {
	t    *tail
	node int32
	wake chan struct{}
	soon <-chan struct{} // something new is awaited

	mu      sync.Mutex
	ready   []*partitionTail
	members map[*partitionTail]bool // who comes back after each fetch; the value: it was late, don't wait for it

	turn    int       // rotates who is first in a request: a broker fills fetchBytesMax in that order
	brought time.Time // when the last fetch that brought records came back; zero: the last brought none
}

func newFetcher(t *tail, node int32) *fetcher {
	return &fetcher{t: t, node: node, wake: make(chan struct{}, 1), soon: t.k.awaited.of(node), members: map[*partitionTail]bool{}}
}

func (f *fetcher) add(pt *partitionTail) {
	f.mu.Lock()
	f.members[pt] = false
	f.ready = append(f.ready, pt)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default: // it was told already
	}
}

func (f *fetcher) drop(pt *partitionTail) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.members, pt)
}

func (f *fetcher) run() {
	for {
		for !f.complete() {
			if !f.gather() {
				return
			}
		}
		f.mu.Lock()
		pts := f.ready
		missing := len(f.members) > len(pts)
		f.ready = nil
		f.mu.Unlock()
		if !f.pace() {
			return
		}
		if pts = f.current(pts); len(pts) > 0 {
			wait := f.t.k.cfg.ReadWait
			if missing {
				wait = min(wait, shortWait)
			}
			f.fetch(pts, wait)
		}
	}
}

// pace waits until fetchPace is over since the last fetch brought records, or awaitedPace where one is awaited; false: ctx ended.
func (f *fetcher) pace() bool {
	if f.brought.IsZero() {
		return true
	}
	t := time.NewTimer(fetchPace - time.Since(f.brought))
	defer t.Stop()
	soon := f.soon
	for {
		select {
		case <-t.C:
			return true
		case <-soon:
			soon = nil
			t.Reset(awaitedPace - time.Since(f.brought))
		case <-f.t.ctx.Done():
			return false
		}
	}
}

// awaited tells the fetchers that somebody waits until they have read what has just been appended.
type awaited struct {
	mu    sync.Mutex
	nodes map[int32]chan struct{} // by the broker that is read from; a token: its fetcher is to make haste once
}

func (a *awaited) of(node int32) chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nodes == nil {
		a.nodes = map[int32]chan struct{}{}
	}
	c := a.nodes[node]
	if c == nil {
		c = make(chan struct{}, 1)
		a.nodes[node] = c
	}
	return c
}

// from has the fetcher of a broker make haste.
func (a *awaited) from(node int32) {
	select {
	case a.of(node) <- struct{}{}:
	default: // it was told already
	}
}

// complete says that everybody is there who is waited for, and somebody is.
func (f *fetcher) complete() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ready) == 0 {
		return false
	}
	awaited := 0
	for _, late := range f.members {
		if !late {
			awaited++
		}
	}
	return len(f.ready) >= awaited
}

// gather waits for the next partition to come, for a while if there are some; false: ctx ended.
func (f *fetcher) gather() bool {
	var timeout <-chan time.Time
	f.mu.Lock()
	if len(f.ready) > 0 {
		t := time.NewTimer(gatherMax)
		defer t.Stop()
		timeout = t.C
	}
	f.mu.Unlock()
	select {
	case <-f.wake:
	case <-timeout:
		f.mu.Lock()
		defer f.mu.Unlock()
		here := make(map[*partitionTail]bool, len(f.ready))
		for _, pt := range f.ready {
			here[pt] = true
		}
		for pt := range f.members {
			f.members[pt] = !here[pt]
		}
	case <-f.t.ctx.Done():
		return false
	}
	return true
}

// current sends those back whose leader has changed meanwhile.
func (f *fetcher) current(pts []*partitionTail) []*partitionTail {
	kept := pts[:0]
	for _, pt := range pts {
		if f.t.k.leaders.get(pt.p) != pt.checked {
			pt.results <- fetched{err: errNewLeader}
			continue
		}
		kept = append(kept, pt)
	}
	return kept
}

// fetch makes one request for pts and tells each its answer. Those with nothing to tell stay ready.
func (f *fetcher) fetch(pts []*partitionTail, wait time.Duration) {
	f.turn++
	wants := make([]wanted, len(pts))
	at := make([]*partitionTail, len(pts))
	for i := range pts {
		pt := pts[(i+f.turn)%len(pts)]
		at[i], wants[i] = pt, wanted{pt.p, pt.pos.Offset, pt.checked.epoch}
	}
	answers, err := f.t.k.fetch(f.t.ctx, f.node, wants, wait)
	if err != nil {
		for _, pt := range at {
			pt.results <- fetched{err: err}
		}
		return
	}
	now := time.Now()
	f.brought = time.Time{}
	var still []*partitionTail
	for i, pt := range at {
		if len(answers[i].RecordBatches) > 0 {
			f.brought = now
		}
		if pt.nothingNew(answers[i], now, f.t.k.cfg.ReadWait) {
			still = append(still, pt)
			continue
		}
		pt.results <- fetched{answer: answers[i]}
	}
	f.mu.Lock()
	f.ready = append(f.ready, still...)
	f.mu.Unlock()
}

// nothingNew says that an answer changes nothing: no records, and the follower knows already that it stands at the end,
// and was told so not long ago. Called while pt waits for the fetcher.
func (pt *partitionTail) nothingNew(answer kmsg.FetchResponseTopicPartition, now time.Time, idle time.Duration) bool {
	return answer.ErrorCode == 0 && len(answer.RecordBatches) == 0 &&
		(answer.HighWatermark < pt.pos.Offset || answer.HighWatermark == pt.toldEnd && now.Sub(pt.toldTime) < idle)
}
