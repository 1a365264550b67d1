package streams

import (
	"slices"
	"strings"

	"streamkeeper/eventlog"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Describe describes an existing group, members ascending by id. Authorized operations and the topology description are
// left for the caller.
func (g *Group) Describe(env Env) kmsg.StreamsGroupDescribeResponseGroup {
	d := kmsg.NewStreamsGroupDescribeResponseGroup()
	d.Group, d.State, d.Epoch, d.AssignmentEpoch = g.id, g.State().String(), g.meta.Epoch, g.assignmentEpoch
	d.AssignorName = kmsg.StringPtr(assignorNamed(env.Config.Assignor).Name())
	d.Topology = g.describeTopology()
	d.Members = make([]kmsg.StreamsGroupDescribeResponseGroupMember, 0, len(g.members))
	for _, id := range g.memberIDs() {
		d.Members = append(d.Members, g.describeMember(g.members[id]))
	}
	return d
}

// describeTopology shows the counts that were decided if the topology is ready, else the topology as it was sent. It is
// never nil: the Java admin client fails the whole group without.
func (g *Group) describeTopology() *kmsg.StreamsGroupDescribeResponseGroupTopology {
	t := kmsg.NewStreamsGroupDescribeResponseGroupTopology()
	t.Epoch, t.Subtopologies = g.TopologyEpoch(), []kmsg.StreamsGroupDescribeResponseGroupTopologySubtopology{}
	if g.topology == nil {
		return &t
	}
	add := func(id string, sources, sinks []string, changelogs, repartitionSources []eventlog.TopicInfo) {
		s := kmsg.NewStreamsGroupDescribeResponseGroupTopologySubtopology()
		s.SubtopologyID, s.SourceTopics, s.RepartitionSinkTopics = id, sortedSet(sources), sortedSet(sinks)
		s.StateChangelogTopics, s.RepartitionSourceTopics = describeTopics(changelogs), describeTopics(repartitionSources)
		t.Subtopologies = append(t.Subtopologies, s)
	}
	if c := g.soft.configured; c != nil && c.ready() {
		for _, s := range c.subs {
			add(s.id, s.sources, s.sinks, s.changelogs, s.repartitionSources)
		}
		return &t
	}
	for _, s := range g.topology.sorted {
		add(s.SubtopologyID, s.SourceTopics, s.RepartitionSinkTopics, s.StateChangelogTopics, s.RepartitionSourceTopics)
	}
	return &t
}

func describeTopics(infos []eventlog.TopicInfo) []kmsg.TopicInfo {
	r := make([]kmsg.TopicInfo, len(infos))
	for i, info := range infos {
		r[i] = kmsg.NewTopicInfo()
		r[i].Topic, r[i].NumPartitions, r[i].ReplicationFactor = info.Name, info.Partitions, info.ReplicationFactor
		r[i].Configs = []kmsg.TopicInfoConfig{}
		configs := slices.Clone(info.TopicConfigs)
		slices.SortStableFunc(configs, compareKeys)
		for _, kv := range configs {
			c := kmsg.NewTopicInfoConfig()
			c.Key, c.Value = kv.Key, kv.Value
			r[i].Configs = append(r[i].Configs, c)
		}
	}
	slices.SortFunc(r, func(a, b kmsg.TopicInfo) int { return strings.Compare(a.Topic, b.Topic) })
	return r
}

func (g *Group) describeMember(m *member) kmsg.StreamsGroupDescribeResponseGroupMember {
	d := kmsg.NewStreamsGroupDescribeResponseGroupMember()
	d.MemberID, d.MemberEpoch, d.InstanceID, d.RackID = m.id, m.epoch, m.meta.InstanceID, m.meta.RackID
	d.ClientID, d.ClientHost, d.TopologyEpoch, d.ProcessID = m.meta.ClientID, m.meta.ClientHost, m.meta.TopologyEpoch, m.meta.ProcessID
	if e := m.meta.UserEndpoint; e != nil {
		d.UserEndpoint = &kmsg.StreamsGroupDescribeResponseGroupMemberUserEndpoint{Host: e.Host, Port: e.Port}
	}
	d.ClientTags = make([]kmsg.StreamsGroupDescribeResponseGroupMemberClientTag, len(m.meta.ClientTags))
	for i, kv := range m.meta.ClientTags {
		d.ClientTags[i].Key, d.ClientTags[i].Value = kv.Key, kv.Value
	}
	o := g.offsetsOf(m.id)
	d.TaskOffsets, d.TaskEndOffsets = wireOffsets(o.current), wireOffsets(o.end)
	d.Assignment, d.TargetAssignment = m.assigned.wire(), g.targets[m.id].wire()
	return d
}

func (a assignment) wire() kmsg.StreamsAssignment {
	return kmsg.StreamsAssignment{ActiveTasks: a.active.wire(), StandbyTasks: a.standby.wire(), WarmupTasks: a.warmup.wire()}
}
