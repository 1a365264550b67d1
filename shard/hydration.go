package shard

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"streamkeeper/projection"
)

// A takeover hydrates every group with members (D7), which takes time in proportion to them. In a planned move that time must not be a gap, so it
// is spent while the former owner serves:
//
//	before the claim   all groups with members are read from the projection; it notes which ones change from here on
//	claim              from the ownership record on nobody else appends
//	applied            the projection has passed that record; the groups that changed are read again, and are as the claim found them
//	on the loop        they are put in their places, and their timers start
//
// Only the last step keeps the loop, and none but the last two keep clients waiting. After a crash nobody serves meanwhile, and the order makes no
// difference.

// hydration is the groups with members of a partition on their way into memory. It belongs to the goroutine of a claim, then to the loop.
type hydration struct {
	groups   map[string]*group
	restarts uint64 // of the projection's partition before anything was read
	changed  func() []string
}

// hydrationsAtOnce is how many shards of a replica with so many processors read their groups at the same time: half of the processors, so that the
// shards that are served already stay quick. More would not be done sooner, only all at the end.
func hydrationsAtOnce(processors int) int { return max(1, processors/2) }

// beginHydration reads the groups as they are now. What changes later is read by finish.
func (s *Shard) beginHydration(ctx context.Context) (*hydration, error) {
	select {
	case s.host.hydrating <- struct{}{}:
		defer func() { <-s.host.hydrating }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	store := s.host.cfg.Store
	h := &hydration{groups: map[string]*group{}, restarts: store.Restarts(s.partition), changed: store.Track(s.partition)}
	var failed error
	err := store.GroupsToHydrate(s.partition, func(id string, records []projection.Stored) bool {
		if failed = ctx.Err(); failed == nil {
			h.groups[id], failed = replay(id, records)
		}
		return failed == nil
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		h.drop()
		return nil, err
	}
	return h, nil
}

// finish reads again what changed since. The projection has applied the claim, so nobody else changes anything any more.
func (h *hydration) finish(s *Shard) error {
	changed := h.drop()
	for _, id := range changed {
		stored, err := s.host.cfg.Store.Group(s.partition, id)
		if err != nil {
			return err
		}
		g, err := replay(id, stored)
		if err != nil {
			return err
		}
		if delete(h.groups, id); !g.Empty() {
			h.groups[id] = g
		}
	}
	if now := s.host.cfg.Store.Restarts(s.partition); now != h.restarts {
		return fmt.Errorf("%w: partition %d was read again while its groups were hydrated", projection.ErrLoading, s.partition)
	}
	return nil
}

// drop ends the noting of changes, and returns what was noted. Nothing happens the second time.
func (h *hydration) drop() []string {
	if h == nil || h.changed == nil {
		return nil
	}
	changed := h.changed()
	h.changed = nil
	return changed
}

// install puts the groups into their places and starts their timers at full length.
func (s *Shard) install(h *hydration) {
	s.restarts = h.restarts
	for _, id := range slices.Sorted(maps.Keys(h.groups)) {
		g := h.groups[id]
		s.keep(g)
		s.resume(g)
	}
	s.restoreTimers()
}
