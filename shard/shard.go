package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/shard/streams"
)

type state int8

const (
	idle     state = iota // not ours
	claiming              // ours to be: claim, load
	active                // serving
)

func (s state) String() string { return [...]string{"idle", "claiming", "active"}[s] }

// Shard is one partition of the log while and whenever this replica owns it. All fields below the inbox belong to
// the loop's goroutine.
type Shard struct {
	watched   watched
	host      *Host
	partition int32
	log       *slog.Logger

	serving   atomic.Bool // state == active
	wantedNow atomic.Bool // wanted, for other goroutines
	proving   atomic.Bool // answers wait for the projection: it wakes the loop
	lost      loss
	tail      tail // how old what was read of the partition is

	// The inbox: what other goroutines hand to the loop. Each source has its own slot, so that nothing but requests needs a bound.
	mu       sync.Mutex
	requests []request // each with the time it came
	deferred int       // requests that the loop has taken and not served
	events   []func(*Shard)
	acks     []ack
	applied  int64         // newest position of the projection
	wake     chan struct{} // capacity 1
	dead     bool          // the loop has ended: nothing is taken any more

	state      state
	restarts   uint64 // of the projection's partition when the groups were loaded
	wanted     bool
	writer     eventlog.Writer
	stopRun    context.CancelFunc // ends a claim under way
	run        int64              // number of the claim; tells late answers of an earlier one
	retry      time.Duration      // pause after the last failed claim
	claimBegun time.Time          // of the claim under way, or of the last
	tenure     atomic.Pointer[tenure]

	groups   map[string]*group
	inflight []inflight // appends without acknowledgement, in order
	seq      int64      // number of the newest append
	acked    int64      // number of the newest acknowledged append
	fair     fairness
	unproven []unproven // answers that wait for the projection
	overlay  overlay
	kept     int      // groups that came into memory since the last eviction
	ready    []waiter // answers that only need the lease; handed out together
	timers   timers
	repairs  map[eventlog.Key]struct{} // void records whose keys need their right value written again
	census   census
	lapsed   bool    // the lease was found invalid since the sessions were last started
	looked   Instant // when the lease was looked at last
}

// group is one group in memory.
type group struct {
	*streams.Group
	lastSeq    int64 // number of the newest append of this group; 0: none in this claim
	lastOffset int64 // offset of its last acknowledged record; -1: none in this claim
	used       time.Time
	broken     bool // a record of it could not be applied, or a handler panicked: to be dropped and hydrated again
	counted    bool // in the census, in the state that follows
	state      streams.State
	rebalance  *rebalance // nil: none under way
	timers     map[streams.TimerKey]*timer

	// effective is what configured, the group's configuration, makes of the settings of this replica. hasConfig: it was looked at.
	effective  streams.Config
	configured *eventlog.GroupConfig
	hasConfig  bool
}

// inflight is one append that is not acknowledged yet.
type inflight struct {
	g       *group
	more    []*group // of a sweep's turn, beside g
	records int
	offsets []offsetKey // overlay entries that this append made
	waiters []waiter
}

// ack is the outcome of an append or, where barrier is set, of a barrier.
type ack struct {
	run     int64
	offset  int64
	err     error
	barrier *waiter
}

// waiter is an answer that waits. Exactly one of its functions is called, once.
type waiter struct {
	write  bool      // the answer rests on an append or a barrier: the lease is not asked
	since  time.Time // when it began to wait for an append or a barrier; zero: it does not
	answer func()
	fail   func(error)
}

func newShard(h *Host, p int32) *Shard {
	return &Shard{
		host: h, partition: p, log: h.log.With("partition", p), wake: make(chan struct{}, 1),
		groups: map[string]*group{}, overlay: newOverlay(), applied: -1, repairs: map[eventlog.Key]struct{}{},
	}
}

// loop is the goroutine that owns the shard.
func (s *Shard) loop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	evict := time.NewTicker(evictInterval)
	defer evict.Stop()
	lease := time.NewTicker(leaseRecheck)
	defer lease.Stop()
	var work func() // what the loop woke up for, besides the inbox
	for begun := time.Now(); ; begun = time.Now() {
		if work != nil {
			work()
		}
		s.drain()
		s.host.timings.busy.Add(int64(time.Since(begun)))
		work = nil
		if d, ok := s.timers.next(s.host.cfg.Now()); ok {
			timer.Reset(d)
		} else {
			timer.Reset(time.Hour)
		}
		select {
		case <-ctx.Done():
			s.end(ErrUnavailable)
			s.drain()
			for len(s.fair.later) > 0 { // each drain serves one, and all are refused now
				s.drain()
			}
			s.mu.Lock()
			s.dead = true
			s.mu.Unlock()
			return
		case <-s.wake:
		case <-timer.C:
			work = s.fire
		case <-evict.C:
			work = s.evict
		case <-lease.C:
			work = func() { s.watchLease(); s.repair() }
		}
	}
}

// drain takes everything out of the inbox and does it, but for requests of groups with long turns: one of those at a time.
// Acknowledgements come first: they free answers and memory.
func (s *Shard) drain() {
	for {
		s.mu.Lock()
		acks, events, requests, applied := s.acks, s.events, s.requests, s.applied
		s.acks, s.events, s.requests = nil, nil, nil
		s.deferred = len(requests) + len(s.fair.later)
		s.mu.Unlock()
		if len(acks) == 0 && len(events) == 0 && len(requests) == 0 && len(s.fair.later) == 0 {
			s.overlay.drop(applied)
			s.prove(applied)
			return
		}
		for _, a := range acks {
			s.acknowledge(a)
		}
		for _, f := range events {
			f(s)
		}
		s.overlay.drop(applied)
		s.prove(applied)
		for i := range requests {
			s.take(&requests[i])
		}
		s.takeLater()
		s.handReady()
		s.evictCrowd()
		if len(s.fair.later) > 0 { // timers and the lease have their turn as well
			s.signal()
			return
		}
	}
}

func (s *Shard) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// post hands f to the loop; false: the loop has ended and f will not run.
func (s *Shard) post(f func(*Shard)) bool {
	s.mu.Lock()
	if s.dead {
		s.mu.Unlock()
		return false
	}
	s.events = append(s.events, f)
	s.mu.Unlock()
	s.signal()
	return true
}

func (s *Shard) postAck(a ack) {
	s.mu.Lock()
	s.acks = append(s.acks, a)
	s.mu.Unlock()
	s.signal()
}

// postApplied remembers how far the projection is. It wakes the loop only if answers wait for it.
func (s *Shard) postApplied(next int64) {
	s.mu.Lock()
	s.applied = next
	s.mu.Unlock()
	if s.proving.Load() {
		s.signal()
	}
}

func (s *Shard) postOwner(o eventlog.Owner) {
	if o.Instance == s.host.cfg.Self.Instance && o.NodeID == s.host.cfg.Self.NodeID {
		return
	}
	s.post(func(s *Shard) { s.otherOwner(o) })
}

// submit queues a request; false: the inbox is full.
func (s *Shard) submit(r request) bool {
	r.came = time.Now()
	s.mu.Lock()
	if len(s.requests)+s.deferred >= inboxMax {
		s.mu.Unlock()
		return false
	}
	s.requests = append(s.requests, r)
	s.mu.Unlock()
	s.signal()
	return true
}

// watchLease ends a shard that was revoked once its lease is over, and starts the sessions at full length again when a
// lease that had lapsed is back: the silence was ours, not the members'. A pause of the process longer than a lease counts as a lapse even if
// the group has confirmed this replica again before the loop came to look.
func (s *Shard) watchLease() {
	lease := s.host.cfg.Membership.Lease()
	now := lease.Now()
	paused := s.looked != Never && now.Sub(s.looked) > s.host.cfg.Membership.LeaseDuration()
	s.looked = now
	if s.state != active || s.forgotten() || s.unreadable() {
		return
	}
	confirmed, reads := lease.ValidFor(s.partition, now), s.reads(now)
	valid := confirmed && reads
	if !reads {
		s.giveUpProofs()
	}
	switch {
	case !s.wanted && s.blind() && (s.host.cfg.Log.Denied(s.partition) == nil || s.host.declines.has(s.partition)): // since it was revoked, see want; and not denied for a moment
		s.host.tally.say(slog.LevelInfo, "shards that were revoked are not read here any more and stop", s.partition)
		s.end(ErrNotOwner)
	case !valid && !s.wanted:
		s.host.tally.say(slog.LevelInfo, "lease ended after revocation, shards stop", s.partition)
		s.endReleasing(s.host.releases)
	case !valid && !s.lapsed:
		s.lapsed = true
		if confirmed {
			s.host.tally.say(slog.LevelWarn, fmt.Sprintf("the log was not read to its end for %v, answers are withheld until it is", s.host.tailAgeMax()), s.partition)
			break
		}
		s.host.tally.say(slog.LevelWarn, "lease lapsed, answers are withheld until the ownership group confirms this replica again", s.partition)
	case valid && (s.lapsed || paused):
		s.lapsed = false
		s.restoreTimers()
		s.host.tally.say(slog.LevelInfo, "lease is back, sessions start at full length", s.partition)
	}
}

// forgotten notices that the projection of the partition was thrown away under the serving shard: it is read again, perhaps from a log
// that was cut off, so what is in memory may rest on records that are nowhere any more. The shard starts over.
func (s *Shard) forgotten() bool {
	if s.host.cfg.Store.Restarts(s.partition) == s.restarts {
		return false
	}
	s.log.Warn("the projection is read again, the shard starts over")
	s.end(ErrLoading)
	if s.wanted {
		s.startClaim(0)
	}
	return true
}

// unreadable notices that the projection has come to a record that it can't read, perhaps of a newer replica that took the
// partition over. What is in memory would drift away from a log that nobody here reads any more, and /readyz would go on saying
// that all is well: the shard ends, and its claims say why they fail.
func (s *Shard) unreadable() bool {
	err := s.host.cfg.Store.Err(s.partition)
	if !errors.Is(err, eventlog.ErrRefused) {
		return false
	}
	s.log.Error("the log can't be read any further, the shard stops", "err", err)
	s.end(err)
	if s.wanted {
		s.startClaim(claimRetryMax)
	}
	return true
}

// leaseValid says that nobody else can have been assigned the partition without our knowledge, and that we would have read of it (D3).
func (s *Shard) leaseValid() bool {
	l := s.host.cfg.Membership.Lease()
	now := l.Now()
	return l.ValidFor(s.partition, now) && s.reads(now)
}
