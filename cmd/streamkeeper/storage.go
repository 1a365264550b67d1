package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"streamkeeper/projection"
	"streamkeeper/shard"
)

const (
	// storagePatience is how long a replica whose data directory takes nothing waits for others to take its shards, which it has declined by then
	// (shard.Decline): where the leader of the ownership group is of an older version they stay here.
	storagePatience = 2 * time.Minute
	// storageLook is how often it is looked at.
	storageLook = time.Second
)

// storageWatch ends a replica that can't store what it reads, and whose shards nobody takes although others could. It reads on in memory
// meanwhile (projection), and when that is used up it applies no claim, and proves no answer.
type storageWatch struct {
	look    func() error   // what is wrong with the storage, nil: nothing
	shards  func() []int32 // which shards are assigned here, or served
	members func(context.Context) ([]shard.GroupMember, error)
	self    int32 // node id

	patience, pause time.Duration
}

func (p *parts) storageWatch(self int32) *storageWatch {
	return &storageWatch{look: p.storage, shards: p.host.Held, members: p.membership.Members, self: self, patience: storagePatience, pause: storageLook}
}

// storage is what is wrong with the store of any partition, other than what stands in the log.
func (p *parts) storage() error {
	for q := range p.host.Partitions() {
		if err := p.store.Err(q); errors.Is(err, projection.ErrStorage) {
			return err
		}
	}
	return nil
}

// storageFailed counts the partitions of which that is so.
func (p *parts) storageFailed() (n int64) {
	for q := range p.host.Partitions() {
		if errors.Is(p.store.Err(q), projection.ErrStorage) {
			n++
		}
	}
	return n
}

// run returns nil when ctx ends, and an error when the storage has been out of order for too long and another replica is there that could serve. Where
// several have the same trouble, perhaps with the same disk, they go one after the other, by node id, and the last one stays.
func (w *storageWatch) run(ctx context.Context) error {
	tick := time.NewTicker(w.pause)
	defer tick.Stop()
	var since time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := w.look()
		shards := w.shards()
		if err == nil || len(shards) == 0 {
			since = time.Time{}
			continue
		}
		if since.IsZero() {
			since = time.Now()
		}
		down := time.Since(since)
		if down < w.patience {
			continue
		}
		members, asked := w.members(ctx)
		before, others := 0, 0
		for _, m := range members {
			if m.NodeID < w.self {
				before++
			}
			if m.NodeID != w.self && takes(m, shards) {
				others++
			}
		}
		if asked != nil || others == 0 || down < w.patience*time.Duration(1+before) {
			continue
		}
		return fmt.Errorf("--data-dir: unusable for %s, so this replica ends and leaves its shards to the other %d: %w", down.Round(time.Second), others, err)
	}
}

// takes says that a member could serve one of these shards at least. What it declines beside them says nothing, and what nobody can serve keeps the others
// from nobody.
func takes(m shard.GroupMember, shards []int32) bool {
	return slices.ContainsFunc(shards, func(p int32) bool {
		_, declines := m.Declines[p]
		return !declines
	})
}
