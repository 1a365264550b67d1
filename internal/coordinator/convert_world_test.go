package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

// convertedOffsets of the group of the crash tests take three commits at the cluster and several batches of tombstones.
const convertedOffsets = 2*copiedBatchMax + 100

var errDead = errors.New("the process is dead")

// conversionWorld is a log, an ownership group and a cluster that outlive the replicas.
type conversionWorld struct {
	t       *testing.T
	log     *eventlog.Fake
	owners  *shard.FakeGroup
	cluster *metadata
	passing sync.Mutex
	crashAt int      // the number of the point at which the process dies; -1: never
	points  []string // that were passed
	failing int      // the number of the commit that the cluster refuses; -1: none

	count int32 // offsets of the group

	mu      sync.Mutex
	held    time.Time                                   // until when the cluster's group has our member
	classic map[string]map[offsets.TopicPartition]int64 // what the cluster has
	commits int
	between func() // before each commit at the cluster; nil: nothing
}

// life is one process.
type life struct {
	*conversionWorld
	host    *shard.Host
	service *Coordinator
	dead    atomic.Bool
	wasOurs bool // when it began
	stop    func()
}

// point is a place where the process may die. What it would do afterwards is not done.
func (l *life) point(format string, args ...any) error {
	l.passing.Lock()
	defer l.passing.Unlock()
	if !l.dead.Load() {
		if len(l.points) == l.crashAt {
			l.dead.Store(true)
			go l.stop()
		}
		l.points = append(l.points, fmt.Sprintf(format, args...))
	}
	if l.dead.Load() {
		return errDead
	}
	return nil
}

// survive lets no further process die.
func (w *conversionWorld) survive() {
	w.passing.Lock()
	defer w.passing.Unlock()
	w.crashAt = -1
}

// passed are the points that were passed.
func (w *conversionWorld) passed() []string {
	w.passing.Lock()
	defer w.passing.Unlock()
	return slices.Clone(w.points)
}

// around runs a step between two points.
func around(l *life, name string, do func() error) error {
	if err := l.point("before %s", name); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return l.point("after %s", name)
}

// mortalShards are a host whose process may die before and after each step of a conversion.
type mortalShards struct {
	*shard.Host
	l *life
}

func (s mortalShards) BeginConversion(ctx context.Context, group string, over bool) (committed []shard.CommittedOffset, c eventlog.Conversion, ok bool, err error) {
	err = around(s.l, "begin", func() (err error) { committed, c, ok, err = s.Host.BeginConversion(ctx, group, over); return err })
	return committed, c, ok, err
}

func (s mortalShards) FinishConversion(ctx context.Context, group string) (done bool, err error) {
	err = around(s.l, "finish", func() (err error) { done, err = s.Host.FinishConversion(ctx, group); return err })
	return done, err
}

func (s mortalShards) CancelConversion(ctx context.Context, group string) (ok bool, err error) {
	err = around(s.l, "cancel", func() (err error) { ok, err = s.Host.CancelConversion(ctx, group); return err })
	return ok, err
}

func (s mortalShards) TakeOver(ctx context.Context, c shard.Caller, version int16, req *kmsg.StreamsGroupHeartbeatRequest, committed []shard.CommittedOffset) (result shard.HeartbeatResult, err error) {
	err = around(s.l, "append", func() (err error) { result, err = s.Host.TakeOver(ctx, c, version, req, committed); return err })
	return result, err
}

// Commit, Delete and Find are the cluster as the process reaches it.
func (l *life) Commit(_ context.Context, group string, list []ClassicOffset) error {
	return around(l, "commit", func() error {
		if l.between != nil {
			l.between()
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.commits++
		for i, o := range list {
			if l.commits-1 == l.failing && i == len(list)/2 {
				return errors.New("the cluster refuses a part")
			}
			if l.classic[group] == nil {
				l.classic[group] = map[offsets.TopicPartition]int64{}
			}
			l.classic[group][offsets.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = o.Offset
		}
		return nil
	})
}

func (l *life) Delete(_ context.Context, group string) error {
	return around(l, "delete", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if time.Now().Before(l.held) {
			return ErrClassicMembers
		}
		delete(l.classic, group)
		return nil
	})
}

func (l *life) Find(context.Context, string) (kind string, members bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.held) {
		return TakeOverProtocol, true, nil
	}
	if l.classic["g"] != nil {
		kind = "classic"
	}
	return kind, false, nil
}

func (l *life) Hold(context.Context, string) (HeldGroup, error) {
	err := around(l, "hold", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if time.Now().Before(l.held) || l.classic["g"] == nil {
			return errors.New("it can't be held")
		}
		l.held = time.Now().Add(holdSession)
		return nil
	})
	return heldLife{l}, err
}

// heldLife is the cluster's group whose member a life is.
type heldLife struct{ *life }

func (h heldLife) Offsets(context.Context) (committed []shard.CommittedOffset, err error) {
	err = around(h.life, "fetch", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for tp, at := range h.classic["g"] {
			committed = append(committed, shard.CommittedOffset{Topic: tp.Topic, Partition: tp.Partition, OffsetCommit: eventlog.OffsetCommit{Offset: at, ExpireTimestamp: -1}})
		}
		return nil
	})
	return committed, err
}

func (h heldLife) Still(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead.Load() || !time.Now().Before(h.held) {
		return errLetGo
	}
	return nil
}

func (h heldLife) Leave(context.Context) error {
	return around(h.life, "leave", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.held = time.Time{}
		return nil
	})
}

type oneTopic struct{}

func (oneTopic) Topic(name string) (streams.Topic, bool) {
	return streams.Topic{Name: name, ID: [16]byte{1}, Partitions: convertedOffsets}, name == "in"
}
func (oneTopic) Version() int64 { return 1 }

// start begins a life and waits until it serves.
func (w *conversionWorld) start(node int32) *life {
	t := w.t
	l := &life{conversionWorld: w}
	store, err := projection.Open(projection.Config{Dir: "data", FS: vfs.NewMem(), Identity: w.log.Identity(), DeleteRetention: 24 * time.Hour, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	member := w.owners.Member(node, func() time.Duration { return time.Millisecond })
	cfg := streams.DefaultConfig()
	cfg.InitialRebalanceDelay = 0
	l.host = shard.New(shard.Config{
		Log: w.log, Store: store, Membership: member,
		Self:       eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: node, Address: "keeper:9292", Instance: fmt.Sprint(node, time.Now().UnixNano())},
		Topics:     func() streams.Topics { return oneTopic{} },
		Groups:     groupconfig.Fixed(cfg),
		Offsets:    offsets.Env{MetadataBytesMax: offsets.MetadataMaxDefault, Retention: offsets.RetentionDefault},
		Converting: func(group string) { l.service.SettleConversion(group) },
	})
	topics := NewTopics(TopicsConfig{Client: w.cluster})
	l.service = New(Config{
		Node: Node{node, "keeper", 9292}, LogTopic: "__log", Shards: l.host, Topics: topics, Replicas: store.Replicas,
		Foreign: l, Conversions: &Conversions{Shards: mortalShards{l.host, l}, Cluster: l},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { topics.Run(ctx) })
	running.Go(func() { _ = w.log.Follow(ctx, store) })
	running.Go(func() { _ = l.host.Run(ctx) })
	l.stop = sync.OnceFunc(func() {
		member.Cut(true)
		cancel()
		running.Wait()
		l.service.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	for range 10_000 {
		if l.host.OwnedCount() == 1 {
			return l
		}
		time.Sleep(10 * time.Millisecond) // of the bubble's clock
	}
	t.Fatal("the replica does not serve")
	return nil
}

// fill makes the group g with its offsets, empty.
func (l *life) fill() {
	t := l.t
	beat := func(epoch int32) {
		t.Helper()
		if code := l.beat(epoch); code != 0 {
			t.Fatalf("heartbeat with epoch %d: code %d", epoch, code)
		}
	}
	beat(0)
	beat(-1)
	for first := int32(0); first < l.count; first += 300 {
		topic := offsets.CommitTopic{Name: "in", ID: [16]byte{1}}
		for p := first; p < min(first+300, l.count); p++ {
			topic.Partitions = append(topic.Partitions, offsets.CommitPartition{Partition: p, Offset: offsetOf(p), LeaderEpoch: 3, Metadata: "m"})
		}
		if _, err := l.host.Commit(t.Context(), offsets.Commit{Group: "g", Version: 9, Retention: -1, Topics: []offsets.CommitTopic{topic}}, "", -1, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func offsetOf(partition int32) int64 { return 1000 + int64(partition) }

func (l *life) beat(epoch int32) int16 {
	r := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.MemberEpoch = 1, "g", "m", epoch
	if epoch == 0 {
		process := "p"
		r.ProcessID, r.RebalanceTimeoutMillis = &process, 300_000
		r.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{{SubtopologyID: "0", SourceTopics: []string{"in"}}}}
		r.ActiveTasks, r.StandbyTasks, r.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	}
	return l.service.Heartbeat(l.t.Context(), Caller{}, r).ErrorCode
}

// join is a classic member that repeats its join as clients do, until it is told something that ends it.
func (l *life) join() int16 {
	for range 200 {
		if v := l.service.Judge(l.t.Context(), "g"); v == Foreign {
			return codeNotCoordinator // the gateway sends it to the cluster
		}
		r := kmsg.NewPtrJoinGroupRequest()
		r.Version, r.Group = 9, "g"
		code := l.service.JoinGroup(l.t.Context(), Caller{}, r).ErrorCode
		if code != codeRebalance && code != codeLoading && code != codeUnavailable || l.dead.Load() {
			return code
		}
		time.Sleep(100 * time.Millisecond) // the client's back-off, on the bubble's clock
	}
	return codeRebalance
}

// streamsJoin is a streams member that repeats its join.
func (l *life) streamsJoin() int16 {
	for range 200 {
		if code := l.beat(0); code != codeLoading && code != codeUnavailable {
			return code
		}
		time.Sleep(100 * time.Millisecond) // likewise
	}
	return codeLoading
}

// ours is what our log has of the group; nil: no group.
func (l *life) ours() map[offsets.TopicPartition]int64 {
	t := l.t
	t.Helper()
	if l.service.Judge(t.Context(), "g") == Foreign {
		return nil
	}
	req := kmsg.NewOffsetFetchRequestGroup()
	req.Group, req.MemberEpoch = "g", -1
	got := map[offsets.TopicPartition]int64{}
	resp, err := l.host.Fetch(t.Context(), &req, true)
	if err != nil {
		t.Fatalf("fetch: %v", err)
	}
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			got[offsets.TopicPartition{Topic: topic.Topic, Partition: p.Partition}] = p.Offset
		}
	}
	return got
}

// settles waits until the cluster has nothing of the streams group.
func (l *life) settles() {
	l.t.Helper()
	for range 300 {
		if len(l.atCluster()) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond) // of the bubble's clock
		l.beat(0)                          // a member is there, and its heartbeats meet the mark
	}
	l.t.Errorf("the cluster keeps %d offsets of a streams group", len(l.atCluster()))
}

// atCluster is what the cluster has of the group; nil: no group.
func (w *conversionWorld) atCluster() map[offsets.TopicPartition]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.classic["g"])
}

// complete says what is wrong with a set of offsets that should be all.
func (w *conversionWorld) complete(got map[offsets.TopicPartition]int64) error {
	if len(got) != int(w.count) {
		return fmt.Errorf("%d offsets, want %d", len(got), w.count)
	}
	for tp, at := range got {
		if at != offsetOf(tp.Partition) {
			return fmt.Errorf("%v at %d", tp, at)
		}
	}
	return nil
}

func convertWorld(t *testing.T, crashAt, failing int, test func(w *conversionWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &conversionWorld{
			t: t, log: eventlog.NewFake(eventlog.FakeOptions{Partitions: 1, BatchBytesMax: 32 << 10}),
			owners: shard.NewFakeGroup(shard.FakeGroupOptions{Partitions: 1}), cluster: newMetadata(),
			classic: map[string]map[offsets.TopicPartition]int64{}, crashAt: crashAt, failing: failing, count: convertedOffsets,
		}
		defer w.log.Close()
		w.cluster.topic("in", 1, convertedOffsets)
		test(w)
	})
}
