package offsets

import (
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
)

func TestDelete(t *testing.T) {
	view := &fakeView{
		committed: map[TopicPartition]eventlog.OffsetCommit{{"in", 0}: at(1), {"in", 1}: at(2), {"out", 0}: at(3)},
		open:      map[TopicPartition]bool{{"out", 1}: true},
	}
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = "g"
	for _, tp := range []TopicPartition{{"in", 0}, {"out", 0}, {"out", 1}, {"out", 2}, {"secret", 0}} {
		rt := kmsg.NewOffsetDeleteRequestTopic()
		rt.Topic = tp.Topic
		rt.Partitions = append(rt.Partitions, kmsg.OffsetDeleteRequestTopicPartition{Partition: tp.Partition})
		req.Topics = append(req.Topics, rt)
	}
	judge := func(topic string, p int32) int16 {
		if topic == "secret" {
			return 29
		}
		return 0
	}
	for _, c := range []struct {
		name       string
		subscribed func(string) bool
		judge      func(string, int32) int16
		codes      []int16
		recs       []eventlog.Record
	}{
		{"members read in", func(t string) bool { return t == "in" }, judge, []int16{86, 0, 0, 0, 29}, tombstonesOf("g", TopicPartition{"out", 0}, TopicPartition{"out", 1})},
		{"empty group", func(string) bool { return false }, judge, []int16{0, 0, 0, 0, 29}, tombstonesOf("g", TopicPartition{"in", 0}, TopicPartition{"out", 0}, TopicPartition{"out", 1})},
		{"refused before subscribed", func(string) bool { return true }, judge, []int16{86, 86, 86, 86, 29}, nil},
		{"nothing refused", func(string) bool { return false }, nil, []int16{0, 0, 0, 0, 0}, tombstonesOf("g", TopicPartition{"in", 0}, TopicPartition{"out", 0}, TopicPartition{"out", 1})},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, recs := Delete(view, req, c.subscribed, c.judge)
			var got []int16
			for i, topic := range resp.Topics {
				if topic.Topic != req.Topics[i].Topic || topic.Partitions[0].Partition != req.Topics[i].Partitions[0].Partition {
					t.Errorf("answer %d is for %s %d", i, topic.Topic, topic.Partitions[0].Partition)
				}
				got = append(got, topic.Partitions[0].ErrorCode)
			}
			if resp.ErrorCode != 0 || !reflect.DeepEqual(got, c.codes) || !reflect.DeepEqual(recs, c.recs) {
				t.Errorf("codes %v, records %v; want %v, %v", got, recs, c.codes, c.recs)
			}
		})
	}
	if resp := FailDelete(req, 69); resp.ErrorCode != 69 || len(resp.Topics) != 0 {
		t.Errorf("%+v", resp)
	}
}

func TestTombstonesCoverCommittedAndOpenOnce(t *testing.T) {
	view := &fakeView{
		committed: map[TopicPartition]eventlog.OffsetCommit{{"in", 1}: at(1), {"in", 0}: at(2), {"a", 3}: at(3)},
		open:      map[TopicPartition]bool{{"in", 1}: true, {"in", 2}: true},
	}
	want := tombstonesOf("g", TopicPartition{"a", 3}, TopicPartition{"in", 0}, TopicPartition{"in", 1}, TopicPartition{"in", 2})
	got := Tombstones(view, "g")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	view.apply(got)
	if len(view.committed) != 0 || len(view.open) != 0 {
		t.Errorf("left: %v, %v", view.committed, view.open)
	}
	if got := Tombstones(&fakeView{}, "g"); len(got) != 0 {
		t.Errorf("a group without offsets gets %v", got)
	}
}

func TestTopicDeletedLeavesOffsetsOfItsSuccessor(t *testing.T) {
	view := &fakeView{
		committed: map[TopicPartition]eventlog.OffsetCommit{
			{"in", 0}:  {Offset: 1, TopicID: idIn},
			{"in", 1}:  {Offset: 1, TopicID: idOut},
			{"in", 2}:  {Offset: 1},
			{"out", 0}: {Offset: 1, TopicID: idIn},
		},
		open: map[TopicPartition]bool{{"in", 1}: true, {"in", 3}: true, {"out", 1}: true},
	}
	want := tombstonesOf("g", TopicPartition{"in", 0}, TopicPartition{"in", 2}, TopicPartition{"in", 3})
	if got := TopicDeleted(view, "g", "in", idIn); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
