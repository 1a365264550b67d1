package coordinator

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

func TestDescribe(t *testing.T) {
	w := newWorld(t)
	w.shards.err["none1"] = &streams.Error{Code: 69, Message: "Group none1 not found."}
	w.shards.err["moved2"], w.shards.known["moved2"] = shard.ErrNotOwner, true
	for _, version := range []int16{0, 1} {
		r := kmsg.NewPtrStreamsGroupDescribeRequest()
		r.Version, r.Groups = version, []string{"g1", "none1", "", "moved2"}
		r.IncludeAuthorizedOperations, r.IncludeTopologyDescription = true, version > 0
		resp := w.Describe(t.Context(), Caller{}, r)
		type row struct {
			group      string
			code       int16
			message    string
			state      string
			operations int32
			status     int8
		}
		var got []row
		for _, g := range resp.Groups {
			m := ""
			if g.ErrorMessage != nil {
				m = *g.ErrorMessage
			}
			got = append(got, row{g.Group, g.ErrorCode, m, g.State, g.AuthorizedOperations, g.TopologyDescriptionStatus})
		}
		status := int8(version) // 1: not stored; version 0 has no such field
		want := []row{
			{"g1", 0, "", "Stable", 3400, status},
			{"none1", 69, "Group none1 not found.", "", math.MinInt32, 0},
			{"", 24, "", "", math.MinInt32, 0},
			{"moved2", 16, "", "", math.MinInt32, 0},
		}
		if !reflect.DeepEqual(got, want) || resp.Version != version {
			t.Errorf("version %d\ngot  %v\nwant %v", version, got, want)
		}
		if a := resp.Groups[0].AssignorName; a == nil || *a != "sticky" {
			t.Errorf("assignor %v", a)
		}
		if a := resp.Groups[1].AssignorName; a != nil {
			t.Errorf("assignor of a group in error: %v", *a)
		}
	}
}

func TestManyGroupsAreDescribedAFewAtATime(t *testing.T) {
	w := newWorld(t)
	r := kmsg.NewPtrStreamsGroupDescribeRequest()
	for i := range 1000 {
		r.Groups = append(r.Groups, fmt.Sprint("g", i))
	}
	resp := w.Describe(t.Context(), Caller{}, r)
	for i, g := range resp.Groups {
		if g.Group != r.Groups[i] || g.ErrorCode != 0 {
			t.Fatalf("entry %d is %s, code %d", i, g.Group, g.ErrorCode)
		}
	}
	if n := w.shards.most.Load(); n > fanoutMax {
		t.Errorf("%d at a time, want at most %d", n, fanoutMax)
	}
}

func TestDeleteGroups(t *testing.T) {
	w := newWorld(t)
	w.remembered.note(w.now, "g1")
	w.shards.err["full2"] = &streams.Error{Code: 68, Message: "The group full2 is not empty."}
	w.shards.err["moved3"] = shard.ErrNotOwner
	r := kmsg.NewPtrDeleteGroupsRequest()
	r.Version, r.Groups = 3, []string{"g1", "full2", "g1", "moved3"}
	resp := w.DeleteGroups(t.Context(), Caller{}, r)
	var got []string
	for _, g := range resp.Groups {
		if g.ErrorMessage != nil {
			t.Errorf("%s has the message %q; Kafka gives none", g.Group, *g.ErrorMessage)
		}
		got = append(got, fmt.Sprint(g.Group, " ", g.ErrorCode))
	}
	if want := []string{"g1 0", "full2 68", "moved3 16"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if w.remembered.has(w.now, "g1") {
		t.Error("a deleted group is remembered")
	}
	slices.Sort(w.shards.calls)
	if want := []string{"delete full2", "delete g1", "delete moved3"}; !reflect.DeepEqual(w.shards.calls, want) {
		t.Errorf("calls %v, want each group once", w.shards.calls)
	}
}

func TestListGroupsFilters(t *testing.T) {
	w := newWorld(t)
	w.shards.listed = []shard.Listed{{Group: "c", State: "NotReady"}, {Group: "a", State: "Stable"}, {Group: "b", State: "Empty"}}
	for _, c := range []struct {
		types, states []string
		want          []string
	}{
		{nil, nil, []string{"a Stable", "b Empty", "c NotReady"}},
		{[]string{"STREAMS"}, nil, []string{"a Stable", "b Empty", "c NotReady"}},
		{[]string{"consumer", "nonsense"}, nil, nil},
		{[]string{"consumer", "streams"}, []string{" stable ", "EMPTY"}, []string{"a Stable", "b Empty"}},
		{nil, []string{"NotReady"}, []string{"c NotReady"}},
		{nil, []string{"not_ready"}, []string{"c NotReady"}},
		{nil, []string{"Dead"}, nil},
	} {
		r := kmsg.NewPtrListGroupsRequest()
		r.Version, r.TypesFilter, r.StatesFilter = 5, c.types, c.states
		resp := w.ListGroups(t.Context(), Caller{}, r)
		var got []string
		for _, g := range resp.Groups {
			if g.ProtocolType != "streams" || g.GroupType != "streams" {
				t.Errorf("%s: protocol type %s, type %s", g.Group, g.ProtocolType, g.GroupType)
			}
			got = append(got, g.Group+" "+g.GroupState)
		}
		if !reflect.DeepEqual(got, c.want) || resp.ErrorCode != 0 || resp.Groups == nil {
			t.Errorf("types %v states %v: got %v (code %d), want %v", c.types, c.states, got, resp.ErrorCode, c.want)
		}
	}
	w.shards.err[""] = shard.ErrLoading
	r := kmsg.NewPtrListGroupsRequest()
	if resp := w.ListGroups(t.Context(), Caller{}, r); resp.ErrorCode != 14 || len(resp.Groups) != 0 {
		t.Errorf("while loading: code %d, %d groups", resp.ErrorCode, len(resp.Groups))
	}
}

func commit(version int16, topics ...kmsg.OffsetCommitRequestTopic) *kmsg.OffsetCommitRequest {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.MemberID, r.Generation, r.Topics = version, "g1", "m", 3, topics
	return r
}

func commitTopic(name string, id byte, partitions ...int32) kmsg.OffsetCommitRequestTopic {
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = name, [16]byte{id}
	for _, p := range partitions {
		cp := kmsg.NewOffsetCommitRequestTopicPartition()
		cp.Partition, cp.Offset = p, 10
		t.Partitions = append(t.Partitions, cp)
	}
	return t
}

func commitCodes(resp *kmsg.OffsetCommitResponse) (out []string) {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			out = append(out, fmt.Sprintf("%s/%d-%d:%d", t.Topic, t.TopicID[0], p.Partition, p.ErrorCode))
		}
	}
	return out
}

func TestOffsetCommitResolvesTopics(t *testing.T) {
	for _, c := range []struct {
		name  string
		req   *kmsg.OffsetCommitRequest
		want  []string
		asked bool
	}{
		{"by name", commit(9, commitTopic("in", 0, 0, 2), commitTopic("no", 0, 0)), []string{"in/1-0:0", "in/1-2:3", "no/0-0:3"}, true},
		{"by id", commit(10, commitTopic("", 1, 1), commitTopic("", 9, 0)), []string{"in/1-1:0", "/9-0:100"}, true},
		{"nothing left", commit(9, commitTopic("no", 0, 0)), []string{"no/0-0:3"}, false},
		{"negative partition", commit(9, commitTopic("in", 0, -1)), []string{"in/1--1:3"}, false},
	} {
		w := newWorld(t)
		resp := w.OffsetCommit(t.Context(), Caller{}, c.req)
		if got := commitCodes(resp); !reflect.DeepEqual(got, c.want) || resp.Version != c.req.Version {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
		if asked := slices.Contains(w.shards.calls, "commit g1 m 3"); asked != c.asked {
			t.Errorf("%s: calls %v", c.name, w.shards.calls)
		}
	}
}

func TestOffsetCommitFailsEveryPartitionThatHasNoErrorOfItsOwn(t *testing.T) {
	w := newWorld(t)
	w.shards.err["g1"] = &streams.Error{Code: 113}
	got := commitCodes(w.OffsetCommit(t.Context(), Caller{}, commit(9, commitTopic("in", 0, 0, 5), commitTopic("no", 0, 0))))
	if want := []string{"in/1-0:113", "in/1-5:3", "no/0-0:3"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	w = newWorld(t)
	w.cluster.set(func() { w.cluster.fail = errors.New("away") })
	got = commitCodes(w.OffsetCommit(t.Context(), Caller{}, commit(9, commitTopic("in", 0, 0))))
	if want := []string{"in/0-0:14"}; !reflect.DeepEqual(got, want) {
		t.Errorf("while topics can't be read: got %v, want %v", got, want)
	}
}

func TestOffsetFetch(t *testing.T) {
	w := newWorld(t)
	w.shards.err["moved2"] = shard.ErrNotOwner
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Version, r.RequireStable = 10, true
	all := kmsg.NewOffsetFetchRequestGroup()
	all.Group = "g1"
	named := kmsg.NewOffsetFetchRequestGroup()
	named.Group, named.Topics = "g3", []kmsg.OffsetFetchRequestGroupTopic{{TopicID: [16]byte{1}}, {TopicID: [16]byte{9}}}
	moved := kmsg.NewOffsetFetchRequestGroup()
	moved.Group = "moved2"
	r.Groups = []kmsg.OffsetFetchRequestGroup{all, named, moved}
	resp := w.OffsetFetch(t.Context(), Caller{}, r)
	var got []string
	for _, g := range resp.Groups {
		got = append(got, fmt.Sprintf("%s:%d", g.Group, g.ErrorCode))
		for _, t := range g.Topics {
			got = append(got, fmt.Sprintf("%s/%d", t.Topic, t.TopicID[0]))
		}
	}
	// "gone" has no id any more and can't be named in version 10; an unknown id keeps no name.
	if want := []string{"g1:0", "in/1", "g3:0", "in/1", "/9", "moved2:16"}; !reflect.DeepEqual(got, want) || resp.Version != 10 {
		t.Errorf("got %v, want %v", got, want)
	}
	slices.Sort(w.shards.calls)
	if want := []string{"fetch g1 stable=true", "fetch g3 stable=true", "fetch moved2 stable=true"}; !reflect.DeepEqual(w.shards.calls, want) {
		t.Errorf("calls %v", w.shards.calls)
	}

	old := kmsg.NewPtrOffsetFetchRequest()
	old.Version, old.Group = 5, "moved2"
	if resp := w.OffsetFetch(t.Context(), Caller{}, old); resp.ErrorCode != 16 || resp.Version != 5 {
		t.Errorf("version 5: code %d", resp.ErrorCode)
	}
}

func TestDeletedGroupNeedsNoTopicsAnyMore(t *testing.T) {
	w := newWorld(t)
	w.shards.owned[1], w.shards.owned[2] = true, true
	w.Heartbeat(t.Context(), Caller{}, join("g1", "in"))
	r := kmsg.NewPtrDeleteGroupsRequest()
	r.Groups = []string{"g1"}
	w.shards.err["g1"] = &streams.Error{Code: 68}
	w.DeleteGroups(t.Context(), Caller{}, r)
	if _, ok := w.topics.Lookup("in"); !ok {
		t.Error("a refused deletion forgot the topics")
	}
	delete(w.shards.err, "g1")
	w.DeleteGroups(t.Context(), Caller{}, r)
	if _, ok := w.topics.Lookup("in"); ok {
		t.Error("the topic is still known")
	}
}

func TestOffsetDelete(t *testing.T) {
	w := newWorld(t)
	r := kmsg.NewPtrOffsetDeleteRequest()
	r.Group = "g1"
	for _, name := range []string{"in", "no"} {
		rt := kmsg.NewOffsetDeleteRequestTopic()
		rt.Topic, rt.Partitions = name, []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 1}, {Partition: 2}}
		r.Topics = append(r.Topics, rt)
	}
	var got []string
	for _, t := range w.OffsetDelete(t.Context(), Caller{}, r).Topics {
		for _, p := range t.Partitions {
			got = append(got, fmt.Sprintf("%s-%d:%d", t.Topic, p.Partition, p.ErrorCode))
		}
	}
	if want := []string{"in-1:0", "in-2:3", "no-1:3", "no-2:3"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	w.shards.err["g1"] = &streams.Error{Code: 69}
	if resp := w.OffsetDelete(t.Context(), Caller{}, r); resp.ErrorCode != 69 {
		t.Errorf("missing group: %d", resp.ErrorCode)
	}
	r.Group = ""
	if resp := w.OffsetDelete(t.Context(), Caller{}, r); resp.ErrorCode != 24 {
		t.Errorf("empty group id: %d", resp.ErrorCode)
	}
}
