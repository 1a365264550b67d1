package coordinator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"streamkeeper/eventlog"
	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

// kafkaInternalTopics are the topics that Kafka 4.4 counts as internal (Topic.INTERNAL_TOPICS).
var kafkaInternalTopics = []string{"__consumer_offsets", "__transaction_state", "__share_group_state"}

// topicNameMax is the longest legal topic name, in characters.
const topicNameMax = 249

// Heartbeat answers StreamsGroupHeartbeat: the gate of KafkaApis (KIP-1071), the checks that need no state, topics made known,
// then the shard.
func (c *Coordinator) Heartbeat(ctx context.Context, caller Caller, r *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("group", r.Group),
		attribute.String("member", r.MemberID), attribute.Int("member.epoch", int(r.MemberEpoch)))
	resp, err := c.heartbeat(ctx, caller, r)
	if err == nil {
		resp.SetVersion(r.Version)
		return resp
	}
	f := c.failed("StreamsGroupHeartbeat", r.Group, err, "member", r.MemberID, "epoch", r.MemberEpoch)
	resp = r.ResponseKind().(*kmsg.StreamsGroupHeartbeatResponse)
	resp.Status = []kmsg.StreamsGroupHeartbeatResponseStatus{} // empty, not null: Kafka's default
	resp.ErrorCode, resp.ErrorMessage = f.Code, f.text()
	return resp
}

func (c *Coordinator) heartbeat(ctx context.Context, caller Caller, r *kmsg.StreamsGroupHeartbeatRequest) (*kmsg.StreamsGroupHeartbeatResponse, error) {
	required := requiredTopics(r.Topology)
	if err := c.checkNames(required); err != nil {
		return nil, err
	}
	if err := streams.Validate(r); err != nil {
		return nil, err
	}
	if !possibleGroup(r.Group) {
		return nil, impossibleGroup
	}
	classic, asked := false, false
	if r.MemberEpoch == 0 {
		var err error
		if classic, asked, err = c.checkForeign(ctx, r.Group); err != nil {
			return nil, err
		}
	}
	partition := c.shards.Partition(r.Group)
	generation, err := c.owned(partition)
	if err != nil {
		return nil, c.redirect(ctx, r.Group, err)
	}
	names, err := c.knowTopics(ctx, r, generation, required)
	if err != nil {
		return nil, err
	}
	result, err := c.beat(ctx, caller, r, classic, asked)
	if errors.Is(err, shard.ErrGroupGone) && c.barriers.wait(ctx, partition) == nil { // then it is not known any more: once more, with what the cluster says
		if classic, asked, err = c.checkForeign(ctx, r.Group); err != nil {
			return nil, err
		}
		result, err = c.beat(ctx, caller, r, classic, asked)
	}
	if err != nil {
		if err = c.redirect(ctx, r.Group, err); r.MemberEpoch != 0 { // of a join this was asked before
			err = c.foreignToo(ctx, r.Group, err)
		}
		return nil, err
	}
	if len(names) > 0 {
		c.topics.Pin(c.cfg.Now(), r.Group, generation, names)
	}
	c.solicit(ctx, r.Group, result)
	return c.createTopics(ctx, r.Group, result), nil
}

// possibleGroup says that a record key can hold the group id, and that the cluster can be asked about it: Kafka's parser ends the
// connection or changes the name where it is not so.
func possibleGroup(group string) bool {
	return len(group) <= eventlog.StringBytesMax && utf8.ValidString(group)
}

var impossibleGroup = &streams.Error{Code: codeInvalidGroup, Message: "The group id is longer than 32767 bytes or no valid UTF-8."}

// beat hands the heartbeat to the shard; classic says that the group is to be made of a classic one, asked that the cluster was asked for it.
func (c *Coordinator) beat(ctx context.Context, caller Caller, r *kmsg.StreamsGroupHeartbeatRequest, classic, asked bool) (shard.HeartbeatResult, error) {
	if classic {
		return c.takenOver(ctx, caller, r)
	}
	writing, cancel := c.writing(ctx)
	defer cancel()
	who := caller.shard()
	who.Unasked = !asked
	return c.shards.Heartbeat(writing, who, r.Version, r)
}

// createTopics has the internal topics created that the group lacks, and tells the member what stands in the way. The answer does not
// wait for it: a heartbeat after the topics have appeared finds the group ready.
func (c *Coordinator) createTopics(ctx context.Context, group string, result shard.HeartbeatResult) *kmsg.StreamsGroupHeartbeatResponse {
	resp := result.Response
	if len(result.Create) > 0 {
		interval := time.Duration(resp.HeartbeatIntervalMillis) * time.Millisecond // the one that is in effect for this group
		c.creation.want(ctx, group, result.Create, backOffHeartbeats*interval)
		resp.Status = c.creation.explain(resp.Status, result.Create)
	}
	return resp
}

// owned says under which claim this replica serves a partition. What a handler is told of topics is read before it runs, and is
// only known to be whole where the shard is served already: so a request that comes while it is being taken over does
// not go to the shard.
func (c *Coordinator) owned(partition int32) (generation int64, err error) {
	serving := c.shards.Owns(partition)
	o, known := c.shards.Owner(partition)
	switch {
	case serving:
		return o.Generation, nil
	case !known || o.Released:
		return 0, shard.ErrUnavailable
	case o.NodeID == c.cfg.Node.ID:
		return 0, shard.ErrLoading
	}
	return 0, shard.ErrNotOwner
}

// knowTopics makes sure that the handler sees the topics of the group in the snapshot: those of the topology that the request
// brings, and those of the group's stored topology where nobody has asked for them under this claim. A handler that
// misses an existing topic would take all tasks away, so the latter are not missing on the word of one broker. It returns the
// topics that are to be pinned if the request is accepted.
func (c *Coordinator) knowTopics(ctx context.Context, r *kmsg.StreamsGroupHeartbeatRequest, generation int64, required []string) ([]string, error) {
	if r.MemberEpoch < 0 {
		return nil, nil // a leave computes no tasks
	}
	pinned := c.topics.Touch(c.cfg.Now(), r.Group, generation)
	if pinned && r.Topology == nil {
		return nil, nil
	}
	var stored []string
	if !pinned && c.cfg.RequiredTopics != nil {
		var err error
		if stored, err = c.cfg.RequiredTopics(r.Group); err != nil {
			return nil, err
		}
	}
	return append(slices.Clone(required), stored...), c.topics.EnsureStored(ctx, required, stored)
}

// requiredTopics are all topics that a topology names, each once, in the order in which it names them (KafkaApis).
func requiredTopics(t *kmsg.StreamsGroupHeartbeatRequestTopology) []string {
	if t == nil {
		return nil
	}
	var names []string
	seen := map[string]struct{}{}
	add := func(name string) {
		if _, ok := seen[name]; !ok {
			seen[name] = struct{}{}
			names = append(names, name)
		}
	}
	for i := range t.Subtopologies {
		s := &t.Subtopologies[i]
		for _, name := range s.SourceTopics {
			add(name)
		}
		for _, name := range s.RepartitionSinkTopics {
			add(name)
		}
		for j := range s.RepartitionSourceTopics {
			add(s.RepartitionSourceTopics[j].Topic)
		}
		for j := range s.StateChangelogTopics {
			add(s.StateChangelogTopics[j].Topic)
		}
	}
	return names
}

// checkNames refuses a topology over internal or illegal topics (KafkaApis, before the coordinator is asked).
func (c *Coordinator) checkNames(names []string) error {
	var internal, illegal []string
	for _, name := range names {
		if slices.Contains(kafkaInternalTopics, name) || name == c.cfg.LogTopic || name == c.cfg.DescriptionTopic && name != "" {
			internal = append(internal, name)
		}
		if !legalTopicName(name) {
			illegal = append(illegal, name)
		}
	}
	if len(internal) > 0 {
		return &streams.Error{Code: codeBadTopology,
			Message: "Use of Kafka internal topics " + strings.Join(internal, ",") + " in a Kafka Streams topology is prohibited."}
	}
	if len(illegal) > 0 {
		return &streams.Error{Code: codeBadTopology,
			Message: "Topic names " + strings.Join(illegal, ",") + " are not valid topic names."}
	}
	return nil
}

// legalTopicName is Kafka's rule (org.apache.kafka.common.internals.Topic).
func legalTopicName(name string) bool {
	if name == "" || name == "." || name == ".." || len(name) > topicNameMax {
		return false
	}
	for i := range len(name) {
		switch b := name[i]; {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '.', b == '_', b == '-':
		default:
			return false
		}
	}
	return true
}
