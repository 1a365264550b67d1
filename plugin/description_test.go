package plugin

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// push is a description that a real Kafka Streams 4.4 application pushed: the frame as it went over the wire, and what Kafka's own
// classes read from it, written in our canonical form.
type push struct {
	Group       string          `json:"group"`
	Hex         string          `json:"hex"`
	Description json.RawMessage `json:"description"`
}

func pushes(t testing.TB) []push {
	f, err := os.Open("testdata/pushes.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []push
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var p push
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) != 8 {
		t.Fatalf("%d pushes, want 8", len(all))
	}
	return all
}

// fromWire reads the frame of a push.
func (p push) fromWire(t testing.TB) *Description {
	b, err := hex.DecodeString(p.Hex)
	if err != nil {
		t.Fatal(err)
	}
	r := kbin.Reader{Src: b}
	if key, version := r.Int16(), r.Int16(); key != 93 || version != 0 {
		t.Fatalf("key %d version %d", key, version)
	}
	r.Int32()          // correlation id
	r.NullableString() // client id
	r.Uvarint()        // tags
	req := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
	if err := req.ReadFrom(r.Src); err != nil {
		t.Fatal(err)
	}
	if req.Group != p.Group {
		t.Fatalf("group %q", req.Group)
	}
	node := func(n kmsg.TopologyDescriptionNode) Node {
		return Node{Name: n.Name, Type: NodeType(n.NodeType), SourceTopics: n.SourceTopics, SinkTopic: n.SinkTopic, Stores: n.Stores, Successors: n.Successors}
	}
	d := &Description{}
	for _, s := range req.TopologyDescription.Subtopologies {
		sub := Subtopology{ID: s.SubtopologyID}
		for _, n := range s.Nodes {
			sub.Nodes = append(sub.Nodes, node(n))
		}
		d.Subtopologies = append(d.Subtopologies, sub)
	}
	for _, g := range req.TopologyDescription.GlobalStores {
		d.GlobalStores = append(d.GlobalStores, GlobalStore{Source: node(g.Source), Processor: node(g.Processor)})
	}
	return d
}

// TestRealPushes: what real applications send keeps its content and its order through every form.
func TestRealPushes(t *testing.T) {
	for _, p := range pushes(t) {
		t.Run(p.Group, func(t *testing.T) {
			d := p.fromWire(t)
			if err := d.Validate(); err != nil {
				t.Fatal(err)
			}
			if !d.Normalize().Equal(d) {
				t.Error("a real push is not normal")
			}
			got, err := d.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, p.Description) {
				t.Errorf("canonical JSON\n%s\nwant\n%s", got, p.Description)
			}
			var back Description
			if err := json.Unmarshal(got, &back); err != nil || !back.Equal(d) {
				t.Errorf("from JSON: %+v, %v", back, err)
			}
			b, err := EncodeBinary(d, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := DecodeBinary(b); err != nil || !again.Equal(d) {
				t.Errorf("from the binary form: %+v, %v", again, err)
			}
			t.Logf("wire %d, JSON %d, binary %d bytes", len(p.Hex)/2, len(got), len(b))
		})
	}
}

func text(s string) *string { return &s }

func node(typ NodeType, name string) Node { return Node{Name: name, Type: typ} }

func TestValidateSpeaksKafkasWords(t *testing.T) {
	sub := func(nodes ...Node) Description {
		return Description{Subtopologies: []Subtopology{{ID: "7", Nodes: nodes}}}
	}
	global := func(s, p NodeType) Description {
		return Description{GlobalStores: []GlobalStore{{Source: node(NodeSource, "a"), Processor: node(NodeProcessor, "b")}, {Source: node(s, "s"), Processor: node(p, "p")}}}
	}
	const composed = "Global store must be composed of a source and a processor node."
	for _, c := range []struct {
		name, text, where string
		d                 Description
	}{
		{"empty", "", "", Description{}},
		{"all types", "", "", sub(node(1, "a"), node(2, "b"), node(3, "c"), node(3, "c"))},
		{"type 0", "Unknown topology node type: 0", `subtopology "7", node "x"`, sub(node(1, "a"), node(0, "x"))},
		{"type 4", "Unknown topology node type: 4", `subtopology "7", node "x"`, sub(node(4, "x"))},
		{"type -128", "Unknown topology node type: -128", `subtopology "7", node "x"`, sub(node(-128, "x"))},
		{"global source", "", "", global(1, 2)},
		{"global, wrong way round", composed, "global store 1 is a processor and a source", global(2, 1)},
		{"global, two sources", composed, "global store 1 is a source and a source", global(1, 1)},
		{"global, a sink", composed, "global store 1 is a source and a sink", global(1, 3)},
		{"global, unknown type first", "Unknown topology node type: 9", `global store 1, node "p"`, global(3, 9)},
		{"global, both unknown", "Unknown topology node type: 8", `global store 1, node "s"`, global(8, 9)},
	} {
		err := c.d.Validate()
		if c.text == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		invalid, ok := errors.AsType[*InvalidDescriptionError](err)
		if !ok || invalid.Text != c.text || invalid.Where != c.where || err.Error() != c.text {
			t.Errorf("%s: %#v", c.name, err)
		}
	}
}

func TestNormalizeIsKafkasConverter(t *testing.T) {
	full := func(typ NodeType) Node {
		return Node{Name: "n", Type: typ, SourceTopics: []string{"b", "a", "b"}, SinkTopic: text("t"), Stores: []string{"s", "s"}, Successors: []string{"z", "y", "z", "y", "x"}}
	}
	d := &Description{
		Subtopologies: []Subtopology{{ID: "i\xff", Nodes: []Node{full(NodeSource), full(NodeProcessor), full(NodeSink)}}, {ID: "i"}, {ID: "i"}},
		GlobalStores:  []GlobalStore{{Source: full(NodeSource), Processor: full(NodeProcessor)}},
	}
	before := d.Clone()
	next := []string{"z", "y", "x"}
	want := &Description{
		Subtopologies: []Subtopology{{ID: "i\uFFFD", Nodes: []Node{
			{Name: "n", Type: NodeSource, SourceTopics: []string{"b", "a"}, Successors: next},
			{Name: "n", Type: NodeProcessor, Stores: []string{"s"}, Successors: next},
			{Name: "n", Type: NodeSink, SinkTopic: text("t"), Successors: next},
		}}, {ID: "i"}, {ID: "i"}},
		GlobalStores: []GlobalStore{{
			Source:    Node{Name: "n", Type: NodeSource, SourceTopics: []string{"b", "a"}, Successors: next},
			Processor: Node{Name: "n", Type: NodeProcessor, Stores: []string{"s"}, Successors: next},
		}},
	}
	if got := d.Normalize(); !got.Equal(want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if !d.Equal(before) {
		t.Errorf("Normalize changed its input: %+v", d)
	}
	if got := want.Normalize(); !got.Equal(want) {
		t.Errorf("not stable: %+v", got)
	}
	long := Node{Name: "n", Type: NodeSource}
	for range 3 {
		for _, c := range "abcdefghijklmnopqrstuvwxyz" {
			long.SourceTopics = append(long.SourceTopics, string(c))
		}
	}
	got := (&Description{Subtopologies: []Subtopology{{Nodes: []Node{long}}}}).Normalize().Subtopologies[0].Nodes[0].SourceTopics
	if strings.Join(got, "") != "abcdefghijklmnopqrstuvwxyz" {
		t.Errorf("a long list: %q", got)
	}
	if (*Description)(nil).Normalize() != nil || (*Description)(nil).Clone() != nil {
		t.Error("nil does not stay nil")
	}
}

// descriptions draws any valid, normal description.
func descriptions() *rapid.Generator[*Description] {
	word := rapid.OneOf(rapid.StringN(0, 6, -1), rapid.SampledFrom([]string{"a", "b", "KSTREAM-SOURCE-0000000000", "<&>", "\u2028", "\x00", `"\`, "😀"}))
	words := rapid.SliceOfN(word, 0, 4)
	nodeOf := func(typ *rapid.Generator[NodeType]) *rapid.Generator[Node] {
		return rapid.Custom(func(t *rapid.T) Node {
			n := Node{Name: word.Draw(t, "name"), Type: typ.Draw(t, "type"), Successors: words.Draw(t, "successors")}
			switch n.Type {
			case NodeSource:
				n.SourceTopics = words.Draw(t, "topics")
			case NodeProcessor:
				n.Stores = words.Draw(t, "stores")
			case NodeSink:
				if rapid.Bool().Draw(t, "has topic") {
					n.SinkTopic = text(word.Draw(t, "topic"))
				}
			}
			return n
		})
	}
	return rapid.Custom(func(t *rapid.T) *Description {
		d := &Description{}
		for range rapid.IntRange(0, 4).Draw(t, "subtopologies") {
			d.Subtopologies = append(d.Subtopologies, Subtopology{
				ID: word.Draw(t, "id"), Nodes: rapid.SliceOfN(nodeOf(rapid.SampledFrom([]NodeType{NodeSource, NodeProcessor, NodeSink})), 0, 5).Draw(t, "nodes"),
			})
		}
		for range rapid.IntRange(0, 2).Draw(t, "global stores") {
			d.GlobalStores = append(d.GlobalStores, GlobalStore{
				Source: nodeOf(rapid.Just(NodeSource)).Draw(t, "source"), Processor: nodeOf(rapid.Just(NodeProcessor)).Draw(t, "processor"),
			})
		}
		return d.Normalize()
	})
}

// TestEveryFormKeepsEverything: both forms give back what went in, and equal values give equal bytes.
func TestEveryFormKeepsEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := descriptions().Draw(t, "description")
		clone := d.Clone()
		if !clone.Equal(d) || d.Bytes() != clone.Bytes() {
			t.Fatalf("the copy differs: %+v", clone)
		}
		j, err := d.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var fromJSON Description
		if err := json.Unmarshal(j, &fromJSON); err != nil || !fromJSON.Equal(d) {
			t.Fatalf("%s gives %+v, %v", j, fromJSON, err)
		}
		if again, _ := fromJSON.MarshalJSON(); !bytes.Equal(again, j) {
			t.Fatalf("%s\n%s", j, again)
		}
		b, err := EncodeBinary(d, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeBinary(b)
		if err != nil || !back.Equal(d) {
			t.Fatalf("%+v, %v", back, err)
		}
		if again, _ := EncodeBinary(clone, 1<<20); !bytes.Equal(again, b) {
			t.Fatal("equal descriptions have different bytes")
		}
		strs := d.Bytes()
		for n := range d.Nodes {
			strs -= len(n.Name)
		}
		if strs < 0 {
			t.Fatal("Bytes is less than the names")
		}
	})
}

// TestEqualSeesEveryDifference: a comparison that forgets a field would make every other test blind.
func TestEqualSeesEveryDifference(t *testing.T) {
	base := func() *Description {
		return &Description{
			Subtopologies: []Subtopology{{ID: "0", Nodes: []Node{
				{Name: "s", Type: NodeSource, SourceTopics: []string{"t"}, Successors: []string{"p"}},
				{Name: "p", Type: NodeProcessor, Stores: []string{"x"}},
				{Name: "k", Type: NodeSink, SinkTopic: text("out")},
			}}},
			GlobalStores: []GlobalStore{{Source: node(NodeSource, "gs"), Processor: node(NodeProcessor, "gp")}},
		}
	}
	for name, change := range map[string]func(*Description){
		"id":             func(d *Description) { d.Subtopologies[0].ID = "1" },
		"name":           func(d *Description) { d.Subtopologies[0].Nodes[0].Name = "" },
		"type":           func(d *Description) { d.Subtopologies[0].Nodes[2].Type = NodeProcessor },
		"topics":         func(d *Description) { d.Subtopologies[0].Nodes[0].SourceTopics = nil },
		"stores":         func(d *Description) { d.Subtopologies[0].Nodes[1].Stores[0] = "y" },
		"successors":     func(d *Description) { d.Subtopologies[0].Nodes[0].Successors[0] = "q" },
		"sink":           func(d *Description) { *d.Subtopologies[0].Nodes[2].SinkTopic = "in" },
		"no sink":        func(d *Description) { d.Subtopologies[0].Nodes[2].SinkTopic = nil },
		"order":          func(d *Description) { slices.Reverse(d.Subtopologies[0].Nodes) },
		"fewer":          func(d *Description) { d.Subtopologies = nil },
		"global source":  func(d *Description) { d.GlobalStores[0].Source.Name = "" },
		"global process": func(d *Description) { d.GlobalStores[0].Processor.Name = "" },
		"no global":      func(d *Description) { d.GlobalStores = nil },
	} {
		d := base()
		clone := d.Clone()
		change(d)
		if d.Equal(base()) || base().Equal(d) {
			t.Errorf("%s: no difference seen", name)
		}
		if !clone.Equal(base()) {
			t.Errorf("%s: the copy shares it", name)
		}
	}
	if base().Equal(nil) || (*Description)(nil).Equal(base()) || !(*Description)(nil).Equal(nil) {
		t.Error("nil")
	}
}

func TestJSONRefusesWithAReason(t *testing.T) {
	sub := func(node string) string {
		return `{"subtopologies":[{"id":"0","nodes":[` + node + `]}],"globalStores":[]}`
	}
	for in, want := range map[string]string{
		sub(`{"type":"source"}`):                        `a node has no "name"`,
		sub(`{"name":"x"}`):                             `node "x" has no "type"`,
		sub(`{"type":"sauce","name":"x"}`):              `node "x": unknown type "sauce" (want source, processor or sink)`,
		sub(`{"type":1,"name":"x"}`):                    "cannot unmarshal number",
		sub(`{"type":"sink","name":"x","topic":["a"]}`): "cannot unmarshal array",
		`{"globalStores":[{"source":{"type":"source","name":"s"},"processor":{"type":"sink","name":"p"}}]}`: "global store 0 is a source and a sink: Global store must",
		`{"globalStores":[{"source":{"type":"source","name":"s"}}]}`:                                        `global store 0, node "": Unknown topology node type: 0`,
		`[]`: "cannot unmarshal array",
		`{`:  "unexpected end",
	} {
		d := Description{Subtopologies: []Subtopology{{ID: "untouched"}}}
		err := json.Unmarshal([]byte(in), &d)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
		if len(d.Subtopologies) != 1 || d.Subtopologies[0].ID != "untouched" {
			t.Errorf("%s: half read: %+v", in, d)
		}
	}
	var d Description
	if err := json.Unmarshal([]byte(sub(`{"type":"sink","name":"x","colour":"red","topics":["not of a sink"]}`)), &d); err != nil {
		t.Errorf("a field of tomorrow: %v", err)
	}
	if n := d.Subtopologies[0].Nodes[0]; n.SourceTopics != nil || n.SinkTopic != nil {
		t.Errorf("%+v", n)
	}
	if _, err := (&Description{Subtopologies: []Subtopology{{Nodes: []Node{{Name: "x", Type: 9}}}}}).MarshalJSON(); err == nil || !strings.Contains(err.Error(), "Unknown topology node type: 9") {
		t.Errorf("an unknown type is written: %v", err)
	}
}
