package offsets

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
)

// Delete answers an OffsetDelete of a group that exists, in any state. subscribed says that the group has members and
// reads the topic: its offsets can't be deleted then (GROUP_SUBSCRIBED_TO_TOPIC). judge gives the code of a partition
// that is refused for another reason (unknown, not authorized), 0 for the rest; nil is: none. A partition without an
// offset is deleted successfully and without a record.
func Delete(view View, req *kmsg.OffsetDeleteRequest, subscribed func(topic string) bool, judge func(topic string, partition int32) int16) (*kmsg.OffsetDeleteResponse, []eventlog.Record) {
	resp := FailDelete(req, 0)
	open := openSet(view)
	var recs []eventlog.Record
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetDeleteResponseTopic()
		rt.Topic = t.Topic
		sub := subscribed(t.Topic)
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetDeleteResponseTopicPartition()
			rp.Partition = p.Partition
			if judge != nil {
				rp.ErrorCode = judge(t.Topic, p.Partition)
			}
			if rp.ErrorCode == 0 && sub {
				rp.ErrorCode = kerr.GroupSubscribedToTopic.Code
			}
			if rp.ErrorCode == 0 {
				_, committed := view.Get(t.Topic, p.Partition)
				if committed || open[TopicPartition{t.Topic, p.Partition}] {
					recs = append(recs, eventlog.Record{Key: offsetKey(req.Group, t.Topic, p.Partition)})
				}
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, recs
}

// FailDelete is the response that fails the whole request; it lists no topics.
func FailDelete(req *kmsg.OffsetDeleteRequest, code int16) *kmsg.OffsetDeleteResponse {
	resp := kmsg.NewPtrOffsetDeleteResponse()
	resp.Version, resp.ErrorCode = req.Version, code
	return resp
}

// Tombstones removes all offsets of a group that is deleted: one for each committed offset, and one for each
// partition with an open transaction, so that its commit finds nothing to settle. Ascending by topic and partition.
func Tombstones(view View, group string) []eventlog.Record {
	tps := slices.Collect(view.OpenAll())
	for tp := range view.All() {
		tps = append(tps, tp)
	}
	return tombstones(group, tps)
}

// TopicRef names a topic, and which topic of that name where its id is known (zero: not).
type TopicRef struct {
	Name string
	ID   [16]byte
}

// TopicsDeleted removes the group's offsets of topics that were deleted (OffsetMetadataManager.onTopicsDeleted of Kafka 4.4). gone says
// whether the topic that an offset names is; an offset without a topic id asks with none. What was committed at before (ms since 1970) or later stays: since gone
// was found out the topic may have been made again. An open transaction of which nothing is committed yet asks without an id, too.
func TopicsDeleted(view View, group string, gone func(TopicRef) bool, before int64) []eventlog.Record {
	var tps []TopicPartition
	for tp := range view.OpenAll() {
		if _, ok := view.Get(tp.Topic, tp.Partition); !ok && gone(TopicRef{Name: tp.Topic}) {
			tps = append(tps, tp)
		}
	}
	for tp, c := range view.All() {
		if c.CommitTimestamp < before && gone(TopicRef{tp.Topic, c.TopicID}) {
			tps = append(tps, tp)
		}
	}
	return tombstones(group, tps)
}

func tombstones(group string, tps []TopicPartition) []eventlog.Record {
	slices.SortFunc(tps, compareTP)
	tps = slices.Compact(tps)
	recs := make([]eventlog.Record, 0, len(tps))
	for _, tp := range tps {
		recs = append(recs, eventlog.Record{Key: offsetKey(group, tp.Topic, tp.Partition)})
	}
	return recs
}
