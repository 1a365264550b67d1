package streams

import (
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What stories are told with: configurations, topics, topologies, tasks.

func (s *story) setConfig() {
	if v, ok := s.arg("delay"); ok {
		s.config.InitialRebalanceDelay = s.duration(v)
	}
	if v, ok := s.arg("interval"); ok {
		s.config.AssignmentInterval = s.duration(v)
	}
	if v, ok := s.arg("tags"); ok {
		s.config.RackAwareTags = strings.Split(v, ",")
	}
	s.config.NumStandbyReplicas = int(s.int32("standbys", int32(s.config.NumStandbyReplicas)))
	s.config.MaxSize = int(s.int32("max", int32(s.config.MaxSize)))
}

func (s *story) setTopics() {
	next := map[string]Topic{}
	for _, a := range s.d.CmdArgs {
		count, incarnation, _ := strings.Cut(a.Vals[0], "#")
		n, err := strconv.Atoi(count)
		if err != nil {
			s.t.Fatalf("%s: %v", s.d.Pos, err)
		}
		t := namedTopic(a.Key, int32(n))
		if incarnation != "" {
			t.ID[15] = incarnation[0]
		}
		next[a.Key] = t
	}
	s.topics.set(next)
}

func (s *story) defineTopology() {
	t := kmsg.NewStreamsGroupHeartbeatRequestTopology()
	t.Epoch = s.int32("epoch", 0)
	for _, line := range strings.Split(strings.TrimSpace(s.d.Input), "\n") {
		t.Subtopologies = append(t.Subtopologies, s.subtopology(strings.Fields(line)))
	}
	s.topologies[s.d.CmdArgs[0].Key] = &t
}

func (s *story) subtopology(words []string) kmsg.StreamsGroupHeartbeatRequestTopologySubtopology {
	sub := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
	sub.SubtopologyID = words[0]
	info := func(spec string) kmsg.TopicInfo {
		i := kmsg.NewTopicInfo()
		name, count, _ := strings.Cut(spec, "/")
		i.Topic = name
		if count != "" {
			n, err := strconv.Atoi(count)
			if err != nil {
				s.t.Fatalf("%s: %v", s.d.Pos, err)
			}
			i.NumPartitions = int32(n)
		}
		return i
	}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "source":
			sub.SourceTopics = append(sub.SourceTopics, value)
		case "regex":
			sub.SourceTopicRegex = append(sub.SourceTopicRegex, value)
		case "sink":
			sub.RepartitionSinkTopics = append(sub.RepartitionSinkTopics, value)
		case "repartition":
			sub.RepartitionSourceTopics = append(sub.RepartitionSourceTopics, info(value))
		case "changelog":
			sub.StateChangelogTopics = append(sub.StateChangelogTopics, info(value))
		case "copartition":
			c := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup()
			for _, name := range strings.Split(value, ",") {
				if i := slices.Index(sub.SourceTopics, name); i >= 0 {
					c.SourceTopics = append(c.SourceTopics, int16(i))
				}
				if i := slices.IndexFunc(sub.RepartitionSourceTopics, func(t kmsg.TopicInfo) bool { return t.Topic == name }); i >= 0 {
					c.RepartitionSourceTopics = append(c.RepartitionSourceTopics, int16(i))
				}
			}
			sub.CopartitionGroups = append(sub.CopartitionGroups, c)
		default:
			s.t.Fatalf("%s: %s of a subtopology is not known", s.d.Pos, key)
		}
	}
	return sub
}

// tasks parses "0:0,0:1,1:3".
func (s *story) tasks(v string) (t tasks) {
	for _, w := range strings.FieldsFunc(v, func(r rune) bool { return r == ',' }) {
		sub, p, _ := strings.Cut(w, ":")
		n, err := strconv.Atoi(p)
		if err != nil {
			s.t.Fatalf("%s: %v", s.d.Pos, err)
		}
		t = append(t, task{sub: sub, partition: int32(n)})
	}
	return t.sorted()
}
