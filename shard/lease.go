package shard

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Instant is a reading of a Clock: nanoseconds since a start that is the clock's own, but never 0 in practice. Only
// instants of one clock can be compared.
type Instant int64

// Never is before every reading of a clock: a lease that ends then is over.
const Never Instant = 0

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns how much later i is than o.
func (i Instant) Sub(o Instant) time.Duration { return time.Duration(i - o) }

// Clock counts the time that leases are made of. It never goes back, and it goes on while the process or the
// machine sleeps: a replica that wakes up must see at once that its lease is over. BootClock is the real one.
type Clock interface{ Now() Instant }

// Lease is the time during which this replica may answer from memory (D3): as long as the ownership group can't have
// given its partitions to another member without its knowledge.
//
// The group's coordinator removes a member no earlier than one session time-out after it received the member's last
// heartbeat, and it received it after it was sent. So a confirmed heartbeat makes the lease last until
// sent + session time-out - margin; the margin (MembershipConfig.LeaseMargin) is for clocks that differ in speed. While
// the group rebalances, heartbeats are still confirmed, but a member that did not join in time is removed at the
// rebalance time-out, which began no earlier than the sending of the last heartbeat that the coordinator answered with
// "nothing is going on"; the earlier of the two ends counts, each less a margin.
//
// Check the lease after the state that an answer is made of was read, not before: then there was a moment between
// request and answer at which the state was the newest, however long the process is stopped afterwards.
//
// All methods are safe for concurrent use; those that read take no lock.
type Lease struct {
	clock              Clock
	session, rebalance time.Duration // less the margin

	view atomic.Pointer[leaseView]

	mu         sync.Mutex
	era        int64  // counts the ends: what was sent before one confirms nothing after it
	member     string // the member id whose assignment is known; "": none
	generation int32  // of the group, for which the assignment is known
	confirmed  Instant
	settled    Instant // like confirmed, counting only answers of a group that waits for nothing from us
	stopped    bool    // confirmed no more: the replica is leaving
}

// leaseView is what readers see. It never changes.
type leaseView struct {
	until Instant
	held  map[int32]bool    // assigned: their lease ends with until
	fixed map[int32]Instant // revoked: their lease ends then, whatever is confirmed later
}

// beat is a heartbeat under way.
type beat struct {
	era        int64
	member     string
	generation int32
	sent       Instant
}

func newLease(clock Clock, session, rebalance, margin time.Duration) *Lease {
	l := &Lease{clock: clock, session: session - margin}
	// Clocks drift apart with time: the margin grows with the time-out.
	l.rebalance = rebalance - max(margin, time.Duration(float64(margin)*float64(rebalance)/float64(session)))
	l.view.Store(&leaseView{})
	return l
}

// Now reads the lease's clock.
func (l *Lease) Now() Instant { return l.clock.Now() }

// Until is the end of the lease as it is known now; it moves with each confirmed heartbeat. Never: there is none.
func (l *Lease) Until() Instant { return l.view.Load().until }

// Valid says that the lease is not over at now, which must be a reading of the lease's clock.
func (l *Lease) Valid(now Instant) bool { return now < l.Until() }

// UntilOf is the end of the lease on partition p. It moves like Until while p is assigned, stands still from the
// moment p was revoked (another member may have it, so later heartbeats say nothing of p), and is Never when p was lost.
func (l *Lease) UntilOf(p int32) Instant {
	v := l.view.Load()
	if v.held[p] {
		return v.until
	}
	return v.fixed[p]
}

// ValidFor says that the lease on partition p is not over at now.
func (l *Lease) ValidFor(p int32, now Instant) bool { return now < l.UntilOf(p) }

// begin tells that the assignment of (member, generation) is known. The lease goes on if the member is still the same;
// for a new one it begins with the next confirmed heartbeat, and end must have been called.
func (l *Lease) begin(member string, generation int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.member, l.generation = member, generation
}

// hold adds partitions to those that the lease covers.
func (l *Lease) hold(ps []int32) {
	l.change(func(v *leaseView) {
		for _, p := range ps {
			v.held[p] = true
			delete(v.fixed, p)
		}
	})
}

// letGo fixes the end of the lease on partitions that were revoked.
func (l *Lease) letGo(ps []int32) {
	l.change(func(v *leaseView) {
		for _, p := range ps {
			if v.held[p] {
				delete(v.held, p)
				v.fixed[p] = v.until
			}
		}
	})
}

func (l *Lease) change(f func(*leaseView)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.view.Load()
	v := &leaseView{until: old.until, held: make(map[int32]bool), fixed: make(map[int32]Instant)}
	maps.Copy(v.held, old.held)
	maps.Copy(v.fixed, old.fixed)
	f(v)
	l.view.Store(v)
}

// end ends the lease at once, for every partition; heartbeats sent before confirm nothing any more.
func (l *Lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.era++
	l.member, l.generation = "", 0
	l.confirmed, l.settled = Never, Never
	l.view.Store(&leaseView{})
}

// stop keeps the lease from being prolonged: this replica is leaving the group.
func (l *Lease) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
}

// beat begins a heartbeat of (member, generation): call it before the request is handed to the network. ok is false
// where an answer could confirm nothing: no assignment is known, or it is another member's.
func (l *Lease) beat(member string, generation int32) (b beat, ok bool) {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped || l.member == "" || member != l.member {
		return beat{}, false
	}
	return beat{era: l.era, member: member, generation: generation, sent: now}, true
}

// confirm takes the answer of the coordinator that b's member is in the group. rebalancing says that the answer was
// REBALANCE_IN_PROGRESS. Answers may come in any order. The result says whether it counted.
func (l *Lease) confirm(b beat, rebalancing bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped || b.era != l.era || b.member != l.member {
		return false
	}
	l.confirmed = max(l.confirmed, b.sent)
	// In a generation whose assignment we have not fetched yet the coordinator may be waiting for us to fetch it.
	if !rebalancing && b.generation == l.generation {
		l.settled = max(l.settled, b.sent)
	}
	if l.settled == Never {
		return true
	}
	until := min(l.confirmed.Add(l.session), l.settled.Add(l.rebalance))
	if old := l.view.Load(); until > old.until {
		l.view.Store(&leaseView{until: until, held: old.held, fixed: old.fixed})
	}
	return true
}

// slewClock is the clock of systems without CLOCK_BOOTTIME. Go's monotonic clock may stand still while the machine
// sleeps, and the wall clock may be set; so the monotonic clock counts, and where the wall clock went on by more than
// wallJumpMin beyond it since the reading before, that was sleep (or somebody set the wall clock forward, which only ends
// leases too early). A lease ends too late only where the machine sleeps while the wall clock is set back.
type slewClock struct {
	read func() (monotonic, wall time.Duration)

	mu        sync.Mutex
	last      Instant // the latest reading
	mono, wal time.Duration
}

// wallJumpMin tells a jump of the wall clock from the slewing of a time daemon, which must not add up.
const wallJumpMin = 100 * time.Millisecond

func newSlewClock() *slewClock {
	start := time.Now()
	return &slewClock{read: func() (time.Duration, time.Duration) {
		t := time.Now()
		return t.Sub(start), time.Duration(t.UnixNano())
	}}
}

// Now implements Clock.
func (c *slewClock) Now() Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	mono, wall := c.read()
	if c.last == Never {
		c.last = 1
	} else {
		advance := max(0, mono-c.mono)
		if w := wall - c.wal; w > advance+wallJumpMin {
			advance = w
		}
		c.last = c.last.Add(advance)
	}
	c.mono, c.wal = mono, wall
	return c.last
}
