package streams

import (
	"fmt"
	"strings"
	"testing"

	"streamkeeper/eventlog"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestValidateRefusesWhatKafkaRefuses has a request for every rule that needs no state, the first rule that is broken decides.
func TestValidateRefusesWhatKafkaRefuses(t *testing.T) {
	str := func(s string) *string { return &s }
	type request = kmsg.StreamsGroupHeartbeatRequest
	empty := func() []kmsg.TaskIDs { return []kmsg.TaskIDs{} }
	some := []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{0}}}
	for _, c := range []struct {
		name  string
		join  bool
		spoil func(*request)
		code  int16
		text  string
	}{
		{"good join", true, func(*request) {}, 0, ""},
		{"good beat", false, func(*request) {}, 0, ""},
		{"regex", true, func(r *request) {
			r.Topology.Subtopologies[0].SourceTopicRegex = []string{"a.*"}
			r.MemberID = "" // the first rule decides
		}, 42, "Regular expressions for source topics are not supported yet."},
		{"no member id", true, func(r *request) { r.MemberID = "" }, 42, "MemberId can't be empty."},
		{"blank member id", false, func(r *request) { r.MemberID = " \t" }, 42, "MemberId can't be empty."},
		{"no group id", true, func(r *request) { r.Group = "" }, 42, "GroupId can't be empty."},
		{"blank group id", true, func(r *request) { r.Group = "  " }, 42, "GroupId can't be empty."},
		{"blank instance id", true, func(r *request) { r.InstanceID = str(" ") }, 42, "InstanceId can't be empty."},
		{"blank rack id", true, func(r *request) { r.RackID = str("") }, 42, "RackId can't be empty."},
		{"no rebalance timeout", true, func(r *request) { r.RebalanceTimeoutMillis = -1 }, 42, "RebalanceTimeoutMs must be provided in first request."},
		{"other negative timeouts are taken", true, func(r *request) { r.RebalanceTimeoutMillis = -2 }, 0, ""},
		{"active tasks null", true, func(r *request) { r.ActiveTasks = nil }, 42, "ActiveTasks must be empty when (re-)joining."},
		{"active tasks", true, func(r *request) { r.ActiveTasks = some }, 42, "ActiveTasks must be empty when (re-)joining."},
		{"standby tasks null", true, func(r *request) { r.StandbyTasks = nil }, 42, "StandbyTasks must be empty when (re-)joining."},
		{"standby tasks", true, func(r *request) { r.StandbyTasks = some }, 42, "StandbyTasks must be empty when (re-)joining."},
		{"warmup tasks null", true, func(r *request) { r.WarmupTasks = nil }, 42, "WarmupTasks must be empty when (re-)joining."},
		{"warmup tasks", true, func(r *request) { r.WarmupTasks = some }, 42, "WarmupTasks must be empty when (re-)joining."},
		{"no topology", true, func(r *request) { r.Topology = nil }, 42, "Topology must be non-null when (re-)joining."},
		{"changelog with a count", true, func(r *request) {
			r.Topology.Subtopologies[0].StateChangelogTopics = []kmsg.TopicInfo{{Topic: "s", NumPartitions: 3}}
		}, 130, "Changelog topic s must have an undefined partition count, but it is set to 3."},
		{"no process id", true, func(r *request) { r.ProcessID = nil }, 0, ""},
		{"leave for a while without instance", false, func(r *request) { r.MemberEpoch = -2 }, 42, "InstanceId can't be null."},
		{"leave for a while", false, func(r *request) { r.MemberEpoch, r.InstanceID = -2, str("i") }, 0, ""},
		{"leave", false, func(r *request) { r.MemberEpoch = -1 }, 0, ""},
		{"epoch", false, func(r *request) { r.MemberEpoch = -3 }, 42, "MemberEpoch is -3, but must be greater than or equal to -2."},
		{"only active", false, func(r *request) { r.ActiveTasks = empty() }, 42, "If one task-type is non-null, all must be non-null."},
		{"no warmup", false, func(r *request) { r.ActiveTasks, r.StandbyTasks = empty(), empty() }, 42, "If one task-type is non-null, all must be non-null."},
		{"topology later", false, func(r *request) { r.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{} }, 42, "Topology can only be provided when (re-)joining."},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := beatRequest("g", "m", 5)
			if c.join {
				req = joinRequest("g", "m", "p")
				req.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{{SubtopologyID: "0", SourceTopics: []string{"in"}}}}
			}
			c.spoil(req)
			err := Validate(req)
			if c.code == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || err.Code != c.code || err.Message != c.text {
				t.Fatalf("got %v, want %d %s", err, c.code, c.text)
			}
		})
	}
}

// TestErrorResponseIsBareButForTheError: clients read the rest of a refusal too.
func TestErrorResponseIsBareButForTheError(t *testing.T) {
	for _, version := range []int16{0, 1} {
		r := ErrorResponse(version, refuse(codeInvalidRequest, "no"))
		again := kmsg.NewPtrStreamsGroupHeartbeatResponse()
		again.Version = version
		if err := again.ReadFrom(r.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		want := kmsg.NewPtrStreamsGroupHeartbeatResponse()
		want.Version, want.ErrorCode, want.ErrorMessage, want.Status = version, 42, kmsg.StringPtr("no"), []kmsg.StreamsGroupHeartbeatResponseStatus{}
		if got, want := fmt.Sprintf("%+v", text(again)), fmt.Sprintf("%+v", text(want)); got != want {
			t.Errorf("version %d:\n%s\nwant\n%s", version, got, want)
		}
	}
	if r := ErrorResponse(1, &Error{Code: codeUnknownServerError}); r.ErrorMessage != nil {
		t.Errorf("no text must be null, not %q", *r.ErrorMessage)
	}
}

func text(r *kmsg.StreamsGroupHeartbeatResponse) string {
	msg := "null"
	if r.ErrorMessage != nil {
		msg = *r.ErrorMessage
	}
	m := *r
	m.ErrorMessage = nil
	return msg + fmt.Sprintf(" %#v %v", m, r.Status != nil)
}

// TestConfigure has a topology for every way in which topics do and do not fit.
func TestConfigure(t *testing.T) {
	for _, c := range []struct {
		name     string
		topology string
		topics   string
		want     string
	}{
		{"one source", "0 source=a", "a=3", "0 tasks=3"},
		{"the largest source counts", "0 source=a source=b", "a=3 b=5", "0 tasks=5"},
		{"missing source", "0 source=b source=a", "", "status 1 Source topics a, b are missing."},
		{"many missing sources", "0 source=e source=d source=c source=b source=a", "", "status 1 Source topics a, b, c and 2 additional topics are missing."},
		{"no source", "0 source=a\n1 changelog=s", "a=1", "error 130: No source topics found for subtopology 1"},
		{"changelog", "0 source=a changelog=s", "a=3", "0 tasks=3; changelog s/3; status 3 Internal topics are missing: s; create s/3"},
		{"changelog is there", "0 source=a changelog=s", "a=3 s=3", "0 tasks=3; changelog s/3"},
		{"changelog with another count", "0 source=a changelog=s", "a=3 s=2", "status 2 Existing topic s has different number of partitions: expected 3, found 2"},
		{"repartition", "0 source=a sink=r\n1 repartition=r", "a=3 r=3", "0 tasks=3; 1 tasks=3; repartition r/3"},
		{"repartition behind repartition", "0 source=a sink=q\n1 repartition=r sink=s\n2 repartition=q sink=r\n3 repartition=s", "a=7 q=7 r=7 s=7",
			"0 tasks=7; 1 tasks=7; repartition r/7; 2 tasks=7; repartition q/7; 3 tasks=7; repartition s/7"},
		{"fixed count", "0 source=a sink=r\n1 repartition=r/2", "a=3", "0 tasks=3; 1 tasks=2; repartition r/2; status 3 Internal topics are missing: r; create r/2"},
		{"fixed count is another", "0 source=a sink=r\n1 repartition=r/2", "a=3 r=3", "status 2 Existing topic r has different number of partitions: expected 2, found 3"},
		{"a real count wins", "0 source=a sink=r\n1 repartition=r source=b", "a=3 b=9", "0 tasks=3; 1 tasks=9; repartition r/3; status 3 Internal topics are missing: r; create r/3"},
		{"loop", "0 repartition=r sink=q\n1 repartition=q sink=r", "", "error 130: Failed to compute number of partitions for all repartition topics. There may be loops in the topology that cannot be resolved."},
		{"nobody writes it", "0 source=a repartition=r", "a=1", "error 130: Failed to compute number of partitions for all repartition topics, because a repartition source topic is never used as a sink topic."},
		{"copartitioned sources", "0 source=a source=b copartition=a,b", "a=3 b=3", "0 tasks=3"},
		{"copartitioned sources differ", "0 source=b source=a copartition=a,b", "a=4 b=3", "status 2 Following topics do not have the same number of partitions: [{a=4, b=3}]"},
		{"copartitioned with a source", "0 source=a sink=r\n1 source=b repartition=r copartition=b,r", "a=3 b=5", "0 tasks=3; 1 tasks=5; repartition r/5; status 3 Internal topics are missing: r; create r/5"},
		{"copartitioned, fixed and wrong", "0 source=a sink=r\n1 source=b repartition=r/3 copartition=b,r", "a=3 b=4", "status 2 Number of partitions [3] of repartition topic [r] doesn't match number of partitions [4] of the source topic."},
		{"copartitioned, all internal", "0 source=a source=b sink=q\n1 source=a sink=r\n2 repartition=q repartition=r copartition=q,r", "a=3 b=8",
			"0 tasks=8; 1 tasks=3; 2 tasks=8; repartition q/8; repartition r/8; status 3 Internal topics are missing: q, r; create q/8; create r/8"},
		{"copartitioned, one fixed", "0 source=a sink=q sink=r\n1 repartition=q/2 repartition=r copartition=q,r", "a=9",
			"0 tasks=9; 1 tasks=2; repartition q/2; repartition r/2; status 3 Internal topics are missing: q, r; create q/2; create r/2"},
		{"copartitioned, two fixed", "0 source=a sink=q sink=r\n1 repartition=q/2 repartition=r/3 copartition=q,r", "a=9", "status 2 Following topics do not have the same number of partitions: [{q=2, r=3}]"},
		{"many internal topics missing", "0 source=a changelog=s changelog=r changelog=q changelog=p", "a=1",
			"0 tasks=1; changelog p/1; changelog q/1; changelog r/1; changelog s/1; status 3 Internal topics are missing: p, q, r and 1 additional topics; create p/1; create q/1; create r/1; create s/1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := configureText(t, c.topology, c.topics); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func configureText(t *testing.T, spec, topics string) string {
	s := newStory(t)
	r := kmsg.NewStreamsGroupHeartbeatRequestTopology()
	for _, line := range strings.Split(spec, "\n") {
		r.Subtopologies = append(r.Subtopologies, s.subtopology(strings.Fields(line)))
	}
	have := map[string]Topic{}
	for _, f := range strings.Fields(topics) {
		var n int32
		name, count, _ := strings.Cut(f, "=")
		fmt.Sscan(count, &n)
		have[name] = namedTopic(name, n)
	}
	conf, err := configure(newTopology(topologyOfRequest(&r)), &fakeTopics{byName: have})
	if err != nil {
		return err.Error()
	}
	var parts []string
	for _, sub := range conf.subs {
		parts = append(parts, fmt.Sprintf("%s tasks=%d", sub.id, sub.tasks))
		for _, i := range sub.repartitionSources {
			parts = append(parts, fmt.Sprintf("repartition %s/%d", i.Name, i.Partitions))
		}
		for _, i := range sub.changelogs {
			parts = append(parts, fmt.Sprintf("changelog %s/%d", i.Name, i.Partitions))
		}
	}
	if conf.problem != nil {
		parts = append(parts, fmt.Sprintf("status %d %s", conf.problem.code, conf.problem.detail))
	}
	for _, c := range conf.create {
		parts = append(parts, fmt.Sprintf("create %s/%d", c.Name, c.Partitions))
	}
	return strings.Join(parts, "; ")
}

// TestValidateRefusesWhatKafkaFailsOn: Kafka 4.4 answers these with UNKNOWN_SERVER_ERROR and no text.
func TestValidateRefusesWhatKafkaFailsOn(t *testing.T) {
	type topology = kmsg.StreamsGroupHeartbeatRequestTopology
	copartition := func(sources, repartition []int16) []kmsg.StreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup {
		return []kmsg.StreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup{{SourceTopics: sources, RepartitionSourceTopics: repartition}}
	}
	twice := []kmsg.TopicInfoConfig{{Key: "retention.ms", Value: "1"}, {Key: "retention.ms", Value: "2"}}
	for _, c := range []struct {
		name  string
		spoil func(*topology)
		code  int16
		text  string
	}{
		{"negative epoch", func(t *topology) { t.Epoch = -1 }, 42, "Topology epoch must not be negative, but it is -1."},
		{"subtopology twice", func(t *topology) { t.Subtopologies = append(t.Subtopologies, t.Subtopologies[0]) }, 42, "Subtopology 0 is contained twice in the topology."},
		{"source index", func(t *topology) { t.Subtopologies[0].CopartitionGroups = copartition([]int16{0, 1}, nil) }, 130,
			"Copartition group 0 of subtopology 0 refers to source topic 1, but there are 1."},
		{"negative source index", func(t *topology) { t.Subtopologies[0].CopartitionGroups = copartition([]int16{-1}, nil) }, 130,
			"Copartition group 0 of subtopology 0 refers to source topic -1, but there are 1."},
		{"repartition index", func(t *topology) { t.Subtopologies[0].CopartitionGroups = copartition(nil, []int16{0}) }, 130,
			"Copartition group 0 of subtopology 0 refers to repartition source topic 0, but there are 0."},
		{"changelog configured twice", func(t *topology) {
			t.Subtopologies[0].StateChangelogTopics = []kmsg.TopicInfo{{Topic: "s", Configs: twice}}
		}, 130,
			"Topic s has the configuration retention.ms twice."},
		{"repartition topic configured twice", func(t *topology) {
			t.Subtopologies[0].RepartitionSourceTopics = []kmsg.TopicInfo{{Topic: "r", Configs: twice}}
		}, 130,
			"Topic r has the configuration retention.ms twice."},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := joinRequest("g", "m", "p")
			req.Topology = &topology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{{SubtopologyID: "0", SourceTopics: []string{"in"}}}}
			c.spoil(req.Topology)
			if err := Validate(req); err == nil || err.Code != c.code || err.Message != c.text {
				t.Errorf("got %v, want %d %s", err, c.code, c.text)
			}
		})
	}
	req := beatRequest("g", "m", 3)
	req.ClientTags = []kmsg.StreamsGroupHeartbeatRequestClientTag{{Key: "zone", Value: "a"}, {Key: "rack"}, {Key: "zone", Value: "b"}}
	if err := Validate(req); err == nil || err.Code != 42 || err.Message != "Client tag zone is given twice." {
		t.Errorf("a tag twice: %v", err)
	}
}

// TestForeignCopartitionIndexesArePassedOver: a log may have been written by somebody who did not check them.
func TestForeignCopartitionIndexesArePassedOver(t *testing.T) {
	v := &eventlog.Topology{Subtopologies: []eventlog.Subtopology{{
		SubtopologyID: "0", SourceTopics: []string{"a"},
		CopartitionGroups: []eventlog.CopartitionGroup{{SourceTopics: []int16{0, 5, -1}, RepartitionSourceTopics: []int16{0}}, {}},
	}}}
	conf, err := configure(newTopology(v), &fakeTopics{byName: map[string]Topic{"a": namedTopic("a", 2)}})
	if err != nil || !conf.ready() || conf.subs[0].tasks != 2 {
		t.Errorf("%+v, %v", conf, err)
	}
}

// TestOldTopicsOfANewOwnerAreForgotten: a shard moves to a replica that has not seen yet that a topic grew. It refuses the tasks that it does not
// know, and once it sees what the record was written for it gives them out again, although nothing differs from the record.
func TestOldTopicsOfANewOwnerAreForgotten(t *testing.T) {
	env := func(version int64, partitions int32) Env {
		topics := &fakeTopics{version: version, byName: map[string]Topic{"in": namedTopic("in", partitions)}}
		return Env{Now: 1000, Topics: topics, Config: DefaultConfig(), APIVersion: 1}
	}
	was, is := NewGroup("g"), NewGroup("g")
	join := joinRequest("g", "m", "p")
	join.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{{SubtopologyID: "0", SourceTopics: []string{"in"}}}}
	joined, err := was.Heartbeat(env(2, 6), join)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range joined.Records {
		if err := is.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	beat := beatRequest("g", "m", is.members["m"].currentRecord().MemberEpoch)
	beat.ActiveTasks = []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{5}}}
	beat.StandbyTasks, beat.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	refused, err := is.Heartbeat(env(1, 4), beat)
	if err == nil {
		t.Fatal("a task that the replica does not know was taken")
	}
	is.ApplySoft(refused.Soft)
	r, err := is.Heartbeat(env(2, 6), beat)
	if err != nil {
		t.Fatalf("the replica knows all partitions: %v", err)
	}
	is.ApplySoft(r.Soft)
	if s := is.soft.configured.sub("0"); s == nil || s.tasks != 6 {
		t.Errorf("configured as %+v", s)
	}
}
