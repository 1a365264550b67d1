package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"streamkeeper/projection"
	"streamkeeper/shard"
)

const (
	// storagePatience is how long a replica that others can stand in for goes on with a data directory that takes nothing: longer than a
	// disk hesitates, and shorter than a client tries to commit (default.api.timeout.ms of the consumer, a minute).
	storagePatience = 30 * time.Second
	// storageLook is how often it is looked at.
	storageLook = time.Second
)

// storageWatch ends a replica that can't store what it reads. It goes on answering from memory for a while, and claims nothing: what it is
// assigned stays unserved, and what is committed can't be held back for ever. With its shards the others have no such trouble.
type storageWatch struct {
	look    func() error // what is wrong with the storage, nil: nothing
	members func(context.Context) ([]shard.GroupMember, error)
	self    int32 // node id

	patience, pause time.Duration
}

func (p *parts) storageWatch(self int32) *storageWatch {
	return &storageWatch{look: p.storage, members: p.membership.Members, self: self, patience: storagePatience, pause: storageLook}
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

// run returns nil when ctx ends, and an error when the storage has been out of order for too long and another replica is there. Where
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
		if err == nil {
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
			if m.NodeID != w.self {
				others++
			}
		}
		if asked != nil || others == 0 || down < w.patience*time.Duration(1+before) {
			continue
		}
		return fmt.Errorf("--data-dir: unusable for %s, so this replica ends and leaves its shards to the other %d: %w", down.Round(time.Second), others, err)
	}
}
