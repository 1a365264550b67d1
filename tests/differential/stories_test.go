package differential

import (
	"testing"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/shard/streams"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Each story here is a difference on purpose: what Kafka 4.4 does, proven by asking it, and what we do instead. If Kafka changes,
// the story fails and the difference can go. docs/differences.md lists them for users.

// pair runs both sides without comparing them.
type pair struct {
	*world
	t *testing.T
}

func newPair(t *testing.T, change func(*streams.Config)) *pair {
	cfg := streams.DefaultConfig()
	cfg.InitialRebalanceDelay, cfg.AssignmentInterval = 0, 0
	if change != nil {
		change(&cfg)
	}
	return &pair{world: newWorld(t, needOracle(t), cfg), t: t}
}

// send sends to both sides and returns both responses; ours without quirks.
func (p *pair) send(req *kmsg.StreamsGroupHeartbeatRequest) (theirs, ours *kmsg.StreamsGroupHeartbeatResponse) {
	p.t.Helper()
	_, body := p.request(req, "client", "/10.0.0.1")
	theirs = kmsg.NewPtrStreamsGroupHeartbeatResponse()
	theirs.Version = req.Version
	if err := theirs.ReadFrom(body); err != nil {
		p.t.Fatal(err)
	}
	if err := streams.Validate(req); err != nil {
		return theirs, streams.ErrorResponse(req.Version, err)
	}
	env := p.env(req.Version, "client", "/10.0.0.1")
	env.Quirks = 0
	r, err := p.g.Heartbeat(env, req)
	if err != nil {
		r.Response = streams.ErrorResponse(req.Version, err.(*streams.Error))
	}
	p.apply(r)
	return theirs, r.Response
}

func (p *pair) join(member string, subs ...subtopology) *kmsg.StreamsGroupHeartbeatRequest {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.EndpointInformationEpoch, req.RebalanceTimeoutMillis = 1, group, member, -1, 300_000
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	req.ProcessID = kmsg.StringPtr("process-" + member)
	if subs == nil {
		subs = topologyCases[0].subs
	}
	req.Topology = topology(0, subs...)
	return req
}

func beat(member string, epoch int32) *kmsg.StreamsGroupHeartbeatRequest {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.MemberEpoch = 1, group, member, epoch
	return req
}

func owning(req *kmsg.StreamsGroupHeartbeatRequest, active ...int32) *kmsg.StreamsGroupHeartbeatRequest {
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	if len(active) > 0 {
		req.ActiveTasks = []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: active}}
	}
	return req
}

// TestEndpointsBeforeTopicsAreKnown: Kafka fails the heartbeat of a member with an endpoint while source topics are missing, which
// ends the application. We answer with the endpoint and no partitions.
func TestEndpointsBeforeTopicsAreKnown(t *testing.T) {
	p := newPair(t, nil)
	req := p.join("m")
	req.UserEndpoint = &kmsg.StreamsGroupHeartbeatRequestUserEndpoint{Host: "h", Port: 1}
	theirs, ours := p.send(req)
	if theirs.ErrorCode != -1 {
		t.Errorf("Kafka answers %s", responseText(theirs))
	}
	if ours.ErrorCode != 0 || len(ours.PartitionsByUserEndpoint) != 1 || len(ours.PartitionsByUserEndpoint[0].ActivePartitions) != 0 || ours.Status[0].StatusCode != 1 {
		t.Errorf("we answer %s, %v", responseText(ours), ours.PartitionsByUserEndpoint)
	}
}

// TestInitialDelayComputesTheFirstTarget: Kafka loses what the first join learned of the topics, so that a lonely first member waits for
// its next heartbeat after the delay. Here the delay ends with a target.
func TestInitialDelayComputesTheFirstTarget(t *testing.T) {
	p := newPair(t, func(c *streams.Config) { c.InitialRebalanceDelay = 3 * time.Second })
	p.setTopics([]streams.Topic{topic("a", 2, 1)})
	p.send(p.join("m"))
	a := p.do(map[string]any{"op": "advance", "to": p.now + 3000})
	if recs := canonicalFired(a.Fired); len(recs) != 0 {
		t.Errorf("Kafka writes %v", recs)
	}
	p.now += 3000
	r := p.g.Fire(p.env(1, "", ""), p.timers[p.due(p.now)].Timer)
	if n := len(r.Records); n != 2 || r.Records[n-1].Key.Type != eventlog.TypeTargetAssignment {
		t.Errorf("we write %v", canonicalRecords(hexRecords(r.Records)))
	}
}

// TestLostAssignmentIsRepeated: Kafka never repeats an assignment whose response was lost; the member goes on without its tasks. We
// repeat it to a member that says that it owns something else.
func TestLostAssignmentIsRepeated(t *testing.T) {
	p := newPair(t, nil)
	p.setTopics([]streams.Topic{topic("a", 2, 1)})
	p.send(p.join("m"))
	p.send(p.join("n"))
	p.send(beat("m", 2))
	p.send(owning(beat("m", 2), 0))
	// This response brings n its task, and is lost.
	p.send(beat("n", 3))
	theirs, ours := p.send(owning(beat("n", 3)))
	if theirs.ErrorCode != 0 || theirs.ActiveTasks != nil {
		t.Errorf("Kafka answers %s", responseText(theirs))
	}
	if got := tasksText(ours.ActiveTasks); got != "{0:[1]}" {
		t.Errorf("we answer %s", responseText(ours))
	}
	// And once it owns what it was assigned nobody is told again.
	theirs, ours = p.send(owning(beat("n", 3), 1))
	p.compare("response", canonicalResponse(theirs), canonicalResponse(ours))
}

// TestLostRevocationIsRepeated: the same for tasks that the member has to give up; Kafka waits until the rebalance time-out removes it.
func TestLostRevocationIsRepeated(t *testing.T) {
	p := newPair(t, nil)
	p.setTopics([]streams.Topic{topic("a", 2, 1)})
	p.send(p.join("m"))
	p.send(p.join("n"))
	p.send(beat("m", 2)) // lost
	theirs, ours := p.send(owning(beat("m", 2), 0, 1))
	if theirs.ErrorCode != 0 || theirs.ActiveTasks != nil {
		t.Errorf("Kafka answers %s", responseText(theirs))
	}
	if got := tasksText(ours.ActiveTasks); got != "{0:[0]}" {
		t.Errorf("we answer %s", responseText(ours))
	}
}

// TestShutdownOfNobodyIsForgotten: in Kafka a late request for shutdown to an empty group waits for the next start of the application and
// shuts that down.
func TestShutdownOfNobodyIsForgotten(t *testing.T) {
	p := newPair(t, nil)
	p.setTopics([]streams.Topic{topic("a", 2, 1)})
	p.send(p.join("m"))
	p.send(beat("m", -1))
	late := beat("m", -1)
	late.ShutdownApplication = true
	p.send(late)
	theirs, ours := p.send(p.join("n"))
	if len(theirs.Status) != 1 || theirs.Status[0].StatusCode != 4 {
		t.Errorf("Kafka answers %s", responseText(theirs))
	}
	if len(ours.Status) != 0 {
		t.Errorf("we answer %s", responseText(ours))
	}
}

// TestAReturningMemberStartsWithNothing: Kafka, with its default of two warm-up replicas, gives a member that left and joins again under the
// same id the target it had, until the next computation. We remember no target of who left.
func TestAReturningMemberStartsWithNothing(t *testing.T) {
	p := newPair(t, func(c *streams.Config) { c.AssignmentInterval = time.Second })
	p.do(map[string]any{"op": "groupConfig", "group": group, "configs": map[string]string{"streams.num.warmup.replicas": "2"}})
	p.setTopics([]streams.Topic{topic("a", 2, 1)})
	p.send(p.join("m"))
	p.send(p.join("n"))
	p.send(beat("m", -1))
	theirs, ours := p.send(p.join("m"))
	if got := tasksText(theirs.ActiveTasks); got != "{0:[0 1]}" {
		t.Errorf("Kafka answers %s", responseText(theirs))
	}
	if got := tasksText(ours.ActiveTasks); got != "{}" {
		t.Errorf("we answer %s", responseText(ours))
	}
}

// TestNonsenseIsRefusedWithAText: what Kafka answers with UNKNOWN_SERVER_ERROR.
func TestNonsenseIsRefusedWithAText(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*kmsg.StreamsGroupHeartbeatRequest)
		code  int16
	}{
		"subtopology twice": {func(r *kmsg.StreamsGroupHeartbeatRequest) {
			r.Topology.Subtopologies = append(r.Topology.Subtopologies, r.Topology.Subtopologies[0])
		}, 42},
		"negative epoch": {func(r *kmsg.StreamsGroupHeartbeatRequest) { r.Topology.Epoch = -1 }, 42},
		"copartition index": {func(r *kmsg.StreamsGroupHeartbeatRequest) {
			r.Topology.Subtopologies[0].CopartitionGroups = []copartitionGroup{copartition([]int16{4}, nil)}
		}, 130},
		"tag twice": {func(r *kmsg.StreamsGroupHeartbeatRequest) {
			r.ClientTags = []kmsg.StreamsGroupHeartbeatRequestClientTag{{Key: "k", Value: "1"}, {Key: "k", Value: "2"}}
		}, 42},
		"configuration twice": {func(r *kmsg.StreamsGroupHeartbeatRequest) {
			i := infoWith("g-s", 0, 1, "k", "1")
			i.Configs = append(i.Configs, i.Configs[0])
			r.Topology.Subtopologies[0].StateChangelogTopics = infos(i)
		}, 130},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, nil)
			p.setTopics([]streams.Topic{topic("a", 2, 1)})
			req := p.join("m", subtopology{SubtopologyID: "0", SourceTopics: []string{"a"}})
			c.spoil(req)
			theirs, ours := p.send(req)
			if theirs.ErrorCode != -1 || theirs.ErrorMessage != nil {
				t.Errorf("Kafka answers %s", responseText(theirs))
			}
			if ours.ErrorCode != c.code || ours.ErrorMessage == nil {
				t.Errorf("we answer %s", responseText(ours))
			}
		})
	}
}

// TestAFetchWithoutMemberButWithAnEpoch: Kafka fails with an internal error.
func TestAFetchWithoutMemberButWithAnEpoch(t *testing.T) {
	p := newPair(t, nil)
	p.setTopics([]streams.Topic{topic("a", 2, 1)})
	p.send(p.join("m"))
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 9
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberEpoch = group, 2
	req.Groups = append(req.Groups, g)
	_, body := p.request(req, "client", "/10.0.0.1")
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Version = 9
	if err := resp.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	if code := resp.Groups[0].ErrorCode; code != -1 {
		t.Errorf("Kafka answers %d", code)
	}
	if err, ok := p.g.AdmitFetch(nil, 2).(*streams.Error); !ok || err.Code != 25 {
		t.Errorf("we answer %v", err)
	}
}

// TestOffsetsOfAReturningStaticMember: Kafka forgets the offsets that a static member reports when it comes back under its own id.
func TestOffsetsOfAReturningStaticMember(t *testing.T) {
	p := newPair(t, nil)
	p.setTopics([]streams.Topic{topic("a", 2, 1)})
	join := func() *kmsg.StreamsGroupHeartbeatRequest {
		req := p.join("m")
		req.InstanceID = kmsg.StringPtr("i")
		req.TaskOffsets = []kmsg.TaskOffset{{SubtopologyID: "0", Partition: 0, Offset: 7}}
		return req
	}
	p.send(join())
	leave := beat("m", -2)
	leave.InstanceID = kmsg.StringPtr("i")
	p.send(leave)
	p.send(join())
	req := kmsg.NewPtrStreamsGroupDescribeRequest()
	req.Version, req.Groups = 1, []string{group}
	_, body := p.request(req, "client", "/10.0.0.1")
	resp := kmsg.NewPtrStreamsGroupDescribeResponse()
	resp.Version = 1
	if err := resp.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	if n := len(resp.Groups[0].Members[0].TaskOffsets); n != 0 {
		t.Errorf("Kafka knows %d offsets", n)
	}
	if n := len(p.g.Describe(p.env(1, "", "")).Members[0].TaskOffsets); n != 1 {
		t.Errorf("we know %d offsets", n)
	}
}
