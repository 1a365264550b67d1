package shard

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"streamkeeper/projection"
	"streamkeeper/shard/streams"
)

// idleKeep is how long a group without members stays in memory after its last request: the tools ask several things in a row.
const idleKeep = 30 * time.Second

// group returns a group of this partition, from memory or hydrated from the projection. A group that is nowhere
// is returned too, as one that does not exist, and is not kept.
func (s *Shard) group(id string) (*group, error) {
	if g := s.groups[id]; g != nil {
		return g, nil
	}
	return s.hydrate(id)
}

// hydrate brings a group into memory. The projection has applied everything of it: the claim waited for
// its own record, and a group leaves memory only when its last record is applied.
func (s *Shard) hydrate(id string) (*group, error) {
	stored, err := s.host.cfg.Store.Group(s.partition, id)
	if err != nil {
		return nil, err
	}
	g, err := replay(id, stored)
	if err != nil {
		return nil, err
	}
	s.keep(g)
	if !g.Empty() { // it was broken, and left memory for that: its members must not lose their sessions
		s.resume(g)
		now := s.host.cfg.Now()
		t := &turn{s: s, g: g, now: now}
		for _, tm := range g.Restore(t.env(Caller{}, 0)) {
			s.schedule(g, tm, now)
		}
	}
	return g, nil
}

// replay is a group made of its stored records, which are in the order of hydration.
func replay(id string, stored []projection.Stored) (*group, error) {
	g := &group{Group: streams.NewGroup(id), lastOffset: -1, timers: map[streams.TimerKey]*timer{}}
	for _, st := range stored {
		if err := g.Apply(st.Record); err != nil {
			return nil, fmt.Errorf("group %q, record of type %v at offset %d: %w", id, st.Record.Key.Type, st.Offset, err)
		}
	}
	return g, nil
}

// keep has a hydrated group in memory from now on.
func (s *Shard) keep(g *group) {
	g.used = s.host.cfg.Now()
	s.groups[g.ID()] = g
	s.kept++
	s.recount(g)
	if g.Exists() {
		s.host.known.Store(g.ID(), struct{}{})
		s.host.stats.hydrated.Add(1)
	}
}

// restoreTimers starts the timers of all groups in memory at full length.
func (s *Shard) restoreTimers() {
	now := s.host.cfg.Now()
	for _, id := range slices.Sorted(maps.Keys(s.groups)) { // in a fixed order: timers of one instant fire in it
		g := s.groups[id]
		t := &turn{s: s, g: g, now: now}
		for _, tm := range g.Restore(t.env(Caller{}, 0)) {
			s.schedule(g, tm, now)
		}
	}
}

// evict lets groups leave memory that have no members, whose last record the projection has applied.
func (s *Shard) evict() {
	s.kept = 0
	if s.state != active {
		return
	}
	now := s.host.cfg.Now()
	crowded := len(s.groups) > idleGroupsMax
	for id, g := range s.groups {
		idleLong := crowded || now.Sub(g.used) >= idleKeep || !g.Exists()
		if (g.broken || g.Empty() && idleLong) && s.written(g) {
			s.drop(id, g)
		}
	}
}

// evictCrowd has idle groups leave when many have come since the last time, as in a sweep over all of them: until the next look of evict a fast one
// would have the whole shard in memory.
func (s *Shard) evictCrowd() {
	if s.kept > idleGroupsMax {
		s.evict()
	}
}

// written says that everything this claim appended for the group is acknowledged and applied by the projection.
func (s *Shard) written(g *group) bool {
	return g.lastSeq <= s.acked && g.lastOffset < s.host.cfg.Store.Applied(s.partition)
}

func (s *Shard) drop(id string, g *group) {
	for _, tm := range g.timers {
		s.timers.remove(tm)
	}
	s.rebalanced(g, "the group is read from the log again", ErrInternal) // only a broken one has a rebalance under way
	delete(s.groups, id)
	s.uncount(g)
	s.host.known.Delete(id)
	s.host.stats.evicted.Add(1)
	if g.broken && !g.Empty() {
		// It comes back at once, from the log, so that its sessions run.
		if _, err := s.hydrate(id); err != nil {
			s.log.Warn("a group that was read again can't be, its sessions begin with the next request for it", "group", id, "err", err)
		}
	}
}
