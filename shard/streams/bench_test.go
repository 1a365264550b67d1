package streams

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// grown returns a settled group: members in processes of two threads, subtopologies with a store over topics of the given partitions.
func grown(tb testing.TB, members, subtopologies int, partitions int32) (*Group, Env) {
	tb.Helper()
	topics := map[string]Topic{}
	topo := kmsg.NewStreamsGroupHeartbeatRequestTopology()
	for i := range subtopologies {
		s := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
		s.SubtopologyID, s.SourceTopics = fmt.Sprint(i), []string{fmt.Sprintf("in-%d", i)}
		changelog := kmsg.NewTopicInfo()
		changelog.Topic = fmt.Sprintf("g-store-%d-changelog", i)
		s.StateChangelogTopics = []kmsg.TopicInfo{changelog}
		topo.Subtopologies = append(topo.Subtopologies, s)
		topics[s.SourceTopics[0]] = namedTopic(s.SourceTopics[0], partitions)
		topics[changelog.Topic] = namedTopic(changelog.Topic, partitions)
	}
	cfg := DefaultConfig()
	cfg.InitialRebalanceDelay, cfg.AssignmentInterval = 0, 0
	env := Env{Now: 1_000_000, Topics: &fakeTopics{byName: topics, version: 1}, Config: cfg, APIVersion: 1, ClientID: "client", ClientHost: "/10.0.0.1"}
	g := NewGroup("g")
	epochs := make([]int32, members)
	send := func(req *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
		r, err := g.Heartbeat(env, req)
		if err != nil {
			tb.Fatal(err)
		}
		for _, rec := range r.Records {
			if err := g.Apply(rec); err != nil {
				tb.Fatal(err)
			}
		}
		g.ApplySoft(r.Soft)
		return r.Response
	}
	for i := range members {
		req := joinRequest("g", memberName(i), fmt.Sprintf("process-%d", i/2))
		req.Topology = &topo
		epochs[i] = send(req).MemberEpoch
	}
	for range 4 { // revoke, release, take over
		for i := range members {
			req := beatRequest("g", memberName(i), epochs[i])
			m := g.members[memberName(i)]
			req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = m.assigned.active.wire(), m.assigned.standby.wire(), m.assigned.warmup.wire()
			epochs[i] = send(req).MemberEpoch
		}
	}
	if g.State() != StateStable {
		tb.Fatalf("not settled:\n%s", g)
	}
	return g, env
}

func memberName(i int) string { return fmt.Sprintf("member-%04d", i) }

func joinRequest(group, member, process string) *kmsg.StreamsGroupHeartbeatRequest {
	req := beatRequest(group, member, epochJoin)
	req.RebalanceTimeoutMillis = 300_000
	req.ProcessID = &process
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	return req
}

func beatRequest(group, member string, epoch int32) *kmsg.StreamsGroupHeartbeatRequest {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.MemberEpoch, req.EndpointInformationEpoch = 1, group, member, epoch, 0
	return req
}

// BenchmarkSteadyHeartbeat is what a group costs that has nothing to do: by far the most frequent request.
func BenchmarkSteadyHeartbeat(b *testing.B) {
	for _, members := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			g, env := grown(b, members, 4, 64)
			req := beatRequest("g", memberName(members/2), g.Epoch())
			b.ReportAllocs()
			for b.Loop() {
				r, err := g.Heartbeat(env, req)
				if err != nil || len(r.Records) > 0 {
					b.Fatal(r, err)
				}
				g.ApplySoft(r.Soft)
			}
		})
	}
}

// BenchmarkJoin is one more member: a target for everybody.
func BenchmarkJoin(b *testing.B) {
	for _, members := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			g, env := grown(b, members, 4, 64)
			req := joinRequest("g", "newcomer", "process-new")
			topo := kmsg.NewStreamsGroupHeartbeatRequestTopology()
			topo.Epoch = -1 // older than the group's: not compared
			req.Topology = &topo
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Heartbeat(env, req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHydrate is the replay of a settled group's records.
func BenchmarkHydrate(b *testing.B) {
	g, _ := grown(b, 16, 4, 64)
	records := storedRecords(g)
	b.ReportAllocs()
	for b.Loop() {
		h := NewGroup("g")
		for _, r := range records {
			if err := h.Apply(r); err != nil {
				b.Fatal(err)
			}
		}
	}
}
