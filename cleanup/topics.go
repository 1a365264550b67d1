package cleanup

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard"
	"streamkeeper/shard/offsets"
)

const (
	// topicsSweepMax bounds the topics of one sweep, some 10 MB of names; since each sweep takes the shards in another order, what lies beyond
	// has its turn in a later one.
	topicsSweepMax = 100_000
	// deletedMax bounds the names of deleted topics that wait for their sweep; the sweep of everything finds the rest.
	deletedMax = 10_000
	// deletedRetry is the pause after a sweep that failed, usually because the cluster could not be asked.
	deletedRetry = 10 * time.Second
)

// TopicShard is a shard that this replica serves, as the removal of deleted topics' offsets sees it.
type TopicShard interface {
	Partition() int32
	// Offsets calls f with each topic of which a group has a committed offset, a group's topics in a row, until f returns false; of the
	// groups whose topology names the topic, where one is given, else of all. OffsetTopics is made for it. It does not run on the shard's loop.
	Offsets(ctx context.Context, topic string, f func(group string, ref offsets.TopicRef) bool) error
	// ForgetTopics judges groups as Shard.Expire does: offsets of topics for which gone is true, committed earlier than before, get tombstones.
	ForgetTopics(ctx context.Context, groups []string, gone func(offsets.TopicRef) bool, before time.Time) ([]shard.Judged, error)
}

// TopicsConfig is what Topics needs.
type TopicsConfig struct {
	// Interval is the pause between two sweeps of everything. 0: IntervalDefault.
	Interval time.Duration
	// Shards returns the shards served at the moment.
	Shards func() []TopicShard
	// Gone tells which of the topics the cluster certainly does not have any more. What it is not sure of is not among them, or an error.
	Gone   func(ctx context.Context, refs []offsets.TopicRef) (map[offsets.TopicRef]bool, error)
	Logger *slog.Logger // nil: slog.Default()
	Tracer trace.Tracer // nil: no spans
	// Now is the clock of commit times; time.Now where nil.
	Now func() time.Time
}

// Topics removes the committed offsets of topics that were deleted: at once those of groups whose topology names a topic that is told of (Deleted), and in each sweep
// whatever any group has committed. Without it an offset of a deleted topic would be committed to a topic that somebody makes under the same name.
type Topics struct {
	cfg  TopicsConfig
	wake chan struct{} // capacity 1

	mu      sync.Mutex // protects what follows
	deleted map[string]struct{}
	removed int64
}

// NewTopics returns one that does nothing until Run is called.
func NewTopics(cfg TopicsConfig) *Topics {
	if cfg.Interval <= 0 {
		cfg.Interval = IntervalDefault
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Topics{cfg: cfg, wake: make(chan struct{}, 1), deleted: map[string]struct{}{}}
}

// Deleted tells of a topic that is believed to be gone, or to be another one under the same name. It does not block.
func (t *Topics) Deleted(topic string) {
	t.mu.Lock()
	if len(t.deleted) < deletedMax {
		t.deleted[topic] = struct{}{}
	}
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Removed counts the offsets that got a tombstone.
func (t *Topics) Removed() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.removed
}

// Run sweeps until ctx ends: an interval after the last sweep of everything, and as soon as Deleted was called. It returns ctx's error.
func (t *Topics) Run(ctx context.Context) error {
	all := time.NewTimer(t.cfg.Interval)
	defer all.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.wake:
			err = t.sweepDeleted(ctx)
		case <-all.C:
			err = t.Sweep(ctx)
			all.Reset(t.cfg.Interval)
		}
		if err != nil && ctx.Err() == nil {
			t.cfg.Logger.Warn("offsets of deleted topics can't be removed yet, trying again", "err", err)
			if !rest(ctx, deletedRetry) {
				return ctx.Err()
			}
		}
	}
}

// sweepDeleted looks at the topics that were told of. Those of a sweep that failed are looked at again.
func (t *Topics) sweepDeleted(ctx context.Context) error {
	t.mu.Lock()
	names := t.deleted
	t.deleted = map[string]struct{}{}
	t.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	err := t.sweep(ctx, names)
	if err != nil {
		for name := range names {
			t.Deleted(name)
		}
	}
	return err
}

// Sweep looks at every topic of which any group of the shards has a committed offset. It returns the first error; shards without one are done.
func (t *Topics) Sweep(ctx context.Context) error { return t.sweep(ctx, nil) }

// sweep looks at the topics of the names, nil: at all.
func (t *Topics) sweep(ctx context.Context, names map[string]struct{}) error {
	ctx, span := t.cfg.Tracer.Start(ctx, "forget deleted topics")
	defer span.End()
	shards := t.cfg.Shards()
	rand.Shuffle(len(shards), func(i, j int) { shards[i], shards[j] = shards[j], shards[i] })
	refs, failed := t.refs(ctx, shards, names)
	span.SetAttributes(attribute.Int("topics", len(refs)))
	if len(refs) == 0 {
		return failed
	}
	before := t.cfg.Now() // what is committed after the question may be of a topic made after the answer
	gone, err := t.cfg.Gone(ctx, refs)
	if err != nil {
		return err
	}
	if len(gone) == 0 {
		return failed
	}
	span.SetAttributes(attribute.Int("topics.deleted", len(gone)))
	for _, s := range shards {
		n, err := t.forget(ctx, s, names, gone, before)
		if n > 0 {
			t.cfg.Logger.Info("offsets of deleted topics removed", "partition", s.Partition(), "offsets", n)
		}
		if err != nil && failed == nil {
			failed = err
		}
	}
	return failed
}

// refs collects the topics that groups of the shards have committed offsets of.
func (t *Topics) refs(ctx context.Context, shards []TopicShard, names map[string]struct{}) (list []offsets.TopicRef, failed error) {
	seen := map[offsets.TopicRef]struct{}{}
	for _, s := range shards {
		if err := each(ctx, s, names, func(_ string, ref offsets.TopicRef) bool {
			if _, ok := seen[ref]; !ok {
				seen[ref] = struct{}{}
				list = append(list, ref)
			}
			return len(list) < topicsSweepMax
		}); err != nil && failed == nil {
			failed = err
		}
	}
	return list, failed
}

// each reads the offsets of one shard.
func each(ctx context.Context, s TopicShard, names map[string]struct{}, f func(group string, ref offsets.TopicRef) bool) error {
	if names == nil {
		return s.Offsets(ctx, "", f)
	}
	for name := range names {
		if err := s.Offsets(ctx, name, func(group string, ref offsets.TopicRef) bool {
			return ref.Name != name || f(group, ref)
		}); err != nil {
			return err
		}
	}
	return nil
}

// forget has the groups judged that have offsets of deleted topics.
func (t *Topics) forget(ctx context.Context, s TopicShard, names map[string]struct{}, gone map[offsets.TopicRef]bool, before time.Time) (total int, failed error) {
	groups := map[string]struct{}{}
	if err := each(ctx, s, names, func(group string, ref offsets.TopicRef) bool {
		if gone[ref] {
			groups[group] = struct{}{}
		}
		return len(groups) < pageMax // the rest in the next sweep
	}); err != nil {
		return 0, err
	}
	forget := func(ctx context.Context, groups []string) ([]shard.Judged, error) {
		return s.ForgetTopics(ctx, groups, func(ref offsets.TopicRef) bool { return gone[ref] }, before)
	}
	stopped := !inTurns(ctx, slices.Sorted(maps.Keys(groups)), forget, func(_ string, j shard.Judged) bool {
		failed = j.Err
		total += j.Offsets
		t.mu.Lock()
		t.removed += int64(j.Offsets)
		t.mu.Unlock()
		return failed == nil
	})
	if stopped && failed == nil {
		failed = context.Cause(ctx)
	}
	return total, failed
}

// TopicSource is what OffsetTopics reads; a projection.Store is one.
type TopicSource interface {
	GroupsAndOffsets(p int32, after string, f func(group string, offsets func(func(projection.Stored) bool) error) bool) error
	GroupsOfTopic(p int32, topic string, f func(group string) bool) error
	Offsets(p int32, group string, f func(projection.Stored) bool) error
}

// OffsetTopics calls f with the topics of which groups of partition p have a committed offset: of groups whose topology names the topic, or of all
// where it is "". It ends when f returns false.
func OffsetTopics(ctx context.Context, src TopicSource, p int32, topic string, f func(group string, ref offsets.TopicRef) bool) error {
	var failed error
	var pace pacer
	group := func(group string, committed func(func(projection.Stored) bool) error) bool {
		going, last := true, offsets.TopicRef{}
		failed = committed(func(s projection.Stored) bool {
			c, ok := s.Record.Value.(*eventlog.OffsetCommit)
			if !ok {
				return true
			}
			if ref := (offsets.TopicRef{Name: s.Record.Key.Topic, ID: c.TopicID}); ref != last {
				last = ref
				going = f(group, ref)
			}
			return going
		})
		return going && failed == nil && pace.next(ctx)
	}
	var err error
	if topic == "" {
		err = src.GroupsAndOffsets(p, "", group)
	} else {
		err = src.GroupsOfTopic(p, topic, func(id string) bool {
			return group(id, func(f func(projection.Stored) bool) error { return src.Offsets(p, id, f) })
		})
	}
	if err == nil {
		err = failed
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}
