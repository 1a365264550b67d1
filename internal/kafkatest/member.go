package kafkatest

import "github.com/twmb/franz-go/pkg/kmsg"

// Member makes the requests of one member of a streams group, for tests that send them by hand. Its topology is one subtopology, "0", that reads
// one topic. Nothing in it remembers: whoever uses it keeps the epoch, chooses whom to ask (Ask, or a connection of its own), and decides what
// a refusal (Refusal) means.
type Member struct {
	Group, ID string
	Topic     string // what its topology reads, and of what it commits offsets
	Epoch     int32  // the member epoch of the last answer; 0 joins, -1 leaves
	Version   int16  // of StreamsGroupHeartbeat: 0, or 1 for a client that knows of topology descriptions (KIP-1331)
}

// Subtopology is that of a Member's tasks.
const Subtopology = "0"

// memberRebalanceTimeoutMillis is far longer than a test waits for a member to give a task back.
const memberRebalanceTimeoutMillis = 60_000

// Heartbeat is a heartbeat that says no more than it has to: at epoch 0 it joins, at any other there is nothing new.
func (m Member) Heartbeat() *kmsg.StreamsGroupHeartbeatRequest {
	if m.Epoch == 0 {
		return m.Owning()
	}
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.MemberEpoch = m.Version, m.Group, m.ID, m.Epoch
	req.RebalanceTimeoutMillis, req.EndpointInformationEpoch = -1, -1 // not said
	return req
}

// Owning is a heartbeat that tells the active tasks of the member, by partition. At epoch 0 it joins.
func (m Member) Owning(partitions ...int32) *kmsg.StreamsGroupHeartbeatRequest {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.MemberEpoch = m.Version, m.Group, m.ID, m.Epoch
	req.RebalanceTimeoutMillis, req.EndpointInformationEpoch = -1, -1
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	if len(partitions) > 0 {
		req.ActiveTasks = append(req.ActiveTasks, kmsg.TaskIDs{SubtopologyID: Subtopology, Partitions: partitions})
	}
	if m.Epoch == 0 {
		req.RebalanceTimeoutMillis, req.ProcessID = memberRebalanceTimeoutMillis, kmsg.StringPtr("process-"+m.ID)
		sub := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
		sub.SubtopologyID, sub.SourceTopics = Subtopology, []string{m.Topic}
		topology := kmsg.NewStreamsGroupHeartbeatRequestTopology()
		topology.Subtopologies = append(topology.Subtopologies, sub)
		req.Topology = &topology
	}
	return req
}

// Leave is the last heartbeat of a member that goes for good.
func (m Member) Leave() *kmsg.StreamsGroupHeartbeatRequest {
	m.Epoch = -1
	return m.Heartbeat()
}

// Commit commits one offset of the member's topic.
func (m Member) Commit(partition int32, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 9, m.Group, m.ID, m.Epoch
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Partition, part.Offset = partition, offset
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = m.Topic, append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	return req
}

// Fetch asks for committed offsets of the member's topic, as anybody may who names no member.
func (m Member) Fetch(partitions ...int32) *kmsg.OffsetFetchRequest {
	req := FetchAll(m.Group)
	req.Groups[0].Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: m.Topic, Partitions: partitions}}
	return req
}
