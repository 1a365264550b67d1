package client

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// OffsetsOptions say how committed offsets are read.
type OffsetsOptions struct {
	// RequireStable refuses a partition (UNSTABLE_OFFSET_COMMIT) while a transaction that commits an offset for it is open.
	RequireStable bool
}

// CommittedOffset is what a group has committed for a partition.
type CommittedOffset struct {
	Topic       string `json:"topic"`
	Partition   int32  `json:"partition"`
	Offset      int64  `json:"offset"`      // NoOffset where nothing is committed
	LeaderEpoch int32  `json:"leaderEpoch"` // -1 where it is not known
	Metadata    string `json:"metadata,omitempty"`
	Err         error  `json:"-"` // why there is no answer for this partition
}

// NoOffset is the offset of a partition for which nothing is committed.
const NoOffset = -1

// GroupOffsets are a group's committed offsets, sorted by topic and partition, or an error.
type GroupOffsets struct {
	Group   string
	Offsets []CommittedOffset
	Err     error
}

// offsetsBatchMax bounds the groups of one request: a group may have offsets for thousands of partitions.
const offsetsBatchMax = 100

// ListStreamsGroupOffsets reads committed offsets: of the partitions given for each group, or of all where they are nil. Groups
// come sorted by id. A group that does not exist has no offsets and no error: that is how the protocol answers. Waiting
// is as in DescribeStreamsGroups.
func (a *Admin) ListStreamsGroupOffsets(ctx context.Context, groups map[string][]TopicPartition, o OffsetsOptions) []GroupOffsets {
	ctx, cancel := bounded(ctx)
	defer cancel()
	names := slices.Sorted(maps.Keys(groups))
	offsets := make(map[string][]CommittedOffset, len(groups))
	errs := ask(ctx, a.cl, names, question{
		what: "list the offsets of", batchMax: offsetsBatchMax,
		request: func(names []string) kmsg.Request {
			req := kmsg.NewPtrOffsetFetchRequest()
			req.RequireStable = o.RequireStable
			for _, name := range names {
				g := kmsg.NewOffsetFetchRequestGroup()
				g.Group = name
				g.Topics = offsetTopics(groups[name])
				req.Groups = append(req.Groups, g)
			}
			return byName{req}
		},
		answer: func(node Node, kresp kmsg.Response, done func(string, error)) {
			resp := kresp.(*kmsg.OffsetFetchResponse)
			if resp.Version < 8 { // one group, in other fields: no node with streams groups is as old
				for _, name := range names {
					done(name, &Error{Err: kerr.UnsupportedVersion, Message: fmt.Sprintf("node %v speaks only version %d of OffsetFetch", node, resp.Version)})
				}
				return
			}
			for i := range resp.Groups {
				g := &resp.Groups[i]
				err := refusal(g.ErrorCode, nil)
				if err == nil {
					offsets[g.Group] = committedOffsets(g)
				}
				done(g.Group, err)
			}
		},
	})
	out := make([]GroupOffsets, len(names))
	for i, name := range names {
		out[i] = GroupOffsets{Group: name, Err: errs[name]}
		if errs[name] == nil {
			out[i].Offsets = offsets[name]
		}
	}
	return out
}

// byName is an OffsetFetch that names topics, which later versions do by their ids: offsets are to be found also of topics that
// are gone, as Kafka's admin client does.
type byName struct{ *kmsg.OffsetFetchRequest }

func (byName) MaxVersion() int16 { return 9 }

// offsetTopics groups partitions by topic, in order. It is nil, which asks for everything, only for nil.
func offsetTopics(partitions []TopicPartition) []kmsg.OffsetFetchRequestGroupTopic {
	if partitions == nil {
		return nil
	}
	byTopic := map[string][]int32{}
	for _, p := range partitions {
		byTopic[p.Topic] = append(byTopic[p.Topic], p.Partition)
	}
	out := []kmsg.OffsetFetchRequestGroupTopic{}
	for _, topic := range slices.Sorted(maps.Keys(byTopic)) {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic = topic
		slices.Sort(byTopic[topic])
		t.Partitions = slices.Compact(byTopic[topic])
		out = append(out, t)
	}
	return out
}

func comparePartitions(a, b TopicPartition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

func committedOffsets(g *kmsg.OffsetFetchResponseGroup) []CommittedOffset {
	var out []CommittedOffset
	for _, t := range g.Topics {
		for _, p := range t.Partitions {
			o := CommittedOffset{Topic: t.Topic, Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Err: refusal(p.ErrorCode, nil)}
			if p.Metadata != nil {
				o.Metadata = *p.Metadata
			}
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b CommittedOffset) int {
		return comparePartitions(TopicPartition{a.Topic, a.Partition}, TopicPartition{b.Topic, b.Partition})
	})
	return out
}
