package shard

import (
	"context"
	"sync/atomic"
	"time"

	"streamkeeper/shard/streams"
)

const (
	// censusInterval is how often stored groups and offsets are counted: as often as Kafka 4.4 counts its groups.
	censusInterval = time.Minute
	// censusShare is the part of the time that counting may take: a replica with many millions of offsets counts less often.
	censusShare = 20
)

// census counts the groups of a shard by state, and its committed offsets, without having them in memory. Groups with members are in memory (D7)
// and counted as their states change; the others are Empty, and counted where they are stored.
type census struct {
	states  [len(streams.States)]atomic.Int64 // groups in memory; written by the loop alone
	groups  atomic.Int64                      // stored, when they were last counted
	created atomic.Int64                      // less those removed, since then
	offsets atomic.Int64                      // stored, when they were last counted
}

// reset forgets what was counted, with the groups.
func (c *census) reset() {
	for i := range c.states {
		c.states[i].Store(0)
	}
	c.groups.Store(0)
	c.created.Store(0)
	c.offsets.Store(0)
}

// recount puts a group of this shard's memory under the state that it has now.
func (s *Shard) recount(g *group) {
	if s.groups[g.ID()] != g {
		return
	}
	state := g.State()
	if g.counted && g.state == state && g.Exists() {
		return
	}
	s.uncount(g)
	if g.Exists() {
		g.counted, g.state = true, state
		s.census.states[state].Add(1)
	}
}

// uncount takes a group out.
func (s *Shard) uncount(g *group) {
	if g.counted {
		s.census.states[g.state].Add(-1)
		g.counted = false
	}
}

// takeCensus counts what is stored. It runs off the loop; one shard of a host at a time.
func (s *Shard) takeCensus() {
	s.host.counting.Lock()
	defer s.host.counting.Unlock()
	if !s.serving.Load() {
		return
	}
	s.census.created.Store(0) // a group made during the count may be missed until the next one
	groups, offsets, err := s.host.cfg.Store.Counts(s.partition)
	if err != nil || !s.serving.Load() {
		return // it is read again, or somebody else's: the next count tells
	}
	s.census.groups.Store(groups)
	s.census.offsets.Store(offsets)
}

// takeCensuses counts again and again until ctx ends.
func (h *Host) takeCensuses(ctx context.Context) {
	timer := time.NewTimer(censusInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		begun := time.Now()
		for _, s := range h.shards {
			if ctx.Err() == nil && s.serving.Load() {
				s.takeCensus()
			}
		}
		timer.Reset(max(censusInterval, censusShare*time.Since(begun)))
	}
}

// Census is how many groups and offsets the shards have that this replica serves.
type Census struct {
	// Groups has the number of groups by state. Empty ones, which are not in memory, and offsets are as of the last count, at most a minute ago
	// unless there are very many.
	Groups  map[streams.State]int64
	Offsets int64
}

// Census returns the numbers.
func (h *Host) Census() Census {
	out := Census{Groups: map[streams.State]int64{}}
	for _, st := range streams.States {
		out.Groups[st] = 0
	}
	for _, s := range h.shards {
		if !s.serving.Load() {
			continue
		}
		stored := s.census.groups.Load() + s.census.created.Load()
		for i, st := range streams.States {
			if st != streams.StateEmpty {
				n := s.census.states[i].Load()
				out.Groups[st] += n
				stored -= n
			}
		}
		out.Groups[streams.StateEmpty] += max(stored, 0)
		out.Offsets += s.census.offsets.Load()
	}
	return out
}
