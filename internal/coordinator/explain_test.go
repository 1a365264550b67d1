package coordinator

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/trace"

	"streamkeeper/client/explain"
	"streamkeeper/eventlog"
	"streamkeeper/plugin"
	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

// explain asks as our client does. include asks for the description itself, too.
func (w *world) explain(t *testing.T, include bool, groups ...string) []kmsg.StreamsGroupDescribeResponseGroup {
	t.Helper()
	r := kmsg.NewPtrStreamsGroupDescribeRequest()
	r.Version, r.Groups, r.IncludeTopologyDescription = 1, groups, include
	explain.Question{}.Put(&r.UnknownTags)
	return w.Describe(t.Context(), Caller{}, r).Groups
}

func (w *world) explanation(t *testing.T, group string) *explain.Group {
	t.Helper()
	g := w.explain(t, false, group)[0]
	e, err := explain.GroupOf(&g.UnknownTags)
	if err != nil || e == nil {
		t.Fatalf("group %s: %+v, %v, code %d", group, e, err, g.ErrorCode)
	}
	return e
}

// Whoever does not ask sees no byte more, and an explanation changes nothing of the answer but itself.
func TestOnlyWhoAsksIsToldWhy(t *testing.T) {
	d := newDescribing(t)
	d.plugin.get = func(string) *plugin.Future[*plugin.Description] { return plugin.Completed(&plugin.Description{}) }
	r := kmsg.NewPtrStreamsGroupDescribeRequest()
	r.Version, r.Groups = 1, []string{"g1"}
	plain := d.Describe(t.Context(), Caller{}, r)
	if plain.Groups[0].UnknownTags.Len() != 0 || plain.UnknownTags.Len() != 0 {
		t.Error("a tagged field that nobody asked for")
	}
	before := plain.AppendTo(nil)
	d.shards.err["no1"] = &streams.Error{Code: 69, Message: "Group no1 not found."}
	asked := d.explain(t, false, "g1", "no1", "")
	for _, g := range asked[1:] {
		if g.UnknownTags.Len() != 0 || g.ErrorCode == 0 {
			t.Errorf("group %q: code %d, %d tags", g.Group, g.ErrorCode, g.UnknownTags.Len())
		}
	}
	if e, err := explain.GroupOf(&asked[0].UnknownTags); err != nil || e == nil {
		t.Fatalf("%+v, %v", e, err)
	}
	asked[0].UnknownTags = kmsg.Tags{}
	asked[0].Topology, asked[0].Members = plain.Groups[0].Topology, plain.Groups[0].Members
	plain.Groups = asked[:1]
	if after := plain.AppendTo(nil); !reflect.DeepEqual(before, after) {
		t.Errorf("the answer is another one:\n%x\n%x", after, before)
	}
}

func TestWhyADescriptionIsNotThere(t *testing.T) {
	const group = "g1"
	refused := &eventlog.DescriptionRefusal{TopologyEpoch: 0, Plugin: "scripted", Member: "m", Reason: "too odd", Timestamp: 1_000}
	ask := func(d *describing) bool { return d.backoff.Ask(group, 0, d.now, "m", trace.SpanContext{}) }
	get := func(f *plugin.Future[*plugin.Description]) func(*describing) {
		return func(d *describing) { d.plugin.get = func(string) *plugin.Future[*plugin.Description] { return f } }
	}
	member := shard.Explained{Described: shard.Described{Stored: -1}, Failed: -1, Current: 1, SpeakDesc: true}
	with := func(change func(*shard.Explained)) shard.Explained { e := member; change(&e); return e }
	for _, c := range []struct {
		name    string
		shard   shard.Explained
		members int
		setup   func(*describing)
		cause   explain.Cause
		text    string // a part of it
	}{
		{"no plugin", member, 1, func(d *describing) { d.descriptions = nil }, explain.NoPlugin, "keeps no topology descriptions"},
		{"stored", with(func(e *shard.Explained) { e.Stored = 0 }), 1, get(plugin.Completed(&plugin.Description{})), explain.Stored, "is stored"},
		{"lost", with(func(e *shard.Explained) { e.Stored = 0 }), 1, get(plugin.Completed[*plugin.Description](nil)), explain.Lost, "does not have it any more"},
		{"can't be read", with(func(e *shard.Explained) { e.Stored = 0 }), 1, get(plugin.Failed[*plugin.Description](errors.New("backend down"))), explain.Unavailable, "backend down"},
		{"refused", with(func(e *shard.Explained) { e.Stored, e.Failed, e.Refusal = -2, 0, refused }), 1, func(d *describing) { ask(d) }, explain.Refused, "too odd"},
		{"refused, why is not known", with(func(e *shard.Explained) { e.Failed = 0 }), 1, nil, explain.Refused, "Why is not known"},
		{"being pushed", with(func(e *shard.Explained) { e.Stored = -2 }), 1, func(d *describing) { ask(d); d.descriptions.pushing.begin(group) }, explain.Pushing, "right now"},
		{"failed for now", with(func(e *shard.Explained) { e.Stored = -2 }), 1, func(d *describing) { ask(d); d.backoff.Fail(group, 0, d.now, "backend down") }, explain.Failed, "backend down"},
		{"failed, and asked again", with(func(e *shard.Explained) { e.Stored = -2 }), 1, func(d *describing) {
			d.backoff.Fail(group, 0, d.now, "backend down")
			d.now = d.now.Add(time.Hour)
			ask(d)
		}, explain.Waiting, "has not pushed it yet"},
		{"asked", member, 1, func(d *describing) { ask(d) }, explain.Waiting, "Asked once, the last time 0s ago (member m). Nobody is asked for another 30s."},
		{"asked, the window is over", member, 1, func(d *describing) { ask(d); d.now = d.now.Add(time.Minute) }, explain.NoAnswer, "The next heartbeat of a member asks again."},
		{"asked twice", member, 1, func(d *describing) { ask(d); d.now = d.now.Add(time.Minute); ask(d) }, explain.NoAnswer, "Asked twice"},
		{"asked at another epoch", member, 1, func(d *describing) { d.backoff.Ask(group, 7, d.now, "m", trace.SpanContext{}) }, explain.NeverAsked, "Nobody was asked"},
		{"no members", member, 0, nil, explain.NobodyThere, "no members"},
		{"old clients", with(func(e *shard.Explained) { e.SpeakOld, e.SpeakDesc = true, false }), 1, nil, explain.OldClient, "older than Kafka 4.4"},
		{"old and new clients", with(func(e *shard.Explained) { e.SpeakOld = true }), 2, nil, explain.NeverAsked, "Nobody was asked"},
		{"all behind", with(func(e *shard.Explained) { e.Current = 0 }), 1, nil, explain.AllBehind, "No member runs"},
		{"never asked", member, 1, nil, explain.NeverAsked, "the next heartbeat of a member is"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDescribing(t)
			topology := kmsg.NewStreamsGroupDescribeResponseGroupTopology()
			if c.setup != nil {
				c.setup(d)
			}
			c.shard.At = d.now
			d.world.shards.explained = map[string]explained{group: {c.shard, &topology}}
			d.world.shards.members = map[string]int{group: c.members}
			e := d.explanation(t, group)
			if text := e.Description.TextAt(e.At); e.Description.Cause != c.cause || !strings.Contains(text, c.text) {
				t.Errorf("got %s: %s\nwant %s: %s", e.Description.Cause, text, c.cause, c.text)
			}
			if got, status := d.explain(t, true, group)[0].TopologyDescriptionStatus, map[explain.Cause]int8{explain.Stored: 3, explain.Unavailable: 2}[c.cause]; got != max(status, 1) {
				t.Errorf("on the wire the status is %d", got)
			}
		})
	}
}

// Before there is a topology, there is nothing to ask for.
func TestADescriptionNeedsATopology(t *testing.T) {
	d := newDescribing(t)
	topology := kmsg.NewStreamsGroupDescribeResponseGroupTopology()
	topology.Epoch = eventlog.EpochNone
	d.world.shards.explained = map[string]explained{"g1": {shard.Explained{Described: shard.Described{Stored: -1}, Failed: -1, At: d.now}, &topology}}
	if e := d.explanation(t, "g1"); e.Description.Cause != explain.NoneToAsk {
		t.Errorf("%+v", e.Description)
	}
}

// What the shard says of missing internal topics is completed with what became of their creation.
func TestWhyInternalTopicsAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.creation
		c.creator = &fakeCreator{}
		c.busy["busy"] = struct{}{}
		c.failures.put("failed", creationFailure{text: "no room", retryAt: w.now.Add(10 * time.Second)})
		c.failures.put("over", creationFailure{text: "no room", retryAt: w.now.Add(-time.Second)})
		tell := func(topics ...string) explain.Reason {
			r := explain.Reason{Code: explain.MissingInternalTopics, Text: "Internal topics are missing: …"}
			for _, name := range topics {
				r.Topics = append(r.Topics, explain.Topic{Name: name, Expected: 2})
			}
			w.shards.explained = map[string]explained{"g1": {Explained: shard.Explained{At: w.now, Reasons: []explain.Reason{r, {Code: explain.SilentMember}}}}}
			return w.explanation(t, "g1").Reasons[0]
		}
		r := tell("busy", "failed", "over")
		want := []explain.Topic{{Name: "busy", Expected: 2, Creating: true},
			{Name: "failed", Expected: 2, Failure: "no room", RetryAt: explain.At(w.now.Add(10 * time.Second))}, {Name: "over", Expected: 2}}
		if !reflect.DeepEqual(r.Topics, want) || !strings.Contains(r.Todo, "The cluster says why") {
			t.Errorf("got %+v", r)
		}
		if r := tell("busy"); r.Todo != "" {
			t.Errorf("while they are being created: %s", r.Todo)
		}
		if r := tell("over"); !strings.Contains(r.Todo, "next heartbeat") {
			t.Errorf("before they are asked for: %s", r.Todo)
		}
		c.creator = nil
		if r := tell("over"); !strings.Contains(r.Todo, "does not make topics") {
			t.Errorf("without a creator: %s", r.Todo)
		}
	})
}

// The shard decides on topics that are known when it is asked; where the cluster does not tell of them, that is the first reason.
func TestAnExplanationKnowsTheTopics(t *testing.T) {
	w := newWorld(t)
	w.stored["g1"] = []string{"in"}
	if e := w.explanation(t, "g1"); len(e.Reasons) != 0 {
		t.Errorf("%+v", e.Reasons)
	}
	if _, ok := w.topics.Lookup("in"); !ok {
		t.Error("the topic of the group is not looked up")
	}
	w.cfg.RequiredTopics = func(string) ([]string, error) { return nil, fmt.Errorf("the log can't be read") }
	w.shards.explained = map[string]explained{"g1": {Explained: shard.Explained{Reasons: []explain.Reason{{Code: explain.MissingSourceTopics}, {Code: explain.SilentMember}}}}}
	e := w.explanation(t, "g1")
	if len(e.Reasons) != 2 || e.Reasons[1].Code != explain.SilentMember || e.Reasons[0].Code != explain.TopicsUnknown || !strings.Contains(e.Reasons[0].Text, "the log can't be read") {
		t.Errorf("%+v", e.Reasons)
	}
}

// With the setting, a description that the plugin has lost marks its group, once per window; the wire says NOT_STORED as ever.
func TestALostDescriptionIsAskedForAgain(t *testing.T) {
	d := newDescribing(t)
	d.shards.stored = map[string]int32{"g1": 0}
	d.plugin.get = func(string) *plugin.Future[*plugin.Description] { return plugin.Completed[*plugin.Description](nil) }
	describe := func() int8 {
		r := kmsg.NewPtrStreamsGroupDescribeRequest()
		r.Version, r.Groups, r.IncludeTopologyDescription = 1, []string{"g1"}, true
		return d.Describe(t.Context(), Caller{}, r).Groups[0].TopologyDescriptionStatus
	}
	if got := describe(); got != descriptionNotStored || len(d.shards.calls) != 0 {
		t.Errorf("without the setting: status %d, calls %v", got, d.shards.calls)
	}
	found := 0
	d.descriptions.reask, d.descriptions.lost = true, func() { found++ }
	d.shards.fail["lost"] = shard.ErrNotOwner // is logged, and the answer is the same
	if got := describe(); got != descriptionNotStored || !reflect.DeepEqual(d.shards.calls, []string{"lost g1 0"}) || found != 1 {
		t.Errorf("status %d, calls %v", got, d.shards.calls)
	}
	delete(d.shards.fail, "lost")
	d.shards.wants = true
	if !d.Heartbeat(t.Context(), Caller{}, beat("g1", 5)).TopologyDescriptionRequired {
		t.Error("the first time the next heartbeat is not asked")
	}
	if got := d.push(); got != "0" {
		t.Fatal(got)
	}
	d.shards.calls = nil
	describe() // lost again
	if d.Heartbeat(t.Context(), Caller{}, beat("g1", 5)).TopologyDescriptionRequired {
		t.Error("asked at once for what is lost again and again")
	}
	describe()
	lost := 0
	for _, c := range d.shards.calls {
		if c == "lost g1 0" {
			lost++
		}
	}
	if lost != 1 {
		t.Errorf("marked %d times within a window", lost)
	}
	d.now = d.now.Add(time.Minute)
	if !d.Heartbeat(t.Context(), Caller{}, beat("g1", 5)).TopologyDescriptionRequired {
		t.Error("nobody is asked when the window is over")
	}
	// Where the plugin can't tell, nothing is lost.
	d.shards.calls = nil
	d.plugin.get = func(string) *plugin.Future[*plugin.Description] {
		return plugin.Failed[*plugin.Description](errors.New("down"))
	}
	if got := describe(); got != descriptionError || len(d.shards.calls) != 0 {
		t.Errorf("a failure of the plugin: status %d, calls %v", got, d.shards.calls)
	}
}
