package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"streamkeeper/projection"
)

// progressEvery is how often a replica that reads the log says how far it is.
const progressEvery = 10 * time.Second

// progress tells how the reading of the log goes on: of this moment when it is asked, with the rate since the look before.
type progress struct {
	store      *projection.Store
	partitions int32

	mu      sync.Mutex
	at      time.Time
	applied uint64
	rate    float64 // records per second
}

// reading is how far the partitions are that have not been read to their end.
type reading struct {
	partitions int
	left       int64          // offsets, as far as the log has told where it ends
	because    map[string]int // partitions by the reason why they are read
	rate       float64        // records per second, of all partitions
	of         int64          // offsets at which they end, in all
}

// look returns how far it is.
func (p *progress) look() reading {
	r := reading{because: map[string]int{}}
	for q := range p.partitions {
		if st := p.store.PartitionStats(q); !st.AtEnd && st.Err == nil {
			r.partitions++
			r.left += st.Lag
			r.of += st.Applied + st.Lag
			r.because[st.Because.String()]++
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r.rate = p.rate
	return r
}

// measure takes the rate since the last call.
func (p *progress) measure(now time.Time) {
	applied := p.store.Stats().Applied
	p.mu.Lock()
	defer p.mu.Unlock()
	if elapsed := now.Sub(p.at).Seconds(); !p.at.IsZero() && elapsed > 0 && applied >= p.applied {
		p.rate = float64(applied-p.applied) / elapsed
	}
	p.at, p.applied = now, applied
}

// secondsLeft is how long reading may take at the present rate; 0 where nothing is left, -1 where it can't be told.
func (r reading) secondsLeft() int64 {
	switch {
	case r.left == 0:
		return 0
	case r.rate < 1:
		return -1
	}
	return int64(float64(r.left)/r.rate + 1)
}

func (r reading) timeLeft() string {
	if s := r.secondsLeft(); s >= 0 {
		return (time.Duration(s) * time.Second).String()
	}
	return "unknown"
}

func (r reading) reasons() string {
	var out []string
	for _, why := range slices.Sorted(maps.Keys(r.because)) {
		out = append(out, fmt.Sprintf("%s (%d)", why, r.because[why]))
	}
	return strings.Join(out, ", ")
}

// run logs how reading goes on until ctx ends, and is silent while there is nothing to read.
func (p *progress) run(ctx context.Context, log *slog.Logger) {
	t := time.NewTicker(progressEvery)
	defer t.Stop()
	p.measure(time.Now())
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			p.measure(now)
			if r := p.look(); r.partitions > 0 {
				log.Info("reading the log", "partitions", r.partitions, "records", r.of-r.left, "of", r.of, "perSecond", int64(r.rate), "left", r.timeLeft(), "because", r.reasons())
			}
		}
	}
}
