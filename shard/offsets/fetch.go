package offsets

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
)

// Fetch answers for one group, which need not exist: what is not there is answered with offset -1 and no error.
// group.Topics nil asks for all offsets. Otherwise the caller has put the name next to the id of each topic (version
// 10); a topic with an id and no name is answered with UNKNOWN_TOPIC_ID. An offset that was committed for another
// topic of the name (both ids known and different) counts as none.
//
// With requireStable a partition with an open transaction is answered with UNSTABLE_OFFSET_COMMIT. Whether the member
// may fetch at all is the caller's to check.
func Fetch(view View, group *kmsg.OffsetFetchRequestGroup, requireStable bool) kmsg.OffsetFetchResponseGroup {
	resp := kmsg.NewOffsetFetchResponseGroup()
	resp.Group = group.Group
	var open map[TopicPartition]bool
	if requireStable {
		open = openSet(view)
	}
	if group.Topics == nil {
		resp.Topics = fetchAll(view, open)
		return resp
	}
	for _, t := range group.Topics {
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			switch {
			case t.Topic == "" && t.TopicID != [16]byte{}:
				rt.Partitions = append(rt.Partitions, noOffset(p, kerr.UnknownTopicID.Code))
			case open[TopicPartition{t.Topic, p}]:
				rt.Partitions = append(rt.Partitions, noOffset(p, kerr.UnstableOffsetCommit.Code))
			default:
				rt.Partitions = append(rt.Partitions, fetchOne(view, t.Topic, t.TopicID, p))
			}
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func fetchOne(view View, topic string, id [16]byte, p int32) kmsg.OffsetFetchResponseGroupTopicPartition {
	c, ok := view.Get(topic, p)
	if !ok || otherTopic(c.TopicID, id) {
		return noOffset(p, 0)
	}
	return someOffset(p, c)
}

// fetchAll lists every committed offset, ascending by topic and partition. A partition that has an open transaction
// and nothing else is not listed. Topic ids are left out: NameIDs fills them in.
func fetchAll(view View, open map[TopicPartition]bool) []kmsg.OffsetFetchResponseGroupTopic {
	type committed struct {
		tp TopicPartition
		c  eventlog.OffsetCommit
	}
	var all []committed
	for tp, c := range view.All() {
		all = append(all, committed{tp, c})
	}
	slices.SortFunc(all, func(a, b committed) int { return compareTP(a.tp, b.tp) })
	var topics []kmsg.OffsetFetchResponseGroupTopic
	for _, o := range all {
		if n := len(topics); n == 0 || topics[n-1].Topic != o.tp.Topic {
			topics = append(topics, kmsg.NewOffsetFetchResponseGroupTopic())
			topics[n].Topic = o.tp.Topic
		}
		t := &topics[len(topics)-1]
		if open[o.tp] {
			t.Partitions = append(t.Partitions, noOffset(o.tp.Partition, kerr.UnstableOffsetCommit.Code))
		} else {
			t.Partitions = append(t.Partitions, someOffset(o.tp.Partition, o.c))
		}
	}
	return topics
}

// NameIDs puts the ids next to the names of an answer to "all offsets" in version 10, which has ids only. Topics that
// id does not know are dropped, as in Kafka: they can't be named.
func NameIDs(group *kmsg.OffsetFetchResponseGroup, id func(name string) ([16]byte, bool)) {
	group.Topics = slices.DeleteFunc(group.Topics, func(t kmsg.OffsetFetchResponseGroupTopic) bool {
		_, ok := id(t.Topic)
		return !ok
	})
	for i := range group.Topics {
		group.Topics[i].TopicID, _ = id(group.Topics[i].Topic)
	}
}

func someOffset(p int32, c eventlog.OffsetCommit) kmsg.OffsetFetchResponseGroupTopicPartition {
	rp := noOffset(p, 0)
	rp.Offset, rp.LeaderEpoch, rp.Metadata = c.Offset, c.LeaderEpoch, &c.Metadata
	return rp
}

func noOffset(p int32, code int16) kmsg.OffsetFetchResponseGroupTopicPartition {
	rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata, rp.ErrorCode = p, -1, -1, new(string), code
	return rp
}

// otherTopic says that both ids are known and differ: the topic was deleted and made again.
func otherTopic(a, b [16]byte) bool {
	return a != b && a != [16]byte{} && b != [16]byte{}
}

func openSet(view View) map[TopicPartition]bool {
	var open map[TopicPartition]bool
	for tp := range view.OpenAll() {
		if open == nil {
			open = map[TopicPartition]bool{}
		}
		open[tp] = true
	}
	return open
}

func compareTP(a, b TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}
