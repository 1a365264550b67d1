package cleanup

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"

	"streamkeeper/eventlog"
	"streamkeeper/plugin"
	"streamkeeper/projection"
	"streamkeeper/shard"
	"streamkeeper/shard/offsets"
)

// DescribedShard is a shard of a replica that keeps topology descriptions (KIP-1331).
type DescribedShard interface {
	// Tenure is a context that ends when the shard is not served here any more. Calls of the plugin end with it: the next owner
	// may have members push what would then be deleted.
	Tenure() context.Context
	// Described yields the ids of empty groups without offsets that may have a description; DescribedCandidates is made for it. It
	// ends after its first error, and does not run on the shard's loop.
	Described(ctx context.Context) iter.Seq2[string, error]
	// MarkExpired judges such a group on the shard's loop and marks it uncertain, durably; false: it is not one any more.
	MarkExpired(ctx context.Context, group string) (bool, error)
	// DescriptionDeleted records that the plugin deleted what it held of the group.
	DescriptionDeleted(ctx context.Context, group string) error
}

// Descriptions is what the cycle needs to remove topology descriptions.
type Descriptions struct {
	// DeleteAll is that of plugin.Traced: it deletes side by side, and ends in bounded time.
	DeleteAll func(ctx context.Context, groups []string) []plugin.Outcome
	Counters  *plugin.Counters
	// Backoff forgets the groups whose descriptions are deleted, and those that are removed.
	Backoff *plugin.Backoff
	// Lost makes the cycle look for descriptions that the plugin has lost, and have members asked again; nil: it does not. The shards are
	// LostShards then.
	Lost *Lost
	// Orphans is the plugin where that needs to be looked after; the shards are OrphanedShards then. nil: it does not.
	Orphans Orphans

	orphans orphans
}

// describedAtOnce is how many groups of a shard are between their marker and their outcome: enough for the plugin to work side by
// side, few enough that a slow one does not hold the rest of the cycle up for more than its own time-out at a time.
const describedAtOnce = 64

// descriptions is one shard's part of the step that deletes descriptions: barrier, plugin, outcome. What fails stays uncertain, and
// the next cycle finds it.
type descriptions struct {
	cfg    *Descriptions
	shard  DescribedShard
	log    *slog.Logger
	report Report
}

func (d *descriptions) run(ctx context.Context) Report {
	cycle := ctx
	ctx, cancel := shard.Under(ctx, d.shard.Tenure())
	defer cancel(nil)
	defer context.AfterFunc(cycle, func() { cancel(context.Cause(cycle)) })()
	batch := make([]string, 0, describedAtOnce)
	for group, err := range d.shard.Described(ctx) {
		if ctx.Err() != nil {
			return d.report
		}
		if err != nil {
			d.report.Failures++
			d.log.Warn("cleanup: the groups with topology descriptions can't be listed, left to the next cycle", "err", err)
			break
		}
		if batch = append(batch, group); len(batch) == describedAtOnce {
			if !d.remove(ctx, batch) {
				return d.report
			}
			batch = batch[:0]
		}
	}
	if len(batch) > 0 && ctx.Err() == nil {
		d.remove(ctx, batch)
	}
	return d.report
}

// remove does a batch. false: none of its groups could be marked, and the rest is left to the next cycle.
func (d *descriptions) remove(ctx context.Context, groups []string) bool {
	d.cfg.Counters.CleanupEligible(len(groups))
	marks := make([]bool, len(groups))
	failed := d.each(ctx, groups, "marked", func(ctx context.Context, i int) error {
		ok, err := d.shard.MarkExpired(ctx, groups[i])
		marks[i] = ok && err == nil
		return err
	})
	var marked []string
	for i, ok := range marks {
		if ok {
			marked = append(marked, groups[i])
		}
	}
	if len(marked) == 0 || ctx.Err() != nil {
		return failed < len(groups)
	}
	var deleted []string
	for i, o := range d.cfg.DeleteAll(ctx, marked) {
		if o.OK() {
			d.cfg.Backoff.Forget(marked[i])
			deleted = append(deleted, marked[i])
		} else if ctx.Err() == nil {
			d.report.Failures++
		}
	}
	if ctx.Err() != nil {
		return false
	}
	d.report.DescriptionsDeleted += len(deleted)
	d.each(ctx, deleted, "settled", func(ctx context.Context, i int) error { return d.shard.DescriptionDeleted(ctx, deleted[i]) })
	return true
}

// each calls f for all groups side by side and returns how many failed.
func (d *descriptions) each(ctx context.Context, groups []string, what string, f func(ctx context.Context, i int) error) int {
	ctx, cancel := context.WithTimeout(ctx, judgeTimeout)
	defer cancel()
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i := range groups {
		wg.Go(func() { errs[i] = f(ctx, i) })
	}
	wg.Wait()
	failed := 0
	var first error
	for _, err := range errs {
		if err != nil {
			failed++
			if first == nil {
				first = err
			}
		}
	}
	if failed > 0 && !errors.Is(ctx.Err(), context.Canceled) {
		d.report.Failures += failed
		d.log.Warn("cleanup: groups with topology descriptions can't be "+what+", left to the next cycle", "groups", failed, "err", first)
	}
	return failed
}

// DescribedSource is what DescribedCandidates reads; a projection.Reader is one.
type DescribedSource interface {
	Source
	Group(p int32, group string) ([]projection.Stored, error)
	Pending(p int32, group string, f func(producerID int64, s projection.Stored) bool) error
}

// DescribedCandidates yields the groups of partition p with neither members nor offsets nor open transactions whose description is
// stored, or may be. Pages are read as AllCandidates reads them.
func DescribedCandidates(ctx context.Context, src DescribedSource, p int32) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		// With a retention that never ends only groups without any offset are worth judging.
		for group, err := range AllCandidates(ctx, src, p, offsets.Env{Now: 0, Retention: 1 << 62}) {
			described := false
			if err == nil {
				described, err = mayBeDescribed(src, p, group)
			}
			if err != nil {
				yield("", err)
				return
			}
			if described && !yield(group, nil) {
				return
			}
		}
	}
}

func mayBeDescribed(src DescribedSource, p int32, group string) (bool, error) {
	open, any := false, false
	if err := src.Offsets(p, group, func(projection.Stored) bool { any = true; return false }); err != nil || any {
		return false, err // one with an expiry of its own: the sweep's affair
	}
	if err := src.Pending(p, group, func(int64, projection.Stored) bool { open = true; return false }); err != nil || open {
		return false, err
	}
	return SeemsDescribed(src, p, group)
}

// SeemsDescribed says, as far as the projection has read, that a group exists and may have a description by its record.
func SeemsDescribed(src DescribedSource, p int32, group string) (bool, error) {
	records, err := src.Group(p, group)
	if err != nil {
		return false, err
	}
	for _, r := range records {
		if g, ok := r.Record.Value.(*eventlog.Group); ok {
			return g.StoredDescriptionTopologyEpoch != eventlog.EpochNone, nil
		}
	}
	return false, nil
}
