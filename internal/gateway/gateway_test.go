package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/kafkatest"
	"streamkeeper/internal/wire"
)

// TestMain looks for goroutines that the tests left behind, after the brokers that they shared have been stopped.
func TestMain(m *testing.M) {
	code := kafkatest.Main(m)
	if code == 0 {
		// The harness keeps a thread for the processes it starts, as they die with the thread that started them.
		if err := goleak.Find(goleak.IgnoreAnyFunction("streamkeeper/internal/kafkatest.(*spawner).start.func1.1")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

const (
	testNode         = int32(1000001)
	otherNode        = int32(1000002)
	logTopic         = "__streams_groups"
	descriptionTopic = "__streams_groups-topologies"
)

// service is a coordinator.Service that knows the groups it is told about and records what it is asked.
type service struct {
	mu       sync.Mutex
	verdicts map[string]coordinator.Verdict // default Foreign
	judged   []string
	caughtUp []string // groups before whose lookup the log was read
	blind    []string // of CatchUp
	callers  []coordinator.Caller
	commits  map[string]int64 // "group/topic/partition" → offset
	deleted  []string
	// heartbeat, where set, answers heartbeats.
	heartbeat    func(context.Context, *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse
	nodes        []coordinator.Node
	idle         map[int32]bool // nodes that own no shard
	unregistered []int32
	behind       bool // the log can't be read to its end
	others       map[string]coordinator.Found
	// describes says that topology descriptions are kept; pushes are those that came.
	describes bool
	pushes    []*kmsg.StreamsGroupTopologyDescriptionUpdateRequest
	configs   groupConfigs
}

func newService() *service {
	return &service{verdicts: map[string]coordinator.Verdict{}, commits: map[string]int64{}, configs: groupConfigs{}}
}

func (s *service) set(group string, v coordinator.Verdict) *service {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verdicts[group] = v
	return s
}

func (s *service) Node() coordinator.Node {
	return coordinator.Node{ID: testNode, Host: "wrong.example", Port: 1}
}
func (s *service) Nodes() []coordinator.Node { return append([]coordinator.Node{s.Node()}, s.nodes...) }
func (s *service) Owners(context.Context) (map[int32]bool, bool) {
	owners := map[int32]bool{testNode: true}
	for _, n := range s.nodes {
		owners[n.ID] = !s.idle[n.ID]
	}
	return owners, !s.behind
}
func (s *service) CatchUp(_ context.Context, groups []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caughtUp = append(s.caughtUp, groups...)
	return s.blind
}
func (s *service) UnregisterBroker(_ context.Context, _ coordinator.Caller, node int32) *kmsg.UnregisterBrokerResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unregistered = append(s.unregistered, node)
	resp := kmsg.NewPtrUnregisterBrokerResponse()
	resp.ErrorCode, resp.ErrorMessage = 101, kmsg.StringPtr("it runs")
	return resp
}
func (s *service) LogTopic() string         { return logTopic }
func (s *service) DescriptionTopic() string { return descriptionTopic }

func (s *service) Descriptions() bool { return s.describes }

func (s *service) TopologyDescriptionUpdate(_ context.Context, c coordinator.Caller, r *kmsg.StreamsGroupTopologyDescriptionUpdateRequest) *kmsg.StreamsGroupTopologyDescriptionUpdateResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callers, s.pushes = append(s.callers, c), append(s.pushes, r)
	resp := r.ResponseKind().(*kmsg.StreamsGroupTopologyDescriptionUpdateResponse)
	resp.ErrorCode, resp.ErrorMessage = 135, kmsg.StringPtr("no room")
	return resp
}

func (s *service) Judge(_ context.Context, group string) coordinator.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judged = append(s.judged, group)
	return s.verdicts[group]
}

func (s *service) Coordinator(_ context.Context, group string) (coordinator.Node, bool, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.verdicts[group] {
	case coordinator.Ours:
		return s.Node(), true, true
	case coordinator.Elsewhere:
		if len(s.nodes) > 0 {
			return s.nodes[0], true, true
		}
		return coordinator.Node{}, true, false
	}
	return coordinator.Node{}, false, false
}

func (s *service) AskOthers(_ context.Context, c coordinator.Caller, groups []string) map[string]coordinator.Found {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callers = append(s.callers, c)
	out := map[string]coordinator.Found{}
	for _, group := range groups {
		if f, ok := s.others[group]; ok {
			out[group] = f
		}
	}
	return out
}

func (s *service) Heartbeat(ctx context.Context, c coordinator.Caller, r *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
	s.mu.Lock()
	s.callers = append(s.callers, c)
	f := s.heartbeat
	s.mu.Unlock()
	if f != nil {
		return f(ctx, r)
	}
	resp := r.ResponseKind().(*kmsg.StreamsGroupHeartbeatResponse)
	resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = r.MemberID, r.MemberEpoch+1, 5000
	return resp
}

func (s *service) Describe(_ context.Context, _ coordinator.Caller, r *kmsg.StreamsGroupDescribeRequest) *kmsg.StreamsGroupDescribeResponse {
	resp := r.ResponseKind().(*kmsg.StreamsGroupDescribeResponse)
	for _, group := range r.Groups {
		g := kmsg.NewStreamsGroupDescribeResponseGroup()
		g.Group, g.State = group, "Stable"
		resp.Groups = append(resp.Groups, g)
	}
	return resp
}

func (s *service) JoinGroup(_ context.Context, _ coordinator.Caller, r *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	resp := r.ResponseKind().(*kmsg.JoinGroupResponse)
	resp.ErrorCode = 23
	return resp
}

func (s *service) OffsetCommit(_ context.Context, _ coordinator.Caller, r *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := r.ResponseKind().(*kmsg.OffsetCommitResponse)
	for _, t := range r.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			s.commits[fmt.Sprintf("%s/%s/%d", r.Group, t.Topic, p.Partition)] = p.Offset
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition = p.Partition
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (s *service) OffsetFetch(_ context.Context, _ coordinator.Caller, r *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := r.ResponseKind().(*kmsg.OffsetFetchResponse)
	for _, g := range r.Groups {
		rg := kmsg.NewOffsetFetchResponseGroup()
		rg.Group = g.Group
		for _, t := range g.Topics {
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
				rp.Partition, rp.Offset, rp.Metadata = p, s.commits[fmt.Sprintf("%s/%s/%d", g.Group, t.Topic, p)], kmsg.StringPtr("")
				rt.Partitions = append(rt.Partitions, rp)
			}
			rg.Topics = append(rg.Topics, rt)
		}
		resp.Groups = append(resp.Groups, rg)
	}
	return resp
}

func (s *service) OffsetDelete(_ context.Context, _ coordinator.Caller, r *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse {
	return r.ResponseKind().(*kmsg.OffsetDeleteResponse)
}

func (s *service) DeleteGroups(_ context.Context, _ coordinator.Caller, r *kmsg.DeleteGroupsRequest) *kmsg.DeleteGroupsResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := r.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for _, group := range r.Groups {
		s.deleted = append(s.deleted, group)
		g := kmsg.NewDeleteGroupsResponseGroup()
		g.Group = group
		resp.Groups = append(resp.Groups, g)
	}
	return resp
}

func (s *service) ListGroups(_ context.Context, _ coordinator.Caller, r *kmsg.ListGroupsRequest) *kmsg.ListGroupsResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := r.ResponseKind().(*kmsg.ListGroupsResponse)
	for group, v := range s.verdicts {
		if v == coordinator.Ours {
			g := kmsg.NewListGroupsResponseGroup()
			g.Group, g.ProtocolType, g.GroupState, g.GroupType = group, "streams", "Stable", "streams"
			resp.Groups = append(resp.Groups, g)
		}
	}
	slices.SortFunc(resp.Groups, func(a, b kmsg.ListGroupsResponseGroup) int { return len(a.Group) - len(b.Group) })
	return resp
}

// lines is a log that tests can wait for.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(p))
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprint(l.all)
}

func cluster(tb testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	tb.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3), kfake.SeedTopics(3, "in", "out"), kfake.SeedTopics(2, logTopic, descriptionTopic)}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// start runs a gateway before upstream for as long as the test.
func start(tb testing.TB, svc coordinator.Service, upstream []string, change ...func(*Config)) (*Gateway, *lines) {
	tb.Helper()
	log := &lines{}
	cfg := Config{Listen: "127.0.0.1:0", NodeID: testNode, Upstream: upstream, Service: svc,
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Limits: Limits{DrainTimeout: time.Second}}
	for _, f := range change {
		f(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- g.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			tb.Errorf("Run: %v", err)
		}
		if n := g.connections(); n != 0 {
			tb.Errorf("%d connections are left after Close", n)
		}
		if tb.Failed() {
			tb.Logf("log: %v", log)
		}
	})
	return g, log
}

func client(tb testing.TB, g *Gateway, opts ...kgo.Opt) *kgo.Client {
	tb.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(g.Addr().String()), kgo.RetryTimeout(10 * time.Second)}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(cl.Close)
	return cl
}

func raw(tb testing.TB, addr string) *wire.Client {
	tb.Helper()
	cl, err := wire.Dial(tb.Context(), addr, "raw")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { cl.Close() })
	return cl
}

// ask sends one request over a connection and returns the answer.
func ask[R kmsg.Response](tb testing.TB, cl *wire.Client, version int16, req kmsg.Request) R {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	req.SetVersion(version)
	resp, err := cl.Exchange(ctx, req)
	if err != nil {
		tb.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), version, err)
	}
	return resp.(R)
}

func brokerAddr(tb testing.TB, g *Gateway, id int32) string {
	tb.Helper()
	addr, ok := g.BrokerAddr(id)
	if !ok {
		tb.Fatalf("no listener for broker %d", id)
	}
	return addr
}
