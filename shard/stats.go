package shard

import (
	"errors"
	"sync/atomic"

	"streamkeeper/eventlog"
	"streamkeeper/internal/sensor"
)

// Timings are how long things take, as Kafka's CoordinatorRuntimeMetrics tell them apart.
type Timings struct {
	// Queue is the time from a request's arrival at its shard to its handler (event-queue-time-ms).
	Queue sensor.Histogram
	// Processing is the time of a handler, with the application of its records (event-processing-time-ms).
	Processing sensor.Histogram
	// Purgatory is the time that an answer waits for the log (event-purgatory-time-ms); answers that need not wait are not counted.
	Purgatory sensor.Histogram
	// Load is the time from the beginning of a claim to serving (partition-load-time-max, -avg).
	Load sensor.Histogram

	busy atomic.Int64 // ns that loops worked
}

// Timings are those of all shards of the host.
func (h *Host) Timings() *Timings { return &h.timings }

// Busy is how many nanoseconds the loops of the shards have worked, in all.
func (t *Timings) Busy() int64 { return t.busy.Load() }

// Queued is how many requests wait for their shard.
func (h *Host) Queued() int {
	n := 0
	for _, s := range h.shards {
		s.mu.Lock()
		n += len(s.requests)
		s.mu.Unlock()
	}
	return n
}

// Failed says how many partitions are assigned to this replica and can't be served, because their log can't be read.
func (h *Host) Failed() int {
	n := 0
	for _, s := range h.shards {
		if s.wantedNow.Load() && !s.serving.Load() && errors.Is(h.cfg.Store.Err(s.partition), eventlog.ErrRefused) {
			n++
		}
	}
	return n
}

// counters are the counters of a host; all shards add to them.
type counters struct {
	requests, records, barriers, claims, claimsFailed, appendsFailed, overloaded, panics, applyFailed,
	hydrated, evicted, timersFired, leaseRefusals, repairs, offsetCommits, offsetExpirations, offsetDeletions, rebalances atomic.Int64
}

// Stats is a snapshot of what a host has counted since it was made.
type Stats struct {
	Requests, Records, Barriers, Claims, ClaimsFailed, AppendsFailed, Overloaded, Panics, ApplyFailed,
	Hydrated, Evicted, TimersFired, LeaseRefusals int64
	// Repairs counts void records whose keys got their right value again.
	Repairs int64
	// OffsetCommits, OffsetExpirations and OffsetDeletions count offsets; Rebalances counts group epoch bumps by heartbeats (Kafka's streams-group-rebalance).
	OffsetCommits, OffsetExpirations, OffsetDeletions, Rebalances int64
	Owned, Pending                                                int
}

// Stats returns the counters.
func (h *Host) Stats() Stats {
	c := &h.stats
	return Stats{
		Requests: c.requests.Load(), Records: c.records.Load(), Barriers: c.barriers.Load(), Claims: c.claims.Load(),
		ClaimsFailed: c.claimsFailed.Load(), AppendsFailed: c.appendsFailed.Load(), Overloaded: c.overloaded.Load(),
		Panics: c.panics.Load(), ApplyFailed: c.applyFailed.Load(), Hydrated: c.hydrated.Load(), Evicted: c.evicted.Load(),
		TimersFired: c.timersFired.Load(), LeaseRefusals: c.leaseRefusals.Load(), Repairs: c.repairs.Load(), OffsetCommits: c.offsetCommits.Load(),
		OffsetExpirations: c.offsetExpirations.Load(), OffsetDeletions: c.offsetDeletions.Load(), Rebalances: c.rebalances.Load(),
		Owned: h.OwnedCount(), Pending: h.Pending(),
	}
}
