package streams

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"streamkeeper/client/explain"
	"streamkeeper/eventlog"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// chaos is a group with its clients, to which anything may happen.
type chaos struct {
	rt       *rapid.T
	g        *Group
	log      []eventlog.Record
	now      int64
	config   Config
	topics   fakeTopics
	topology *kmsg.StreamsGroupHeartbeatRequestTopology
	timers   clock
	clients  []*chaosClient
	story    []string
}

// chaosClient is what a member knows of itself.
type chaosClient struct {
	id, process, instance string
	epoch                 int32
	in                    bool
	has                   assignment // last received
}

func newChaos(rt *rapid.T) *chaos {
	c := &chaos{rt: rt, g: NewGroup("g"), now: 1_000_000, config: DefaultConfig(), topics: fakeTopics{version: 1}}
	c.config.InitialRebalanceDelay = time.Duration(rapid.SampledFrom([]int{0, 3}).Draw(rt, "delay")) * time.Second
	c.config.AssignmentInterval = time.Duration(rapid.SampledFrom([]int{0, 1}).Draw(rt, "interval")) * time.Second
	c.config.NumStandbyReplicas = rapid.IntRange(0, 2).Draw(rt, "standbys")
	t := kmsg.NewStreamsGroupHeartbeatRequestTopology()
	t.Subtopologies = []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{
		{SubtopologyID: "0", SourceTopics: []string{"in"}, RepartitionSinkTopics: []string{"g-r"}},
		{SubtopologyID: "1", RepartitionSourceTopics: []kmsg.TopicInfo{{Topic: "g-r"}}, StateChangelogTopics: []kmsg.TopicInfo{{Topic: "g-s"}}},
	}
	c.topology = &t
	c.allTopics()
	for i := range 6 {
		c.clients = append(c.clients, &chaosClient{id: fmt.Sprintf("m%d", i), process: fmt.Sprintf("p%d", rapid.IntRange(0, 3).Draw(rt, "process"))})
	}
	return c
}

func (c *chaos) allTopics() {
	c.topics.set(map[string]Topic{"in": namedTopic("in", 3), "g-r": namedTopic("g-r", 3), "g-s": namedTopic("g-s", 3)})
}

func (c *chaos) fail(format string, args ...any) {
	c.rt.Fatalf("%s\n%s\n%s", fmt.Sprintf(format, args...), strings.Join(c.story, "\n"), c.g)
}

func (c *chaos) env() Env {
	return Env{Now: c.now, Topics: &c.topics, Config: c.config, APIVersion: 1, ClientID: "client", ClientHost: "/10.0.0.1"}
}

func (c *chaos) apply(r Result) {
	for _, rec := range r.Records {
		if err := c.g.Apply(rec); err != nil {
			c.fail("%v", err)
		}
		c.log = append(c.log, rec)
	}
	c.g.ApplySoft(r.Soft)
	c.timers.schedule(c.now, r.Timers)
	c.check()
}

// check is what must hold after every operation.
func (c *chaos) check() {
	live := c.g.String()
	replayed := NewGroup("g")
	for _, r := range c.log {
		if err := replayed.Apply(r); err != nil {
			c.fail("replay: %v", err)
		}
	}
	if got := replayed.String(); got != live {
		c.fail("replayed:\n%s\nlive:\n%s", got, live)
	}
	hydrated := NewGroup("g")
	for _, r := range compacted(c.log) {
		if err := hydrated.Apply(r); err != nil {
			c.fail("hydration: %v", err)
		}
	}
	if got := hydrated.String(); got != live {
		c.fail("hydrated:\n%s\nlive:\n%s", got, live)
	}
	holder := map[taskID]string{}
	for id, m := range c.g.members {
		for _, x := range union(m.assigned.active, m.revoking.active) {
			k := taskID{x.sub, x.partition}
			if other, twice := holder[k]; twice {
				c.fail("task %v is active on %s and %s", k, other, id)
			}
			holder[k] = id
		}
		if overlap(m.assigned.active, m.assigned.standby) {
			c.fail("%s has a task active and as a standby", id)
		}
	}
	if len(holder) != len(c.g.holders.of[roleActive]) {
		c.fail("%d active tasks, %d known holders", len(holder), len(c.g.holders.of[roleActive]))
	}
	if c.g.exists && c.g.Empty() && c.g.Epoch() != c.g.AssignmentEpoch() {
		c.fail("an empty group with epochs %d and %d", c.g.Epoch(), c.g.AssignmentEpoch())
	}
	c.checkReasons()
}

// checkReasons: a state that is not stable has a reason, and a reason speaks of members and tasks that there are. What is told changes nothing.
func (c *chaos) checkReasons() {
	if !c.g.exists {
		return
	}
	before := c.g.String()
	reasons := c.g.Explain(c.env(), c.timers.due)
	if len(reasons) == 0 && c.g.State() != StateStable {
		c.fail("%s without a reason", c.g.State())
	}
	for _, r := range reasons {
		if r.Code == "" || r.Text == "" {
			c.fail("a reason that says nothing: %+v", r)
		}
		if _, there := c.g.members[r.Member]; r.Member != "" && r.Code != explain.ShutdownWished && !there {
			c.fail("a reason about nobody: %+v", r)
		}
		for _, h := range r.Holders {
			if c.g.members[h] == nil || h == r.Member {
				c.fail("held by nobody: %+v", r)
			}
		}
		if (r.Code == explain.GivingUpTasks || r.Code == explain.WaitingForTasks) && len(r.Tasks) == 0 || r.Code == explain.WaitingForTasks && len(r.Holders) == 0 {
			c.fail("tasks of nobody: %+v", r)
		}
		if r.Until != nil && r.Since != nil && r.Until.Before(*r.Since) {
			c.fail("it ends before it began: %+v", r)
		}
	}
	if after := c.g.String(); after != before {
		c.fail("an explanation changed the group:\n%s", before)
	}
}

func (c *chaos) elapse(by time.Duration) {
	to := c.now + by.Milliseconds()
	for {
		t, at, ok := c.timers.next(to)
		if !ok {
			break
		}
		c.now = at
		c.story = append(c.story, fmt.Sprintf("%d %s fires", at, timerText(t.Key)))
		c.apply(c.g.Fire(c.env(), t))
	}
	c.now = to
}

func (c *chaos) send(cl *chaosClient, req *kmsg.StreamsGroupHeartbeatRequest, lost bool) {
	c.story = append(c.story, fmt.Sprintf("%d %s epoch=%d active=%v standby=%v lost=%v", c.now, req.MemberID, req.MemberEpoch, req.ActiveTasks, req.StandbyTasks, lost))
	if err := Validate(req); err != nil {
		c.fail("%v", err)
	}
	before := c.g.String()
	soft := fmt.Sprintf("%+v", c.g.soft)
	r, err := c.g.Heartbeat(c.env(), req)
	if c.g.String() != before || fmt.Sprintf("%+v", c.g.soft) != soft {
		c.fail("the handler changed the group")
	}
	if err == nil && r.Response == nil || err != nil && (r.Response != nil || len(r.Records)+len(r.Timers) > 0) {
		c.fail("a result with %v: %+v", err, r)
	}
	c.apply(r)
	if lost {
		return
	}
	switch {
	case err != nil:
		code := err.(*Error).Code
		if code == codeFencedMemberEpoch || code == codeUnknownMember || code == codeFencedInstanceID {
			cl.in, cl.epoch, cl.has = false, 0, assignment{}
		}
	case r.Response.MemberEpoch < 0:
		cl.in, cl.epoch, cl.has = false, 0, assignment{}
	default:
		cl.in, cl.epoch = true, r.Response.MemberEpoch
		if r.Response.ActiveTasks != nil {
			cl.has = assignment{tasksOfRequest(r.Response.ActiveTasks), tasksOfRequest(r.Response.StandbyTasks), nil}
		}
	}
}

func (c *chaos) join(cl *chaosClient) *kmsg.StreamsGroupHeartbeatRequest {
	req := joinRequest("g", cl.id, cl.process)
	req.Topology = c.topology
	if cl.instance != "" {
		req.InstanceID = &cl.instance
	}
	return req
}

// beat is what a client that does as it is told sends.
func (c *chaos) beat(cl *chaosClient) *kmsg.StreamsGroupHeartbeatRequest {
	req := beatRequest("g", cl.id, cl.epoch)
	if cl.instance != "" {
		req.InstanceID = &cl.instance
	}
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = cl.has.active.wire(), cl.has.standby.wire(), tasks{}.wire()
	return req
}

func (c *chaos) step() {
	cl := c.clients[rapid.IntRange(0, len(c.clients)-1).Draw(c.rt, "client")]
	lost := rapid.IntRange(0, 5).Draw(c.rt, "lost") == 0
	switch k := rapid.IntRange(0, 99).Draw(c.rt, "step"); {
	case k < 25:
		if !cl.in {
			cl.instance = rapid.SampledFrom([]string{"", "", "i-" + cl.id}).Draw(c.rt, "instance")
		}
		c.send(cl, c.join(cl), lost)
	case k < 65:
		if cl.epoch > 0 {
			req := c.beat(cl)
			if rapid.Bool().Draw(c.rt, "nothing said") {
				req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = nil, nil, nil
			}
			c.send(cl, req, lost)
		}
	case k < 70: // an epoch or tasks that it has not
		req := c.beat(cl)
		req.MemberEpoch = max(1, cl.epoch+rapid.Int32Range(-2, 2).Draw(c.rt, "off by"))
		if rapid.Bool().Draw(c.rt, "other tasks") {
			req.ActiveTasks = tasks{{sub: "0", partition: rapid.Int32Range(0, 3).Draw(c.rt, "task")}}.wire()
		}
		c.send(cl, req, lost)
	case k < 75:
		req := beatRequest("g", cl.id, epochLeave)
		if cl.instance != "" {
			req.InstanceID = &cl.instance
			req.MemberEpoch = rapid.SampledFrom([]int32{epochLeave, epochStaticLeft}).Draw(c.rt, "leave")
		}
		c.send(cl, req, lost)
	case k < 85:
		c.elapse(time.Duration(rapid.SampledFrom([]int{100, 1000, 3000, 46000}).Draw(c.rt, "time")) * time.Millisecond)
	case k < 90:
		t := map[string]Topic{}
		for _, name := range []string{"in", "g-r", "g-s"} {
			if rapid.IntRange(0, 4).Draw(c.rt, name) > 0 {
				t[name] = namedTopic(name, 3)
			}
		}
		c.topics.set(t)
	case k < 93:
		c.config.NumStandbyReplicas = rapid.IntRange(0, 2).Draw(c.rt, "standbys")
	case k < 96: // fail-over: everything that is not in the log is lost
		c.g = NewGroup("g")
		for _, r := range compacted(c.log) {
			if err := c.g.Apply(r); err != nil {
				c.fail("%v", err)
			}
		}
		c.timers = clock{}
		c.timers.schedule(c.now, c.g.Restore(c.env()))
	default:
		if recs, err := c.g.Delete(); err == nil && c.g.Exists() {
			c.apply(Result{Records: recs})
			c.log = nil // all that is left are tombstones
		}
	}
}

// TestAnythingMayHappen holds the invariants over random histories.
func TestAnythingMayHappen(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newChaos(rt)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			c.step()
		}
	})
}

// TestMembersConverge: whatever happened, members that do as they are told get to a stable group in which every task runs.
func TestMembersConverge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newChaos(rt)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			c.step()
		}
		c.allTopics()
		c.story = append(c.story, "from now on everybody does as told")
		c.elapse(46 * time.Second) // who said nothing is gone
		// At most: join, delay, compute, revoke, release, take over; a round for each and some for members that are fenced first.
		const rounds = 12
		for range rounds {
			for _, cl := range c.clients {
				if cl.epoch > 0 {
					c.send(cl, c.beat(cl), false)
				}
				if !cl.in {
					c.send(cl, c.join(cl), false)
				}
			}
			c.elapse(3 * time.Second)
		}
		if c.g.State() != StateStable {
			c.fail("not stable")
		}
		running := 0
		for id, m := range c.g.members {
			running += len(m.assigned.active)
			if !m.assigned.same(c.g.targets[id]) {
				c.fail("%s has not its target", id)
			}
			for _, cl := range c.clients {
				if cl.id == id && !cl.has.same(m.assigned) {
					c.fail("%s believes to have %s", id, cl.has)
				}
			}
		}
		if running != 6 {
			c.fail("%d of 6 tasks run", running)
		}
	})
}
