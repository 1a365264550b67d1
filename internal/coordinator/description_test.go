package coordinator

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"streamkeeper/eventlog"
	"streamkeeper/plugin"
	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

// describedShards record the barriers and outcomes of topology descriptions, and answer what the test says.
type describedShards struct {
	*fakeShards
	tenure context.Context
	stored map[string]int32 // by group; the topology's epoch is 0
	fail   map[string]error // by verb
	busy   bool             // a member is there: nothing is marked for deletion

	refusals []eventlog.DescriptionRefusal
}

func (s *describedShards) Tenure(string) context.Context { return s.tenure }
func (s *describedShards) BeginPush(_ context.Context, group, member string, epoch int32, invalid error) error {
	s.call("begin %s %s %d", group, member, epoch)
	if err := s.fail["begin"]; err != nil {
		return err
	}
	return invalid
}
func (s *describedShards) PushStored(_ context.Context, group string, epoch int32) error {
	s.call("stored %s %d", group, epoch)
	return s.fail["stored"]
}
func (s *describedShards) PushRefused(_ context.Context, group string, why eventlog.DescriptionRefusal) error {
	s.call("refused %s %d", group, why.TopologyEpoch)
	s.refusals = append(s.refusals, why)
	return s.fail["refused"]
}
func (s *describedShards) MarkForDelete(_ context.Context, group string) (bool, error) {
	s.call("mark %s", group)
	return !s.busy, s.fail["mark"]
}
func (s *describedShards) DescriptionDeleted(_ context.Context, group string) error {
	s.call("deleted %s", group)
	if s.fail["deleted"] == nil {
		s.mu.Lock()
		delete(s.fakeShards.err, group)
		s.mu.Unlock()
	}
	return s.fail["deleted"]
}
func (s *describedShards) Doubt(_ context.Context, group string) error {
	s.call("doubt %s", group)
	return nil
}
func (s *describedShards) DescriptionLost(_ context.Context, group string, epoch int32) error {
	s.call("lost %s %d", group, epoch)
	return s.fail["lost"]
}
func (s *describedShards) DescribeStored(ctx context.Context, group string) (shard.Described, error) {
	g, err := s.Describe(ctx, group)
	topology := kmsg.NewStreamsGroupDescribeResponseGroupTopology()
	g.Topology = &topology
	stored, ok := s.stored[group]
	if !ok {
		stored = eventlog.EpochNone
	}
	return shard.Described{Group: g, Stored: stored}, err
}

// scriptedPlugin does what the test says.
type scriptedPlugin struct {
	mu     sync.Mutex
	calls  []string
	set    func(*plugin.Description) *plugin.Future[plugin.Void]
	get    func(group string) *plugin.Future[*plugin.Description]
	delete func(group string) *plugin.Future[plugin.Void]
	closed bool
}

func (p *scriptedPlugin) call(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, fmt.Sprintf(format, args...))
}
func (p *scriptedPlugin) Name() string { return "scripted" }
func (p *scriptedPlugin) Set(_ context.Context, group string, epoch int32, d *plugin.Description) *plugin.Future[plugin.Void] {
	p.call("set %s %d", group, epoch)
	if p.set != nil {
		return p.set(d)
	}
	return plugin.Completed(plugin.Void{})
}
func (p *scriptedPlugin) Get(_ context.Context, group string, epoch int32) *plugin.Future[*plugin.Description] {
	p.call("get %s %d", group, epoch)
	return p.get(group)
}
func (p *scriptedPlugin) Delete(_ context.Context, group string) *plugin.Future[plugin.Void] {
	p.call("delete %s", group)
	if p.delete != nil {
		return p.delete(group)
	}
	return plugin.Completed(plugin.Void{})
}
func (p *scriptedPlugin) Close(context.Context) error { p.closed = true; return nil }

// describing is a world with a plugin.
type describing struct {
	*world
	shards  *describedShards
	plugin  *scriptedPlugin
	traced  *plugin.Traced
	backoff *plugin.Backoff
	spans   *tracetest.SpanRecorder
}

func newDescribing(t *testing.T) *describing {
	t.Helper()
	w := newWorld(t)
	d := &describing{world: w, plugin: &scriptedPlugin{}, spans: tracetest.NewSpanRecorder(), backoff: plugin.NewBackoff(func() float64 { return 0.5 }, 0)}
	d.shards = &describedShards{fakeShards: w.shards, tenure: t.Context(), stored: map[string]int32{}, fail: map[string]error{}}
	w.shards.owned[1] = true
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(d.spans)).Tracer("test")
	var err error
	if d.traced, err = plugin.NewTraced(d.plugin, plugin.Config{Tracer: tracer}); err != nil {
		t.Fatal(err)
	}
	d.descriptions = newDescriptions(&Descriptions{Plugin: d.traced, Shards: d.shards, Backoff: d.backoff})
	t.Cleanup(d.Coordinator.Close)
	return d
}

func aPush(change ...func(*kmsg.StreamsGroupTopologyDescriptionUpdateRequest)) *kmsg.StreamsGroupTopologyDescriptionUpdateRequest {
	r := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
	r.Group, r.MemberID = "g1", "m"
	s := kmsg.NewTopologyDescriptionSubtopology()
	s.SubtopologyID = "0"
	s.Nodes = []kmsg.TopologyDescriptionNode{
		{Name: "source", NodeType: 1, SourceTopics: []string{"in", "in"}, Stores: []string{"dropped"}, Successors: []string{"sink"}},
		{Name: "sink", NodeType: 3, SinkTopic: kmsg.StringPtr("out")},
	}
	r.TopologyDescription.Subtopologies = []kmsg.TopologyDescriptionSubtopology{s}
	for _, f := range change {
		f(r)
	}
	return r
}

func textOf(code int16, message *string) string {
	if message == nil {
		return fmt.Sprint(code)
	}
	return fmt.Sprint(code, " ", *message)
}

func (d *describing) push(change ...func(*kmsg.StreamsGroupTopologyDescriptionUpdateRequest)) string {
	resp := d.TopologyDescriptionUpdate(context.Background(), Caller{}, aPush(change...))
	return textOf(resp.ErrorCode, resp.ErrorMessage)
}

func TestPushIsCheckedInKafkasOrder(t *testing.T) {
	type request = kmsg.StreamsGroupTopologyDescriptionUpdateRequest
	badNode := func(r *request) { r.TopologyDescription.Subtopologies[0].Nodes[1].NodeType = 9 }
	badStore := func(r *request) {
		r.TopologyDescription.GlobalStores = []kmsg.TopologyDescriptionGlobalStore{{
			Source: kmsg.TopologyDescriptionNode{NodeType: 1}, Processor: kmsg.TopologyDescriptionNode{NodeType: 3}}}
	}
	for _, c := range []struct {
		name   string
		setup  func(*describing)
		change []func(*request)
		want   string
		calls  []string
	}{
		{"no plugin", func(d *describing) { d.descriptions = nil }, []func(*request){func(r *request) { r.MemberID = "" }},
			"35 The broker has no streams group topology description plugin configured.", nil},
		{"blank member before blank group", nil, []func(*request){func(r *request) { r.MemberID, r.Group = " \t", " " }}, "42 MemberId can't be empty.", nil},
		{"blank group", nil, []func(*request){func(r *request) { r.Group = "  " }, badNode}, "42 GroupId can't be empty.", nil},
		{"group id that is no text", nil, []func(*request){func(r *request) { r.Group = "g\xff" }}, "24 " + impossibleGroup.Message, nil},
		{"another owner", func(d *describing) { d.shards.fail["begin"] = shard.ErrNotOwner; d.shards.known["g1"] = true }, nil, "16", []string{"begin g1 m 0"}},
		{"loading", func(d *describing) { d.shards.fail["begin"] = shard.ErrLoading }, nil, "14", []string{"begin g1 m 0"}},
		{"group that is nowhere", func(d *describing) { d.shards.fail["begin"] = &streams.Error{Code: 69, Message: "Group g1 not found."} }, nil,
			"69 Group g1 not found.", []string{"begin g1 m 0"}},
		{"group of the cluster's own", func(d *describing) {
			d.shards.fail["begin"], d.foreign.kind = &streams.Error{Code: 69, Message: "Group g1 not found."}, "classic"
		}, nil, "69 Group g1 is not a streams group.", []string{"begin g1 m 0"}},
		{"member before description", func(d *describing) {
			d.shards.fail["begin"] = &streams.Error{Code: 25, Message: "Member m is not a member of group g1."}
		}, []func(*request){badNode}, "25 Member m is not a member of group g1.", []string{"begin g1 m 0"}},
		{"unknown node type", nil, []func(*request){badNode}, "42 Unknown topology node type: 9", []string{"begin g1 m 0"}},
		{"global store", nil, []func(*request){badStore}, "42 Global store must be composed of a source and a processor node.", []string{"begin g1 m 0"}},
		{"accepted", nil, nil, "0", []string{"begin g1 m 0", "stored g1 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDescribing(t)
			if c.setup != nil {
				c.setup(d)
			}
			if got := d.push(c.change...); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if !slices.Equal(d.shards.calls, c.calls) {
				t.Errorf("calls %v, want %v", d.shards.calls, c.calls)
			}
			if called := len(d.plugin.calls) > 0; called != (c.want == "0") {
				t.Errorf("plugin calls %v", d.plugin.calls)
			}
		})
	}
}

func TestOutcomesOfAPush(t *testing.T) {
	const group = "g1"
	permanent := func(*plugin.Description) *plugin.Future[plugin.Void] {
		return plugin.Failed[plugin.Void](plugin.Permanent("too odd"))
	}
	transient := func(*plugin.Description) *plugin.Future[plugin.Void] {
		return plugin.Failed[plugin.Void](errors.New("backend down"))
	}
	for _, c := range []struct {
		name  string
		set   func(*plugin.Description) *plugin.Future[plugin.Void]
		fail  map[string]error
		want  string
		calls string // after the barrier
		entry string // of the back-off, which was armed before
	}{
		{"stored", nil, nil, "0", "stored g1 0", "gone"},
		{"permanent", permanent, nil, "135 too odd", "refused g1 0", "gone"},
		{"transient", transient, nil, "135 backend down", "", "extended"},
		{"panic", func(*plugin.Description) *plugin.Future[plugin.Void] { panic("oops") }, nil,
			"135 Topology description plugin failed.", "refused g1 0", "gone"},
		{"no future", func(*plugin.Description) *plugin.Future[plugin.Void] { return nil }, nil,
			"135 Topology description plugin failed.", "refused g1 0", "gone"},
		{"never completes", func(*plugin.Description) *plugin.Future[plugin.Void] { return new(plugin.Future[plugin.Void]) }, nil,
			"135 the topology description plugin did not answer within 4s", "", "extended"},
		{"group gone when it was stored", nil, map[string]error{"stored": &streams.Error{Code: 69, Message: "Group g1 not found."}},
			"69 Group g1 not found.", "stored g1 0, doubt g1", "gone"},
		{"group gone when it was refused", permanent, map[string]error{"refused": &streams.Error{Code: 69, Message: "Group g1 not found."}},
			"69 Group g1 not found.", "refused g1 0", "gone"},
		{"outcome not written, moved", nil, map[string]error{"stored": shard.ErrNotOwner}, "16", "stored g1 0", "kept"},
		{"outcome not written, loading", nil, map[string]error{"stored": shard.ErrLoading}, "14", "stored g1 0", "kept"},
		{"outcome not written, unavailable", permanent, map[string]error{"refused": shard.ErrUnavailable}, "15", "refused g1 0", "kept"},
		{"outcome not written, other", nil, map[string]error{"stored": shard.ErrTooLarge}, "-1", "stored g1 0", "extended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDescribing(t)
				d.plugin.set = c.set
				if c.fail != nil {
					d.shards.fail = c.fail
				}
				d.backoff.Arm(group, 0, d.now)
				if got := d.push(); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
				if got := strings.Join(d.shards.calls[1:], ", "); got != c.calls {
					t.Errorf("calls %s, want %s", got, c.calls)
				}
				if strings.HasPrefix(c.calls, "refused") {
					_, reason, _ := strings.Cut(c.want, " ")
					if c.fail != nil {
						reason = "too odd"
					}
					if want := (eventlog.DescriptionRefusal{Plugin: "scripted", Member: "m", Reason: reason}); d.shards.refusals[0] != want {
						t.Errorf("recorded %+v, want %+v", d.shards.refusals[0], want)
					}
				}
				if e, ok := d.backoff.Entry(group); ok && c.entry == "extended" && (e.Failures != 1 || e.Failure == "") {
					t.Errorf("the failure is not remembered: %+v", e)
				}
				entry := "gone"
				if e, ok := d.backoff.Entry(group); ok {
					entry = map[int]string{0: "kept", 1: "extended"}[e.Attempts]
				}
				if entry != c.entry {
					t.Errorf("the back-off entry is %s, want %s", entry, c.entry)
				}
				if deleted := slices.Contains(d.plugin.calls, "delete g1"); deleted != strings.Contains(c.calls, "doubt") {
					t.Errorf("plugin calls %v", d.plugin.calls)
				}
			})
		})
	}
}

// What a plugin still does when the shard has moved is not recorded: the group is uncertain, and the next owner decides.
func TestAPushEndsWithTheShard(t *testing.T) {
	for cause, want := range map[error]string{shard.ErrNotOwner: "16", shard.ErrLoading: "14", shard.ErrUnavailable: "15", eventlog.ErrFenced: "16",
		errors.New("of some kind"): "16"} {
		synctest.Test(t, func(t *testing.T) {
			d := newDescribing(t)
			tenure, end := context.WithCancelCause(t.Context())
			d.shards.tenure = tenure
			d.plugin.set = func(*plugin.Description) *plugin.Future[plugin.Void] {
				end(cause)
				return new(plugin.Future[plugin.Void])
			}
			d.backoff.Arm("g1", 0, d.now)
			if got := d.push(); got != want {
				t.Errorf("%v: got %s, want %s", cause, got, want)
			}
			if e, _ := d.backoff.Entry("g1"); len(d.shards.calls) != 1 || e.Attempts != 0 {
				t.Errorf("%v: calls %v, %d attempts", cause, d.shards.calls, e.Attempts)
			}
		})
	}
}

func TestAMemberIsAskedOncePerWindow(t *testing.T) {
	d := newDescribing(t)
	ask := func() bool {
		return d.Heartbeat(t.Context(), Caller{}, beat("g1", 5)).TopologyDescriptionRequired
	}
	if ask() {
		t.Error("asked for what the shard does not want")
	}
	if d.backoff.Len() != 0 {
		t.Error("a window began for nothing")
	}
	d.shards.wants = true
	// Kafka's windows, without jitter: 30 s, 60 s, ... each begins when somebody is asked.
	for _, window := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute} {
		if !ask() {
			t.Fatalf("not asked before the window of %s", window)
		}
		d.now = d.now.Add(window - time.Millisecond)
		if ask() {
			t.Errorf("asked twice in the window of %s", window)
		}
		d.now = d.now.Add(time.Millisecond)
	}
	d.descriptions = nil
	if ask() {
		t.Error("asked without a plugin")
	}
}

func TestAPushIsLinkedToTheHeartbeatThatAskedForIt(t *testing.T) {
	d := newDescribing(t)
	d.shards.wants = true
	tracer := sdktrace.NewTracerProvider().Tracer("gateway")
	ctx, span := tracer.Start(t.Context(), "heartbeat")
	if !d.Heartbeat(ctx, Caller{}, beat("g1", 5)).TopologyDescriptionRequired {
		t.Fatal("not asked")
	}
	span.End()
	for range 2 {
		if got := d.push(); got != "0" {
			t.Fatal(got)
		}
	}
	ended := d.spans.Ended()
	if len(ended) != 2 || ended[0].Name() != "plugin set" {
		t.Fatalf("spans %v", ended)
	}
	if l := ended[0].Links(); len(l) != 1 || l[0].SpanContext.SpanID() != span.SpanContext().SpanID() {
		t.Errorf("links of the first push %v, want the heartbeat %s", l, span.SpanContext().SpanID())
	}
	if l := ended[1].Links(); len(l) != 0 {
		t.Errorf("a push that nobody asked for is linked: %v", l)
	}
}

func TestDescribeShowsDescriptions(t *testing.T) {
	d := newDescribing(t)
	d.shards.stored = map[string]int32{"ok1": 0, "lost1": 0, "down1": 0, "unsure1": eventlog.EpochUncertain, "old1": 7, "odd1": 0, "no1": 0}
	d.shards.err["no1"] = &streams.Error{Code: 69, Message: "Group no1 not found."}
	pushed := aPush().TopologyDescription
	kept, err := descriptionOf(&pushed)
	if err != nil {
		t.Fatal(err)
	}
	d.plugin.get = func(group string) *plugin.Future[*plugin.Description] {
		switch group {
		case "ok1":
			return plugin.Completed(kept)
		case "lost1":
			return plugin.Completed[*plugin.Description](nil)
		case "odd1":
			return plugin.Completed(&plugin.Description{Subtopologies: []plugin.Subtopology{{Nodes: []plugin.Node{{Type: 9}}}}})
		}
		return plugin.Failed[*plugin.Description](errors.New("down"))
	}
	describe := func(include bool, groups ...string) []string {
		r := kmsg.NewPtrStreamsGroupDescribeRequest()
		r.Version, r.Groups, r.IncludeTopologyDescription = 1, groups, include
		var got []string
		for _, g := range d.Describe(t.Context(), Caller{}, r).Groups {
			got = append(got, fmt.Sprintf("%s %d %v code %d", g.Group, g.TopologyDescriptionStatus, g.TopologyDescription != nil, g.ErrorCode))
		}
		return got
	}
	groups := []string{"ok1", "lost1", "down1", "never1", "unsure1", "old1", "odd1", "no1"}
	want := []string{"ok1 3 true code 0", "lost1 1 false code 0", "down1 2 false code 0", "never1 1 false code 0", "unsure1 1 false code 0",
		"old1 1 false code 0", "odd1 2 false code 0", "no1 0 false code 69"}
	if got := describe(true, groups...); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	slices.Sort(d.plugin.calls)
	if want := []string{"get down1 0", "get lost1 0", "get odd1 0", "get ok1 0"}; !reflect.DeepEqual(d.plugin.calls, want) {
		t.Errorf("plugin calls %v, want %v", d.plugin.calls, want)
	}
	d.plugin.calls = nil
	if got := describe(false, "ok1"); got[0] != "ok1 0 false code 0" || len(d.plugin.calls) != 0 {
		t.Errorf("without the flag: %v, plugin calls %v", got, d.plugin.calls)
	}
	d.descriptions = nil
	if got := describe(true, "ok1"); got[0] != "ok1 1 false code 0" {
		t.Errorf("without a plugin: %v", got)
	}
}

// Duplicates collapse, and fields of other node types go; unused lists are empty on the wire.
func TestDescriptionsAreConverted(t *testing.T) {
	r := aPush()
	r.TopologyDescription.GlobalStores = []kmsg.TopologyDescriptionGlobalStore{{
		Source:    kmsg.TopologyDescriptionNode{Name: "gs", NodeType: 1, SourceTopics: []string{"g"}, Successors: []string{"gp"}},
		Processor: kmsg.TopologyDescriptionNode{Name: "gp", NodeType: 2, Stores: []string{"s"}},
	}}
	d, err := descriptionOf(&r.TopologyDescription)
	if err != nil {
		t.Fatal(err)
	}
	w := wireDescription(d)
	want := []kmsg.TopologyDescriptionNode{
		{Name: "source", NodeType: 1, SourceTopics: []string{"in"}, Stores: []string{}, Successors: []string{"sink"}},
		{Name: "sink", NodeType: 3, SinkTopic: kmsg.StringPtr("out"), SourceTopics: []string{}, Stores: []string{}, Successors: []string{}},
	}
	if got := w.Subtopologies[0]; got.SubtopologyID != "0" || !reflect.DeepEqual(got.Nodes, want) {
		t.Errorf("got %+v, want %+v", got.Nodes, want)
	}
	if g := w.GlobalStores[0]; g.Source.Name != "gs" || g.Source.SourceTopics[0] != "g" || g.Processor.Stores[0] != "s" {
		t.Errorf("global store %+v", g)
	}
}

func TestDeleteGroupsDeletesDescriptionsFirst(t *testing.T) {
	const text = "134 Topology description plugin failed to delete the topology."
	for _, c := range []struct {
		name    string
		version int16
		setup   func(*describing)
		want    string
		calls   string
	}{
		{"without a description", 3, func(d *describing) { delete(d.shards.err, "g1") }, "0", "delete g1"},
		{"deleted", 3, nil, "0", "delete g1, mark g1, deleted g1, delete g1"},
		{"plugin failed", 3, func(d *describing) {
			d.plugin.delete = func(string) *plugin.Future[plugin.Void] { return plugin.Failed[plugin.Void](errors.New("secret")) }
		}, text, "delete g1, mark g1"},
		{"plugin failed, old client", 2, func(d *describing) { d.plugin.delete = func(string) *plugin.Future[plugin.Void] { return nil } },
			"-1 Topology description plugin failed to delete the topology.", "delete g1, mark g1"},
		{"shard moved", 3, func(d *describing) {
			tenure, end := context.WithCancelCause(context.Background())
			d.shards.tenure = tenure
			d.plugin.delete = func(string) *plugin.Future[plugin.Void] {
				end(shard.ErrNotOwner)
				return new(plugin.Future[plugin.Void])
			}
		}, "16", "delete g1, mark g1"},
		{"barrier failed", 3, func(d *describing) { d.shards.fail["mark"] = shard.ErrNotOwner }, "16", "delete g1, mark g1"},
		{"pushed again and again", 3, func(d *describing) { d.shards.fail["deleted"] = shard.ErrLoading }, text,
			strings.TrimSuffix(strings.Repeat("delete g1, mark g1, deleted g1, ", deletionsMax), ", ")},
		{"with members", 3, func(d *describing) {
			d.shards.err["g1"] = &streams.Error{Code: 68, Message: "The group g1 is not empty."}
		}, "68", "delete g1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDescribing(t)
			d.shards.err["g1"] = shard.ErrDescribed
			d.backoff.Arm("g1", 0, d.now)
			if c.setup != nil {
				c.setup(d)
			}
			r := kmsg.NewPtrDeleteGroupsRequest()
			r.Version, r.Groups = c.version, []string{"g1"}
			resp := d.DeleteGroups(t.Context(), Caller{}, r)
			if got := textOf(resp.Groups[0].ErrorCode, resp.Groups[0].ErrorMessage); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if got := strings.Join(d.shards.calls, ", "); got != c.calls {
				t.Errorf("calls %s, want %s", got, c.calls)
			}
			if _, kept := d.backoff.Entry("g1"); kept && c.want == "0" {
				t.Error("the back-off entry outlives the group")
			}
		})
	}
}

func TestCloseClosesThePlugin(t *testing.T) {
	d := newDescribing(t)
	d.Coordinator.Close()
	if !d.plugin.closed {
		t.Error("the plugin is open")
	}
	if got := d.push(); got != "15" {
		t.Errorf("a push afterwards: %s", got)
	}
}
