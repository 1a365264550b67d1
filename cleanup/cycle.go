package cleanup

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"streamkeeper/shard"
)

// IntervalDefault is Kafka's offsets.retention.check.interval.ms.
const IntervalDefault = 10 * time.Minute

// shardsAtOnce is how many shards are swept side by side: enough to get through a backlog while one waits for the log,
// and few enough that most shards of a replica are not touched at any moment.
const shardsAtOnce = 4

// ErrRunning: a cycle is under way.
var ErrRunning = errors.New("a cleanup cycle is under way")

// Shard is a shard that this replica serves.
type Shard interface {
	Partition() int32
	// Candidates yields the ids of groups that are worth judging; AllCandidates is made for it. It ends after its
	// first error. It does not run on the shard's loop.
	Candidates(ctx context.Context) iter.Seq2[string, error]
	// Expire judges groups in one turn of the shard's loop, as many of them as fit it, in their order and at least one, and returns when what was
	// decided is written. A group that is gone is no error. An error of all leaves open what was written.
	Expire(ctx context.Context, groups []string) ([]shard.Judged, error)
}

// Config is what a Cycle needs.
type Config struct {
	// Interval is offsets.retention.check.interval.ms: the pause between the end of a cycle, or the start of Run, and
	// the next one. 0: IntervalDefault.
	Interval time.Duration
	// Shards returns the shards served at the moment; asked once per cycle.
	Shards func() []Shard
	// Descriptions, where topology descriptions are kept; the shards are DescribedShards then.
	Descriptions *Descriptions
	Logger       *slog.Logger // nil: slog.Default()
	Tracer       trace.Tracer // nil: no spans
}

// Stats are the counters since the Cycle was made, and what the last cycle did. What a cycle does to a shard counts when it is done with it.
type Stats struct {
	Cycles     int64 // finished or broken off
	Candidates int64 // groups judged
	// OffsetsExpired counts the tombstones that were written (Kafka's meter offset-expiration; its own counts too many).
	OffsetsExpired int64
	GroupsRemoved  int64
	// DescriptionsDeleted counts groups whose topology description the plugin deleted.
	DescriptionsDeleted int64
	// DescriptionsLost counts groups whose topology description the plugin had lost; they are looked for only where Descriptions.Lost is set.
	DescriptionsLost int64
	Failures         int64 // shards that could not be listed, and groups that could not be judged
	Running          bool
	LastDuration     time.Duration
	LastEnd          time.Time // zero: no cycle has ended yet
}

// Report is what one cycle did.
type Report struct {
	Shards, Candidates, OffsetsExpired, GroupsRemoved, DescriptionsDeleted, DescriptionsLost, Failures int
	Duration                                                                                           time.Duration
}

// Cycle removes what has expired, again and again.
type Cycle struct {
	cfg     Config
	running atomic.Bool

	mu    sync.Mutex // protects stats
	stats Stats
	// looked is behind which group of each partition the search for lost descriptions goes on; "" from the start.
	looked map[int32]string
}

// New returns a cycle that does nothing until Run or Sweep is called.
func New(cfg Config) *Cycle {
	if cfg.Interval <= 0 {
		cfg.Interval = IntervalDefault
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	return &Cycle{cfg: cfg, looked: map[int32]string{}}
}

// Run sweeps an interval after it was called and an interval after each sweep's end, until ctx ends. It returns ctx's
// error. A failed sweep is logged and the next one tries again.
func (c *Cycle) Run(ctx context.Context) error {
	timer := time.NewTimer(c.cfg.Interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		if _, err := c.Sweep(ctx); errors.Is(err, ErrRunning) {
			c.cfg.Logger.Warn("cleanup cycle left out: one that was started otherwise is under way")
		}
		timer.Reset(c.cfg.Interval)
	}
}

// Sweep runs one cycle over all shards served now and returns when its last write is done, or ctx ends. It returns
// ErrRunning if a cycle is under way, or ctx's error; what fails within single shards or groups is in the report.
func (c *Cycle) Sweep(ctx context.Context) (Report, error) {
	if !c.running.CompareAndSwap(false, true) {
		return Report{}, ErrRunning
	}
	defer c.running.Store(false)
	ctx, span := c.cfg.Tracer.Start(ctx, "cleanup cycle")
	defer span.End()

	start := time.Now()
	shards := c.cfg.Shards()
	if c.cfg.Descriptions != nil {
		c.cfg.Descriptions.Counters.CleanupCycle()
	}
	var total Report
	var mu sync.Mutex // protects total
	slots := make(chan struct{}, shardsAtOnce)
	var wg sync.WaitGroup
	for _, s := range shards {
		slots <- struct{}{} // is given back soon after ctx ends too
		wg.Go(func() {
			defer func() { <-slots }()
			log := c.cfg.Logger.With("partition", s.Partition())
			var r Report
			if d, ok := s.(DescribedShard); ok && c.cfg.Descriptions != nil {
				r = (&descriptions{cfg: c.cfg.Descriptions, shard: d, log: log}).run(ctx)
			}
			if l, ok := s.(LostShard); ok && c.cfg.Descriptions != nil && c.cfg.Descriptions.Lost != nil {
				r.add(c.lookForLost(ctx, s.Partition(), l, log))
			}
			if o, ok := s.(OrphanedShard); ok && c.cfg.Descriptions != nil && c.cfg.Descriptions.Orphans != nil {
				r.add(c.cfg.Descriptions.orphaned(ctx, o, log))
			}
			r.add((&sweep{shard: s, log: log, removed: c.removed}).run(ctx))
			c.count(r)
			mu.Lock()
			defer mu.Unlock()
			total.add(r)
		})
	}
	wg.Wait()
	total.Shards, total.Duration = len(shards), time.Since(start)

	span.SetAttributes(
		attribute.Int("shards", total.Shards), attribute.Int("candidates", total.Candidates), attribute.Int("failures", total.Failures),
		attribute.Int("offsets.expired", total.OffsetsExpired), attribute.Int("groups.removed", total.GroupsRemoved),
		attribute.Int("descriptions.deleted", total.DescriptionsDeleted), attribute.Int("descriptions.lost", total.DescriptionsLost))
	if err := ctx.Err(); err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	c.ended(total)
	level := slog.LevelDebug
	if total.OffsetsExpired+total.GroupsRemoved+total.DescriptionsDeleted+total.DescriptionsLost+total.Failures > 0 {
		level = slog.LevelInfo
	}
	c.cfg.Logger.Log(ctx, level, "cleanup cycle", "shards", total.Shards, "candidates", total.Candidates,
		"offsets_expired", total.OffsetsExpired, "groups_removed", total.GroupsRemoved, "descriptions_deleted", total.DescriptionsDeleted, "descriptions_lost", total.DescriptionsLost, "failures", total.Failures, "duration", total.Duration)
	return total, ctx.Err()
}

// lookForLost looks for lost descriptions of a shard, where the last cycle stopped.
func (c *Cycle) lookForLost(ctx context.Context, p int32, s LostShard, log *slog.Logger) Report {
	c.mu.Lock()
	after := c.looked[p]
	c.mu.Unlock()
	r, next := (&lost{cfg: c.cfg.Descriptions, shard: s, log: log}).run(ctx, after)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked[p] = next
	return r
}

// removed is told of each group that went.
func (c *Cycle) removed(group string) {
	if d := c.cfg.Descriptions; d != nil {
		d.Backoff.Forget(group)
	}
}

// Stats returns the counters.
func (c *Cycle) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Running = c.running.Load()
	return s
}

// count counts what was done to one shard.
func (c *Cycle) count(r Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Candidates += int64(r.Candidates)
	c.stats.OffsetsExpired += int64(r.OffsetsExpired)
	c.stats.GroupsRemoved += int64(r.GroupsRemoved)
	c.stats.DescriptionsDeleted += int64(r.DescriptionsDeleted)
	c.stats.DescriptionsLost += int64(r.DescriptionsLost)
	c.stats.Failures += int64(r.Failures)
}

// ended counts a cycle.
func (c *Cycle) ended(r Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Cycles++
	c.stats.LastDuration, c.stats.LastEnd = r.Duration, time.Now()
}

func (r *Report) add(o Report) {
	r.Candidates += o.Candidates
	r.OffsetsExpired += o.OffsetsExpired
	r.GroupsRemoved += o.GroupsRemoved
	r.DescriptionsDeleted += o.DescriptionsDeleted
	r.DescriptionsLost += o.DescriptionsLost
	r.Failures += o.Failures
}
