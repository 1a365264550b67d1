package streams

import (
	"slices"
	"strings"

	"streamkeeper/eventlog"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// topology is a type-23 value with what is looked up in it. It is never modified.
type topology struct {
	value *eventlog.Topology
	// sorted are the subtopologies ascending by id, the order in which everything is computed.
	sorted []*eventlog.Subtopology
	// required are the topics that assignment depends on: sources, repartition sources and changelogs, each once, in
	// the order in which they are first named.
	required []string
	// reads maps each source and repartition source topic to the subtopology that reads it.
	reads map[string]string
}

func newTopology(v *eventlog.Topology) *topology {
	t := &topology{value: v, reads: map[string]string{}}
	seen := map[string]bool{}
	need := func(name string) {
		if !seen[name] {
			seen[name] = true
			t.required = append(t.required, name)
		}
	}
	for i := range v.Subtopologies {
		s := &v.Subtopologies[i]
		t.sorted = append(t.sorted, s)
		for _, name := range s.SourceTopics {
			need(name)
			t.reads[name] = s.SubtopologyID
		}
		for _, info := range s.RepartitionSourceTopics {
			need(info.Name)
			t.reads[info.Name] = s.SubtopologyID
		}
		for _, info := range s.StateChangelogTopics {
			need(info.Name)
		}
	}
	slices.SortStableFunc(t.sorted, func(a, b *eventlog.Subtopology) int { return strings.Compare(a.SubtopologyID, b.SubtopologyID) })
	return t
}

// hash is the metadata hash over the required topics that exist.
func (t *topology) hash(topics Topics) int64 {
	have := make([]Topic, 0, len(t.required))
	for _, name := range t.required {
		if info, ok := topics.Topic(name); ok {
			have = append(have, info)
		}
	}
	return MetadataHash(have)
}

// topologyOfRequest copies the lists of a request, unsorted, into the value of a record.
func topologyOfRequest(r *kmsg.StreamsGroupHeartbeatRequestTopology) *eventlog.Topology {
	v := &eventlog.Topology{Epoch: r.Epoch, Subtopologies: make([]eventlog.Subtopology, len(r.Subtopologies))}
	for i, s := range r.Subtopologies {
		v.Subtopologies[i] = eventlog.Subtopology{
			SubtopologyID: s.SubtopologyID, SourceTopics: slices.Clone(s.SourceTopics), SourceTopicRegex: slices.Clone(s.SourceTopicRegex),
			StateChangelogTopics: topicInfos(s.StateChangelogTopics), RepartitionSinkTopics: slices.Clone(s.RepartitionSinkTopics),
			RepartitionSourceTopics: topicInfos(s.RepartitionSourceTopics),
		}
		for _, c := range s.CopartitionGroups {
			v.Subtopologies[i].CopartitionGroups = append(v.Subtopologies[i].CopartitionGroups, eventlog.CopartitionGroup{
				SourceTopics: slices.Clone(c.SourceTopics), SourceTopicRegex: slices.Clone(c.SourceTopicRegex),
				RepartitionSourceTopics: slices.Clone(c.RepartitionSourceTopics),
			})
		}
	}
	return v
}

func topicInfos(list []kmsg.TopicInfo) []eventlog.TopicInfo {
	r := make([]eventlog.TopicInfo, len(list))
	for i, t := range list {
		r[i] = eventlog.TopicInfo{Name: t.Topic, Partitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor}
		for _, c := range t.Configs {
			r[i].TopicConfigs = append(r[i].TopicConfigs, eventlog.KeyValue{Key: c.Key, Value: c.Value})
		}
	}
	return r
}

// equalTopologies compares the epoch and, by id, every field of the subtopologies, the order inside lists included
// (StreamsTopology.equals of Kafka 4.4); the order of the subtopologies themselves does not matter.
func equalTopologies(a, b *topology) bool {
	if a.value.Epoch != b.value.Epoch || len(a.sorted) != len(b.sorted) {
		return false
	}
	for i := range a.sorted {
		if !equalSubtopologies(a.sorted[i], b.sorted[i]) {
			return false
		}
	}
	return true
}

func equalSubtopologies(a, b *eventlog.Subtopology) bool {
	infos := func(x, y []eventlog.TopicInfo) bool {
		return slices.EqualFunc(x, y, func(p, q eventlog.TopicInfo) bool {
			return p.Name == q.Name && p.Partitions == q.Partitions && p.ReplicationFactor == q.ReplicationFactor && slices.Equal(p.TopicConfigs, q.TopicConfigs)
		})
	}
	return a.SubtopologyID == b.SubtopologyID && slices.Equal(a.SourceTopics, b.SourceTopics) && slices.Equal(a.SourceTopicRegex, b.SourceTopicRegex) &&
		infos(a.StateChangelogTopics, b.StateChangelogTopics) && slices.Equal(a.RepartitionSinkTopics, b.RepartitionSinkTopics) &&
		infos(a.RepartitionSourceTopics, b.RepartitionSourceTopics) &&
		slices.EqualFunc(a.CopartitionGroups, b.CopartitionGroups, func(p, q eventlog.CopartitionGroup) bool {
			return slices.Equal(p.SourceTopics, q.SourceTopics) && slices.Equal(p.SourceTopicRegex, q.SourceTopicRegex) && slices.Equal(p.RepartitionSourceTopics, q.RepartitionSourceTopics)
		})
}
