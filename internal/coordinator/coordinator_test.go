package coordinator

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/shard"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

// fakeShards are shards whose answers the test decides. A group's partition is its number at the end of its name.
type fakeShards struct {
	mu      sync.Mutex
	owned   map[int32]bool
	owners  map[int32]eventlog.Owner
	known   map[string]bool
	reached map[string]bool // become known at the barrier
	failing error           // of Known
	barrier func() error
	calls   []string
	err     map[string]error // by group
	beats   []*kmsg.StreamsGroupHeartbeatRequest
	commits []offsets.Commit
	listed  []shard.Listed
	busy    atomic.Int32
	most    atomic.Int32
}

func newFakeShards() *fakeShards {
	return &fakeShards{owned: map[int32]bool{}, owners: map[int32]eventlog.Owner{}, known: map[string]bool{},
		reached: map[string]bool{}, err: map[string]error{}}
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
func (s *fakeShards) Heartbeat(_ context.Context, c shard.Caller, version int16, req *kmsg.StreamsGroupHeartbeatRequest) (*kmsg.StreamsGroupHeartbeatResponse, error) {
	s.call("heartbeat %s v%d %s%s", req.Group, version, c.ClientID, c.ClientHost)
	s.beats = append(s.beats, req)
	if err := s.err[req.Group]; err != nil {
		return nil, err
	}
	resp := kmsg.NewPtrStreamsGroupHeartbeatResponse()
	resp.MemberID, resp.MemberEpoch = req.MemberID, 5
	return resp, nil
}
func (s *fakeShards) Describe(_ context.Context, group string) (kmsg.StreamsGroupDescribeResponseGroup, error) {
	s.most.Store(max(s.most.Load(), s.busy.Add(1)))
	defer s.busy.Add(-1)
	g := kmsg.NewStreamsGroupDescribeResponseGroup()
	g.Group, g.State = group, "Stable"
	return g, s.err[group]
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

func join(group string, topics ...string) *kmsg.StreamsGroupHeartbeatRequest {
	r := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.RebalanceTimeoutMillis = 1, group, "m", 1000
	r.ActiveTasks, r.StandbyTasks, r.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	s := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
	s.SubtopologyID, s.SourceTopics = "0", topics
	r.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{s}}
	return r
}

func beat(group string, epoch int32) *kmsg.StreamsGroupHeartbeatRequest {
	r := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.MemberEpoch = 1, group, "m", epoch
	return r
}

func TestHeartbeatReachesTheShardWithItsTopicsKnown(t *testing.T) {
	w := newWorld(t)
	w.shards.owned[1] = true
	caller := Caller{"app", "/10.0.0.1"}
	resp := w.Heartbeat(t.Context(), caller, join("g1", "in", "absent"))
	if resp.ErrorCode != 0 || resp.MemberEpoch != 5 || resp.Version != 1 {
		t.Fatalf("response %+v", resp)
	}
	if want := []string{"heartbeat g1 v1 app/10.0.0.1"}; !reflect.DeepEqual(w.shards.calls, want) {
		t.Errorf("calls %v, want %v", w.shards.calls, want)
	}
	if _, ok := w.topics.Snapshot().Topic("in"); !ok {
		t.Error("the topic is not in the snapshot")
	}
	n := w.cluster.requests()
	if w.Heartbeat(t.Context(), caller, beat("g1", 5)); w.cluster.requests() != n {
		t.Error("a steady heartbeat asked the cluster")
	}
}

// After a restart the first heartbeat of a running group must find its topics, or its tasks would be taken away.
func TestFirstHeartbeatOfAHydratedGroupFindsItsTopics(t *testing.T) {
	w := newWorld(t)
	w.shards.owned[1], w.shards.known["g1"] = true, true
	w.stored["g1"] = []string{"in"}
	w.cluster.set(func() { w.cluster.fail = errors.New("away") })
	if resp := w.Heartbeat(t.Context(), Caller{}, beat("g1", 5)); resp.ErrorCode != codeLoading || len(w.shards.beats) != 0 {
		t.Fatalf("code %d, shard asked %d times, while the topics could not be read", resp.ErrorCode, len(w.shards.beats))
	}
	w.cluster.set(func() { w.cluster.fail = nil })
	if resp := w.Heartbeat(t.Context(), Caller{}, beat("g1", 5)); resp.ErrorCode != 0 {
		t.Fatalf("code %d", resp.ErrorCode)
	}
	if _, ok := w.topics.Snapshot().Topic("in"); !ok {
		t.Error("the topic is not in the snapshot")
	}
}

// A member of an older topology joins: the topics that the group has stay pinned.
func TestJoinPinsTheTopicsOfTheStoredTopologyToo(t *testing.T) {
	w := newWorld(t)
	w.cluster.topic("in2", 2, 1)
	w.shards.owned[1], w.shards.known["g1"] = true, true
	w.stored["g1"] = []string{"in2"}
	w.Heartbeat(t.Context(), Caller{}, join("g1", "in"))
	for _, name := range []string{"in", "in2"} {
		if _, ok := w.topics.Snapshot().Topic(name); !ok {
			t.Errorf("topic %s is not in the snapshot", name)
		}
	}
}

func TestHeartbeatGate(t *testing.T) {
	for _, c := range []struct {
		name    string
		req     *kmsg.StreamsGroupHeartbeatRequest
		code    int16
		message string
	}{
		{"internal topics", join("g1", "in", "__transaction_state", "__consumer_offsets", "__transaction_state"), 130,
			"Use of Kafka internal topics __transaction_state,__consumer_offsets in a Kafka Streams topology is prohibited."},
		{"the record log", join("g1", "__streams_groups"), 130,
			"Use of Kafka internal topics __streams_groups in a Kafka Streams topology is prohibited."},
		{"illegal names", join("g1", "a b", "in", "", strings.Repeat("x", 250), ".."), 130,
			"Topic names a b,," + strings.Repeat("x", 250) + ",.. are not valid topic names."},
		{"no member id", func() *kmsg.StreamsGroupHeartbeatRequest { r := join("g1", "in"); r.MemberID = ""; return r }(), 42, "MemberId can't be empty."},
	} {
		w := newWorld(t)
		w.shards.owned[1] = true
		resp := w.Heartbeat(t.Context(), Caller{}, c.req)
		if resp.ErrorCode != c.code || resp.ErrorMessage == nil || *resp.ErrorMessage != c.message {
			t.Errorf("%s: %d %v", c.name, resp.ErrorCode, resp.ErrorMessage)
		}
		if resp.Status == nil || resp.ActiveTasks != nil || len(w.shards.calls) != 0 {
			t.Errorf("%s: status %v, tasks %v, calls %v", c.name, resp.Status, resp.ActiveTasks, w.shards.calls)
		}
	}
}

func TestRequiredTopicsAreInTheOrderOfTheTopology(t *testing.T) {
	r := join("g", "b", "a")
	s := &r.Topology.Subtopologies[0]
	s.RepartitionSinkTopics = []string{"a", "sink"}
	s.RepartitionSourceTopics = []kmsg.TopicInfo{{Topic: "source"}}
	s.StateChangelogTopics = []kmsg.TopicInfo{{Topic: "log"}}
	r.Topology.Subtopologies = append(r.Topology.Subtopologies, *s)
	if got, want := requiredTopics(r.Topology), []string{"b", "a", "sink", "source", "log"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if requiredTopics(nil) != nil {
		t.Error("no topology has topics")
	}
}

func TestErrorsHaveKafkasCodes(t *testing.T) {
	for _, c := range []struct {
		err        error
		code       int16
		unexpected bool
	}{
		{&streams.Error{Code: 110, Message: "x"}, 110, false},
		{fmt.Errorf("wrapped: %w", shard.ErrNotOwner), 16, false},
		{shard.ErrLoading, 14, false},
		{shard.ErrUnavailable, 15, false},
		{eventlog.ErrFenced, 16, false},
		{eventlog.ErrOutcomeUnknown, 15, false},
		{eventlog.ErrClosed, 15, false},
		{ErrTopicsUnknown, 14, false},
		{errors.Join(ErrTopicsUnknown, context.DeadlineExceeded), 14, false},
		{context.DeadlineExceeded, 15, false},
		{context.Canceled, 15, false},
		{shard.ErrTooLarge, -1, true},
		{shard.ErrInternal, -1, true},
		{eventlog.ErrRefused, 15, true},
		{errors.New("what is this"), -1, true},
	} {
		if f := failureOf(c.err); f.Code != c.code || f.Unexpected != c.unexpected {
			t.Errorf("%v: %+v, want %d %v", c.err, f, c.code, c.unexpected)
		}
	}
	if f := fetchFailureOf(eventlog.ErrOutcomeUnknown, true); f.Code != 16 {
		t.Errorf("stable fetch: %d, want 16", f.Code)
	}
	if f := failureOf(errors.New("secret")); f.text() != nil {
		t.Error("an internal text reaches the client")
	}
}

func TestRefusedHeartbeatIsRememberedForTheNextLookup(t *testing.T) {
	w := newWorld(t)
	w.shards.err["g1"] = shard.ErrNotOwner
	w.shards.owners[1] = owner(1000002, "other:9292", w.now)
	if resp := w.Heartbeat(t.Context(), Caller{}, join("g1", "in")); resp.ErrorCode != 16 || resp.ErrorMessage != nil {
		t.Fatalf("code %d", resp.ErrorCode)
	}
	if n, known, ok := w.Coordinator.Coordinator(t.Context(), "g1"); !known || !ok || n.ID != 1000002 {
		t.Errorf("lookup: %v %v %v", n, known, ok)
	}
	r := kmsg.NewPtrStreamsGroupDescribeRequest()
	w.shards.err["d1"], r.Groups = shard.ErrNotOwner, []string{"d1"}
	if resp := w.Describe(t.Context(), Caller{}, r); resp.Groups[0].ErrorCode != 16 {
		t.Fatalf("describe: code %d", resp.Groups[0].ErrorCode)
	}
	if n, known, ok := w.Coordinator.Coordinator(t.Context(), "d1"); !known || !ok || n.ID != 1000002 {
		t.Errorf("lookup after describe: %v %v %v", n, known, ok)
	}
}

// A streams tool that is pointed at a classic group must not lead that group's consumers to us.
func TestDescribingAGroupOfTheClusterDoesNotMoveItsLookups(t *testing.T) {
	w := newWorld(t)
	w.foreign.kind, w.foreign.members = "classic", true
	w.shards.err["g1"] = shard.ErrNotOwner
	r := kmsg.NewPtrStreamsGroupDescribeRequest()
	r.Groups = []string{"g1"}
	if g := w.Describe(t.Context(), Caller{}, r).Groups[0]; g.ErrorCode != 69 || *g.ErrorMessage != "Group g1 is not a streams group." {
		t.Errorf("describe: %d %v", g.ErrorCode, g.ErrorMessage)
	}
	if resp := w.Heartbeat(t.Context(), Caller{}, beat("g1", 4)); resp.ErrorCode != 69 {
		t.Errorf("heartbeat: %d", resp.ErrorCode)
	}
	if _, known, _ := w.Coordinator.Coordinator(t.Context(), "g1"); known {
		t.Error("the group's lookups name the owner of our shard")
	}
}

func TestGroupOfTheClusterIsNotTakenOver(t *testing.T) {
	for _, c := range []struct {
		kind    string
		members bool
		want    string
	}{
		{"classic", true, "Group g1 is not a streams group."},
		{"consumer", false, "Group g1 is not a streams group: the cluster behind this coordinator has a consumer group of that name without members"},
	} {
		w := newWorld(t)
		w.shards.owned[1] = true
		w.foreign.kind, w.foreign.members = c.kind, c.members
		resp := w.Heartbeat(t.Context(), Caller{}, join("g1", "in"))
		if resp.ErrorCode != 69 || resp.ErrorMessage == nil || !strings.HasPrefix(*resp.ErrorMessage, c.want) || len(w.shards.calls) != 0 {
			t.Errorf("%s: %d %v, calls %v", c.kind, resp.ErrorCode, resp.ErrorMessage, w.shards.calls)
		}
		if w.remembered.has(w.now, "g1") {
			t.Errorf("%s: a group of the cluster is remembered as ours", c.kind)
		}
	}
	w := newWorld(t)
	w.shards.owned[1] = true
	w.foreign.err = errors.New("away")
	if resp := w.Heartbeat(t.Context(), Caller{}, join("g1", "in")); resp.ErrorCode != 14 {
		t.Errorf("while the cluster can't be asked: %d, want 14", resp.ErrorCode)
	}
	w.shards.known["g1"] = true
	if resp := w.Heartbeat(t.Context(), Caller{}, join("g1", "in")); resp.ErrorCode != 0 {
		t.Errorf("a group that is ours: %d", resp.ErrorCode)
	}
	asked := w.foreign.asked
	if w.Heartbeat(t.Context(), Caller{}, beat("g1", 5)); w.foreign.asked != asked {
		t.Error("a steady heartbeat asked for a group of the cluster")
	}
}
