package bench

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// herd is the rest of the members: each beats at its interval, as an application does, and looks its coordinator up as soon as it
// hears that the connection to it broke.
type herd struct {
	interval time.Duration
	f        *fleet
	l        *lanes

	mu      sync.Mutex
	answers []answer // since reset
	lookups int
	failed  int
}

// answer is one heartbeat that was answered with success.
type answer struct {
	member int
	at     time.Time
	took   time.Duration // of the attempt that was answered
}

// herdLanes is how many connections to each node the herd shares. An application has one of its own, which would be too many for one
// process; a heartbeat is answered within a millisecond, so that they seldom wait for each other.
const herdLanes = 64

func newHerd(f *fleet, interval time.Duration) *herd {
	return &herd{interval: interval, f: f, l: newLanes(herdLanes, clientTimeout)}
}

// run beats for the groups until ctx ends.
func (h *herd) run(ctx context.Context, groups []*group) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() {
			if err := h.beat(ctx, i, newCaller(g, i, h.f, h.l)); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	h.l.close()
	if err := context.Cause(ctx); isFatal(err) {
		return err
	}
	return nil
}

func (h *herd) beat(ctx context.Context, i int, c *caller) error {
	due := time.NewTimer(rand.N(h.interval)) // members did not all start at once
	defer due.Stop()
	for {
		var gone <-chan struct{} // nil, that is never, where the coordinator is not known
		if c.coordinator != "" {
			gone = h.l.at(c.coordinator, i).gone
		}
		select {
		case <-ctx.Done():
			return nil
		case <-gone:
			c.coordinator = ""
			before := c.lookups
			c.lookup(ctx)
			h.count(c.lookups-before, 0)
		case <-due.C:
			for failures := 1; ; failures++ {
				before := c.lookups
				ok, err := c.try(ctx, (*group).beat)
				if err != nil {
					return err
				}
				if ok {
					h.count(c.lookups-before, 0)
					h.took(answer{i, time.Now(), c.took})
					break
				}
				h.count(c.lookups-before, 1)
				if pause(ctx, backoff(failures)); ctx.Err() != nil {
					return nil
				}
			}
			due.Reset(h.interval)
		}
	}
}

func (h *herd) took(a answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers = append(h.answers, a)
}

func (h *herd) count(lookups, failed int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lookups += lookups
	h.failed += failed
}

// reset forgets what was measured.
func (h *herd) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers, h.lookups, h.failed = nil, 0, 0
}

// storm is what the herd saw.
type storm struct {
	answers  int             // in the first second
	took     []time.Duration // the attempts that were answered in that second, sorted
	lookups  int             // until now
	failed   int
	everyone time.Duration // from then until each member was answered once
	silent   int           // members that were not answered yet
}

// since tells what happened from a moment on.
func (h *herd) since(from time.Time, members int) storm {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := storm{lookups: h.lookups, failed: h.failed}
	seen := map[int]bool{}
	for _, a := range h.answers {
		if a.at.Before(from) {
			continue
		}
		if a.at.Sub(from) <= time.Second {
			s.answers++
			s.took = append(s.took, a.took)
		}
		if !seen[a.member] {
			seen[a.member] = true
			s.everyone = max(s.everyone, a.at.Sub(from))
		}
	}
	slices.Sort(s.took)
	s.silent = members - len(seen)
	return s
}
