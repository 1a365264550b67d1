package differential

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"streamkeeper/shard/streams"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// The ids are such that the assignor of Kafka, which iterates Java's hash maps, takes members and processes in the order that
// we take them in: ascending. The members' fall into ascending buckets. The processes' fall all into one bucket whatever the
// size of the table, and there computeIfAbsent puts a new one in front: they are iterated from the one whose first member
// comes last to the one whose first member comes first. So the process of a member is never greater than that of the member
// before it.
const membersMax = 6

var processes = []string{"P`", "PP", "P@", "P0"}

// client is a member as an application would be one: what it knows and has.
type client struct {
	id       string
	process  int    // index into processes
	instance string // static membership; "" if dynamic
	epoch    int32  // last received; 0 before
	in       bool
	active   []kmsg.TaskIDs // last received
	standby  []kmsg.TaskIDs
	seen     int32 // endpoint epoch
}

// history is one random history.
type history struct {
	*world
	rt      *rapid.T
	tc      topologyCase
	clients []*client
	have    []streams.Topic
	clean   bool // topics do not vanish, so members may have endpoints (Kafka 4.4 fails otherwise)
	static  bool
}

func TestRandomHistories(t *testing.T) {
	o := needOracle(t)
	rapid.Check(t, func(rt *rapid.T) { runHistory(rt, o, false) })
}

func TestRandomHistoriesWithStaticMembers(t *testing.T) {
	o := needOracle(t)
	rapid.Check(t, func(rt *rapid.T) { runHistory(rt, o, true) })
}

func runHistory(rt *rapid.T, o *oracle, static bool) {
	cfg := streams.DefaultConfig()
	cfg.InitialRebalanceDelay = time.Duration(rapid.SampledFrom([]int{0, 0, 3}).Draw(rt, "delay")) * time.Second
	cfg.AssignmentInterval = time.Duration(rapid.SampledFrom([]int{0, 1}).Draw(rt, "interval")) * time.Second
	cfg.NumStandbyReplicas = rapid.IntRange(0, 2).Draw(rt, "standbys")
	if rapid.IntRange(0, 9).Draw(rt, "small") == 0 {
		cfg.MaxSize = 2
	}
	if rapid.IntRange(0, 9).Draw(rt, "tags") == 0 {
		cfg.RackAwareTags = []string{"zone", "cluster"}
	}
	h := &history{world: newWorld(rt, o, cfg), rt: rt, static: static}
	h.clean = rapid.Bool().Draw(rt, "clean")
	h.tc = rapid.SampledFrom(topologyCases).Draw(rt, "topology")
	if h.clean && len(h.tc.internal) == 0 && h.tc.name != "stateless" && h.tc.name != "two" {
		h.clean = false
	}
	for i := range membersMax {
		c := &client{id: fmt.Sprintf("m%d", i), seen: -1}
		if i > 0 {
			c.process = min(len(processes)-1, h.clients[i-1].process+rapid.IntRange(0, 1).Draw(rt, "next process"))
		}
		h.clients = append(h.clients, c)
	}
	for _, name := range h.tc.sources {
		if h.clean || rapid.IntRange(0, 4).Draw(rt, "source exists") > 0 {
			h.have = append(h.have, topic(name, 3, 1))
		}
	}
	if h.clean || rapid.Bool().Draw(rt, "internal exist") {
		h.have = append(h.have, h.tc.internal...)
	}
	h.setTopics(h.have)
	steps := rapid.IntRange(1, 40).Draw(rt, "steps")
	for range steps {
		h.step()
		if h.over {
			return
		}
	}
	h.describe()
	h.checkTimers()
	h.check()
}

// check holds what must be so after any history.
func (h *history) check() {
	if got, want := hydrate(h.t, h.log).String(), h.g.String(); got != want {
		h.fail("hydrated:\n%s\nlive:\n%s", got, want)
	}
}

func (h *history) step() {
	c := h.clients[rapid.IntRange(0, membersMax-1).Draw(h.rt, "member")]
	switch k := rapid.IntRange(0, 99).Draw(h.rt, "step"); {
	case k < 25:
		h.send(c, h.join(c))
	case k < 65:
		h.send(c, h.beat(c))
	case k < 70:
		h.send(c, h.odd(c))
	case k < 75:
		h.send(c, h.leaveRequest(c))
	case k < 85:
		h.advance(time.Duration(rapid.SampledFrom([]int{100, 1000, 2900, 5000, 20000, 46000}).Draw(h.rt, "time")) * time.Millisecond)
	case k < 90:
		h.changeTopics()
	case k < 92:
		h.configure(h.configs())
	case k < 94:
		h.failOver()
	case k < 95:
		h.deleteGroup()
	case k < 96:
		h.drawList()
	case k < 97:
		h.describe()
	default:
		for range rapid.IntRange(1, 4).Draw(h.rt, "of offsets") {
			h.drawOffsets(c)
		}
	}
}

// send sends a request; the answer may be lost on its way.
func (h *history) send(c *client, req *kmsg.StreamsGroupHeartbeatRequest) {
	clientID, host := c.id+"-client", "/10.0.0.1"
	if rapid.IntRange(0, 29).Draw(h.rt, "moved") == 0 {
		host = "/10.0.0.2"
	}
	r := h.heartbeat(req, clientID, host)
	if rapid.IntRange(0, 9).Draw(h.rt, "lost") == 0 {
		h.note("    (lost)")
		return
	}
	switch {
	case r.ErrorCode != 0:
		if r.ErrorCode == 110 || r.ErrorCode == 25 {
			c.in, c.epoch, c.active, c.standby = false, 0, nil, nil
		}
	case r.MemberEpoch < 0:
		c.in, c.epoch, c.active, c.standby = false, 0, nil, nil
	default:
		c.in, c.epoch, c.seen = true, r.MemberEpoch, r.EndpointInformationEpoch
		if r.ActiveTasks != nil {
			c.active, c.standby = r.ActiveTasks, r.StandbyTasks
		}
	}
}

func (h *history) request(c *client, epoch int32) *kmsg.StreamsGroupHeartbeatRequest {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Version = 1
	if rapid.IntRange(0, 9).Draw(h.rt, "version") == 0 {
		req.Version = 0
	}
	req.Group, req.MemberID, req.MemberEpoch, req.EndpointInformationEpoch = group, c.id, epoch, c.seen
	// A member that is in keeps its instance id: ids are random in real life, and Kafka 4.4 gets lost where the id of one member
	// takes another's place.
	if _, in := h.g.MemberEpoch(c.id); epoch == 0 && h.static && !in {
		c.instance = rapid.SampledFrom([]string{"i0", "i1", "i2", ""}).Draw(h.rt, "instance")
	}
	if c.instance != "" && (epoch <= 0 || rapid.IntRange(0, 9).Draw(h.rt, "instance sent") > 0) {
		req.InstanceID = kmsg.StringPtr(c.instance)
	}
	return req
}

func (h *history) join(c *client) *kmsg.StreamsGroupHeartbeatRequest {
	req := h.request(c, 0)
	tc, epoch := h.tc, int32(0)
	switch rapid.IntRange(0, 29).Draw(h.rt, "topology sent") {
	case 0:
		epoch = 1
	case 1:
		tc = rapid.SampledFrom(topologyCases).Draw(h.rt, "other topology")
	}
	req.Topology = topology(epoch, tc.subs...)
	req.RebalanceTimeoutMillis = int32(rapid.SampledFrom([]int{300000, 300000, 4000}).Draw(h.rt, "timeout"))
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	if rapid.IntRange(0, 19).Draw(h.rt, "other process") == 0 {
		c.process = h.otherProcess(c)
	}
	req.ProcessID = kmsg.StringPtr(processes[c.process])
	if h.clean && rapid.Bool().Draw(h.rt, "endpoint") {
		req.UserEndpoint = &kmsg.StreamsGroupHeartbeatRequestUserEndpoint{Host: c.id + ".example", Port: 8080}
	}
	if rapid.IntRange(0, 4).Draw(h.rt, "rack") == 0 {
		req.RackID = kmsg.StringPtr("r1")
	}
	if rapid.IntRange(0, 4).Draw(h.rt, "tag") == 0 {
		req.ClientTags = []kmsg.StreamsGroupHeartbeatRequestClientTag{{Key: "zone", Value: "z"}}
	}
	// Kafka 4.4 forgets the offsets in the join of a static member that comes back under its own id: it takes the old member out
	// after it took the offsets in.
	if epoch, in := h.g.MemberEpoch(c.id); !in || epoch >= 0 {
		h.maybeOffsets(req)
	}
	return req
}

// otherProcess draws a process that keeps them in order. A member that is in stays where it is: Kafka 4.4 notes the processes that hold a
// task, not the members, and forgets one of two members of a process when the other moves.
func (h *history) otherProcess(c *client) int {
	if _, in := h.g.MemberEpoch(c.id); in {
		return c.process
	}
	i := slices.Index(h.clients, c)
	from, to := 0, len(processes)-1
	if i > 0 {
		from = h.clients[i-1].process
	}
	if i+1 < len(h.clients) {
		to = h.clients[i+1].process
	}
	return rapid.IntRange(from, to).Draw(h.rt, "process")
}

// beat is what a running client sends: mostly nothing but its epoch.
func (h *history) beat(c *client) *kmsg.StreamsGroupHeartbeatRequest {
	req := h.request(c, max(c.epoch, 1))
	switch rapid.IntRange(0, 5).Draw(h.rt, "owned") {
	case 0: // unchanged
	case 1: // nothing started yet
		req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	default:
		req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = slices.Clone(c.active), slices.Clone(c.standby), []kmsg.TaskIDs{}
		if req.ActiveTasks == nil {
			req.ActiveTasks = []kmsg.TaskIDs{}
		}
		if req.StandbyTasks == nil {
			req.StandbyTasks = []kmsg.TaskIDs{}
		}
	}
	h.maybeOffsets(req)
	if rapid.IntRange(0, 59).Draw(h.rt, "shutdown") == 0 {
		req.ShutdownApplication = true
	}
	return req
}

func (h *history) maybeOffsets(req *kmsg.StreamsGroupHeartbeatRequest) {
	if rapid.IntRange(0, 3).Draw(h.rt, "offsets") > 0 {
		return
	}
	req.TaskOffsets = []kmsg.TaskOffset{}
	for p := range rapid.Int32Range(0, 3).Draw(h.rt, "offsets of") {
		req.TaskOffsets = append(req.TaskOffsets, kmsg.TaskOffset{SubtopologyID: rapid.SampledFrom([]string{"0", "1"}).Draw(h.rt, "sub"), Partition: p, Offset: rapid.Int64Range(0, 3).Draw(h.rt, "offset")})
	}
	if rapid.Bool().Draw(h.rt, "end offsets") {
		req.TaskEndOffsets = []kmsg.TaskOffset{{SubtopologyID: "0", Partition: 0, Offset: 9}}
	}
}

// odd is a request that a well-behaved client would not send.
func (h *history) odd(c *client) *kmsg.StreamsGroupHeartbeatRequest {
	req := h.request(c, c.epoch+rapid.Int32Range(-3, 2).Draw(h.rt, "epoch off by"))
	lists := func() []kmsg.TaskIDs {
		var l []kmsg.TaskIDs
		for _, sub := range []string{"0", "1", "7"} {
			if rapid.IntRange(0, 2).Draw(h.rt, "owns "+sub) == 0 {
				l = append(l, kmsg.TaskIDs{SubtopologyID: sub, Partitions: rapid.SliceOfNDistinct(rapid.Int32Range(0, 3), 1, 3, rapid.ID).Draw(h.rt, "partitions")})
			}
		}
		if l == nil && rapid.Bool().Draw(h.rt, "list given") {
			l = []kmsg.TaskIDs{}
		}
		return l
	}
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = lists(), lists(), []kmsg.TaskIDs{}
	if rapid.IntRange(0, 4).Draw(h.rt, "instance") == 0 && req.MemberEpoch != 0 && h.static {
		req.InstanceID = kmsg.StringPtr(rapid.SampledFrom([]string{"i0", "i1", " "}).Draw(h.rt, "which"))
	}
	if rapid.IntRange(0, 4).Draw(h.rt, "topology") == 0 {
		req.Topology = topology(0, h.tc.subs...)
	}
	if rapid.IntRange(0, 4).Draw(h.rt, "process") == 0 {
		c.process = h.otherProcess(c)
		req.ProcessID = kmsg.StringPtr(processes[c.process])
	}
	return req
}

func (h *history) leaveRequest(c *client) *kmsg.StreamsGroupHeartbeatRequest {
	req := h.request(c, -1)
	if c.instance != "" && rapid.IntRange(0, 2).Draw(h.rt, "for a while") > 0 {
		req.MemberEpoch = -2
	}
	// In Kafka 4.4 a request to an empty group stays, and shuts down whoever starts next. Here it does not.
	if rapid.IntRange(0, 9).Draw(h.rt, "shutdown") == 0 && !h.g.Empty() {
		req.ShutdownApplication = true
	}
	return req
}

// changeTopics makes, changes or (not in a clean history) removes a topic.
func (h *history) changeTopics() {
	var names []string
	names = append(names, h.tc.sources...)
	for _, t := range h.tc.internal {
		names = append(names, t.Name)
	}
	names = append(names, "unrelated")
	name := rapid.SampledFrom(names).Draw(h.rt, "topic")
	i := slices.IndexFunc(h.have, func(t streams.Topic) bool { return t.Name == name })
	next := slices.Clone(h.have)
	switch {
	case i < 0:
		next = append(next, topic(name, rapid.SampledFrom([]int32{3, 3, 3, 2}).Draw(h.rt, "partitions"), 2))
	case h.clean:
		next[i].Partitions++
	default:
		switch rapid.IntRange(0, 3).Draw(h.rt, "change") {
		case 0:
			next[i].Partitions++
		case 1:
			next[i].ID[15]++
		case 2:
			next[i].Racks = [][]string{{"r1"}, {"r2", "r1"}}
		default:
			next = slices.Delete(next, i, i+1)
		}
	}
	h.have = next
	h.setTopics(next)
}
