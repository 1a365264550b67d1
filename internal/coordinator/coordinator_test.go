package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/shard"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

// fakeShards are shards whose answers the test decides. A group's partition is its number at the end of its name.
type fakeShards struct {
	mu        sync.Mutex
	owned     map[int32]bool
	owners    map[int32]eventlog.Owner
	known     map[string]bool
	reached   map[string]bool // become known at the barrier
	failing   error           // of Known
	stale     bool            // no shard was read to its end lately
	unread    bool            // nor ever
	barrier   func() error
	calls     []string
	err       map[string]error // by group
	beats     []*kmsg.StreamsGroupHeartbeatRequest
	unasked   []bool // of beats, whether the cluster was not asked
	commits   []offsets.Commit
	listed    []shard.Listed
	create    []streams.CreatableTopic                   // that heartbeats ask for, and
	statuses  []kmsg.StreamsGroupHeartbeatResponseStatus // the statuses that come with them
	interval  time.Duration                              // of heartbeats; 5 s where 0
	wants     bool                                       // a description, at topology epoch 0
	configs   map[string]map[string]string
	inGroup   []shard.GroupMember // of the ownership group
	forgotten map[int32]int64     // the Timestamp of the record that was, by node id
	busy      atomic.Int32
	most      atomic.Int32

	explained map[string]explained // by group
	members   map[string]int       // how many a group has
}

// explained is what the shard of a group tells; Topology replaces the group's.
type explained struct {
	shard.Explained
	Topology *kmsg.StreamsGroupDescribeResponseGroupTopology
}

func newFakeShards() *fakeShards {
	return &fakeShards{owned: map[int32]bool{}, owners: map[int32]eventlog.Owner{}, known: map[string]bool{},
		reached: map[string]bool{}, err: map[string]error{}, configs: map[string]map[string]string{}, forgotten: map[int32]int64{}}
}

func (s *fakeShards) call(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

func (s *fakeShards) Partition(group string) int32 {
	if group == "" {
		return 0
	}
	return int32(group[len(group)-1] - '0')
}
func (s *fakeShards) Owns(p int32) bool                    { return s.owned[p] }
func (s *fakeShards) Owner(p int32) (eventlog.Owner, bool) { o, ok := s.owners[p]; return o, ok }
func (s *fakeShards) Known(group string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[group], s.failing
}
func (s *fakeShards) Fresh(int32) bool  { return !s.stale && !s.unread }
func (s *fakeShards) Unread(int32) bool { return s.unread }
func (s *fakeShards) Barrier(ctx context.Context, p int32) error {
	s.call("barrier %d", p)
	if s.barrier != nil {
		if err := s.barrier(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for g := range s.reached {
		s.known[g] = true
	}
	return ctx.Err()
}
func (s *fakeShards) Heartbeat(_ context.Context, c shard.Caller, version int16, req *kmsg.StreamsGroupHeartbeatRequest) (shard.HeartbeatResult, error) {
	s.call("heartbeat %s v%d %s%s", req.Group, version, c.ClientID, c.ClientHost)
	s.beats, s.unasked = append(s.beats, req), append(s.unasked, c.Unasked)
	if err := s.err[req.Group]; err != nil {
		return shard.HeartbeatResult{}, err
	}
	resp := kmsg.NewPtrStreamsGroupHeartbeatResponse()
	resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = req.MemberID, 5, int32(cmp.Or(s.interval, 5*time.Second).Milliseconds())
	if len(s.create) > 0 {
		resp.Status = s.statuses
	}
	return shard.HeartbeatResult{Response: resp, Create: s.create, Wants: s.wants}, nil
}
func (s *fakeShards) Describe(_ context.Context, group string) (kmsg.StreamsGroupDescribeResponseGroup, error) {
	s.most.Store(max(s.most.Load(), s.busy.Add(1)))
	defer s.busy.Add(-1)
	g := kmsg.NewStreamsGroupDescribeResponseGroup()
	g.Group, g.State = group, "Stable"
	return g, s.err[group]
}
func (s *fakeShards) Explain(ctx context.Context, group string) (shard.Explained, error) {
	g, err := s.Describe(ctx, group)
	if err != nil {
		return shard.Explained{}, err
	}
	e := s.explained[group]
	e.Group = g
	if t := e.Topology; t != nil {
		e.Group.Topology = t
	}
	e.Group.Members = make([]kmsg.StreamsGroupDescribeResponseGroupMember, s.members[group])
	return e.Explained, nil
}
func (s *fakeShards) Commit(_ context.Context, c offsets.Commit, member string, epoch int32, _ *string) (*kmsg.OffsetCommitResponse, error) {
	s.call("commit %s %s %d", c.Group, member, epoch)
	s.commits = append(s.commits, c)
	return c.Response(), s.err[c.Group]
}
func (s *fakeShards) Fetch(_ context.Context, g *kmsg.OffsetFetchRequestGroup, stable bool) (kmsg.OffsetFetchResponseGroup, error) {
	s.call("fetch %s stable=%v", g.Group, stable)
	a := kmsg.NewOffsetFetchResponseGroup()
	a.Group = g.Group
	if g.Topics == nil {
		for _, name := range []string{"in", "gone"} {
			t := kmsg.NewOffsetFetchResponseGroupTopic()
			t.Topic = name
			a.Topics = append(a.Topics, t)
		}
	}
	for _, t := range g.Topics {
		at := kmsg.NewOffsetFetchResponseGroupTopic()
		at.Topic, at.TopicID = t.Topic, t.TopicID
		a.Topics = append(a.Topics, at)
	}
	return a, s.err[g.Group]
}
func (s *fakeShards) DeleteOffsets(_ context.Context, req *kmsg.OffsetDeleteRequest, judge func(string, int32) int16) (*kmsg.OffsetDeleteResponse, error) {
	resp := kmsg.NewPtrOffsetDeleteResponse()
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetDeleteResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetDeleteResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, judge(t.Topic, p.Partition)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, s.err[req.Group]
}
func (s *fakeShards) DeleteGroup(_ context.Context, group string) error {
	s.call("delete %s", group)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err[group]
}
func (s *fakeShards) List(context.Context) ([]shard.Listed, error) { return s.listed, s.err[""] }

// world is a coordinator over fakes. Topic "in" has id 1 and two partitions.
type world struct {
	*Coordinator
	shards   *fakeShards
	cluster  *metadata
	replicas []eventlog.Owner
	stored   map[string][]string
	foreign  *fakeForeign
	now      time.Time
}

type fakeForeign struct {
	kind    string
	members bool
	err     error
	asked   int
}

func (f *fakeForeign) Find(context.Context, string) (string, bool, error) {
	f.asked++
	return f.kind, f.members, f.err
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{shards: newFakeShards(), cluster: newMetadata(), stored: map[string][]string{}, foreign: &fakeForeign{},
		now: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)}
	w.cluster.topic("in", 1, 2)
	topics := NewTopics(TopicsConfig{Client: w.cluster})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); topics.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	w.Coordinator = New(Config{
		Node: Node{1000001, "keeper", 9292}, LogTopic: "__streams_groups", Shards: w.shards, Topics: topics,
		Replicas:       func() []eventlog.Owner { return w.replicas },
		RequiredTopics: func(group string) ([]string, error) { return w.stored[group], nil },
		Foreign:        w.foreign, Assignor: "sticky", Now: func() time.Time { return w.now },
	})
	return w
}

func owner(id int32, address string, at time.Time) eventlog.Owner {
	return eventlog.Owner{Ownership: eventlog.Ownership{NodeID: id, Address: address}, Timestamp: at.UnixMilli()}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*world)
		want    Verdict
		barrier bool
	}{
		{"known and owned", func(w *world) { w.shards.known["g1"], w.shards.owned[1] = true, true }, Ours, false},
		{"known, owned by another", func(w *world) { w.shards.known["g1"] = true }, Elsewhere, false},
		{"known, claimed here and not served yet", func(w *world) {
			w.shards.known["g1"], w.shards.owners[1] = true, owner(w.cfg.Node.ID, "self:1", w.now)
		}, Undecided, false},
		{"known after the barrier", func(w *world) { w.shards.reached["g1"], w.shards.owned[1] = true, true }, Ours, true},
		{"unknown after the barrier", func(w *world) { w.shards.owned[1] = true }, Foreign, true},
		{"the end of the log can't be read", func(w *world) { w.shards.barrier = func() error { return errors.New("away") } }, Undecided, true},
		{"the projection can't be read", func(w *world) { w.shards.failing = errors.New("full") }, Undecided, false},
		{"remembered, not in the log", func(w *world) { w.remembered.note(w.now, "g1") }, Foreign, true},
	} {
		w := newWorld(t)
		c.prepare(w)
		got := w.Judge(t.Context(), "g1")
		if asked := slices.Contains(w.shards.calls, "barrier 1"); got != c.want || asked != c.barrier {
			t.Errorf("%s: verdict %d, barrier %v; want %d, %v", c.name, got, asked, c.want, c.barrier)
		}
	}
}

// A barrier that is under way when a caller comes has looked at the log's end too early for it.
func TestBarriersAreSharedButNeverTooEarly(t *testing.T) {
	w := newWorld(t)
	begun, hold := make(chan struct{}, 10), make(chan struct{})
	w.shards.barrier = func() error { begun <- struct{}{}; <-hold; return nil }
	verdicts := make(chan Verdict, 10)
	judge := func() { verdicts <- w.Judge(context.Background(), "g1") }
	go judge()
	<-begun
	for range 5 {
		go judge()
	}
	// All five must have joined the next barrier before the first ends; there is nothing else to wait for than the map.
	for joined := false; !joined; time.Sleep(time.Millisecond) {
		w.barriers.mu.Lock()
		joined = w.barriers.next[1] != nil
		w.barriers.mu.Unlock()
	}
	close(hold)
	for range 6 {
		if v := <-verdicts; v != Foreign {
			t.Errorf("verdict %d", v)
		}
	}
	w.shards.mu.Lock()
	defer w.shards.mu.Unlock()
	if n := len(w.shards.calls); n < 2 || n > 6 {
		t.Errorf("%d barriers for six callers, of which five could share one", n)
	}
}

func TestRememberedGroupsAreBounded(t *testing.T) {
	var r remembered
	now := time.Now()
	for i := range rememberMax + 10 {
		r.note(now, fmt.Sprint("g", i))
		r.note(now, fmt.Sprint("g", i))
	}
	if len(r.groups) != rememberMax || len(r.order) != rememberMax {
		t.Errorf("%d groups, %d in order, want %d", len(r.groups), len(r.order), rememberMax)
	}
	if r.has(now, "g9") || !r.has(now, "g10") {
		t.Error("not the oldest went")
	}
	r.drop("g10")
	if r.has(now, "g10") || len(r.order) != rememberMax-1 {
		t.Error("a dropped group is remembered")
	}
}

func TestCoordinatorNamesTheOwner(t *testing.T) {
	w := newWorld(t)
	other := Node{1000002, "other", 9292}
	w.shards.known["g1"], w.shards.known["g2"], w.shards.known["g3"], w.shards.known["g4"] = true, true, true, true
	w.shards.owned[1] = true
	w.shards.owners[2] = owner(1000002, "other:9292", w.now)
	w.shards.owners[4] = owner(1000003, "not an address", w.now)
	w.remembered.note(w.now, "h2")
	w.remembered.note(w.now.Add(-rememberFor), "y2")
	for _, c := range []struct {
		group     string
		node      Node
		known, ok bool
	}{
		{"g1", w.cfg.Node, true, true},
		{"g2", other, true, true},
		{"g3", Node{}, true, false},
		{"g4", Node{}, true, false},
		{"h2", other, true, true},
		{"x2", Node{}, false, false},
		{"y2", Node{}, false, false},
	} {
		n, known, ok := w.Coordinator.Coordinator(t.Context(), c.group)
		if known != c.known || ok != c.ok || ok && n != c.node {
			t.Errorf("%s: %v known=%v ok=%v, want %v %v %v", c.group, n, known, ok, c.node, c.known, c.ok)
		}
	}
}

func TestNodesAreThoseOfTheLastDayAndOurselves(t *testing.T) {
	w := newWorld(t)
	w.replicas = []eventlog.Owner{
		owner(1000003, "c:1", w.now.Add(-23*time.Hour)), // away, still listed
		owner(1000002, "old:1", w.now.Add(-2*time.Hour)),
		owner(1000002, "b:1", w.now.Add(-time.Hour)),
		owner(1000004, "d:1", w.now.Add(-25*time.Hour)),
		owner(1000001, "elsewhere:1", w.now), // our own id from an earlier life
		owner(1000005, "no port", w.now),
	}
	want := []Node{{1000001, "keeper", 9292}, {1000002, "b", 1}, {1000003, "c", 1}}
	if got := w.Nodes(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if w.Node() != want[0] || w.LogTopic() != "__streams_groups" {
		t.Error("node or log topic")
	}
}

func TestOwnersAreThoseOfUnreleasedShards(t *testing.T) {
	w := newWorld(t)
	w.shards.owners[2] = owner(1000002, "other:9292", w.now)
	w.shards.owners[3] = owner(1000002, "other:9292", w.now)
	released := owner(1000003, "gone:9292", w.now)
	released.Released = true
	w.shards.owners[4] = released
	w.shards.owned[5] = true
	got, whole := w.Owners(t.Context())
	if !reflect.DeepEqual(got, map[int32]bool{1000002: true}) || !whole {
		t.Errorf("owners %v, whole %v", got, whole)
	}
	if n := len(w.shards.calls); n != 9 { // a read barrier for each shard that is not served here
		t.Errorf("%d read barriers, want 9: %v", n, w.shards.calls)
	}
	w.shards.barrier = func() error { return errors.New("the leader is away") }
	if got, whole := w.Owners(t.Context()); !reflect.DeepEqual(got, map[int32]bool{1000002: true}) || whole {
		t.Errorf("where the log can't be read: owners %v, whole %v", got, whole)
	}
}

func (s *fakeShards) Members(context.Context) ([]shard.GroupMember, error) {
	s.call("members")
	return s.inGroup, s.err["members"]
}
func (s *fakeShards) Forgotten(o eventlog.Owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forgotten[o.NodeID] == o.Timestamp
}
func (s *fakeShards) Forget(_ context.Context, o eventlog.Owner) error {
	s.call("forget %d", o.NodeID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.err["forget"]; err != nil {
		return err
	}
	s.forgotten[o.NodeID] = o.Timestamp
	return nil
}
func (s *fakeShards) Partitions() int32           { return 10 }
func (s *fakeShards) Groups() *groupconfig.Broker { return groupconfig.Default() }
func (s *fakeShards) AlterConfig(ctx context.Context, group string, validateOnly bool, alter func(*groupconfig.Broker, map[string]string) (map[string]string, *streams.Error)) error {
	s.call("alter %s", group)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.err[group]; err != nil {
		return err
	}
	next, refused := alter(groupconfig.Default(), s.configs[group])
	if refused != nil {
		return refused
	}
	if !validateOnly {
		s.configs[group] = next
	}
	return nil
}
func (s *fakeShards) GroupConfig(group string) (map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.configs[group], s.failing
}
func (s *fakeShards) GroupsWithConfig(p int32, f func(string)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for group, configs := range s.configs {
		if s.Partition(group) == p && len(configs) > 0 {
			f(group)
		}
	}
	return s.failing
}
