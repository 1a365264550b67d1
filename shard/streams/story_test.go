package streams

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"streamkeeper/eventlog"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestStories tells stories of groups: files of testdata/stories. go test -rewrite writes what happens into them.
//
//	config delay=3s interval=1s standbys=1 max=2 tags=zone,cluster
//	topics in=4 other=3#2              all topics of the cluster: partitions, and which incarnation of the name
//	topology name [epoch=1]            defines a topology; a line per subtopology:
//	    0 source=in sink=r repartition=r/2 changelog=s copartition=in,r
//	join member=a process=p topology=t [instance= rack= endpoint=host:port timeout=ms tags=k:v offsets=0:1:500]
//	beat member=a [epoch=2] [owned=0:0,0:1] [standby=…] [seen=1] [instance=] [lost] [shutdown]
//	    without epoch: the last one the member received; owned=all: what it was assigned last; lost: the response is lost
//	leave member=a [instance= shutdown] [for=good|a-while]
//	tick 5s                            time passes, timers fire
//	commit member=a epoch=2 in/0 in/1 [version=9] [transactional]     fetch member=a epoch=2
//	describe    explain    group    restart    delete
//	told                               what a Chronicle told of the records since the last told
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		s := newStory(t)
		datadriven.RunTest(t, path, s.run)
	})
}

type story struct {
	t          *testing.T
	d          *datadriven.TestData
	g          *Group
	now        int64
	config     Config
	topics     fakeTopics
	topologies map[string]*kmsg.StreamsGroupHeartbeatRequestTopology
	timers     clock
	log        []eventlog.Record
	epochs     map[string]int32
	assigned   map[string]assignment
	out        strings.Builder
	chronicle  *Chronicle
	told       []string
}

func newStory(t *testing.T) *story {
	cfg := DefaultConfig()
	cfg.InitialRebalanceDelay, cfg.AssignmentInterval = 0, 0
	return &story{
		t: t, g: NewGroup("g"), config: cfg, now: 1_000_000, topics: fakeTopics{version: 1},
		topologies: map[string]*kmsg.StreamsGroupHeartbeatRequestTopology{}, epochs: map[string]int32{}, assigned: map[string]assignment{},
	}
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	s.t, s.d = t, d
	s.out.Reset()
	switch d.Cmd {
	case "config":
		s.setConfig()
	case "topics":
		s.setTopics()
	case "topology":
		s.defineTopology()
	case "join", "beat", "leave":
		s.heartbeat()
	case "tick":
		s.tick()
	case "commit":
		s.commit()
	case "fetch":
		member, ok := s.arg("member")
		var id *string
		if ok {
			id = &member
		}
		s.verdict(s.g.AdmitFetch(id, s.int32("epoch", -1)))
	case "group":
		s.print("%s", s.g)
	case "describe":
		s.describe()
	case "explain":
		s.explain()
	case "restart":
		s.restart()
	case "told":
		s.print("%s\n", strings.Join(s.told, "\n"))
		s.told = nil
	case "delete":
		recs, err := s.g.Delete()
		if err != nil {
			s.verdict(err)
			break
		}
		s.apply(Result{Records: recs})
	default:
		t.Fatalf("%s: unknown verb %s", d.Pos, d.Cmd)
	}
	if s.out.Len() == 0 {
		return "ok\n"
	}
	return s.out.String()
}

func (s *story) print(format string, args ...any) { fmt.Fprintf(&s.out, format, args...) }

func (s *story) arg(key string) (string, bool) {
	for _, a := range s.d.CmdArgs {
		if a.Key == key {
			return strings.Join(a.Vals, ","), true
		}
	}
	return "", false
}

func (s *story) int32(key string, otherwise int32) int32 {
	v, ok := s.arg(key)
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil {
		s.t.Fatalf("%s: %v", s.d.Pos, err)
	}
	return int32(n)
}

func (s *story) duration(v string) time.Duration {
	d, err := time.ParseDuration(v)
	if err != nil {
		s.t.Fatalf("%s: %v", s.d.Pos, err)
	}
	return d
}

func (s *story) request() *kmsg.StreamsGroupHeartbeatRequest {
	member, _ := s.arg("member")
	req := beatRequest("g", member, s.int32("epoch", s.epochs[member]))
	req.Version = int16(s.int32("version", 1))
	req.EndpointInformationEpoch = s.int32("seen", 0)
	opt := func(key string) *string {
		if v, ok := s.arg(key); ok {
			return &v
		}
		return nil
	}
	req.InstanceID, req.RackID, req.ProcessID = opt("instance"), opt("rack"), opt("process")
	_, req.ShutdownApplication = s.arg("shutdown")
	if v, ok := s.arg("tags"); ok {
		for _, kv := range strings.Split(v, ",") {
			k, v, _ := strings.Cut(kv, ":")
			req.ClientTags = append(req.ClientTags, kmsg.StreamsGroupHeartbeatRequestClientTag{Key: k, Value: v})
		}
	}
	if v, ok := s.arg("endpoint"); ok {
		host, port, _ := strings.Cut(v, ":")
		n, _ := strconv.Atoi(port)
		req.UserEndpoint = &kmsg.StreamsGroupHeartbeatRequestUserEndpoint{Host: host, Port: uint16(n)}
	}
	if v, ok := s.arg("offsets"); ok {
		for _, o := range strings.Split(v, ",") {
			f := strings.Split(o, ":")
			n, _ := strconv.ParseInt(f[2], 10, 64)
			req.TaskOffsets = append(req.TaskOffsets, kmsg.TaskOffset{SubtopologyID: f[0], Partition: s.tasks(f[0] + ":" + f[1])[0].partition, Offset: n})
		}
	}
	switch s.d.Cmd {
	case "join":
		req.MemberEpoch, req.RebalanceTimeoutMillis = epochJoin, s.int32("timeout", 300_000)
		req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
		if name, ok := s.arg("topology"); ok {
			req.Topology = s.topologies[name]
		}
	case "leave":
		req.MemberEpoch = epochLeave
		if v, _ := s.arg("for"); v == "a-while" {
			req.MemberEpoch = epochStaticLeft
		}
	case "beat":
		if v, ok := s.arg("owned"); ok {
			a := s.assigned[member]
			if v != "all" {
				a = assignment{active: s.tasks(v)}
			}
			if v, ok := s.arg("standby"); ok {
				a.standby = s.tasks(v)
			}
			req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = a.active.wire(), a.standby.wire(), a.warmup.wire()
		}
	}
	return req
}

func (s *story) env() Env {
	return Env{Now: s.now, Topics: &s.topics, Config: s.config, APIVersion: int16(s.int32("version", 1)), ClientID: "client", ClientHost: "/10.0.0.1"}
}

func (s *story) heartbeat() {
	req := s.request()
	if err := Validate(req); err != nil {
		s.verdict(err)
		return
	}
	r, err := s.g.Heartbeat(s.env(), req)
	if err != nil {
		s.verdict(err)
		s.g.ApplySoft(r.Soft)
		return
	}
	s.response(r.Response)
	for _, c := range r.Create {
		s.print("create %s partitions=%d replication=%d\n", c.Name, c.Partitions, c.ReplicationFactor)
	}
	if _, lost := s.arg("lost"); !lost {
		s.epochs[req.MemberID] = r.Response.MemberEpoch
		if r.Response.ActiveTasks != nil {
			s.assigned[req.MemberID] = assignment{active: tasksOfRequest(r.Response.ActiveTasks), standby: tasksOfRequest(r.Response.StandbyTasks)}
		}
	}
	s.apply(r)
}

func (s *story) response(r *kmsg.StreamsGroupHeartbeatResponse) {
	s.print("epoch=%d", r.MemberEpoch)
	if r.ActiveTasks != nil {
		s.print(" %s", assignment{tasksOfRequest(r.ActiveTasks), tasksOfRequest(r.StandbyTasks), tasksOfRequest(r.WarmupTasks)})
	}
	s.print("\n")
	for _, st := range r.Status {
		s.print("status %d %s\n", st.StatusCode, st.StatusDetail)
	}
	if r.PartitionsByUserEndpoint != nil && (len(r.PartitionsByUserEndpoint) > 0 || r.EndpointInformationEpoch != 0) {
		s.print("endpoints epoch=%d\n", r.EndpointInformationEpoch)
		for _, e := range r.PartitionsByUserEndpoint {
			s.print("  %s:%d active", e.UserEndpoint.Host, e.UserEndpoint.Port)
			for _, p := range e.ActivePartitions {
				s.print(" %s%v", p.Topic, p.Partitions)
			}
			s.print(" standby")
			for _, p := range e.StandbyPartitions {
				s.print(" %s%v", p.Topic, p.Partitions)
			}
			s.print("\n")
		}
	}
}

// apply does what a shard does, and prints it.
func (s *story) apply(r Result) {
	if s.chronicle == nil || s.chronicle.g != s.g {
		s.chronicle = NewChronicle(s.g)
	}
	tell := func(events []Event) {
		for _, e := range events {
			s.told = append(s.told, e.Text)
		}
	}
	for _, rec := range r.Records {
		s.print("  %s\n", recordText(rec))
		tell(s.chronicle.Tell(rec))
		if err := s.g.Apply(rec); err != nil {
			s.t.Fatalf("%s: %v", s.d.Pos, err)
		}
		s.log = append(s.log, rec)
	}
	tell(s.chronicle.Settled())
	s.g.ApplySoft(r.Soft)
	for _, t := range r.Timers {
		switch {
		case t.Key.Kind == TimerSession && t.After >= 0: // every beat
		case t.After < 0 && !slices.ContainsFunc(s.timers.set, func(x clockTimer) bool { return x.Key == t.Key }): // it was not set
		case t.After < 0:
			s.print("  timer %s ends\n", timerText(t.Key))
		default:
			s.print("  timer %s in %v\n", timerText(t.Key), t.After)
		}
	}
	s.timers.schedule(s.now, r.Timers)
}

func timerText(k TimerKey) string {
	name := map[TimerKind]string{TimerSession: "session", TimerRebalance: "rebalance", TimerInitial: "initial"}[k.Kind]
	if k.Member != "" {
		name += " " + k.Member
	}
	return name
}

// recordText is a short form of a record.
func recordText(r eventlog.Record) string {
	head := strings.TrimSpace(fmt.Sprintf("%d %s", r.Key.Type, r.Key.Member))
	if r.Value == nil {
		return head + " tombstone"
	}
	switch v := r.Value.(type) {
	case *eventlog.Group:
		return fmt.Sprintf("%s epoch=%d validated=%d configs=%v", head, v.Epoch, v.ValidatedTopologyEpoch, v.LastAssignmentConfigs)
	case *eventlog.Member:
		return head + " " + metaText(v)
	case *eventlog.Topology:
		return fmt.Sprintf("%s epoch=%d, %d subtopologies", head, v.Epoch, len(v.Subtopologies))
	case *eventlog.TargetAssignment:
		return fmt.Sprintf("%s epoch=%d at %d", head, v.AssignmentEpoch, v.AssignmentTimestamp)
	case *eventlog.TargetAssignmentMember:
		return fmt.Sprintf("%s %s", head, assignment{tasksOfRecord(v.Active, false, 0), tasksOfRecord(v.Standby, false, 0), tasksOfRecord(v.Warmup, false, 0)})
	case *eventlog.CurrentMemberAssignment:
		m := bareMember("").withCurrent(v)
		text := fmt.Sprintf("%s %s epoch=%d previous=%d %s", head, stateText(m.state), m.epoch, m.previousEpoch, m.assigned)
		if !m.revoking.empty() {
			text += fmt.Sprintf(" revoking %s", m.revoking)
		}
		return text
	}
	return head
}

func (s *story) verdict(err error) {
	if err == nil {
		s.print("accepted\n")
		return
	}
	if e, ok := err.(*Error); ok && e == nil {
		s.t.Fatalf("%s: a nil *Error as an error", s.d.Pos)
	}
	s.print("%v\n", err)
}

func (s *story) tick() {
	to := s.now + s.duration(s.d.CmdArgs[0].Key).Milliseconds()
	for {
		t, at, ok := s.timers.next(to)
		if !ok {
			break
		}
		s.now = at
		s.print("%s fires at %d\n", timerText(t.Key), at)
		s.apply(s.g.Fire(s.env(), t))
	}
	s.now = to
}

func (s *story) commit() {
	member, _ := s.arg("member")
	_, transactional := s.arg("transactional")
	admit, err := s.g.AdmitCommit(member, s.int32("epoch", -1), nil, int16(s.int32("version", 9)), transactional)
	for _, a := range s.d.CmdArgs {
		if topic, p, ok := strings.Cut(a.Key, "/"); ok && err == nil && admit != nil {
			n, _ := strconv.Atoi(p)
			err = admit(topic, int32(n))
		}
	}
	s.verdict(err)
}

// restart loses everything but the log.
func (s *story) restart() {
	before := s.g.String()
	s.g = NewGroup("g")
	for _, r := range compacted(s.log) {
		if err := s.g.Apply(r); err != nil {
			s.t.Fatalf("%s: %v", s.d.Pos, err)
		}
	}
	if after := s.g.String(); after != before {
		s.t.Fatalf("%s: hydrated\n%s\nbefore\n%s", s.d.Pos, after, before)
	}
	s.timers = clock{}
	restored := s.g.Restore(s.env())
	for _, t := range restored {
		s.print("  timer %s in %v\n", timerText(t.Key), t.After)
	}
	s.timers.schedule(s.now, restored)
}

func (s *story) describe() {
	d := s.g.Describe(s.env())
	s.print("%s %s epoch=%d assignment=%d assignor=%s topology epoch=%d\n", d.Group, d.State, d.Epoch, d.AssignmentEpoch, *d.AssignorName, d.Topology.Epoch)
	infos := func(list []kmsg.TopicInfo) (r []string) {
		for _, t := range list {
			r = append(r, fmt.Sprintf("%s/%d", t.Topic, t.NumPartitions))
		}
		return r
	}
	for _, sub := range d.Topology.Subtopologies {
		s.print("  %s sources=%v sinks=%v repartition=%v changelogs=%v\n", sub.SubtopologyID, sub.SourceTopics, sub.RepartitionSinkTopics, infos(sub.RepartitionSourceTopics), infos(sub.StateChangelogTopics))
	}
	text := func(a kmsg.StreamsAssignment) string {
		return assignment{tasksOfRequest(a.ActiveTasks), tasksOfRequest(a.StandbyTasks), tasksOfRequest(a.WarmupTasks)}.String()
	}
	for _, m := range d.Members {
		s.print("  %s epoch=%d has %s, target %s, offsets %v\n", m.MemberID, m.MemberEpoch, text(m.Assignment), text(m.TargetAssignment), len(m.TaskOffsets))
	}
}
