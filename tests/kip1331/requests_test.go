package kip1331

import (
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// What follows makes requests, sends them to both sides, and compares.

type (
	heartbeatRequest = kmsg.StreamsGroupHeartbeatRequest
	pushRequest      = kmsg.StreamsGroupTopologyDescriptionUpdateRequest
	node             = kmsg.TopologyDescriptionNode
)

func raw(version int16, group, member string, epoch int32) kafkatest.Member {
	return kafkatest.Member{Version: version, Group: group, ID: member, Topic: sourceTopic, Epoch: epoch}
}

func heartbeat(version int16, group, member string, epoch int32) *heartbeatRequest {
	return raw(version, group, member, epoch).Heartbeat()
}

func joining(version int16, group, member string, topologyEpoch int32) *heartbeatRequest {
	r := raw(version, group, member, 0).Heartbeat()
	r.Topology.Epoch = topologyEpoch
	return r
}

// beat sends a heartbeat and returns the answer.
func (p *pair) beat(r *heartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
	p.t.Helper()
	return same[*kmsg.StreamsGroupHeartbeatResponse](p, r)
}

// joined brings a member into a group, through the heartbeat that makes it own its task, and returns its epoch.
func (p *pair) joined(version int16, group, member string) int32 {
	p.t.Helper()
	first := p.beat(joining(version, group, member, 0))
	if first.ErrorCode != 0 {
		p.fatal("join: %d", first.ErrorCode)
	}
	second := heartbeat(version, group, member, first.MemberEpoch)
	second.ActiveTasks, second.StandbyTasks, second.WarmupTasks = first.ActiveTasks, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	if second.ActiveTasks == nil {
		second.ActiveTasks = []kmsg.TaskIDs{}
	}
	return p.beat(second).MemberEpoch
}

func (p *pair) leave(group, member string) {
	p.t.Helper()
	p.beat(heartbeat(1, group, member, -1))
}

// description is a small valid one.
func description() kmsg.TopologyDescription {
	d := kmsg.NewTopologyDescription()
	d.Subtopologies = []kmsg.TopologyDescriptionSubtopology{{SubtopologyID: "0", Nodes: []node{
		{Name: "KSTREAM-SOURCE-0000000000", NodeType: 1, SourceTopics: []string{sourceTopic}, Successors: []string{"KSTREAM-MAP-0000000001"}},
		{Name: "KSTREAM-MAP-0000000001", NodeType: 2, Stores: []string{"s"}, Successors: []string{"KSTREAM-SINK-0000000002"}},
		{Name: "KSTREAM-SINK-0000000002", NodeType: 3, SinkTopic: kmsg.StringPtr("out")},
	}}}
	d.GlobalStores = []kmsg.TopologyDescriptionGlobalStore{{
		Source:    node{Name: "g-source", NodeType: 1, SourceTopics: []string{"table"}, Successors: []string{"g-processor"}},
		Processor: node{Name: "g-processor", NodeType: 2, Stores: []string{"global"}},
	}}
	return d
}

func pushing(group, member string, topologyEpoch int32) *pushRequest {
	r := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
	r.Group, r.MemberID, r.TopologyEpoch, r.TopologyDescription = group, member, topologyEpoch, description()
	return r
}

// push sends a push and returns its code.
func (p *pair) push(r *pushRequest) int16 {
	p.t.Helper()
	return same[*kmsg.StreamsGroupTopologyDescriptionUpdateResponse](p, r).ErrorCode
}

// free completes the calls of an operation that are held for a group.
func (p *pair) free(group, operation string) {
	p.t.Helper()
	name, _, _ := strings.Cut(group, ";")
	g := p.w.group("free", "free:"+name+"/"+operation)
	p.joined(1, g, "m")
	if code := p.push(pushing(g, "m", 0)); code != 0 {
		p.fatal("free: %d", code)
	}
}

func describing(version int16, with bool, groups ...string) *kmsg.StreamsGroupDescribeRequest {
	r := kmsg.NewPtrStreamsGroupDescribeRequest()
	r.Version, r.Groups, r.IncludeTopologyDescription = version, groups, with
	return r
}

// describe asks for groups with their descriptions and returns their statuses, by group.
func (p *pair) describe(groups ...string) map[string]int8 {
	p.t.Helper()
	return p.describeAs(describing(1, true, groups...))
}

func (p *pair) describeAs(r *kmsg.StreamsGroupDescribeRequest) map[string]int8 {
	p.t.Helper()
	resp := same(p, r, sortDescribed)
	statuses := map[string]int8{}
	for _, g := range resp.Groups {
		statuses[g.Group] = g.TopologyDescriptionStatus
	}
	return statuses
}

// delete deletes groups and returns the codes by group.
func (p *pair) delete(version int16, groups ...string) map[string]int16 {
	p.t.Helper()
	r := kmsg.NewPtrDeleteGroupsRequest()
	r.Version, r.Groups = version, groups
	resp := same(p, r, sortDeleted)
	codes := map[string]int16{}
	for _, g := range resp.Groups {
		codes[g.Group] = g.ErrorCode
	}
	return codes
}

// commit commits an offset of the source topic, as a member or, with epoch -1, as nobody; it returns the code.
func (p *pair) commit(group, member string, epoch int32, offset int64) int16 {
	p.t.Helper()
	return same[*kmsg.OffsetCommitResponse](p, raw(1, group, member, epoch).Commit(0, offset)).Topics[0].Partitions[0].ErrorCode
}

// committed is the group's offset of the source topic; -1 for none. A group that is gone has none in both worlds, but the embedded
// log of streamkeeper says so with an error (docs/gaps.md). Just after its end streamkeeper may have a client look its coordinator up again (docs/differences.md).
func (p *pair) committed(group string) int64 {
	p.t.Helper()
	const (
		askedMost = 100
		pause     = 20 * time.Millisecond
	)
	theirs, ours := ask[*kmsg.OffsetFetchResponse](p, raw(1, group, "", -1).Fetch(0))
	for n := 1; n < askedMost && ours.Groups[0].ErrorCode == 16; n++ {
		time.Sleep(pause) // as clients do
		theirs, ours = ask[*kmsg.OffsetFetchResponse](p, raw(1, group, "", -1).Fetch(0))
	}
	offset := func(r *kmsg.OffsetFetchResponse) int64 {
		switch g := r.Groups[0]; {
		case g.ErrorCode == 69:
			return -1
		case g.ErrorCode != 0 || len(g.Topics) != 1 || len(g.Topics[0].Partitions) != 1 || g.Topics[0].Partitions[0].ErrorCode != 0:
			p.errorf("OffsetFetch: %s", pretty(r))
			return -1
		default:
			return g.Topics[0].Partitions[0].Offset
		}
	}
	if a, b := offset(theirs), offset(ours); a != b {
		p.errorf("committed offset of %s: Kafka %d, streamkeeper %d", group, a, b)
	}
	return offset(theirs)
}
