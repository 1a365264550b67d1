package kip1331

import (
	"fmt"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// pushStories is everything around StreamsGroupTopologyDescriptionUpdate.
func pushStories(t *testing.T, w *world) {
	t.Run("HappyPath", func(t *testing.T) { happyPath(t, w) })
	t.Run("Refusals", func(t *testing.T) { refusals(t, w) })
	t.Run("Conversion", func(t *testing.T) { conversion(t, w) })
	t.Run("Large", func(t *testing.T) { largeDescription(t, w) })
	t.Run("Outcomes", func(t *testing.T) { pushOutcomes(t, w) })
	t.Run("UnsolicitedPush", func(t *testing.T) { unsolicited(t, w) })
	t.Run("MemberLeavesMeanwhile", func(t *testing.T) { leavesMeanwhile(t, w) })
}

func happyPath(t *testing.T, w *world) {
	p, g := w.pair(t), w.group("happy")
	epoch := p.joined(1, g, "m")
	if s := p.describe(g)[g]; s != 1 {
		t.Errorf("status before the push: %d", s)
	}
	if code := p.push(pushing(g, "m", 0)); code != 0 {
		t.Errorf("push: %d", code)
	}
	if s := p.describe(g)[g]; s != 3 {
		t.Errorf("status after the push: %d", s)
	}
	if r := p.beat(heartbeat(1, g, "m", epoch)); r.TopologyDescriptionRequired {
		t.Error("a member is asked for what is stored")
	}
	p.leave(g, "m")
	if s := p.describe(g)[g]; s != 3 {
		t.Errorf("status of the empty group: %d", s)
	}
	p.delete(3, g)
	check(t, p, g, []string{"set 0 ok", "get 0 ok", "get 0 ok", "delete -1 ok"}, []string{"-1/-1", "-2/-1", "0/-1", "-2/-1", "-1/-1", "gone"})
}

// check compares calls and records of both sides, and with what is expected.
func check(t *testing.T, p *pair, group string, calls, states []string) {
	t.Helper()
	if got := p.pluginCalls(group); calls != nil && fmt.Sprint(got) != fmt.Sprint(calls) {
		t.Errorf("%s: calls of the plugin %q, want %q", group, got, calls)
	}
	if got := epochs(p.w.readLogs(t).same(p, group)); states != nil && fmt.Sprint(got) != fmt.Sprint(states) {
		t.Errorf("%s: epochs of the records %q, want %q", group, got, states)
	}
}

// refusals: each check of a push in its order, the first that fails decides.
func refusals(t *testing.T, w *world) {
	p, g := w.pair(t), w.group("refused")
	p.joined(1, g, "m")
	classic := w.group("classic")
	if code := p.commit(classic, "", -1, 1); code != 0 { // makes a classic group without members
		t.Fatalf("commit: %d", code)
	}
	p.describe(classic, "nobody")
	p.beat(heartbeat(1, classic, "m", 1))
	p.beat(heartbeat(1, classic, "m", -1))
	// Each spoils a push that would be accepted; a push with several of them is refused for the first.
	spoils := []struct {
		name string
		do   func(*pushRequest)
		code int16
	}{
		{"blank member", func(r *pushRequest) { r.MemberID = " \t" }, 42},
		{"empty member", func(r *pushRequest) { r.MemberID = "" }, 42},
		{"blank group", func(r *pushRequest) { r.Group = "  " }, 42},
		{"empty group", func(r *pushRequest) { r.Group = "" }, 42},
		{"no such group", func(r *pushRequest) { r.Group = "nobody" }, 69},
		{"classic group", func(r *pushRequest) { r.Group = classic }, 69},
		{"no such member", func(r *pushRequest) { r.MemberID = "other" }, 25},
		{"epoch above", func(r *pushRequest) { r.TopologyEpoch = 1 }, 42},
		{"epoch none", func(r *pushRequest) { r.TopologyEpoch = -1 }, 42},
		{"epoch uncertain", func(r *pushRequest) { r.TopologyEpoch = -2 }, 42},
		{"greatest epoch", func(r *pushRequest) { r.TopologyEpoch = math.MaxInt32 }, 42},
		{"node type 0", func(r *pushRequest) { r.TopologyDescription.Subtopologies[0].Nodes[1].NodeType = 0 }, 42},
		{"node type 4", func(r *pushRequest) { r.TopologyDescription.Subtopologies[0].Nodes[0].NodeType = 4 }, 42},
		{"node type -128", func(r *pushRequest) { r.TopologyDescription.Subtopologies[0].Nodes[2].NodeType = -128 }, 42},
		{"global source is a processor", func(r *pushRequest) { r.TopologyDescription.GlobalStores[0].Source.NodeType = 2 }, 42},
		{"global processor is a sink", func(r *pushRequest) { r.TopologyDescription.GlobalStores[0].Processor.NodeType = 3 }, 42},
		{"global processor unknown", func(r *pushRequest) { r.TopologyDescription.GlobalStores[0].Processor.NodeType = 9 }, 42},
	}
	for i, s := range spoils {
		r := pushing(g, "m", 0)
		s.do(r)
		if code := p.push(r); code != s.code {
			t.Errorf("%s: %d, want %d", s.name, code, s.code)
		}
		for _, more := range spoils[i+1:] {
			both := pushing(g, "m", 0)
			more.do(both)
			s.do(both)
			p.push(both)
		}
	}
	check(t, p, g, []string{}, []string{"-1/-1"})
}

// conversion: what the plugin, and so a describe, gets of odd descriptions.
func conversion(t *testing.T, w *world) {
	sub := func(nodes ...node) kmsg.TopologyDescription {
		d := kmsg.NewTopologyDescription()
		d.Subtopologies = []kmsg.TopologyDescriptionSubtopology{{SubtopologyID: "0", Nodes: nodes}}
		return d
	}
	everything := func(nodeType int8) node {
		return node{Name: "n", NodeType: nodeType, SourceTopics: []string{"b", "a", "b"}, SinkTopic: kmsg.StringPtr("t"), Stores: []string{"y", "x", "y"}, Successors: []string{"q", "p", "q", "n"}}
	}
	for name, d := range map[string]kmsg.TopologyDescription{
		"empty":             {},
		"no nodes":          sub(),
		"source":            sub(everything(1)),
		"processor":         sub(everything(2)),
		"sink":              sub(everything(3)),
		"computed sink":     sub(node{Name: "s", NodeType: 3}),
		"names twice":       sub(node{Name: "n", NodeType: 1}, node{Name: "n", NodeType: 2}, node{Name: "n", NodeType: 3}),
		"odd names":         sub(node{Name: "", NodeType: 2}, node{Name: "\u202e\U0001f600\"\n", NodeType: 2, Successors: []string{""}}),
		"ids twice":         {Subtopologies: []kmsg.TopologyDescriptionSubtopology{{SubtopologyID: "7"}, {SubtopologyID: "7"}, {SubtopologyID: ""}}},
		"only globals":      {GlobalStores: []kmsg.TopologyDescriptionGlobalStore{{Source: everything(1), Processor: everything(2)}}},
		"successor nowhere": sub(node{Name: "n", NodeType: 1, Successors: []string{"elsewhere"}}),
	} {
		t.Run(name, func(t *testing.T) {
			p, g := w.pair(t), w.group("converted")
			p.joined(1, g, "m")
			r := pushing(g, "m", 0)
			r.TopologyDescription = d
			if code := p.push(r); code != 0 {
				t.Fatalf("push: %d", code)
			}
			if s := p.describe(g)[g]; s != 3 {
				t.Errorf("status %d", s)
			}
		})
	}
}

// largeDescription: neither has a bound of its own below that of a request.
func largeDescription(t *testing.T, w *world) {
	p, g := w.pair(t), w.group("large-description")
	p.joined(1, g, "m")
	r := pushing(g, "m", 0)
	nodes := make([]node, 10_000)
	for i := range nodes {
		nodes[i] = node{Name: fmt.Sprintf("KSTREAM-PROCESSOR-%010d-%060d", i, i), NodeType: 2, Successors: []string{fmt.Sprintf("KSTREAM-PROCESSOR-%010d-%060d", i+1, i+1)}}
	}
	r.TopologyDescription.Subtopologies[0].Nodes = nodes // 1.8 MB
	if code := p.push(r); code != 0 {
		t.Fatalf("push: %d", code)
	}
	if s := p.describe(g)[g]; s != 3 {
		t.Errorf("status %d", s)
	}
}

// pushOutcomes: whatever the plugin does to a push, and what is left of it.
func pushOutcomes(t *testing.T, w *world) {
	p := w.pair(t)
	var groups []string
	for _, c := range []struct {
		behaviour string
		code      int16
		status    int8
		states    string // after the first push
	}{
		{"ok", 0, 3, "[-1/-1 -2/-1 0/-1]"},
		{"twice", 0, 3, "[-1/-1 -2/-1 0/-1]"},
		{"late", 0, 3, "[-1/-1 -2/-1 0/-1]"},
		{"transient", 135, 1, "[-1/-1 -2/-1]"},
		{"error", 135, 1, "[-1/-1 -2/-1]"},
		{"latefail", 135, 1, "[-1/-1 -2/-1]"},
		{"bare", 135, 1, "[-1/-1 -2/-1]"},
		{"mute", 135, 1, "[-1/-1 -2/-1]"},
		{"permanent", 135, 1, "[-1/-1 -2/-1 -2/0]"},
		{"wrapped", 135, 1, "[-1/-1 -2/-1 -2/0]"},
		{"throw", 135, 1, "[-1/-1 -2/-1 -2/0]"},
		{"nil", 135, 1, "[-1/-1 -2/-1 -2/0]"},
	} {
		g := w.group("outcome", "set:"+c.behaviour+"*1")
		groups = append(groups, g)
		epoch := p.joined(1, g, "m")
		if code := p.push(pushing(g, "m", 0)); code != c.code {
			t.Errorf("%s: %d, want %d", g, code, c.code)
		}
		if r := p.beat(heartbeat(1, g, "m", epoch)); r.TopologyDescriptionRequired {
			t.Errorf("%s: asked again at once", g)
		}
		if s := p.describe(g)[g]; s != c.status {
			t.Errorf("%s: status %d, want %d", g, s, c.status)
		}
		if got := fmt.Sprint(epochs(w.readLogs(t).same(p, g))); got != c.states {
			t.Errorf("%s: epochs %s, want %s", g, got, c.states)
		}
		// Whoever pushes again, asked or not, is not refused for what was before.
		if code := p.push(pushing(g, "m", 0)); code != 0 {
			t.Errorf("%s: second push: %d", g, code)
		}
		if s := p.describe(g)[g]; s != 3 {
			t.Errorf("%s: status after the second push %d", g, s)
		}
		p.leave(g, "m")
		p.delete(3, g)
		p.pluginCalls(g)
	}
	logs := w.readLogs(t)
	for _, g := range groups {
		logs.same(p, g)
	}
}

// unsolicited: a push of what is stored calls the plugin again, and if that fails nothing is stored any more.
func unsolicited(t *testing.T, w *world) {
	for behaviour, want := range map[string]string{
		"ok":        "[-1/-1 -2/-1 0/-1 -2/-1 0/-1]",
		"transient": "[-1/-1 -2/-1 0/-1 -2/-1]",
		"permanent": "[-1/-1 -2/-1 0/-1 -2/-1 -2/0]",
	} {
		p, g := w.pair(t), w.group("again", "set:ok*1", "set:"+behaviour)
		p.joined(1, g, "m")
		p.push(pushing(g, "m", 0))
		p.push(pushing(g, "m", 0))
		p.describe(g)
		if got := fmt.Sprint(epochs(w.readLogs(t).same(p, g))); got != want {
			t.Errorf("%s: %s, want %s", behaviour, got, want)
		}
		p.pluginCalls(g)
	}
}

// leavesMeanwhile: the member of a push may leave, and its group may be deleted, while the plugin works.
func leavesMeanwhile(t *testing.T, w *world) {
	p, q, g := w.pair(t), w.pair(t), w.group("gone", "set:held")
	p.joined(1, g, "m")
	pushed := make(chan int16, 1)
	go func() {
		defer close(pushed)
		pushed <- p.push(pushing(g, "m", 0))
	}()
	awaitCalls(t, q, g, "set 0 held")
	if s := q.describe(g)[g]; s != 1 {
		t.Errorf("status while the plugin works: %d", s)
	}
	q.leave(g, "m")
	q.free(g, "set")
	if code := <-pushed; code != 0 {
		t.Errorf("push: %d", code)
	}
	if s := q.describe(g)[g]; s != 3 {
		t.Errorf("status: %d", s)
	}
	check(t, q, g, nil, []string{"-1/-1", "-2/-1", "0/-1"})
}
