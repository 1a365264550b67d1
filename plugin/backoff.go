package plugin

import (
	"container/heap"
	"math"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// Kafka's constants (class StreamsGroupTopologyDescriptionBackoff): a delay doubles from the first to the longest and is
// off by up to a fifth, so that groups that were asked together are not asked together again.
const (
	BackoffDelayMin = 30 * time.Second
	BackoffDelayMax = time.Hour
	backoffFactor   = 2
	backoffJitter   = 0.2
)

// backoffDoublings is after how many doublings, a fraction, the longest delay is reached.
var backoffDoublings = math.Log(float64(BackoffDelayMax/time.Millisecond)/float64(BackoffDelayMin/time.Millisecond)) / math.Log(backoffFactor)

// EpochConversion is the pseudo topology epoch under which deletes are held back that a classic member's join asks for (Kafka
// uses the value of an uncertain description epoch for it).
const EpochConversion int32 = -2

// BackoffEntriesDefault bounds the entries. One is some 400 bytes, the group's id and two short texts, so all take some 60 MB; a replica with
// more groups than that whose members don't answer forgets which of them it asked longest ago, and asks those too early.
const BackoffEntriesDefault = 100_000

// Backoff says when the members of a group may be asked for a description again. It has one entry per group, which belongs to
// one topology epoch: another epoch begins anew. It lives in memory only; after a restart everybody may be asked.
//
// The time is an argument, so it is a pure state machine but for its lock. What Kafka lacks: the bound; ForgetIf,
// with which entries leave together with their shard; and the History.
type Backoff struct {
	jitter     func() float64
	entriesMax int

	mu      sync.Mutex
	entries map[string]*backoffEntry
	order   backoffHeap // by the end of the window
}

// BackoffEntry is what is known of a group that was asked or whose plugin call failed.
type BackoffEntry struct {
	TopologyEpoch int32     // EpochConversion: a delete is held back
	Attempts      int       // how often before this window, at this epoch
	Next          time.Time // the window's end: until then nobody is asked
	History
}

type backoffEntry struct {
	BackoffEntry
	group   string
	index   int               // in order
	askedBy trace.SpanContext // the heartbeat that asked, until a push was linked to it
}

// NewBackoff returns an empty Backoff. jitter returns numbers in [0, 1), as rand.Float64 does; it is called under
// Backoff's lock. entriesMax 0 is BackoffEntriesDefault.
func NewBackoff(jitter func() float64, entriesMax int) *Backoff {
	if entriesMax <= 0 {
		entriesMax = BackoffEntriesDefault
	}
	return &Backoff{jitter: jitter, entriesMax: entriesMax, entries: map[string]*backoffEntry{}}
}

// Active says whether the group is in a window of this epoch (Kafka: isActive).
func (b *Backoff) Active(group string, topologyEpoch int32, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[group].active(topologyEpoch, now)
}

func (e *backoffEntry) active(topologyEpoch int32, now time.Time) bool {
	return e != nil && e.TopologyEpoch == topologyEpoch && now.Before(e.Next)
}

// Arm begins a window if none of this epoch is open, and says whether it did: the caller then asks a member, or makes the
// call (Kafka: armIfNotActive).
func (b *Backoff) Arm(group string, topologyEpoch int32, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[group]
	if e.active(topologyEpoch, now) {
		return false
	}
	b.begin(e, group, topologyEpoch, now)
	return true
}

// Extend begins the next window, even if one is open, after a transient failure; an entry of a higher epoch stays as
// it is (Kafka: armOrExtend).
func (b *Backoff) Extend(group string, topologyEpoch int32, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.extend(group, topologyEpoch, now)
}

// extend returns the entry, nil where it is of a higher epoch.
func (b *Backoff) extend(group string, topologyEpoch int32, now time.Time) *backoffEntry {
	e := b.entries[group]
	if e != nil && e.TopologyEpoch > topologyEpoch {
		return nil
	}
	return b.begin(e, group, topologyEpoch, now)
}

// Clear ends the window of this epoch, and forgets the group unless Lose has to remember it: what was asked for is stored, or refused
// for good.
func (b *Backoff) Clear(group string, topologyEpoch int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[group]; e != nil && e.TopologyEpoch == topologyEpoch {
		b.settle(e)
	}
}

// Forget forgets the group: its description was deleted, or the group is gone (Kafka: clearGroup).
func (b *Backoff) Forget(group string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[group]; e != nil {
		b.remove(e)
	}
}

// ForgetIf forgets the groups for which gone returns true, for example all of a shard that moved. gone runs under Backoff's lock.
func (b *Backoff) ForgetIf(gone func(group string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for group, e := range b.entries {
		if gone(group) {
			b.remove(e)
		}
	}
}

// Entry returns what is known of the group, for those who want to know why there is no description.
func (b *Backoff) Entry(group string) (BackoffEntry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[group]
	if e == nil {
		return BackoffEntry{}, false
	}
	return e.BackoffEntry, true
}

// Len is the number of entries.
func (b *Backoff) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries)
}

// begin gives the group, whose entry is e or nil, its next window; it returns its entry.
func (b *Backoff) begin(e *backoffEntry, group string, topologyEpoch int32, now time.Time) *backoffEntry {
	next := BackoffEntry{TopologyEpoch: topologyEpoch}
	if e != nil && e.TopologyEpoch == topologyEpoch {
		next.Attempts, next.History = e.Attempts+1, e.History
	}
	next.Next = now.Add(BackoffDelay(next.Attempts, b.jitter()))
	if e != nil {
		e.BackoffEntry, e.askedBy = next, trace.SpanContext{}
		b.fix(e)
		return e
	}
	if len(b.entries) >= b.entriesMax {
		b.remove(b.order[0]) // its window ends first, or is over: the least is lost
	}
	e = &backoffEntry{BackoffEntry: next, group: group}
	b.entries[group] = e
	heap.Push(&b.order, e)
	return e
}

// fix gives an entry whose window changed its place in the order.
func (b *Backoff) fix(e *backoffEntry) { heap.Fix(&b.order, e.index) }

func (b *Backoff) remove(e *backoffEntry) {
	delete(b.entries, e.group)
	heap.Remove(&b.order, e.index)
}

// BackoffDelay is the length of a window after so many earlier ones: 30 s, doubled each time up to an hour, times a factor that
// jitter in [0, 1) spreads over [0.8, 1.2), never above an hour; whole milliseconds.
func BackoffDelay(attempts int, jitter float64) time.Duration {
	doublings := min(float64(attempts), backoffDoublings)
	ms := float64(BackoffDelayMin/time.Millisecond) * math.Pow(backoffFactor, doublings)
	ms *= 1 - backoffJitter + 2*backoffJitter*jitter
	return min(time.Duration(ms)*time.Millisecond, BackoffDelayMax)
}

// backoffHeap has the entry whose window ends first at its head.
type backoffHeap []*backoffEntry

func (h backoffHeap) Len() int { return len(h) }

func (h backoffHeap) Less(i, j int) bool {
	if !h[i].Next.Equal(h[j].Next) {
		return h[i].Next.Before(h[j].Next)
	}
	return h[i].group < h[j].group
}

func (h backoffHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for container/heap.
func (h *backoffHeap) Push(x any) {
	e := x.(*backoffEntry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop is for container/heap.
func (h *backoffHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}
