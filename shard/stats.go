package shard

import "sync/atomic"

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
