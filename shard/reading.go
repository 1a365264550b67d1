package shard

import (
	"errors"
	"time"

	"streamkeeper/eventlog"
)

// A replica is in the ownership group before it has read the log: it may be the only one. Over a long log, and an empty data directory, reading takes minutes, in which
// it can claim nothing. Whoever was given up shards for it has read them, so it declines what it has still to read, until that is done; where nobody has read
// it, it stays where it is. A replica that reads a partition again does the same.

const (
	// readingPatience is how long a replica may read before its shards are declined: longer than a start over a log of which little has come, where others
	// have given up shards for it, and short enough that these, who serve on until the end of their lease, have them back by then.
	readingPatience = 2 * time.Second
	// readingQuiet is how long no partition comes to its end before those that have come there are asked for, while others are still read: each asking
	// makes a rebalance. Over a log that takes minutes partitions come to their ends one by one, seconds apart: there it is a quarter of the time that it has taken.
	readingQuiet     = time.Second
	readingQuietPart = 4
	// readingQuietMax bounds that quarter: what was read over an hour ago says nothing of a partition that is read now.
	readingQuietMax = time.Minute
	// readingWaits is how many such pauses one waits at most: others may come to their ends without any, and nobody else be able to serve it.
	readingWaits = 2
)

var errReading = errors.New("the log is still read here")

// reading is which partitions can't be claimed yet because the log is still read.
type reading struct {
	since map[int32]time.Time
	begun time.Time // when the first of them began
	ended time.Time // when one came to its end last
	waits time.Time // when the first of those came to its end that were declined, and are not asked for yet
}

// lookAtReading declines partitions that are read for long. A replica joins the group before it has read the log, as it may be the only one; where that
// takes minutes, others that have read it serve on.
func (h *Host) lookAtReading(now time.Time) {
	counted, _ := h.counted() // an error ends the host
	for _, s := range h.shards {
		unread := !counted || !h.cfg.Store.AtEnd(s.partition)
		if unread && errors.Is(h.cfg.Store.Err(s.partition), eventlog.ErrRefused) {
			unread = false // it is not read any further
		}
		if h.declines.readFor(s.partition, now, unread) >= readingPatience {
			h.declines.add(s.partition, DeclinedReading, errReading)
		}
	}
}

// readFor notes whether a partition is still read, and returns for how long it has been.
func (d *declines) readFor(p int32, now time.Time, unread bool) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &d.reading
	since, was := r.since[p]
	switch {
	case unread && !was:
		if r.since == nil {
			r.since = map[int32]time.Time{}
		}
		if len(r.since) == 0 {
			r.begun = now
		}
		r.since[p], since = now, now
	case !unread && was:
		delete(r.since, p)
		r.ended = now
		if x := d.by[p]; r.waits.IsZero() && x != nil && x.now && x.Why == DeclinedReading {
			r.waits = now
		}
	}
	if !unread {
		return 0
	}
	return now.Sub(since)
}

// reads says that what is declined as still read has to wait: it is read, or others are about to be done as well.
func (d *declines) reads(p int32, now time.Time) bool {
	r := &d.reading
	if _, unread := r.since[p]; unread || len(r.since) == 0 {
		return unread
	}
	quiet := min(max(readingQuiet, now.Sub(r.begun)/readingQuietPart), readingQuietMax)
	return now.Sub(r.ended) < quiet && now.Sub(r.waits) < readingWaits*quiet
}
