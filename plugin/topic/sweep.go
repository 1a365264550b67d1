package topic

import (
	"context"
	"time"

	"streamkeeper/plugin"
)

// Groups is what a Sweep asks about the groups of the record log.
type Groups interface {
	// SeemsDescribed says, quickly and perhaps not of this very moment, that a group exists and may have a description.
	SeemsDescribed(group string) (bool, error)
	// MayBeDescribed says it for certain: everything that was marked before the call is seen. It asks the group's owner, this replica.
	MayBeDescribed(ctx context.Context, group string) (bool, error)
}

// Swept is what a Sweep did.
type Swept struct {
	Groups   int // looked at
	Orphans  int // whose descriptions were removed, because the group is gone or is recorded as having none
	Repaired int // keys whose newest record was void
}

const (
	// sweepPage is how many keys are read before they are looked at: an open iterator keeps files of the store alive.
	sweepPage = 10_000
	// sweepRestMax bounds the pause after each removal, which is as long as the removal took: a sweep is never in a hurry.
	sweepRestMax = time.Second
	// repairsMax bounds the keys that one Repair looks at; void records come from one lease of a replaced owner, and the next one goes on.
	repairsMax = 10_000
)

// Sweep looks through a partition that this replica owns for descriptions of groups that are gone, or that are recorded as having none, and
// removes them. Such are left by a replica whose plugin was switched off, by a log that was made anew, by a deletion that failed after its group was gone.
// ctx must be under the partition's tenure. It is to be run by one goroutine per partition, next to any other calls.
//
// It can't remove what is being pushed: each push marks its group before Set is called, and MayBeDescribed is asked with the group's lock
// held, so a Set whose mark was not seen is queued behind the tombstones.
func (p *Plugin) Sweep(ctx context.Context, partition int32, groups Groups) (Swept, error) {
	return plugin.Go(func() (Swept, error) { // a panic is not the end of the cleanup
		return p.sweep(ctx, partition, groups)
	}).Wait(context.WithoutCancel(ctx))
}

func (p *Plugin) sweep(ctx context.Context, partition int32, groups Groups) (s Swept, err error) {
	place, err := p.attached()
	if err != nil {
		return s, err
	}
	var after []byte
	for {
		var page []string
		read := 0
		if err := place.KeysOf(partition, after, func(key []byte) bool {
			after = append(after[:0:0], key...)
			read++
			group, ok := owned(place, partition, key)
			if ok && (len(page) == 0 || page[len(page)-1] != group) { // those of a group are neighbours
				page = append(page, group)
			}
			return read < sweepPage && ctx.Err() == nil
		}); err != nil {
			return s, err
		}
		for _, group := range page {
			if err := ctx.Err(); err != nil {
				return s, context.Cause(ctx)
			}
			s.Groups++
			orphan, err := p.sweepGroup(ctx, place, group, groups)
			if err != nil {
				return s, err
			}
			if orphan {
				s.Orphans++
				p.log.Info("topology description of a group that is gone, or has none by its record, was removed", "group", group, "topic", place.Topic())
			}
		}
		if read < sweepPage {
			return s, nil
		}
	}
}

func (p *Plugin) attached() (Place, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed.Err() != nil:
		return nil, plugin.ErrClosed
	case p.place == nil:
		return nil, errNotAttached
	}
	return p.place, nil
}

// sweepGroup removes what is stored of a group if it is an orphan.
func (p *Plugin) sweepGroup(ctx context.Context, place Place, group string, groups Groups) (orphan bool, err error) {
	if described, err := groups.SeemsDescribed(group); err != nil || described {
		return false, err
	}
	start := time.Now()
	removed, err := func() (int, error) {
		unlock, err := p.locks.lock(ctx, group)
		if err != nil {
			return 0, err
		}
		defer unlock()
		if described, err := groups.MayBeDescribed(ctx, group); err != nil || described {
			return 0, err
		}
		return p.remove(ctx, place, group)
	}()
	if err != nil {
		return false, err
	}
	return removed > 0, rest(ctx, min(time.Since(start), sweepRestMax))
}

func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Repair writes the right value of each key of a partition whose newest record is void, or a tombstone where there is none, before
// compaction takes the void one for the latest. This replica owns the partition; ctx must be under its tenure.
func (p *Plugin) Repair(ctx context.Context, partition int32) (repaired int, err error) {
	place, err := p.attached()
	if err != nil {
		return 0, err
	}
	var keys [][]byte
	if err := place.VoidsOf(partition, func(key []byte) bool {
		keys = append(keys, append([]byte(nil), key...))
		return len(keys) < repairsMax
	}); err != nil {
		return 0, err
	}
	for _, key := range keys {
		group, ok := owned(place, partition, key)
		if !ok {
			continue // nobody reads it
		}
		if err := p.repair(ctx, place, group, key); err != nil {
			return repaired, err
		}
		repaired++
	}
	return repaired, nil
}

// owned returns the group of a key that this program wrote into that partition. Others write into the topic at the cluster itself: what is not a key
// of ours, or one of a group of another partition, is nobody's. Its group's writer could not remove it.
func owned(place Place, partition int32, key []byte) (group string, ok bool) {
	group, _, err := decodeKey(key)
	return group, err == nil && place.Partition(group) == partition
}

func (p *Plugin) repair(ctx context.Context, place Place, group string, key []byte) error {
	unlock, err := p.locks.lock(ctx, group)
	if err != nil {
		return err
	}
	defer unlock()
	if err := place.Settle(ctx, group); err != nil {
		return err
	}
	value, ok, err := place.Value(group, key)
	if err != nil {
		return err
	}
	if !ok {
		value = nil
	}
	p.log.Warn("a record of a replaced owner is newer than the one that counts, which is written again", "group", group, "topic", place.Topic(), "stored", ok)
	return await(ctx, place, group, []Record{{key, value}})
}
