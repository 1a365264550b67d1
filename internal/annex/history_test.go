package annex

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/cleanup"
	"streamkeeper/eventlog"
	"streamkeeper/plugin"
	"streamkeeper/plugin/topic"
	"streamkeeper/projection"
	"streamkeeper/shard"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

var (
	historySeed  = flag.Uint64("history", 0, "play one history of TestHistories: its seed")
	historyCount = flag.Int("histories", 20, "how many histories TestHistories plays")
)

// TestHistories: whole replicas (shards, projections, the plugin behind its wrapper, the cleanup cycle) push, describe, and delete at random,
// while replicas are killed and cut off, claims change hands, producer ids expire, and appends to the topic hang, get lost, and come late.
// When all is quiet no description is left of a group that is gone, and every stored one is what was pushed last.
func TestHistories(t *testing.T) {
	if *historySeed != 0 {
		playHistory(t, *historySeed)
		return
	}
	first := rand.Uint64N(1 << 32)
	for i := range uint64(*historyCount) {
		if !t.Run(fmt.Sprintf("seed=%d", first+i), func(t *testing.T) { playHistory(t, first+i) }) {
			t.Fatalf("play it again: go test ./internal/annex -run TestHistories -history %d", first+i)
		}
	}
}

const historyGroups = 6

// history is a world in which one seed decides what happens.
type history struct {
	t     *testing.T
	rng   *rand.Rand // of the one goroutine that decides
	log   *eventlog.Fake
	annex *eventlog.Fake
	group *shard.FakeGroup
	lives []*life
	calls sync.WaitGroup

	mu     sync.Mutex
	pushed map[string]string // by group: what an acknowledged push stored last
	story  []string
}

func (h *history) tell(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.story = append(h.story, fmt.Sprintf("%s %s", time.Now().Format("04:05.000"), fmt.Sprintf(format, args...)))
}

// life is one replica; a new process goes on with its disks.
type life struct {
	h       *history
	node    int32
	fs      vfs.FS
	n       int
	host    *shard.Host
	store   *projection.Store
	space   *Space
	plugin  *topic.Plugin
	traced  *plugin.Traced
	member  *shard.FakeMember
	cycle   *cleanup.Cycle
	kill    func()
	running bool
}

// quietLog is the history's log at one process: its end is not everybody's.
type quietLog struct{ *eventlog.Fake }

func (quietLog) Close() {}

type inTopic struct{}

func (inTopic) Version() int64 { return 1 }
func (inTopic) Topic(name string) (streams.Topic, bool) {
	return streams.Topic{Name: name, ID: [16]byte{1}, Partitions: 2}, name == "in"
}

func (l *life) start() {
	h := l.h
	l.n++
	logger := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	fatal := func(err error) {
		if err != nil {
			h.t.Fatal(err)
		}
	}
	var err error
	l.store, err = projection.Open(projection.Config{Dir: "log", FS: l.fs, Identity: h.log.Identity(), DeleteRetention: 24 * time.Hour, Logger: logger})
	fatal(err)
	l.space, err = Open(ctx, Config{Dir: "descriptions", FS: l.fs, Partitions: partitions, Logger: logger,
		Holding: func(p int32) (shard.Holding, bool) { return l.host.Holding(p) },
		Open: func(context.Context) (Topic, error) {
			return Topic{Annex: quietLog{h.annex}, DeleteRetention: 24 * time.Hour}, nil
		}})
	fatal(err)
	l.plugin = topic.New(topic.Config{EpochsMax: 2})
	l.plugin.Attach(l.space, logger)
	l.traced, err = plugin.NewTraced(l.plugin, plugin.Config{Logger: logger})
	fatal(err)
	l.member = h.group.Member(l.node, nil)
	defaults := streams.DefaultConfig()
	defaults.InitialRebalanceDelay = 0
	l.host = shard.New(shard.Config{
		Log: quietLog{h.log}, Store: l.store, Membership: l.member, Topics: func() streams.Topics { return inTopic{} }, Groups: groupconfig.Fixed(defaults),
		Self:    eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: l.node, Instance: fmt.Sprintf("%d.%d", l.node, l.n)},
		Offsets: offsets.Env{MetadataBytesMax: offsets.MetadataMaxDefault, Retention: offsets.RetentionDefault}, Descriptions: true, Logger: logger,
	})
	l.cycle = cleanup.New(cleanup.Config{
		Interval: time.Minute, Logger: logger, Shards: l.shards,
		Descriptions: &cleanup.Descriptions{DeleteAll: l.traced.DeleteAll, Counters: new(plugin.Counters), Backoff: plugin.NewBackoff(func() float64 { return 0 }, 0), Orphans: l.plugin},
	})
	ended.Go(func() { _ = h.log.Follow(ctx, l.store) })
	ended.Go(func() { _ = l.space.Run(ctx) })
	ended.Go(func() { _ = l.host.Run(ctx) })
	ended.Go(func() { _ = l.cycle.Run(ctx) })
	l.running = true
	store, space, traced := l.store, l.space, l.traced
	l.kill = func() {
		l.running = false
		cancel()
		ended.Wait()
		_ = traced.Close(context.Background())
		space.Close()
		_ = store.Close()
	}
	h.tell("replica %d starts", l.node)
}

// sweptShard is a shard as the cleanup cycle sees it.
type sweptShard struct {
	l *life
	p int32
}

func (l *life) shards() (out []cleanup.Shard) {
	for p := range int32(partitions) {
		if l.host.Owns(p) {
			out = append(out, &sweptShard{l, p})
		}
	}
	return out
}

func (s *sweptShard) Partition() int32 { return s.p }
func (s *sweptShard) Candidates(ctx context.Context) iter.Seq2[string, error] {
	return cleanup.AllCandidates(ctx, s.l.store, s.p, offsets.Env{Now: time.Now().UnixMilli(), Retention: offsets.RetentionDefault})
}
func (s *sweptShard) Expire(ctx context.Context, groups []string) ([]shard.Judged, error) {
	return s.l.host.ExpireGroups(ctx, s.p, groups)
}
func (s *sweptShard) Tenure() context.Context { return s.l.host.TenureOf(s.p) }
func (s *sweptShard) Described(ctx context.Context) iter.Seq2[string, error] {
	return cleanup.DescribedCandidates(ctx, s.l.store, s.p)
}
func (s *sweptShard) MarkExpired(ctx context.Context, g string) (bool, error) {
	return s.l.host.MarkExpired(ctx, g)
}
func (s *sweptShard) DescriptionDeleted(ctx context.Context, g string) error {
	return s.l.host.DescriptionDeleted(ctx, g)
}
func (s *sweptShard) SeemsDescribed(g string) (bool, error) {
	return cleanup.SeemsDescribed(s.l.store, s.p, g)
}
func (s *sweptShard) MayBeDescribed(ctx context.Context, g string) (bool, error) {
	return s.l.host.MayBeDescribed(ctx, g)
}

var _ cleanup.OrphanedShard = (*sweptShard)(nil)

// push is what the coordinator does with a push: the barrier, the plugin, the outcome.
func (l *life) push(group, member, name string) {
	h, host := l.h, l.host
	ctx, cancel := shard.Under(context.Background(), host.Tenure(group))
	defer cancel(nil)
	if err := host.BeginPush(ctx, group, member, 0, nil); err != nil {
		return
	}
	done := make(chan plugin.Outcome, 1)
	l.traced.Set(ctx, plugin.SetCall{Group: group, Description: described(name)}, func(o plugin.Outcome) { done <- o })
	o := <-done
	if !o.OK() {
		h.tell("replica %d: %s is not stored for %s: %v", l.node, name, group, o.Err)
		return
	}
	err := host.PushStored(ctx, group, 0)
	h.tell("replica %d: %s is stored for %s: %v", l.node, name, group, err)
	var refusal *streams.Error
	if errors.As(err, &refusal) { // the group is gone
		l.traced.DeleteAll(ctx, []string{group})
		_ = host.Doubt(ctx, group)
	}
}

// remove is what it does with DeleteGroups.
func (l *life) remove(group string) {
	host := l.host
	ctx, cancel := shard.Under(context.Background(), host.Tenure(group))
	defer cancel(nil)
	for range 3 {
		err := host.DeleteGroup(ctx, group)
		if err == nil {
			l.h.tell("replica %d: %s is deleted", l.node, group)
		}
		if !errors.Is(err, shard.ErrDescribed) {
			return
		}
		if ok, err := host.MarkForDelete(ctx, group); err != nil || !ok {
			return
		}
		if o := l.traced.DeleteAll(ctx, []string{group})[0]; !o.OK() {
			l.h.tell("replica %d: the description of %s is not deleted: %v", l.node, group, o.Err)
			return
		}
		_ = host.DescriptionDeleted(ctx, group)
	}
}

// beat joins with epoch 0, leaves with -1.
func (l *life) beat(group, member string, epoch int32) (int32, error) {
	r := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.MemberEpoch = 1, group, member, epoch
	if epoch == 0 {
		process := "p"
		r.RebalanceTimeoutMillis, r.ProcessID = 300_000, &process
		r.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{{SubtopologyID: "0", SourceTopics: []string{"in"}}}}
		r.ActiveTasks, r.StandbyTasks, r.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	result, err := l.host.Heartbeat(ctx, shard.Caller{}, 1, r)
	if err != nil {
		return 0, err
	}
	return result.Response.MemberEpoch, nil
}

// owner is a replica that serves the group's shard, or believes to; nil: none does.
func (h *history) owner(group string) *life {
	var owners []*life
	for _, l := range h.lives {
		if l.running && l.host.Owns(l.host.Partition(group)) {
			owners = append(owners, l)
		}
	}
	if len(owners) == 0 {
		return nil
	}
	return owners[h.rng.IntN(len(owners))]
}

func (h *history) later(f func()) { h.calls.Go(f) }

// step is one thing that happens.
func (h *history) step(i int) {
	rng := h.rng
	group := fmt.Sprintf("g%d", rng.IntN(historyGroups))
	p := rng.Int32N(partitions)
	l := h.lives[rng.IntN(len(h.lives))]
	switch n := rng.IntN(100); {
	case n < 20:
		if o := h.owner(group); o != nil {
			h.later(func() { _, _ = o.beat(group, "m", 0) })
		}
	case n < 32:
		if o := h.owner(group); o != nil {
			h.later(func() { _, _ = o.beat(group, "m", -1) })
		}
	case n < 58:
		if o := h.owner(group); o != nil {
			name := fmt.Sprintf("%s/%d", group, i)
			h.later(func() { o.push(group, "m", name) })
		}
	case n < 72:
		if o := h.owner(group); o != nil {
			h.later(func() { o.remove(group) })
		}
	case n < 76:
		h.annex.DropAppend(p)
	case n < 80:
		h.annex.LoseAck(p)
	case n < 84:
		if h.annex.DeliverLate(p) {
			h.tell("a late append to partition %d is accepted", p)
		}
	case n < 86:
		h.annex.HoldAppends(p)
	case n < 89:
		h.annex.ReleaseAppends(p)
	case n < 91:
		h.log.ExpireProducer(p)
	case n < 93:
		if l.running {
			h.tell("replica %d is killed", l.node)
			l.kill()
		} else {
			l.start()
		}
	case n < 95:
		l.member.Cut(rng.IntN(2) == 0)
	case n < 97:
		h.group.Assign(p, l.node)
	case n < 98:
		h.annex.CompactBefore(p, 1<<40, rng.IntN(2) == 0)
	default:
		if o := h.owner(group); o != nil {
			h.later(func() { _, _ = o.cycle.Sweep(context.Background()) })
		}
	}
}

func playHistory(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		h := &history{t: t, rng: rand.New(rand.NewPCG(seed, 1)), pushed: map[string]string{},
			log:   eventlog.NewFake(eventlog.FakeOptions{Partitions: partitions}),
			annex: eventlog.NewFake(eventlog.FakeOptions{Topic: "descriptions", Partitions: partitions}),
			group: shard.NewFakeGroup(shard.FakeGroupOptions{Partitions: partitions}),
		}
		defer h.log.Close()
		defer h.annex.Close()
		defer func() {
			if t.Failed() {
				for _, line := range h.story {
					t.Log(line)
				}
			}
		}()
		for node := range int32(3) {
			l := &life{h: h, node: node, fs: vfs.NewMem()}
			h.lives = append(h.lives, l)
			l.start()
		}
		defer func() {
			for _, l := range h.lives {
				if l.running {
					l.kill()
				}
			}
		}()
		time.Sleep(15 * time.Second) // of the bubble, as all that follow: everybody has joined
		for i := range 300 {
			h.step(i)
			time.Sleep(time.Duration(h.rng.Int64N(int64(2 * time.Second))))
		}
		h.calm()
		h.check()
	})
}

// calm ends all faults, and lets everything settle: late appends arrive, groups expire or are told what they have.
func (h *history) calm() {
	for p := range int32(partitions) {
		h.annex.DeliverLate(p)
		h.annex.ReleaseAppends(p)
	}
	for _, l := range h.lives {
		if !l.running {
			l.start()
		}
		l.member.Cut(false)
	}
	h.tell("calm")
	time.Sleep(2 * time.Minute)
	h.calls.Wait()
	for p := range int32(partitions) { // faults that no append has met
		met, last := 0, error(nil)
		for tries := 0; met < 10 && tries < 200; tries++ {
			o := h.serving(p)
			if o == nil {
				last = fmt.Errorf("nobody serves partition %d", p)
			} else if last = o.space.Settle(o.host.TenureOf(p), h.groupIn(p)); last == nil {
				met++
			}
			time.Sleep(100 * time.Millisecond)
		}
		if met < 10 {
			h.t.Fatalf("partition %d can't be settled although all is calm: %v, %v", p, last, errors.Unwrap(last))
		}
	}
	// Half of the groups get a member and a description, the others go.
	for i := range historyGroups {
		group, name := fmt.Sprintf("g%d", i), fmt.Sprintf("last/%d", i)
		for range 20 {
			o := h.owner(group)
			if o == nil {
				time.Sleep(time.Second)
				continue
			}
			if i%2 == 0 {
				_, _ = o.beat(group, "m", 0)
				o.push(group, "m", name)
				if d, err := o.host.DescribeStored(context.Background(), group); err == nil && d.Stored == 0 {
					h.pushed[group] = name
					break
				}
			} else {
				_, _ = o.beat(group, "m", -1)
				break
			}
			time.Sleep(time.Second)
		}
		if i%2 == 0 && h.pushed[group] == "" {
			h.t.Errorf("%s can't be described although all is calm", group)
		}
	}
	for range 60 { // sessions end, cycles run
		for group := range h.pushed {
			if o := h.owner(group); o != nil {
				_, _ = o.beat(group, "m", 0)
			}
		}
		time.Sleep(5 * time.Second)
	}
}

// serving is the replica that serves partition p; nil: none does.
func (h *history) serving(p int32) *life {
	for _, l := range h.lives {
		if l.running && l.host.Owns(p) {
			return l
		}
	}
	return nil
}

// groupIn is a group id that belongs to partition p.
func (h *history) groupIn(p int32) string {
	for i := 0; ; i++ {
		if g := fmt.Sprint("any", i); eventlog.Partition(g, partitions) == p {
			return g
		}
	}
}

// check reads the topic as a replica does that never saw it, after compaction has taken what it can.
func (h *history) check() {
	for p := range int32(partitions) {
		h.annex.Compact(p, false)
	}
	fresh, err := projection.Open(projection.Config{Dir: "fresh", FS: vfs.NewMem(), Identity: h.annex.Identity(), DeleteRetention: 24 * time.Hour, Opaque: true})
	if err != nil {
		h.t.Fatal(err)
	}
	defer fresh.Close()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = h.annex.Follow(ctx, fresh) }()
	defer func() { cancel(); <-done }()
	synctest.Wait()
	var held []string
	for p := range int32(partitions) {
		if err := fresh.Keys(p, nil, nil, func(k []byte) bool { held = append(held, string(k)); return true }); err != nil {
			h.t.Fatal(err)
		}
	}
	var want []string
	for i := range historyGroups {
		group := fmt.Sprintf("g%d", i)
		o := h.owner(group)
		if o == nil {
			h.t.Errorf("nobody serves %s", group)
			continue
		}
		d, err := o.host.DescribeStored(context.Background(), group)
		var refusal *streams.Error
		switch {
		case errors.As(err, &refusal):
			continue // gone
		case err != nil:
			h.t.Errorf("%s: %v", group, err)
		case d.Stored != 0:
			h.t.Errorf("%s is there, with %d", group, d.Stored)
		}
		want = append(want, fmt.Sprintf(`{"v":1,"group":%q,"epoch":0}`, group))
		got, err := o.plugin.Get(context.Background(), group, 0).Wait(context.Background())
		if err != nil || nameOf(got) != h.pushed[group] {
			h.t.Errorf("%s is described as %q, want %q (%v)", group, nameOf(got), h.pushed[group], err)
		}
	}
	slices.Sort(held)
	if !slices.Equal(held, want) {
		h.t.Errorf("the topic holds %q, want %q", held, want)
	}
}
