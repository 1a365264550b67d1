package streams

import "github.com/twmb/franz-go/pkg/kmsg"

// validateSense refuses what makes no sense and would otherwise reach the log: Kafka 4.4 fails on it with an internal error and no
// text, some of it only later or while it loads the log.
func validateSense(req *kmsg.StreamsGroupHeartbeatRequest) *Error {
	if len(req.ClientTags) > 0 {
		keys := make(map[string]bool, len(req.ClientTags))
		for _, t := range req.ClientTags {
			if keys[t.Key] {
				return refuse(codeInvalidRequest, "Client tag %s is given twice.", t.Key)
			}
			keys[t.Key] = true
		}
	}
	if req.Topology == nil {
		return nil
	}
	if req.Topology.Epoch < 0 {
		return refuse(codeInvalidRequest, "Topology epoch must not be negative, but it is %d.", req.Topology.Epoch)
	}
	ids := map[string]bool{}
	for i := range req.Topology.Subtopologies {
		s := &req.Topology.Subtopologies[i]
		if ids[s.SubtopologyID] {
			return refuse(codeInvalidRequest, "Subtopology %s is contained twice in the topology.", s.SubtopologyID)
		}
		ids[s.SubtopologyID] = true
		if err := validateCopartition(s); err != nil {
			return err
		}
		for _, list := range [...][]kmsg.TopicInfo{s.StateChangelogTopics, s.RepartitionSourceTopics} {
			if err := validateConfigs(list); err != nil {
				return err
			}
		}
	}
	return nil
}

func validateCopartition(s *kmsg.StreamsGroupHeartbeatRequestTopologySubtopology) *Error {
	const text = "Copartition group %d of subtopology %s refers to %s topic %d, but there are %d."
	for n, g := range s.CopartitionGroups {
		for _, i := range g.SourceTopics {
			if i < 0 || int(i) >= len(s.SourceTopics) {
				return refuse(codeStreamsInvalidTopology, text, n, s.SubtopologyID, "source", i, len(s.SourceTopics))
			}
		}
		for _, i := range g.RepartitionSourceTopics {
			if i < 0 || int(i) >= len(s.RepartitionSourceTopics) {
				return refuse(codeStreamsInvalidTopology, text, n, s.SubtopologyID, "repartition source", i, len(s.RepartitionSourceTopics))
			}
		}
	}
	return nil
}

func validateConfigs(list []kmsg.TopicInfo) *Error {
	for _, t := range list {
		seen := map[string]bool{}
		for _, c := range t.Configs {
			if seen[c.Key] {
				return refuse(codeStreamsInvalidTopology, "Topic %s has the configuration %s twice.", t.Topic, c.Key)
			}
			seen[c.Key] = true
		}
	}
	return nil
}
