package shard

import (
	"cmp"
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

	"go.opentelemetry.io/otel/trace"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

// modelStore is a projection made of maps: short enough to be read as its own specification. It has no voids and no
// transactions; those are tested where they live.
type modelStore struct {
	mu       sync.Mutex
	parts    []*modelPart
	applied  func(int32, int64)
	owner    func(int32, eventlog.Owner)
	void     func(int32, []projection.Void)
	read     func(p int32, next, end int64)
	onBatch  chan struct{} // closed and replaced at each batch
	entries  int
	restarts uint64
	tracks   []func(p int32, group string)
	onTrack  func(int) // a tracker begins (1) or ends (-1)
	err      error     // of every partition
	inMemory bool      // it reads all the same

	onRead     func(eventlog.Batch) // of each batch, where set; holds mu
	unreadable string               // a group that can't be read
	onConfig   func()               // at each reading of a configuration, where set
}

type modelPart struct {
	values map[eventlog.Key]projection.Stored
	next   int64
	epoch  int32
	owner  *eventlog.Owner
	atEnd  bool
}

func newModelStore(n int32) *modelStore {
	m := &modelStore{onBatch: make(chan struct{}), onTrack: func(int) {}, read: func(int32, int64, int64) {}}
	for range n {
		m.parts = append(m.parts, &modelPart{values: map[eventlog.Key]projection.Stored{}, epoch: -1})
	}
	return m
}

func (m *modelStore) Resume(p int32) eventlog.Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	return eventlog.Position{Offset: m.parts[p].next, LeaderEpoch: m.parts[p].epoch}
}

func (m *modelStore) Reset(p int32, _ string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.parts[p] = &modelPart{values: map[eventlog.Key]projection.Stored{}, epoch: -1}
	m.restarts++
	return nil
}

func (m *modelStore) Batch(p int32, b eventlog.Batch) error {
	m.mu.Lock()
	if m.onRead != nil {
		m.onRead(b)
	}
	part := m.parts[p]
	var owners []eventlog.Owner
	for _, e := range b.Entries {
		m.entries++
		if e.Control != eventlog.ControlNone {
			continue
		}
		r, err := eventlog.Decode(eventlog.Raw{Key: e.Key, Value: e.Value})
		if err != nil {
			m.mu.Unlock()
			return err
		}
		if o, ok := r.Value.(*eventlog.Ownership); ok {
			ow := eventlog.Owner{Ownership: *o, Offset: e.Offset, Generation: e.Offset, Timestamp: e.Timestamp}
			if o.Claim >= 0 {
				ow.Generation = o.Claim
			}
			part.owner = &ow
			owners = append(owners, ow)
			continue
		}
		for _, note := range m.tracks {
			note(p, r.Key.Group)
		}
		if r.Value == nil {
			delete(part.values, r.Key)
		} else {
			part.values[r.Key] = projection.Stored{Offset: e.Offset, Record: r}
		}
	}
	part.next, part.epoch = b.Next, b.LeaderEpoch
	part.atEnd = part.atEnd || b.AtEnd()
	close(m.onBatch)
	m.onBatch = make(chan struct{})
	applied, owner, read := m.applied, m.owner, m.read
	m.mu.Unlock()
	for _, o := range owners {
		owner(p, o)
	}
	read(p, b.Next, b.HighWatermark)
	applied(p, b.Next)
	return nil
}

func (m *modelStore) OnApplied(f func(int32, int64))          { m.applied = f }
func (m *modelStore) OnRead(f func(p int32, next, end int64)) { m.read = f }
func (m *modelStore) OnVoid(f func(int32, []projection.Void)) { m.void = f }
func (m *modelStore) OnOwner(f func(int32, eventlog.Owner))   { m.owner = f }

func (m *modelStore) Err(int32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func (m *modelStore) Reads(int32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inMemory {
		return nil
	}
	return m.err
}

func (m *modelStore) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err, m.inMemory = err, false
}

// fill makes it say that its disk is full, and take what is read into memory.
func (m *modelStore) fill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err, m.inMemory = fmt.Errorf("%w: no space", projection.ErrStorage), true
}

func (m *modelStore) AtEnd(p int32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.parts[p].atEnd
}

func (m *modelStore) Track(p int32) (stop func() []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	touched := map[string]bool{}
	i := len(m.tracks)
	m.onTrack(1)
	m.tracks = append(m.tracks, func(q int32, group string) {
		if p == q {
			touched[group] = true
		}
	})
	return func() []string {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.tracks[i] = func(int32, string) {}
		m.onTrack(-1)
		return slices.Collect(maps.Keys(touched))
	}
}

func (m *modelStore) GroupsToHydrate(p int32, f func(string, []projection.Stored) bool) error {
	var err error
	return errors.Join(m.GroupsWithMembers(p, func(id string) bool {
		var records []projection.Stored
		records, err = m.Group(p, id)
		return err == nil && f(id, records)
	}), err)
}

func (m *modelStore) Restarts(int32) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.restarts
}

func (m *modelStore) Wait(ctx context.Context, p int32, offset int64) error {
	for {
		m.mu.Lock()
		ok, ch := m.parts[p].next >= offset, m.onBatch
		m.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *modelStore) Applied(p int32) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.parts[p].next
}

func (m *modelStore) Owner(p int32) (eventlog.Owner, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.parts[p].owner == nil {
		return eventlog.Owner{}, false
	}
	return *m.parts[p].owner, true
}

// hydrationOrder is the order in which the records of a group are applied.
var hydrationOrder = []eventlog.Type{eventlog.TypeTopology, eventlog.TypeGroup, eventlog.TypeMember,
	eventlog.TypeCurrentMemberAssignment, eventlog.TypeTargetAssignmentMember, eventlog.TypeTargetAssignment, eventlog.TypeDescriptionRefusal,
	eventlog.TypeGroupConfig}

func (m *modelStore) Group(p int32, group string) ([]projection.Stored, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if group == m.unreadable && group != "" {
		return nil, projection.ErrStorage
	}
	var out []projection.Stored
	for k, v := range m.parts[p].values {
		if k.Group == group && slices.Contains(hydrationOrder, k.Type) {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b projection.Stored) int {
		return cmp.Or(cmp.Compare(slices.Index(hydrationOrder, a.Record.Key.Type), slices.Index(hydrationOrder, b.Record.Key.Type)),
			cmp.Compare(a.Record.Key.Member, b.Record.Key.Member))
	})
	return out, nil
}

func (m *modelStore) having(p int32, t eventlog.Type, f func(string) bool) error {
	m.mu.Lock()
	ids := map[string]bool{}
	for k := range m.parts[p].values {
		if k.Type == t {
			ids[k.Group] = true
		}
	}
	m.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if !f(id) {
			break
		}
	}
	return nil
}

func (m *modelStore) HasGroup(p int32, group string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.parts[p].values[eventlog.Key{Type: eventlog.TypeGroup, Group: group}]
	return ok, nil
}
func (m *modelStore) Counts(p int32) (groups, offsets int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.parts[p].values {
		switch k.Type {
		case eventlog.TypeGroup:
			groups++
		case eventlog.TypeOffsetCommit:
			offsets++
		}
	}
	return groups, offsets, m.err
}
func (m *modelStore) Groups(p int32, f func(string) bool) error {
	return m.having(p, eventlog.TypeGroup, f)
}
func (m *modelStore) GroupsWithMembers(p int32, f func(string) bool) error {
	return m.having(p, eventlog.TypeMember, f)
}
func (m *modelStore) GroupsOfTopic(int32, string, func(string) bool) error { return nil }

func (m *modelStore) GroupConfig(p int32, group string) (map[string]string, error) {
	m.mu.Lock()
	read := m.onConfig
	m.mu.Unlock()
	if read != nil {
		read()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if st, ok := m.parts[p].values[eventlog.Key{Type: eventlog.TypeGroupConfig, Group: group}]; ok {
		return st.Record.Value.(*eventlog.GroupConfig).Configs, nil
	}
	return nil, nil
}
func (m *modelStore) GroupsWithConfig(p int32, f func(string) bool) error {
	return m.having(p, eventlog.TypeGroupConfig, f)
}

func (m *modelStore) Offset(p int32, group, topic string, partition int32) (projection.Stored, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.parts[p].values[eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: group, Topic: topic, Partition: partition}]
	return v, ok, nil
}

func (m *modelStore) Offsets(p int32, group string, f func(projection.Stored) bool) error {
	m.mu.Lock()
	var out []projection.Stored
	for k, v := range m.parts[p].values {
		if k.Type == eventlog.TypeOffsetCommit && k.Group == group {
			out = append(out, v)
		}
	}
	m.mu.Unlock()
	slices.SortFunc(out, func(a, b projection.Stored) int {
		return cmp.Or(cmp.Compare(a.Record.Key.Topic, b.Record.Key.Topic), cmp.Compare(a.Record.Key.Partition, b.Record.Key.Partition))
	})
	for _, st := range out {
		if !f(st) {
			break
		}
	}
	return nil
}
func (m *modelStore) Pending(int32, string, func(int64, projection.Stored) bool) error { return nil }

// modelReader reads groups of a partition of the model.
type modelReader struct {
	m *modelStore
	p int32
}

func (m *modelStore) ReadMany(p int32, f func(projection.GroupReader) error) error {
	return f(modelReader{m, p})
}
func (r modelReader) Group(group string) ([]projection.Stored, error) { return r.m.Group(r.p, group) }
func (r modelReader) Offsets(group string, f func(projection.Stored) bool) error {
	return r.m.Offsets(r.p, group, f)
}
func (r modelReader) Pending(group string, f func(int64, projection.Stored) bool) error {
	return r.m.Pending(r.p, group, f)
}

// fakeMembership assigns what the test says and has a lease that the test sets.
type fakeMembership struct {
	duration atomic.Int64 // of a lease
	lease    *Lease
	l        MembershipListener
	ready    chan struct{}

	mu       sync.Mutex
	declined []map[int32]string // each time that it was told, and told to make haste
	said     map[int32]string   // what the last join said: a haste joins at once
}

type bubbleClock struct{ start time.Time }

func (c bubbleClock) Now() Instant { return Instant(time.Since(c.start) + time.Hour) }

func newFakeMembership() *fakeMembership {
	m := &fakeMembership{lease: newLease(bubbleClock{time.Now()}, 6*time.Second, 18*time.Second, time.Second), ready: make(chan struct{})}
	m.duration.Store(int64(5 * time.Second))
	return m
}

func (m *fakeMembership) Run(ctx context.Context, l MembershipListener) error {
	m.l = l
	close(m.ready)
	<-ctx.Done()
	m.lease.end()
	return nil
}
func (m *fakeMembership) Lease() *Lease                                  { return m.lease }
func (m *fakeMembership) LeaseValid() bool                               { return m.lease.Valid(m.lease.Now()) }
func (m *fakeMembership) LeaseDuration() time.Duration                   { return time.Duration(m.duration.Load()) }
func (m *fakeMembership) Members(context.Context) ([]GroupMember, error) { return nil, nil }
func (m *fakeMembership) Leave(context.Context) error                    { return nil }

// assign gives partitions, with a lease that lasts for d.
func (m *fakeMembership) assign(d time.Duration, ps ...int32) {
	<-m.ready
	m.lease.hold(ps)
	m.extend(d)
	m.l.Assigned(ps)
}

// extend moves the end of the lease to d from now.
func (m *fakeMembership) extend(d time.Duration) {
	m.lease.mu.Lock()
	defer m.lease.mu.Unlock()
	v := *m.lease.view.Load()
	v.until = m.lease.Now().Add(d)
	m.lease.view.Store(&v)
}

func (m *fakeMembership) revoke(ps ...int32) {
	m.lease.letGo(ps)
	m.l.Revoked(ps)
}

// retention is short, so that a bubble need not run a week of ticks.
const retention = time.Hour

// describes says that replicas that are started keep topology descriptions; tests of a package run one after another.
var describes atomic.Bool

// topics and groupConfig, where set, are what replicas that are started see and how their groups are configured; likewise.
var (
	topics      func() streams.Topics
	groupConfig func(*streams.Config)
)

// tracing is what replicas that are started report to.
var tracing atomic.Value

type tracerBox struct {
	trace.Tracer
	log *slog.Logger
}

func init() { tracing.Store(tracerBox{}) }

// oneTopic is a cluster with topic "in" of four partitions.
type oneTopic struct{}

func (oneTopic) Topic(name string) (streams.Topic, bool) {
	if name != "in" {
		return streams.Topic{}, false
	}
	return streams.Topic{Name: "in", ID: [16]byte{1}, Partitions: 4}, true
}
func (oneTopic) Version() int64 { return 1 }

// node is one replica: a host over the log that all share.
type node struct {
	*Host
	m     *fakeMembership
	store *modelStore
	ended *atomic.Int64 // how often the end of a tenure was told
	stop  func()
}

// inWorld runs test in a bubble with a log of n partitions.
func inWorld(t *testing.T, n int32, test func(t *testing.T, log *eventlog.Fake, start func(id int32) *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log, start, end := newReplicas(t.Context(), n)
		defer end()
		test(t, log, start)
	})
}

// newReplicas makes a log of n partitions and a function that starts replicas over it; end stops them all. In a bubble.
func newReplicas(ctx context.Context, n int32) (log *eventlog.Fake, start func(id int32) *node, end func()) {
	return newReplicasOver(ctx, eventlog.FakeOptions{Partitions: n})
}

// newReplicasOver is newReplicas with other options of the log.
func newReplicasOver(ctx context.Context, options eventlog.FakeOptions) (log *eventlog.Fake, start func(id int32) *node, end func()) {
	log = eventlog.NewFake(options)
	n := options.Partitions
	var stops []func()
	start = func(id int32) *node {
		store, m := newModelStore(n), newFakeMembership()
		cfg := streams.DefaultConfig()
		cfg.InitialRebalanceDelay = 0
		if groupConfig != nil {
			groupConfig(&cfg)
		}
		see := topics
		if see == nil {
			see = func() streams.Topics { return oneTopic{} }
		}
		ended := new(atomic.Int64)
		h := New(Config{
			Log: log, Store: store, Membership: m, Self: eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: id, Instance: string(rune('a' + id))},
			Topics: see,
			Tracer: tracing.Load().(tracerBox).Tracer, Logger: tracing.Load().(tracerBox).log,
			Groups:  groupconfig.Fixed(cfg),
			Offsets: offsets.Env{MetadataBytesMax: offsets.MetadataMaxDefault, Retention: retention}, Descriptions: describes.Load(),
			TenureEnded: func(int32) { ended.Add(1) },
		})
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Add(2)
		go func() { defer wg.Done(); _ = log.Follow(ctx, store) }()
		go func() { defer wg.Done(); _ = h.Run(ctx) }()
		r := &node{Host: h, m: m, store: store, ended: ended, stop: sync.OnceFunc(func() { cancel(); wg.Wait() })}
		stops = append(stops, r.stop)
		return r
	}
	return log, start, func() {
		for _, stop := range stops {
			stop()
		}
		log.Close()
	}
}

// serving starts a replica that owns all partitions with a lease of an hour.
func serving(t failer, log *eventlog.Fake, start func(int32) *node) *node {
	t.Helper()
	r := start(0)
	for p := range log.Identity().Partitions {
		r.m.assign(time.Hour, p)
	}
	r.awaitServing(t)
	return r
}

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func (r *node) awaitServing(t failer) {
	t.Helper()
	for range 1000 {
		if r.Pending() == 0 && r.OwnedCount() > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond) // the bubble's clock
	}
	t.Fatal("the shards did not begin to serve")
}

// expire judges one group of partition 0.
func (r *node) expire(group string) (Judged, error) {
	judged, err := r.ExpireGroups(context.Background(), 0, []string{group})
	if err != nil {
		return Judged{}, err
	}
	return judged[0], judged[0].Err
}
