package offsets

import "github.com/twmb/franz-go/pkg/kmsg"

const (
	fetchGroupsFrom     int16 = 8 // the first version with several groups in one request
	fetchGroupErrorFrom int16 = 2 // the first version with an error that is not a partition's; also "all offsets"
)

// FetchGroups are the groups of a request in any version, in the form of version 8: below it there is one, without
// member. Topics nil is: all offsets.
func FetchGroups(req *kmsg.OffsetFetchRequest) []kmsg.OffsetFetchRequestGroup {
	if req.Version >= fetchGroupsFrom {
		return req.Groups
	}
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = req.Group
	if req.Topics != nil || req.Version < fetchGroupErrorFrom {
		g.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, 0, len(req.Topics))
	}
	for _, t := range req.Topics {
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.Partitions = t.Topic, t.Partitions
		g.Topics = append(g.Topics, gt)
	}
	return []kmsg.OffsetFetchRequestGroup{g}
}

// FetchResponse is the response to req with the answers of its groups (one, below version 8). Below version 2 an
// error of the group goes to each partition that was asked for.
func FetchResponse(req *kmsg.OffsetFetchRequest, groups []kmsg.OffsetFetchResponseGroup) *kmsg.OffsetFetchResponse {
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Version = req.Version
	if req.Version >= fetchGroupsFrom {
		resp.Groups = groups
		return resp
	}
	for _, g := range groups {
		if g.ErrorCode != 0 && req.Version < fetchGroupErrorFrom {
			g.Topics = failedTopics(FetchGroups(req)[0].Topics, g.ErrorCode)
		}
		resp.ErrorCode = g.ErrorCode
		for _, t := range g.Topics {
			rt := kmsg.NewOffsetFetchResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetFetchResponseTopicPartition()
				rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata, rp.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
	}
	return resp
}

func failedTopics(topics []kmsg.OffsetFetchRequestGroupTopic, code int16) []kmsg.OffsetFetchResponseGroupTopic {
	failed := make([]kmsg.OffsetFetchResponseGroupTopic, 0, len(topics))
	for _, t := range topics {
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, noOffset(p, code))
		}
		failed = append(failed, rt)
	}
	return failed
}

// FailFetchGroup is the answer of one group that fails as a whole. It lists no topics.
func FailFetchGroup(group string, code int16) kmsg.OffsetFetchResponseGroup {
	g := kmsg.NewOffsetFetchResponseGroup()
	g.Group, g.ErrorCode = group, code
	return g
}

// FailFetch is the response that fails every group of the request.
func FailFetch(req *kmsg.OffsetFetchRequest, code int16) *kmsg.OffsetFetchResponse {
	var groups []kmsg.OffsetFetchResponseGroup
	for _, g := range FetchGroups(req) {
		groups = append(groups, FailFetchGroup(g.Group, code))
	}
	return FetchResponse(req, groups)
}
