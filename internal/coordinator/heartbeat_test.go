package coordinator

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

func join(group string, topics ...string) *kmsg.StreamsGroupHeartbeatRequest {
	r := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.RebalanceTimeoutMillis = 1, group, "m", 1000
	r.ActiveTasks, r.StandbyTasks, r.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	s := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
	s.SubtopologyID, s.SourceTopics = "0", topics
	r.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{s}}
	return r
}

func beat(group string, epoch int32) *kmsg.StreamsGroupHeartbeatRequest {
	r := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.MemberEpoch = 1, group, "m", epoch
	return r
}

func TestHeartbeatReachesTheShardWithItsTopicsKnown(t *testing.T) {
	w := newWorld(t)
	w.shards.owned[1] = true
	caller := Caller{"app", "/10.0.0.1"}
	resp := w.Heartbeat(t.Context(), caller, join("g1", "in", "absent"))
	if resp.ErrorCode != 0 || resp.MemberEpoch != 5 || resp.Version != 1 {
		t.Fatalf("response %+v", resp)
	}
	if want := []string{"heartbeat g1 v1 app/10.0.0.1"}; !reflect.DeepEqual(w.shards.calls, want) {
		t.Errorf("calls %v, want %v", w.shards.calls, want)
	}
	if _, ok := w.topics.Snapshot().Topic("in"); !ok {
		t.Error("the topic is not in the snapshot")
	}
	n := w.cluster.requests()
	if w.Heartbeat(t.Context(), caller, beat("g1", 5)); w.cluster.requests() != n {
		t.Error("a steady heartbeat asked the cluster")
	}
}

// After a restart the first heartbeat of a running group must find its topics, or its tasks would be taken away.
func TestHeartbeatWhileTheShardIsTakenOver(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*world)
		code    int16
	}{
		{"our own claim, not served yet", func(w *world) { w.shards.owners[1] = owner(1000001, "keeper:9292", w.now) }, 14},
		{"another replica's", func(w *world) { w.shards.owners[1] = owner(1000002, "other:9292", w.now) }, 16},
		{"nobody's", func(*world) {}, 15},
		{"released", func(w *world) {
			o := owner(1000002, "other:9292", w.now)
			o.Released = true
			w.shards.owners[1] = o
		}, 15},
	} {
		w := newWorld(t)
		c.prepare(w)
		if resp := w.Heartbeat(t.Context(), Caller{}, join("g1", "in")); resp.ErrorCode != c.code || len(w.shards.beats) != 0 {
			t.Errorf("%s: code %d, shard asked %d times; want %d", c.name, resp.ErrorCode, len(w.shards.beats), c.code)
		}
	}
}

// The shard was another replica's for a while, where the group was deleted and made again over another topic.
func TestTopicsAreLookedUpAgainAfterEachClaim(t *testing.T) {
	w := newWorld(t)
	w.cluster.topic("in2", 2, 1)
	w.shards.owned[1], w.shards.known["g1"] = true, true
	w.stored["g1"] = []string{"in"}
	w.Heartbeat(t.Context(), Caller{}, beat("g1", 5))
	w.stored["g1"] = []string{"in2"}
	o := owner(1000001, "keeper:9292", w.now)
	o.Generation = 77
	w.shards.owners[1] = o
	w.Heartbeat(t.Context(), Caller{}, beat("g1", 5))
	if _, ok := w.topics.Snapshot().Topic("in2"); !ok {
		t.Error("the topic is not in the snapshot")
	}
}

func TestFirstHeartbeatOfAHydratedGroupFindsItsTopics(t *testing.T) {
	w := newWorld(t)
	w.shards.owned[1], w.shards.known["g1"] = true, true
	w.stored["g1"] = []string{"in"}
	w.cluster.set(func() { w.cluster.fail = errors.New("away") })
	if resp := w.Heartbeat(t.Context(), Caller{}, beat("g1", 5)); resp.ErrorCode != codeLoading || len(w.shards.beats) != 0 {
		t.Fatalf("code %d, shard asked %d times, while the topics could not be read", resp.ErrorCode, len(w.shards.beats))
	}
	w.cluster.set(func() { w.cluster.fail = nil })
	if resp := w.Heartbeat(t.Context(), Caller{}, beat("g1", 5)); resp.ErrorCode != 0 {
		t.Fatalf("code %d", resp.ErrorCode)
	}
	if _, ok := w.topics.Snapshot().Topic("in"); !ok {
		t.Error("the topic is not in the snapshot")
	}
}

// A member of an older topology joins: the topics that the group has stay pinned.
func TestJoinPinsTheTopicsOfTheStoredTopologyToo(t *testing.T) {
	w := newWorld(t)
	w.cluster.topic("in2", 2, 1)
	w.shards.owned[1], w.shards.known["g1"] = true, true
	w.stored["g1"] = []string{"in2"}
	w.Heartbeat(t.Context(), Caller{}, join("g1", "in"))
	for _, name := range []string{"in", "in2"} {
		if _, ok := w.topics.Snapshot().Topic(name); !ok {
			t.Errorf("topic %s is not in the snapshot", name)
		}
	}
}

func TestHeartbeatGate(t *testing.T) {
	for _, c := range []struct {
		name    string
		req     *kmsg.StreamsGroupHeartbeatRequest
		code    int16
		message string
	}{
		{"internal topics", join("g1", "in", "__transaction_state", "__consumer_offsets", "__transaction_state"), 130,
			"Use of Kafka internal topics __transaction_state,__consumer_offsets in a Kafka Streams topology is prohibited."},
		{"the record log", join("g1", "__streams_groups"), 130,
			"Use of Kafka internal topics __streams_groups in a Kafka Streams topology is prohibited."},
		{"illegal names", join("g1", "a b", "in", "", strings.Repeat("x", 250), ".."), 130,
			"Topic names a b,," + strings.Repeat("x", 250) + ",.. are not valid topic names."},
		{"no member id", func() *kmsg.StreamsGroupHeartbeatRequest { r := join("g1", "in"); r.MemberID = ""; return r }(), 42, "MemberId can't be empty."},
		{"a group id that no record can hold", join(strings.Repeat("g", 32768), "in"), 24, "The group id is longer than 32767 bytes or no valid UTF-8."},
		{"a group id that is no text", join("g\xff", "in"), 24, "The group id is longer than 32767 bytes or no valid UTF-8."},
	} {
		w := newWorld(t)
		w.shards.owned[1] = true
		resp := w.Heartbeat(t.Context(), Caller{}, c.req)
		if resp.ErrorCode != c.code || resp.ErrorMessage == nil || *resp.ErrorMessage != c.message {
			t.Errorf("%s: %d %v", c.name, resp.ErrorCode, resp.ErrorMessage)
		}
		if resp.Status == nil || resp.ActiveTasks != nil || len(w.shards.calls) != 0 {
			t.Errorf("%s: status %v, tasks %v, calls %v", c.name, resp.Status, resp.ActiveTasks, w.shards.calls)
		}
	}
}

func TestRequiredTopicsAreInTheOrderOfTheTopology(t *testing.T) {
	r := join("g", "b", "a")
	s := &r.Topology.Subtopologies[0]
	s.RepartitionSinkTopics = []string{"a", "sink"}
	s.RepartitionSourceTopics = []kmsg.TopicInfo{{Topic: "source"}}
	s.StateChangelogTopics = []kmsg.TopicInfo{{Topic: "log"}}
	r.Topology.Subtopologies = append(r.Topology.Subtopologies, *s)
	if got, want := requiredTopics(r.Topology), []string{"b", "a", "sink", "source", "log"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if requiredTopics(nil) != nil {
		t.Error("no topology has topics")
	}
}

func TestErrorsHaveKafkasCodes(t *testing.T) {
	for _, c := range []struct {
		err        error
		code       int16
		unexpected bool
	}{
		{&streams.Error{Code: 110, Message: "x"}, 110, false},
		{fmt.Errorf("wrapped: %w", shard.ErrNotOwner), 16, false},
		{shard.ErrLoading, 14, false},
		{shard.ErrUnavailable, 15, false},
		{fmt.Errorf("%w: no right", shard.ErrBlind), 15, false},
		{eventlog.ErrFenced, 16, false},
		{eventlog.ErrOutcomeUnknown, 15, false},
		{eventlog.ErrClosed, 15, false},
		{ErrTopicsUnknown, 14, false},
		{fmt.Errorf("%w: no space left", projection.ErrStorage), 14, false},
		{fmt.Errorf("%w: partition 1", projection.ErrLoading), 14, false},
		{projection.ErrClosed, 14, false},
		{errors.Join(ErrTopicsUnknown, context.DeadlineExceeded), 14, false},
		{context.DeadlineExceeded, 15, false},
		{context.Canceled, 15, false},
		{shard.ErrTooLarge, -1, true},
		{shard.ErrInternal, -1, true},
		{eventlog.ErrRefused, 15, false},
		{errors.New("what is this"), -1, true},
	} {
		if f := failureOf(c.err); f.Code != c.code || f.Unexpected != c.unexpected {
			t.Errorf("%v: %+v, want %d %v", c.err, f, c.code, c.unexpected)
		}
	}
	if f := fetchFailureOf(eventlog.ErrOutcomeUnknown, true); f.Code != 16 {
		t.Errorf("stable fetch: %d, want 16", f.Code)
	}
	if f := failureOf(errors.New("secret")); f.text() != nil {
		t.Error("an internal text reaches the client")
	}
}

func TestRefusedHeartbeatIsRememberedForTheNextLookup(t *testing.T) {
	w := newWorld(t)
	w.shards.owners[1] = owner(1000002, "other:9292", w.now)
	if resp := w.Heartbeat(t.Context(), Caller{}, join("g1", "in")); resp.ErrorCode != 16 || len(w.shards.beats) != 0 || resp.ErrorMessage != nil {
		t.Fatalf("code %d", resp.ErrorCode)
	}
	if n, known, ok := w.Coordinator.Coordinator(t.Context(), "g1"); !known || !ok || n.ID != 1000002 {
		t.Errorf("lookup: %v %v %v", n, known, ok)
	}
}

// A hint leads a streams client to the group's first record. Once that was there, or the shard is ours, it must lead nobody: the group may be a
// classic one of the cluster by then, whose consumers would be told for minutes that they are no members.
func TestAHintEndsWithWhatItWasFor(t *testing.T) {
	for what, end := range map[string]func(*world){
		"this replica owns the shard now": func(w *world) { w.shards.owned[1] = true },
		"the group was there, and left again": func(w *world) {
			w.shards.known["g1"] = true
			if _, known, _ := w.Coordinator.Coordinator(t.Context(), "g1"); !known {
				t.Error("a group that is in the log is not known")
			}
			delete(w.shards.known, "g1")
		},
	} {
		w := newWorld(t)
		w.shards.owners[1] = owner(1000002, "other:9292", w.now)
		w.Heartbeat(t.Context(), Caller{}, join("g1", "in"))
		if _, known, _ := w.Coordinator.Coordinator(t.Context(), "g1"); !known {
			t.Fatal("the refused heartbeat left no hint")
		}
		end(w)
		if n, known, _ := w.Coordinator.Coordinator(t.Context(), "g1"); known {
			t.Errorf("%s: the lookup still names %v", what, n)
		}
	}
}

// Whoever is asked can say that a group is nowhere, after a read barrier; nobody is sent around for it.
func TestDescribeOfAGroupThatIsNowhereNeedsNoOwner(t *testing.T) {
	w := newWorld(t)
	w.shards.err["g1"], w.shards.err["h1"] = shard.ErrNotOwner, shard.ErrNotOwner
	w.shards.reached["h1"] = true // in the log, not read yet
	r := kmsg.NewPtrStreamsGroupDescribeRequest()
	r.Groups = []string{"g1", "h1"}
	groups := w.Describe(t.Context(), Caller{}, r).Groups
	if groups[0].ErrorCode != 69 || *groups[0].ErrorMessage != "Group g1 not found." || groups[1].ErrorCode != 16 {
		t.Errorf("codes %d %d, want 69 16", groups[0].ErrorCode, groups[1].ErrorCode)
	}
	w.shards.barrier = func() error { return errors.New("away") }
	w.shards.known["h1"] = false
	w.shards.reached = map[string]bool{}
	if g := w.Describe(t.Context(), Caller{}, r).Groups[0]; g.ErrorCode != 16 {
		t.Errorf("while the log's end can't be read: code %d, want 16", g.ErrorCode)
	}
}

// A streams tool that is pointed at a classic group must not lead that group's consumers to us.
func TestDescribingAGroupOfTheClusterDoesNotMoveItsLookups(t *testing.T) {
	w := newWorld(t)
	w.foreign.kind, w.foreign.members = "classic", true
	w.shards.err["g1"] = shard.ErrNotOwner
	w.shards.owners[1] = owner(1000002, "other:9292", w.now)
	r := kmsg.NewPtrStreamsGroupDescribeRequest()
	r.Groups = []string{"g1"}
	if g := w.Describe(t.Context(), Caller{}, r).Groups[0]; textOf(g.ErrorCode, g.ErrorMessage) != "69 Group g1 is not a streams group." {
		t.Errorf("describe: %s", textOf(g.ErrorCode, g.ErrorMessage))
	}
	if resp := w.Heartbeat(t.Context(), Caller{}, beat("g1", 4)); resp.ErrorCode != 69 {
		t.Errorf("heartbeat: %d", resp.ErrorCode)
	}
	if _, known, _ := w.Coordinator.Coordinator(t.Context(), "g1"); known {
		t.Error("the group's lookups name the owner of our shard")
	}
}

func TestGroupOfTheClusterIsNotTakenOver(t *testing.T) {
	for _, c := range []struct {
		kind    string
		members bool
		want    string
	}{
		{"classic", true, "Group g1 is not a streams group."},
		{"consumer", false, "Group g1 is not a streams group."},
	} {
		w := newWorld(t)
		w.shards.owned[1] = true
		w.foreign.kind, w.foreign.members = c.kind, c.members
		resp := w.Heartbeat(t.Context(), Caller{}, join("g1", "in"))
		if resp.ErrorCode != 69 || resp.ErrorMessage == nil || *resp.ErrorMessage != c.want || len(w.shards.calls) != 0 {
			t.Errorf("%s: %d %v, calls %v", c.kind, resp.ErrorCode, resp.ErrorMessage, w.shards.calls)
		}
		if w.remembered.has(w.now, "g1") {
			t.Errorf("%s: a group of the cluster is remembered as ours", c.kind)
		}
	}
	w := newWorld(t)
	w.shards.owned[1] = true
	w.foreign.err = errors.New("away")
	if resp := w.Heartbeat(t.Context(), Caller{}, join("g1", "in")); resp.ErrorCode != 14 {
		t.Errorf("while the cluster can't be asked: %d, want 14", resp.ErrorCode)
	}
	w.shards.known["g1"] = true
	if resp := w.Heartbeat(t.Context(), Caller{}, join("g1", "in")); resp.ErrorCode != 0 {
		t.Errorf("a group that is ours: %d", resp.ErrorCode)
	}
	asked := w.foreign.asked
	if w.Heartbeat(t.Context(), Caller{}, beat("g1", 5)); w.foreign.asked != asked {
		t.Error("a steady heartbeat asked for a group of the cluster")
	}
}

// Whether the cluster has a group of that id is asked where the group is not known here; the shard hears whether it was, as the group may be gone when the join gets there.
func TestTheShardHearsWhetherTheClusterWasAsked(t *testing.T) {
	w := newWorld(t)
	w.shards.owned[1] = true
	for _, known := range []bool{false, true} {
		w.shards.known["g1"] = known
		if resp := w.Heartbeat(t.Context(), Caller{}, join("g1", "in")); resp.ErrorCode != 0 {
			t.Fatalf("code %d", resp.ErrorCode)
		}
		if got := w.shards.unasked[len(w.shards.unasked)-1]; got != known {
			t.Errorf("known here: %v; not asked: %v", known, got)
		}
	}
}

// A group was deleted, and what is known of it is a moment older than the log: the join goes on as the first of a new group, and the cluster is asked.
func TestAJoinOfAGroupThatIsGoneSinceItWasLookedUp(t *testing.T) {
	w := newWorld(t)
	w.shards.owned[1], w.shards.known["g1"] = true, true
	w.shards.err["g1"] = shard.ErrGroupGone
	w.shards.barrier = func() error {
		delete(w.shards.known, "g1")
		delete(w.shards.err, "g1")
		return nil
	}
	if resp := w.Heartbeat(t.Context(), Caller{}, join("g1", "in")); resp.ErrorCode != 0 || !slices.Equal(w.shards.unasked, []bool{true, false}) {
		t.Errorf("code %d; not asked: %v", resp.ErrorCode, w.shards.unasked)
	}
	w.shards.known["g1"], w.shards.err["g1"] = true, shard.ErrGroupGone
	w.shards.barrier = func() error { return errors.New("no answer") }
	if resp := w.Heartbeat(t.Context(), Caller{}, join("g1", "in")); resp.ErrorCode != codeLoading {
		t.Errorf("code %d", resp.ErrorCode)
	}
}

// A replica that knows a topic of the group's from before asks again under a new claim: the former owner may have seen it with more partitions, and given them out.
func TestPartitionsAreCountedAgainAfterEachClaim(t *testing.T) {
	w := newWorld(t)
	w.shards.owned[1], w.shards.known["g1"] = true, true
	w.stored["g1"] = []string{"in"}
	w.Heartbeat(t.Context(), Caller{}, beat("g1", 5))
	before, _ := w.topics.Snapshot().Topic("in")
	w.cluster.topic("in", before.ID[0], before.Partitions+1)
	o := owner(1000001, "keeper:9292", w.now)
	o.Generation = 77
	w.shards.owners[1] = o
	w.Heartbeat(t.Context(), Caller{}, beat("g1", 5))
	if after, _ := w.topics.Snapshot().Topic("in"); after.Partitions != before.Partitions+1 {
		t.Errorf("%d partitions, and %d under the next claim", before.Partitions, after.Partitions)
	}
}
