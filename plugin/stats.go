package plugin

import "sync/atomic"

// Stats is a snapshot of counters since the start. The first eight are Kafka's, with Kafka's meaning; CleanupCycles and
// CleanupEligible are counted by whoever runs the cycle.
type Stats struct {
	CleanupCycles, CleanupEligible int64
	// Groups whose delete succeeded or failed, by DeleteGroups, cleanup and conversion together.
	DeleteSuccess, DeleteError int64
	SetSuccess, SetError       int64
	// A Get that found nothing is a success.
	GetSuccess, GetError int64

	// What became of calls that Kafka does not tell apart; contained in the errors above, but for Late and Repeated.
	TimedOut, Cancelled, Busy, Panicked int64
	// Late counts futures that completed after their outcome had been delivered as timed out or cancelled.
	Late int64
	// Lost counts descriptions that were stored and that the plugin did not have any more; counted by whoever found it.
	Lost int64
	// Repeated counts completions of futures that were completed before.
	Repeated int64
	// UnderWay is the number of calls whose slot is taken now.
	UnderWay int64
}

// Counter is one value with its name.
type Counter struct {
	Name  string
	Value int64
}

// kafkaPrefix begins the names of Kafka's sensors in the group group-coordinator-metrics; each has a -rate and a -count.
const kafkaPrefix = "streams-group-topology-description-"

// Kafka returns the counters that Kafka has, named as in Kafka's group-coordinator-metrics without the ending
// "-count" or "-rate".
func (s Stats) Kafka() []Counter {
	return []Counter{
		{kafkaPrefix + "cleanup-cycle", s.CleanupCycles},
		{kafkaPrefix + "cleanup-eligible", s.CleanupEligible},
		{kafkaPrefix + "delete-success", s.DeleteSuccess},
		{kafkaPrefix + "delete-error", s.DeleteError},
		{kafkaPrefix + "set-success", s.SetSuccess},
		{kafkaPrefix + "set-error", s.SetError},
		{kafkaPrefix + "get-success", s.GetSuccess},
		{kafkaPrefix + "get-error", s.GetError},
	}
}

// Counters counts what Stats shows. The zero value is ready.
type Counters struct {
	cleanupCycles, cleanupEligible                                      atomic.Int64
	success, failure                                                    [operations]atomic.Int64
	timedOut, cancelled, busy, panicked, late, repeated, underWay, lost atomic.Int64
}

// CleanupCycle counts a run of the cleanup cycle.
func (c *Counters) CleanupCycle() { c.cleanupCycles.Add(1) }

// CleanupEligible counts groups that a cleanup cycle found eligible.
func (c *Counters) CleanupEligible(groups int) { c.cleanupEligible.Add(int64(groups)) }

// Lost counts a description that the plugin had lost.
func (c *Counters) Lost() { c.lost.Add(1) }

// Stats returns the values. They are read one after another, not at one instant.
func (c *Counters) Stats() Stats {
	return Stats{
		CleanupCycles: c.cleanupCycles.Load(), CleanupEligible: c.cleanupEligible.Load(),
		DeleteSuccess: c.success[opDelete].Load(), DeleteError: c.failure[opDelete].Load(),
		SetSuccess: c.success[opSet].Load(), SetError: c.failure[opSet].Load(),
		GetSuccess: c.success[opGet].Load(), GetError: c.failure[opGet].Load(),
		TimedOut: c.timedOut.Load(), Cancelled: c.cancelled.Load(), Busy: c.busy.Load(), Panicked: c.panicked.Load(),
		Late: c.late.Load(), Repeated: c.repeated.Load(), Lost: c.lost.Load(), UnderWay: c.underWay.Load(),
	}
}

func (c *Counters) delivered(op operation, o Outcome) {
	if o.OK() {
		c.success[op].Add(1)
		return
	}
	c.failure[op].Add(1)
	switch o.Kind {
	case TimedOut:
		c.timedOut.Add(1)
	case Cancelled:
		c.cancelled.Add(1)
	case Busy:
		c.busy.Add(1)
	case Panicked:
		c.panicked.Add(1)
	}
}
