package coordinator

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"streamkeeper/shard/offsets"
)

// topicIDsFrom is the first version of OffsetCommit and OffsetFetch that names topics by id only.
const topicIDsFrom int16 = 10

// OffsetCommit answers OffsetCommit for one group of ours. Topics are resolved before the group is asked, as in KafkaApis:
// an unknown id is UNKNOWN_TOPIC_ID, an unknown name or partition UNKNOWN_TOPIC_OR_PARTITION, each for its partitions alone.
func (c *Coordinator) OffsetCommit(ctx context.Context, _ Caller, r *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitResponse {
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("group", r.Group),
		attribute.String("member", r.MemberID), attribute.Int("member.epoch", int(r.Generation)))
	names := make([]string, 0, len(r.Topics))
	ids := make([][16]byte, 0, len(r.Topics))
	for i := range r.Topics {
		if r.Version >= topicIDsFrom {
			ids = append(ids, r.Topics[i].TopicID)
		} else {
			names = append(names, r.Topics[i].Topic)
		}
	}
	if err := c.topics.Ensure(ctx, names, ids); err != nil {
		return offsets.FailCommit(r, c.failed("OffsetCommit", r.Group, err, "member", r.MemberID, "epoch", r.Generation).Code)
	}
	commit := offsets.NewCommit(r, func(name string, id [16]byte) (offsets.Topic, int16) {
		t, ok := c.topics.Lookup(name)
		code := codeNoTopic
		if r.Version >= topicIDsFrom {
			t, ok = c.topics.LookupID(id)
			code = codeNoTopicID
		}
		if !ok {
			return offsets.Topic{}, code
		}
		return offsets.Topic{Name: t.Name, ID: t.ID, Partitions: t.Partitions}, 0
	})
	if commit.Decided() {
		return commit.Response()
	}
	ctx, cancel := c.writing(ctx)
	defer cancel()
	resp, err := c.shards.Commit(ctx, commit, r.MemberID, r.Generation, r.InstanceID)
	if err != nil {
		return commit.Fail(c.failed("OffsetCommit", r.Group, err, "member", r.MemberID, "epoch", r.Generation).Code)
	}
	resp.SetVersion(r.Version)
	return resp
}

// OffsetFetch answers OffsetFetch in every version for groups of ours, each independently of the others.
func (c *Coordinator) OffsetFetch(ctx context.Context, _ Caller, r *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchResponse {
	groups := offsets.FetchGroups(r)
	if len(groups) == 1 {
		trace.SpanFromContext(ctx).SetAttributes(attribute.String("group", groups[0].Group))
	}
	if r.Version >= topicIDsFrom {
		if err := c.nameTopics(ctx, groups); err != nil {
			return offsets.FailFetch(r, c.failed("OffsetFetch", groups[0].Group, err).Code)
		}
	}
	answers := make([]kmsg.OffsetFetchResponseGroup, len(groups))
	fanout(len(groups), func(i int) {
		answers[i] = c.fetchGroup(ctx, r, &groups[i])
	})
	resp := offsets.FetchResponse(r, answers)
	resp.SetVersion(r.Version)
	return resp
}

func (c *Coordinator) fetchGroup(ctx context.Context, r *kmsg.OffsetFetchRequest, g *kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	writing, cancel := c.writing(ctx)
	answer, err := c.shards.Fetch(writing, g, r.RequireStable)
	cancel()
	if err != nil {
		return offsets.FailFetchGroup(g.Group, c.report(fetchFailureOf(err, r.RequireStable), "OffsetFetch", g.Group, err).Code)
	}
	if r.Version >= topicIDsFrom && g.Topics == nil {
		if err := c.nameIDs(ctx, &answer); err != nil {
			return offsets.FailFetchGroup(g.Group, c.failed("OffsetFetch", g.Group, err).Code)
		}
	}
	return answer
}

// nameTopics puts the names next to the ids of a version 10 request, where they are known.
func (c *Coordinator) nameTopics(ctx context.Context, groups []kmsg.OffsetFetchRequestGroup) error {
	var ids [][16]byte
	for i := range groups {
		for j := range groups[i].Topics {
			ids = append(ids, groups[i].Topics[j].TopicID)
		}
	}
	if err := c.topics.Ensure(ctx, nil, ids); err != nil {
		return err
	}
	for i := range groups {
		for j := range groups[i].Topics {
			t := &groups[i].Topics[j]
			if known, ok := c.topics.LookupID(t.TopicID); ok {
				t.Topic = known.Name
			}
		}
	}
	return nil
}

// nameIDs puts the ids next to the names of an answer to "all offsets" in version 10.
func (c *Coordinator) nameIDs(ctx context.Context, g *kmsg.OffsetFetchResponseGroup) error {
	names := make([]string, 0, len(g.Topics))
	for i := range g.Topics {
		names = append(names, g.Topics[i].Topic)
	}
	if err := c.topics.Ensure(ctx, names, nil); err != nil {
		return err
	}
	offsets.NameIDs(g, func(name string) ([16]byte, bool) {
		t, ok := c.topics.Lookup(name)
		return t.ID, ok
	})
	return nil
}

// OffsetDelete answers OffsetDelete for one group of ours.
func (c *Coordinator) OffsetDelete(ctx context.Context, _ Caller, r *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse {
	if r.Group == "" {
		return offsets.FailDelete(r, codeInvalidGroup)
	}
	names := make([]string, 0, len(r.Topics))
	for i := range r.Topics {
		names = append(names, r.Topics[i].Topic)
	}
	if err := c.topics.Ensure(ctx, names, nil); err != nil {
		return offsets.FailDelete(r, c.failed("OffsetDelete", r.Group, err).Code)
	}
	ctx, cancel := c.writing(ctx)
	defer cancel()
	resp, err := c.shards.DeleteOffsets(ctx, r, func(topic string, partition int32) int16 {
		if t, ok := c.topics.Lookup(topic); !ok || partition < 0 || partition >= t.Partitions {
			return codeNoTopic
		}
		return 0
	})
	if err != nil {
		return offsets.FailDelete(r, c.failed("OffsetDelete", r.Group, err).Code)
	}
	resp.SetVersion(r.Version)
	return resp
}
