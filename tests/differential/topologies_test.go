package differential

import (
	"encoding/binary"

	"streamkeeper/shard/streams"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// topic is a topic whose id says which incarnation of the name it is.
func topic(name string, partitions int32, incarnation byte) streams.Topic {
	t := streams.Topic{Name: name, Partitions: partitions}
	binary.BigEndian.PutUint32(t.ID[:], uint32(len(name))<<16|uint32(name[0]))
	copy(t.ID[4:14], name)
	t.ID[15] = incarnation
	return t
}

func info(name string, partitions int32) kmsg.TopicInfo {
	t := kmsg.NewTopicInfo()
	t.Topic, t.NumPartitions, t.Configs = name, partitions, []kmsg.TopicInfoConfig{}
	return t
}

func infoWith(name string, partitions int32, replication int16, key, value string) kmsg.TopicInfo {
	t := info(name, partitions)
	t.ReplicationFactor = replication
	c := kmsg.NewTopicInfoConfig()
	c.Key, c.Value = key, value
	t.Configs = append(t.Configs, c)
	return t
}

func infos(t ...kmsg.TopicInfo) []kmsg.TopicInfo { return t }

func copartition(sources, repartition []int16) kmsg.StreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup {
	g := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup()
	g.SourceTopics, g.RepartitionSourceTopics = sources, repartition
	return g
}

type (
	subtopology      = kmsg.StreamsGroupHeartbeatRequestTopologySubtopology
	copartitionGroup = kmsg.StreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup
)

func topology(epoch int32, subs ...subtopology) *kmsg.StreamsGroupHeartbeatRequestTopology {
	t := kmsg.NewStreamsGroupHeartbeatRequestTopology()
	t.Epoch, t.Subtopologies = epoch, subs
	return &t
}

// topologyCase is a topology with the topics it works with.
type topologyCase struct {
	name     string
	subs     []subtopology
	sources  []string // topics that the user makes
	internal []streams.Topic
}

// GoString is what rapid prints.
func (c topologyCase) GoString() string { return c.name }

// topologyCases are what random histories choose from. The ids of subtopologies are single digits: hash maps of Java
// iterate those in ascending order.
var topologyCases = []topologyCase{
	{name: "stateless", subs: []subtopology{{SubtopologyID: "0", SourceTopics: []string{"a"}}}, sources: []string{"a"}},
	{name: "two", subs: []subtopology{{SubtopologyID: "0", SourceTopics: []string{"a"}}, {SubtopologyID: "1", SourceTopics: []string{"c", "b"}}}, sources: []string{"a", "b", "c"}},
	{
		name: "store", sources: []string{"a"},
		subs:     []subtopology{{SubtopologyID: "0", SourceTopics: []string{"a"}, StateChangelogTopics: infos(infoWith("g-s-changelog", 0, 2, "cleanup.policy", "compact"))}},
		internal: []streams.Topic{topic("g-s-changelog", 3, 1)},
	},
	{
		name: "count", sources: []string{"a"},
		subs: []subtopology{
			{SubtopologyID: "0", SourceTopics: []string{"a"}, RepartitionSinkTopics: []string{"g-r"}},
			{SubtopologyID: "1", RepartitionSourceTopics: infos(info("g-r", 0)), StateChangelogTopics: infos(info("g-s-changelog", 0))},
		},
		internal: []streams.Topic{topic("g-r", 3, 1), topic("g-s-changelog", 3, 1)},
	},
	{
		name: "fixed", sources: []string{"a", "b"},
		subs: []subtopology{
			{SubtopologyID: "0", SourceTopics: []string{"a"}, RepartitionSinkTopics: []string{"g-r", "g-q"}},
			{SubtopologyID: "1", SourceTopics: []string{"b"}, RepartitionSourceTopics: infos(info("g-r", 2)), StateChangelogTopics: infos(info("g-s-changelog", 0), info("g-t-changelog", 0))},
			{SubtopologyID: "2", RepartitionSourceTopics: infos(info("g-q", 0))},
		},
		internal: []streams.Topic{topic("g-r", 2, 1), topic("g-s-changelog", 3, 1), topic("g-t-changelog", 3, 1), topic("g-q", 3, 1)},
	},
	{
		name: "join", sources: []string{"a", "b"},
		subs: []subtopology{{
			SubtopologyID: "0", SourceTopics: []string{"a", "b"}, StateChangelogTopics: infos(info("g-s-changelog", 0)),
			CopartitionGroups: []copartitionGroup{copartition([]int16{0, 1}, nil)},
		}},
		internal: []streams.Topic{topic("g-s-changelog", 3, 1)},
	},
	{
		name: "copartitioned", sources: []string{"a", "b"},
		subs: []subtopology{
			{SubtopologyID: "0", SourceTopics: []string{"a"}, RepartitionSinkTopics: []string{"g-r"}},
			{SubtopologyID: "1", SourceTopics: []string{"b"}, RepartitionSourceTopics: infos(info("g-r", 0)), CopartitionGroups: []copartitionGroup{copartition([]int16{0}, []int16{0})}},
		},
		internal: []streams.Topic{topic("g-r", 3, 1)},
	},
	{
		name: "copartitioned and fixed", sources: []string{"a", "b"},
		subs: []subtopology{
			{SubtopologyID: "0", SourceTopics: []string{"a"}, RepartitionSinkTopics: []string{"g-r", "g-q"}},
			{SubtopologyID: "1", RepartitionSourceTopics: infos(info("g-r", 3), info("g-q", 0)), CopartitionGroups: []copartitionGroup{copartition(nil, []int16{0, 1})}},
			{SubtopologyID: "2", SourceTopics: []string{"b"}},
		},
		internal: []streams.Topic{topic("g-r", 3, 1), topic("g-q", 3, 1)},
	},
	{
		name: "loop", sources: []string{"a"},
		subs: []subtopology{
			{SubtopologyID: "0", RepartitionSourceTopics: infos(info("g-q", 0)), RepartitionSinkTopics: []string{"g-r"}},
			{SubtopologyID: "1", RepartitionSourceTopics: infos(info("g-r", 0)), RepartitionSinkTopics: []string{"g-q"}},
		},
	},
	{
		name: "no sink", sources: []string{"a"},
		subs: []subtopology{{SubtopologyID: "0", SourceTopics: []string{"a"}, RepartitionSourceTopics: infos(info("g-r", 0))}},
	},
	{
		name: "no source", sources: []string{"a"},
		subs: []subtopology{{SubtopologyID: "0", SourceTopics: []string{"a"}}, {SubtopologyID: "1", StateChangelogTopics: infos(info("g-s-changelog", 0))}},
	},
}
