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

func TestOffsetsOfADeletedTopicLeaveThoseOfItsSuccessor(t *testing.T) {
	const before = 100
	of := func(id [16]byte, at int64) eventlog.OffsetCommit {
		return eventlog.OffsetCommit{Offset: 1, TopicID: id, CommitTimestamp: at}
	}
	view := func() *fakeView {
		return &fakeView{
			committed: map[TopicPartition]eventlog.OffsetCommit{
				{"in", 0}:  of(idIn, 1),
				{"in", 1}:  of(idOut, 1),
				{"in", 2}:  of([16]byte{}, 1),
				{"in", 3}:  of(idIn, before), // committed while somebody asked whether the topic is there
				{"out", 0}: of(idIn, 1),
			},
			open: map[TopicPartition]bool{{"in", 1}: true, {"in", 4}: true, {"out", 1}: true},
		}
	}
	for _, c := range []struct {
		name string
		gone func(TopicRef) bool
		want []TopicPartition
	}{
		{"made again under the name", func(r TopicRef) bool { return r == TopicRef{"in", idIn} }, []TopicPartition{{"in", 0}}},
		{"no topic of that name", func(r TopicRef) bool { return r.Name == "in" }, []TopicPartition{{"in", 0}, {"in", 1}, {"in", 2}, {"in", 4}}},
		{"nothing gone", func(TopicRef) bool { return false }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := view()
			got := TopicsDeleted(v, "g", c.gone, before)
			if want := tombstonesOf("g", c.want...); !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			v.apply(got)
			if again := TopicsDeleted(v, "g", c.gone, before); len(again) != 0 {
				t.Errorf("a second time: %v", again)
			}
		})
	}
}
