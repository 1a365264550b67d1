package cleanup

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"streamkeeper/plugin/topic"
	"streamkeeper/shard"
)

// Orphans is a plugin that keeps descriptions where it has to look after them itself; *topic.Plugin is one.
type Orphans interface {
	// Repair writes right values over void records; see topic.Plugin.
	Repair(ctx context.Context, partition int32) (int, error)
	// Sweep removes descriptions of groups that are gone, or have none by their record.
	Sweep(ctx context.Context, partition int32, groups topic.Groups) (topic.Swept, error)
}

// OrphanedShard is a shard that can be asked which of its groups may have a description.
type OrphanedShard interface {
	Shard
	DescribedShard
	topic.Groups
}

// orphansInterval is how often a shard's descriptions are looked through while it is served without a break. Orphans come of rare
// failures, and nobody asks for them; but a look costs a read per description.
const orphansInterval = time.Hour

// orphans remembers when each shard was looked through.
type orphans struct {
	mu   sync.Mutex
	seen map[int32]orphansSeen
}

type orphansSeen struct {
	tenure context.Context
	at     time.Time
}

// due says that the shard is to be looked through now: the first time in a tenure, and an interval later.
func (o *orphans) due(p int32, tenure context.Context) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	s, ok := o.seen[p]
	return !ok || s.tenure != tenure || time.Since(s.at) >= orphansInterval
}

func (o *orphans) done(p int32, tenure context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == nil {
		o.seen = map[int32]orphansSeen{}
	}
	o.seen[p] = orphansSeen{tenure, time.Now()}
}

// orphaned is the step that looks after the plugin's own store; what fails is left to the next cycle.
func (d *Descriptions) orphaned(ctx context.Context, s OrphanedShard, log *slog.Logger) (r Report) {
	tenure := s.Tenure()
	cycle := ctx
	ctx, cancel := shard.Under(ctx, tenure)
	defer cancel(nil)
	defer context.AfterFunc(cycle, func() { cancel(context.Cause(cycle)) })()
	p := s.Partition()
	if _, err := d.Orphans.Repair(ctx, p); err != nil && ctx.Err() == nil {
		r.Failures++
		log.Warn("cleanup: void records of topology descriptions can't be repaired, left to the next cycle", "err", err)
	}
	if ctx.Err() != nil || !d.orphans.due(p, tenure) {
		return r
	}
	swept, err := d.Orphans.Sweep(ctx, p, s)
	r.DescriptionsDeleted += swept.Orphans
	switch {
	case err == nil:
		d.orphans.done(p, tenure)
	case ctx.Err() == nil:
		r.Failures++
		log.Warn("cleanup: the topology descriptions can't be looked through, left to the next cycle", "err", err)
	}
	return r
}
