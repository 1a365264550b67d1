package offsets

import (
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
)

func fetchGroup(topics ...kmsg.OffsetFetchRequestGroupTopic) *kmsg.OffsetFetchRequestGroup {
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.Topics = "g", topics
	return &g
}

func fetchTopic(name string, id [16]byte, partitions ...int32) kmsg.OffsetFetchRequestGroupTopic {
	t := kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.TopicID, t.Partitions = name, id, partitions
	return t
}

// line is an answered partition, for comparing.
type line struct {
	topic     string
	partition int32
	offset    int64
	epoch     int32
	metadata  string
	code      int16
}

func lines(t *testing.T, g kmsg.OffsetFetchResponseGroup) (list []line) {
	t.Helper()
	for _, topic := range g.Topics {
		for _, p := range topic.Partitions {
			if p.Metadata == nil {
				t.Fatalf("%s %d: metadata is null", topic.Topic, p.Partition)
			}
			list = append(list, line{topic.Topic, p.Partition, p.Offset, p.LeaderEpoch, *p.Metadata, p.ErrorCode})
		}
	}
	return list
}

func TestFetch(t *testing.T) {
	view := &fakeView{
		committed: map[TopicPartition]eventlog.OffsetCommit{
			{"in", 0}:  {Offset: 10, LeaderEpoch: 3, Metadata: "m", TopicID: idIn},
			{"in", 1}:  {Offset: 11, LeaderEpoch: -1, TopicID: idIn},
			{"in", 2}:  {Offset: 12, LeaderEpoch: -1}, // committed without an id
			{"out", 0}: {Offset: 20, LeaderEpoch: -1, TopicID: idOut},
			{"a", 7}:   {Offset: 30, LeaderEpoch: -1, TopicID: [16]byte{15: 9}},
		},
		open: map[TopicPartition]bool{{"in", 1}: true, {"in", 3}: true},
	}
	none := func(topic string, p int32, code int16) line { return line{topic, p, -1, -1, "", code} }
	for _, c := range []struct {
		name   string
		view   View
		group  *kmsg.OffsetFetchRequestGroup
		stable bool
		want   []line
	}{
		{"by name", view, fetchGroup(fetchTopic("in", [16]byte{}, 0, 2, 9)), false, []line{{"in", 0, 10, 3, "m", 0}, {"in", 2, 12, -1, "", 0}, none("in", 9, 0)}},
		{"by id", view, fetchGroup(fetchTopic("in", idIn, 0)), false, []line{{"in", 0, 10, 3, "m", 0}}},
		{"the topic was made again", view, fetchGroup(fetchTopic("in", idOut, 0, 2)), false, []line{none("in", 0, 0), {"in", 2, 12, -1, "", 0}}},
		{"id unknown", view, fetchGroup(fetchTopic("", idOut, 0, 1)), true, []line{none("", 0, 100), none("", 1, 100)}},
		{"open transaction, not stable", view, fetchGroup(fetchTopic("in", idIn, 1, 3)), false, []line{{"in", 1, 11, -1, "", 0}, none("in", 3, 0)}},
		{"open transaction, stable", view, fetchGroup(fetchTopic("in", idIn, 0, 1, 3)), true, []line{{"in", 0, 10, 3, "m", 0}, none("in", 1, 88), none("in", 3, 88)}},
		{"all", view, fetchGroup(), false, []line{{"a", 7, 30, -1, "", 0}, {"in", 0, 10, 3, "m", 0}, {"in", 1, 11, -1, "", 0}, {"in", 2, 12, -1, "", 0}, {"out", 0, 20, -1, "", 0}}},
		{"all, stable: what is only open is not listed", view, fetchGroup(), true, []line{{"a", 7, 30, -1, "", 0}, {"in", 0, 10, 3, "m", 0}, none("in", 1, 88), {"in", 2, 12, -1, "", 0}, {"out", 0, 20, -1, "", 0}}},
		{"none asked", view, &kmsg.OffsetFetchRequestGroup{Group: "g", Topics: []kmsg.OffsetFetchRequestGroupTopic{}}, true, nil},
		{"unknown group", &fakeView{}, fetchGroup(fetchTopic("in", idIn, 0)), true, []line{none("in", 0, 0)}},
		{"unknown group, all", &fakeView{}, fetchGroup(), true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Fetch(c.view, c.group, c.stable)
			if got.Group != "g" || got.ErrorCode != 0 || !reflect.DeepEqual(lines(t, got), c.want) {
				t.Errorf("%+v\n got %v\nwant %v", got, lines(t, got), c.want)
			}
			for i := range c.group.Topics {
				if got.Topics[i].TopicID != c.group.Topics[i].TopicID {
					t.Errorf("topic id %x answered for %x", got.Topics[i].TopicID, c.group.Topics[i].TopicID)
				}
			}
		})
	}
}

func TestNameIDsDropsWhatHasNoID(t *testing.T) {
	view := &fakeView{committed: map[TopicPartition]eventlog.OffsetCommit{{"in", 0}: at(1), {"gone", 0}: at(2)}}
	got := Fetch(view, fetchGroup(), false)
	NameIDs(&got, func(name string) ([16]byte, bool) { return idIn, name == "in" })
	if len(got.Topics) != 1 || got.Topics[0].Topic != "in" || got.Topics[0].TopicID != idIn || got.Topics[0].Partitions[0].Offset != 1 {
		t.Errorf("%+v", got)
	}
}

func fetchRequest(version int16, all bool) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = version
	if version < 8 {
		req.Group = "g"
		if !all {
			t := kmsg.NewOffsetFetchRequestTopic()
			t.Topic, t.Partitions = "in", []int32{0, 9}
			req.Topics = append(req.Topics, t)
		}
		return req
	}
	topics := []kmsg.OffsetFetchRequestGroupTopic{fetchTopic("in", idIn, 0, 9)}
	if all {
		topics = nil
	}
	for _, id := range []string{"g", "h"} {
		g := *fetchGroup(topics...)
		g.Group = id
		req.Groups = append(req.Groups, g)
	}
	return req
}

func TestFetchInEveryVersion(t *testing.T) {
	view := &fakeView{committed: map[TopicPartition]eventlog.OffsetCommit{{"in", 0}: {Offset: 10, LeaderEpoch: 3, Metadata: "m", TopicID: idIn}}}
	for version := int16(0); version <= 10; version++ {
		for _, all := range []bool{false, true} {
			if all && version < 2 {
				continue
			}
			req := fetchRequest(version, all)
			// What a server decodes is what counts, null arrays included.
			decoded := kmsg.NewPtrOffsetFetchRequest()
			decoded.Version = version
			if err := decoded.ReadFrom(req.AppendTo(nil)); err != nil {
				t.Fatal(err)
			}
			var answers []kmsg.OffsetFetchResponseGroup
			for _, g := range FetchGroups(decoded) {
				if g.Topics == nil != all {
					t.Fatalf("version %d: topics nil is %v, all is %v", version, g.Topics == nil, all)
				}
				for i := range g.Topics {
					g.Topics[i].Topic = "in" // resolved
				}
				a := Fetch(view, &g, false)
				NameIDs(&a, func(string) ([16]byte, bool) { return idIn, true })
				answers = append(answers, a)
			}
			resp := kmsg.NewPtrOffsetFetchResponse()
			resp.Version = version
			if err := resp.ReadFrom(FetchResponse(decoded, answers).AppendTo(nil)); err != nil {
				t.Fatalf("version %d: %v", version, err)
			}
			if version >= 8 {
				if len(resp.Groups) != 2 || resp.Groups[1].Group != "h" || resp.Groups[1].Topics[0].Partitions[0].Offset != 10 ||
					resp.Groups[0].Topics[0].Partitions[0].LeaderEpoch != 3 || version == 10 && resp.Groups[0].Topics[0].TopicID != idIn {
					t.Errorf("version %d, all %v: %+v", version, all, resp)
				}
				continue
			}
			p := resp.Topics[0].Partitions
			if resp.ErrorCode != 0 || p[0].Offset != 10 || *p[0].Metadata != "m" || (version >= 5) != (p[0].LeaderEpoch == 3) {
				t.Errorf("version %d, all %v: %+v", version, all, resp)
			}
			if !all && (p[1].Partition != 9 || p[1].Offset != -1 || p[1].ErrorCode != 0) {
				t.Errorf("version %d: %+v", version, p[1])
			}
		}
	}
}

func TestAnEmptyListAsksForNothing(t *testing.T) {
	for version := int16(1); version <= 9; version++ {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version, req.Topics = version, []kmsg.OffsetFetchRequestTopic{}
		if version >= 8 {
			req.Groups = []kmsg.OffsetFetchRequestGroup{{Topics: []kmsg.OffsetFetchRequestGroupTopic{}}}
		}
		decoded := kmsg.NewPtrOffsetFetchRequest()
		decoded.Version = version
		if err := decoded.ReadFrom(req.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		if g := FetchGroups(decoded); len(g) != 1 || g[0].Topics == nil {
			t.Errorf("version %d: an empty list became %+v", version, g)
		}
	}
	if g := FetchGroups(&kmsg.OffsetFetchRequest{Version: 1}); g[0].Topics == nil {
		t.Error("version 1 has no way to ask for all offsets")
	}
}

func TestFailFetchInEveryVersion(t *testing.T) {
	for version := int16(0); version <= 10; version++ {
		resp := FailFetch(fetchRequest(version, false), 16)
		again := kmsg.NewPtrOffsetFetchResponse()
		again.Version = version
		if err := again.ReadFrom(resp.AppendTo(nil)); err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		switch {
		case version >= 8:
			if len(again.Groups) != 2 || again.Groups[0].Group != "g" || again.Groups[1].Group != "h" {
				t.Fatalf("version %d: %+v", version, again)
			}
			for _, g := range again.Groups {
				if g.ErrorCode != 16 || len(g.Topics) != 0 {
					t.Errorf("version %d: %+v", version, g)
				}
			}
		case version >= 2:
			if again.ErrorCode != 16 || len(again.Topics) != 0 {
				t.Errorf("version %d: %+v", version, again)
			}
		default:
			if len(again.Topics) != 1 || len(again.Topics[0].Partitions) != 2 {
				t.Fatalf("version %d: %+v", version, again)
			}
			for _, p := range again.Topics[0].Partitions {
				if p.ErrorCode != 16 || p.Offset != -1 || *p.Metadata != "" {
					t.Errorf("version %d: %+v", version, p)
				}
			}
		}
	}
}

func TestGroupsOfOneRequestFailAlone(t *testing.T) {
	req := fetchRequest(9, false)
	resp := FetchResponse(req, []kmsg.OffsetFetchResponseGroup{FailFetchGroup("g", 25), Fetch(&fakeView{}, &req.Groups[1], false)})
	if resp.Groups[0].ErrorCode != 25 || resp.Groups[1].ErrorCode != 0 || len(resp.Groups[1].Topics[0].Partitions) != 2 {
		t.Errorf("%+v", resp)
	}
}
