package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

// Store is the projection as a host uses it; *projection.Store is one.
type Store interface {
	projection.Reader
	// OnApplied calls f after each batch that was applied to a partition: next is the first offset not applied yet.
	// f must not block.
	OnApplied(f func(p int32, next int64))
	// OnOwner calls f after each ownership record that was applied. f must not block.
	OnOwner(f func(p int32, o eventlog.Owner))
	// OnVoid calls f with the records of a batch that do not count (D4): compaction will take them for the latest of their keys, so the
	// owner repairs them. f must not block.
	OnVoid(f func(p int32, voids []projection.Void))
	// OnRead calls f after each batch that was applied, also where it moved nothing: everything below next is applied, end is the high watermark
	// that the partition's leader named with it. f must not block.
	OnRead(f func(p int32, next, end int64))
	// Wait returns when everything below offset is applied, or with ctx's error.
	Wait(ctx context.Context, p int32, offset int64) error
	// Reads says why nothing more is read of the partition: as Err, but that a store which takes what is read into memory, because its disk is full, reads.
	Reads(p int32) error
	// AtEnd says that the projection has stood at the end of the partition since the process started.
	AtEnd(p int32) bool
	// Restarts counts how often the partition was forgotten and read again since the process started.
	Restarts(p int32) uint64
	// Track notes the groups that get records, offsets aside, in partition p until stop is called, once, which returns them.
	Track(p int32) (stop func() []string)
	// Counts returns how many groups and how many committed offsets the partition has. It takes as long as reading their keys does.
	Counts(p int32) (groups, offsets int64, err error)
}

// Config is what a Host is made of. Log, Store, Membership and Topics are required.
type Config struct {
	Log        eventlog.Log
	Store      Store
	Membership Membership
	// Self is the template of this replica's ownership records: node id, address, instance.
	Self eventlog.Ownership
	// Topics returns the newest snapshot of the cluster's topics.
	Topics func() streams.Topics
	// Groups are the settings of streams groups, and what can be configured for one; Kafka's defaults where nil.
	Groups *groupconfig.Broker
	// Offsets are the settings of committed offsets; Now is filled in by the shard.
	Offsets offsets.Env
	// Descriptions says that topology descriptions are kept (KIP-1331): members are asked for them, and a group stays until
	// its own is deleted.
	Descriptions bool
	// TenureEnded, where it is set, is called when this replica stops serving a partition: what is kept for its groups elsewhere may
	// go. It runs on the shard's loop, and must not call the Host.
	TenureEnded func(p int32)
	// Converting is told of groups whose conversion to a classic group was interrupted, whenever a request meets one, so that it is
	// settled. It must not block; nil: nobody is told.
	Converting func(group string)
	// Now is the wall clock; time.Now where nil.
	Now    func() time.Time
	Logger *slog.Logger
	Tracer trace.Tracer
}

// Host holds all shards of one replica. Its methods are safe for concurrent use.
type Host struct {
	cfg      Config
	shards   []*Shard
	log      *slog.Logger
	tracer   trace.Tracer
	known    sync.Map // group id → struct{}: streams groups that the shards of this replica hold in memory
	stopping atomic.Bool
	ended    chan struct{} // closed when Run returns
	stats    counters
	timings  Timings
	// countKnown: the log has as many partitions as its owners knew.
	countKnown   atomic.Bool
	stopReleases context.CancelFunc
	ending       sync.Mutex // protects cancel
	cancel       context.CancelCauseFunc
	counting     sync.Mutex // held by whoever takes a census: one scan at a time
	tally        tally
	releases     context.Context // of released records that are being written; ends with Run
	order        atomic.Int64    // the highest Order of an ownership record seen
	declines     declines        // partitions that this replica can't serve
	claims       sync.WaitGroup  // goroutines that claim or release
	forgotten    forgottenNodes  // replicas that are gone for good
	hydrating    chan struct{}   // held by whoever reads the groups of a shard that is taken over
}

// New makes the shards of cfg.Log; none serves until Run.
func New(cfg Config) *Host {
	if cfg.Groups == nil {
		cfg.Groups = groupconfig.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	h := &Host{cfg: cfg, log: cfg.Logger, tracer: cfg.Tracer, ended: make(chan struct{}), tally: tally{log: cfg.Logger},
		hydrating: make(chan struct{}, hydrationsAtOnce(runtime.GOMAXPROCS(0)))}
	h.releases, h.stopReleases = context.WithCancel(context.Background())
	n := cfg.Log.Identity().Partitions
	h.shards = make([]*Shard, n)
	for p := range n {
		h.shards[p] = newShard(h, p)
		if o, ok := cfg.Store.Owner(p); ok { // of an earlier life, perhaps our own
			h.shards[p].lost.see(o, cfg.Self.NodeID)
		}
	}
	h.forgotten.stale.Store(true)
	group := h.Partition(h.group())
	cfg.Store.OnApplied(func(p int32, next int64) {
		if p == group {
			h.forgotten.stale.Store(true)
		}
		h.shards[p].postApplied(next)
	})
	cfg.Store.OnRead(func(p int32, next, end int64) { h.shards[p].tail.read(cfg.Membership.Lease().Now(), next, end) })
	cfg.Store.OnOwner(func(p int32, o eventlog.Owner) {
		h.sawOrder(o.Order)
		if h.sameCount(o) == nil {
			h.shards[p].lost.see(o, cfg.Self.NodeID)
			h.shards[p].postOwner(o)
		}
	})
	cfg.Store.OnVoid(func(p int32, voids []projection.Void) { h.shards[p].postVoids(voids) })
	return h
}

// Run runs the shards and takes part in the ownership group until ctx ends or the group can't be taken part in.
// When it returns no shard serves any more.
func (h *Host) Run(ctx context.Context) error {
	loops, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	for _, s := range h.shards {
		wg.Add(1)
		go func() { defer wg.Done(); s.loop(loops) }()
	}
	wg.Add(1)
	go func() { defer wg.Done(); h.takeCensuses(loops) }()
	wg.Add(1)
	go func() { defer wg.Done(); h.watchLoops(loops) }()
	wg.Add(1)
	go func() { defer wg.Done(); h.watchDeclines(loops) }()
	run, ended := h.ends(ctx)
	err := ended(h.cfg.Membership.Run(run, h))
	h.stopping.Store(true)
	stop()
	wg.Wait()
	h.stopReleases() // what they had not written by now was given its time
	h.claims.Wait()
	close(h.ended)
	return err
}

// Shutdown hands the shards over, within ctx, and releases what is left, within releaseMax. Afterwards the context of Run may be ended.
func (h *Host) Shutdown(ctx context.Context) error {
	err := h.HandOver(ctx)
	// The time for the released records is their own: ctx is over when we get here with something left.
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseMax)
	defer cancel()
	h.Release(release)
	return err
}

// HandOver leaves the group, and serves on until a successor claimed each partition or ctx ends.
func (h *Host) HandOver(ctx context.Context) error {
	err := h.cfg.Membership.Leave(ctx)
	for _, s := range h.shards {
		s.post(func(s *Shard) { s.want(false) })
	}
	const look = 20 * time.Millisecond // a planned stop takes seconds; the look is a few atomic loads
	t := time.NewTicker(look)
	defer t.Stop()
	for h.OwnedCount() > 0 {
		select {
		case <-ctx.Done():
			return err
		case <-t.C:
		}
	}
	return err
}

// Release ends the shards that are still served, and writes a released record for each within ctx.
func (h *Host) Release(ctx context.Context) {
	var wg sync.WaitGroup
	for _, s := range h.shards {
		if s.serving.Load() {
			wg.Add(1)
			go func() { defer wg.Done(); s.release(ctx) }()
		}
	}
	wg.Wait()
}

// Assigned, Revoked and Lost are the MembershipListener.
func (h *Host) Assigned(ps []int32) {
	h.log.Info("partitions assigned", "partitions", partitionRanges(ps))
	for _, p := range ps { // before the loops hear of it, so that Pending never says "done" too early
		if p >= 0 && int(p) < len(h.shards) {
			h.shards[p].wantedNow.Store(true)
		}
	}
	h.each(ps, func(s *Shard) { s.want(true) })
}

// Revoked: the shards serve on until a successor claims or the lease ends (D5).
func (h *Host) Revoked(ps []int32) {
	h.log.Info("partitions revoked", "partitions", partitionRanges(ps))
	h.each(ps, func(s *Shard) { s.want(false) })
}

// Lost: the group went on without this replica; nothing may be answered from memory any more.
func (h *Host) Lost(ps []int32) {
	h.log.Warn("partitions lost", "partitions", partitionRanges(ps))
	h.each(ps, func(s *Shard) { s.lose() })
}

func (h *Host) each(ps []int32, f func(*Shard)) {
	for _, p := range ps {
		if int(p) < len(h.shards) && p >= 0 {
			h.shards[p].post(f)
		}
	}
}

// Partition is the partition of the log that a group lives in.
func (h *Host) Partition(group string) int32 {
	return eventlog.Partition(group, int32(len(h.shards)))
}

// Partitions is the number of shards of the log.
func (h *Host) Partitions() int32 { return int32(len(h.shards)) }

// Owns says that this replica serves the partition now.
func (h *Host) Owns(p int32) bool { return h.shards[p].serving.Load() }

// OwnedCount is the number of partitions that this replica serves now.
func (h *Host) OwnedCount() int {
	n := 0
	for _, s := range h.shards {
		if s.serving.Load() {
			n++
		}
	}
	return n
}

// Held are the partitions that are assigned to this replica, or served by it, ascending.
func (h *Host) Held() (ps []int32) {
	for _, s := range h.shards {
		if s.wantedNow.Load() || s.serving.Load() {
			ps = append(ps, s.partition)
		}
	}
	return ps
}

// Pending says how many partitions are assigned to this replica and not served yet; /readyz waits for 0.
func (h *Host) Pending() int {
	n := 0
	for _, s := range h.shards {
		if s.wantedNow.Load() && !s.serving.Load() {
			n++
		}
	}
	return n
}

// Owner is the replica that the log names as owner of the partition; ok is false where there is none, or where it is this one in an earlier
// life: whoever is led here would be sent away.
func (h *Host) Owner(p int32) (o eventlog.Owner, ok bool) {
	o, ok = h.cfg.Store.Owner(p)
	if s := h.shards[p]; o.NodeID == h.cfg.Self.NodeID && !s.serving.Load() && !s.wantedNow.Load() {
		return o, false
	}
	return o, ok && !o.Released
}

// nextOrder is the order of a claim that is about to be written: after every claim that was read, of any partition.
func (h *Host) nextOrder() int64 {
	highest := h.order.Load()
	for _, o := range h.Owners() {
		highest = max(highest, o.Order)
	}
	return highest + 1
}

// sawOrder notes the order of a claim that was read: its record may be replaced before the next claim looks.
func (h *Host) sawOrder(order int64) {
	for {
		highest := h.order.Load()
		if order <= highest || h.order.CompareAndSwap(highest, order) {
			return
		}
	}
}

// Owners are the last ownership records of all partitions that have one, released ones too.
func (h *Host) Owners() []eventlog.Owner {
	var out []eventlog.Owner
	for p := range h.shards {
		if o, ok := h.cfg.Store.Owner(int32(p)); ok {
			out = append(out, o)
		}
	}
	return out
}

// Known says whether the log has a streams group of that id, as far as this replica has read it. Only after Barrier
// does false mean that there is none. With an error, which says that the partition is read no further, true is what was so there.
func (h *Host) Known(group string) (bool, error) {
	if _, ok := h.known.Load(group); ok {
		return true, nil
	}
	p := h.Partition(group)
	known, err := h.cfg.Store.HasGroup(p, group)
	if unread := h.cfg.Store.Reads(p); unread != nil {
		err = unread
	}
	return known, err
}

// Fresh says that the partition was read to its end since this replica started, or began to read it anew, and within the last session time-out of the group.
func (h *Host) Fresh(p int32) bool {
	fresh := Instant(h.shards[p].tail.fresh.Load())
	return !h.Unread(p) && h.cfg.Membership.Lease().Now().Sub(fresh) < h.cfg.Membership.LeaseDuration()
}

// Unread says that there are certainly records in the partition that this replica has not read, or may be from long ago: it was not read to its end
// since this replica started, or began to read it anew; it can't be read, or may not be, or the broker that leads it does not answer here; the leader named a later end with the last batch.
func (h *Host) Unread(p int32) bool {
	return !h.cfg.Store.AtEnd(p) || h.shards[p].tail.behind.Load() || errors.Is(h.cfg.Store.Err(p), eventlog.ErrRefused) || h.blind(p) != nil
}

// Barrier returns when the projection of partition p has applied everything that was in the log when Barrier was called; ErrBlind where this replica may not read that, or does not reach who has it.
func (h *Host) Barrier(ctx context.Context, p int32) error {
	if err := h.cfg.Store.Reads(p); err != nil {
		return err
	}
	if err := h.blind(p); err != nil {
		return fmt.Errorf("%w: %w", ErrBlind, err)
	}
	end, err := h.cfg.Log.End(ctx, p)
	if err != nil {
		return err
	}
	return h.cfg.Store.Wait(ctx, p, end)
}

// RequiredTopics names the topics that a streams group reads or writes internally, from the projection; empty where the
// group is not known.
func (h *Host) RequiredTopics(group string) ([]string, error) {
	stored, err := h.cfg.Store.Group(h.Partition(group), group)
	if err != nil {
		return nil, err
	}
	g := streams.NewGroup(group)
	for _, st := range stored {
		if err := g.Apply(st.Record); err != nil {
			return nil, fmt.Errorf("group %q, record at offset %d: %w", group, st.Offset, err)
		}
	}
	return g.RequiredTopics(), nil
}
