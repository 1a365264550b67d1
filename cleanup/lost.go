package cleanup

import (
	"context"
	"log/slog"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/plugin"
	"streamkeeper/projection"
)

// LostShard is a shard whose topology descriptions are looked for at the plugin.
type LostShard interface {
	DescribedShard
	// Stored lists what the log says is stored of groups with members, for at most limit groups with ids above after; StoredDescriptions
	// is made for it. next is the after of the next call, "" behind the last group. It does not run on the shard's loop.
	Stored(ctx context.Context, after string, limit int) (stored []plugin.GetCall, next string, err error)
	// DescriptionLost marks the group uncertain, durably, if the log still says that this epoch is stored: its members are asked again.
	DescriptionLost(ctx context.Context, group string, topologyEpoch int32) error
}

// Lost makes the cycle look for descriptions that the plugin has lost.
type Lost struct {
	// GetAll is that of plugin.Traced.
	GetAll func(ctx context.Context, calls []plugin.GetCall) []plugin.GetResult
}

const (
	// lostLooksMax bounds the groups of a shard that one cycle looks at; the next one goes on behind them. Whole descriptions come from
	// the plugin for that, which is not to be its main work.
	lostLooksMax = 200
	// lostAtOnceMax bounds the descriptions that are read at a time: each may be megabytes.
	lostAtOnceMax = 16
)

// lost is one shard's part of the step.
type lost struct {
	cfg    *Descriptions
	shard  LostShard
	log    *slog.Logger
	report Report
}

// run looks at the groups behind after and returns where the next cycle goes on.
func (l *lost) run(ctx context.Context, after string) (report Report, next string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tenure := l.shard.Tenure()
	defer context.AfterFunc(tenure, cancel)()
	if tenure.Err() != nil {
		return l.report, after
	}
	stored, next, err := l.shard.Stored(ctx, after, lostLooksMax)
	if err != nil {
		if ctx.Err() == nil {
			l.report.Failures++
			l.log.Warn("cleanup: the groups with topology descriptions can't be listed, left to the next cycle", "err", err)
		}
		return l.report, after
	}
	for len(stored) > 0 && ctx.Err() == nil {
		n := min(len(stored), lostAtOnceMax)
		l.look(ctx, stored[:n])
		stored = stored[n:]
	}
	return l.report, next
}

func (l *lost) look(ctx context.Context, calls []plugin.GetCall) {
	for i, r := range l.cfg.Lost.GetAll(ctx, calls) {
		if r.Outcome.Kind != plugin.NotFound || ctx.Err() != nil {
			continue // there, or it can't be told: then nobody is asked
		}
		c := calls[i]
		if !l.cfg.Backoff.Lose(c.Group, c.TopologyEpoch, time.Now()) {
			continue
		}
		l.cfg.Counters.Lost()
		bounded, cancel := context.WithTimeout(ctx, judgeTimeout)
		err := l.shard.DescriptionLost(bounded, c.Group, c.TopologyEpoch)
		cancel()
		if err != nil {
			l.report.Failures++
			l.log.Warn("cleanup: a group whose topology description is lost can't be marked", "group", c.Group, "err", err)
			continue
		}
		l.report.DescriptionsLost++
		l.log.Info("topology description lost by the plugin, members are asked again", "group", c.Group, "topology_epoch", c.TopologyEpoch)
	}
}

// StoredSource is what StoredDescriptions reads; a projection.Reader is one.
type StoredSource interface {
	GroupsWithMembers(p int32, f func(group string) bool) error
	Group(p int32, group string) ([]projection.Stored, error)
}

// StoredDescriptions lists the groups of partition p with members for whose topology the log says that the plugin has a description. Of the
// groups above after it looks at limit; next is the last one, "" where there are no more.
func StoredDescriptions(ctx context.Context, src StoredSource, p int32, after string, limit int) (stored []plugin.GetCall, next string, err error) {
	var groups []string
	if err := src.GroupsWithMembers(p, func(group string) bool {
		if group > after || after == "" {
			groups = append(groups, group)
		}
		return len(groups) <= limit && ctx.Err() == nil
	}); err != nil {
		return nil, after, err
	}
	if len(groups) > limit {
		groups = groups[:limit]
		next = groups[limit-1]
	}
	for _, group := range groups {
		if ctx.Err() != nil {
			return nil, after, ctx.Err()
		}
		records, err := src.Group(p, group)
		if err != nil {
			return nil, after, err
		}
		topology, epoch := eventlog.EpochNone, eventlog.EpochNone
		for _, r := range records {
			switch v := r.Record.Value.(type) {
			case *eventlog.Topology:
				topology = v.Epoch
			case *eventlog.Group:
				epoch = v.StoredDescriptionTopologyEpoch
			}
		}
		if epoch >= 0 && epoch == topology {
			stored = append(stored, plugin.GetCall{Group: group, TopologyEpoch: epoch})
		}
	}
	return stored, next, nil
}
