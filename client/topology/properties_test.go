package topology

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// anyDescription draws descriptions that are mostly wrong: names from a small set, so that they meet, and arrows to anywhere.
func anyDescription(name *rapid.Generator[string]) *rapid.Generator[*Description] {
	node := func(typ *rapid.Generator[NodeType]) *rapid.Generator[Node] {
		return rapid.Custom(func(t *rapid.T) Node {
			n := Node{Name: name.Draw(t, "name"), Type: typ.Draw(t, "type"), Successors: none(rapid.SliceOfN(name, 0, 4).Draw(t, "successors"))}
			switch n.Type {
			case Source:
				n.Topics = none(rapid.SliceOfN(name, 0, 3).Draw(t, "topics"))
			case Processor:
				n.Stores = none(rapid.SliceOfN(name, 0, 3).Draw(t, "stores"))
			case Sink:
				if rapid.Bool().Draw(t, "fixed") {
					topic := name.Draw(t, "topic")
					n.SinkTopic = &topic
				}
			}
			return n
		})
	}
	any := node(rapid.SampledFrom([]NodeType{Source, Processor, Sink}))
	return rapid.Custom(func(t *rapid.T) *Description {
		return &Description{
			Subtopologies: none(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Subtopology {
				return Subtopology{ID: name.Draw(t, "id"), Nodes: none(rapid.SliceOfN(any, 0, 12).Draw(t, "nodes"))}
			}), 0, 4).Draw(t, "subtopologies")),
			GlobalStores: none(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) GlobalStore {
				return GlobalStore{node(rapid.Just(Source)).Draw(t, "source"), node(rapid.Just(Processor)).Draw(t, "processor")}
			}), 0, 2).Draw(t, "globalStores")),
		}
	})
}

func none[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

var (
	fewNames = rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "0", "1", "10", "2", "\U0001F600", "\uE000"})
	anyName  = rapid.OneOf(fewNames, rapid.String())
)

func TestJSONComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := anyDescription(anyName).Draw(t, "d")
		b, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var back Description
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		d.Link()
		if !reflect.DeepEqual(&back, d) {
			t.Fatalf("%+v came back as %+v", d, back)
		}
	})
}

func TestJSONThatIsRefused(t *testing.T) {
	for in, want := range map[string]string{
		`{"subtopologies":[{"id":"7","nodes":[{"name":"x","type":"sauce"}]}]}`: `subtopology "7", node 0: node "x": unknown node type "sauce"`,
		`{"globalStores":[{"source":{"name":"x","type":"source"}}]}`:           `processor of global store 0: missing`,
		`{"globalStores":[{"processor":{"name":"x","type":"processor"}}]}`:     `source of global store 0: missing`,
		`{"subtopologies":[{"id":"7","nodes":[{"name":1}]}]}`:                  `subtopology "7", node 0: json: cannot unmarshal number into Go struct field .Name of type string`,
		`{"subtopologies":7}`: `json: cannot unmarshal number into Go struct field jsonDescription.subtopologies of type []topology.jsonSubtopology`,
	} {
		d := &Description{Subtopologies: []Subtopology{{ID: "before"}}}
		if err := json.Unmarshal([]byte(in), d); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
		if len(d.Subtopologies) != 1 || d.Subtopologies[0].ID != "before" {
			t.Errorf("%s changed the description to %+v", in, d)
		}
	}
	if _, err := json.Marshal(&Description{Subtopologies: []Subtopology{{Nodes: []Node{{Name: "x", Type: 9}}}}}); err == nil || !strings.Contains(err.Error(), `node "x": unknown node type 9`) {
		t.Errorf("a node of type 9 as JSON: %v", err)
	}
}

// What is pushed, read and pushed again is the same, and so is what is pushed of the same in another order.
func TestToWireIsCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := anyDescription(anyName).Draw(t, "d")
		before := d.Clone()
		w, err := ToWire(d)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(d, before) {
			t.Fatalf("ToWire changed %+v to %+v", before, d)
		}
		back, err := FromWire(w.Subtopologies, w.GlobalStores)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ToWire(back)
		if err != nil || !reflect.DeepEqual(w, again) {
			t.Fatalf("%+v, then %+v, %v", w, again, err)
		}
	})
}

func TestWireThatIsRefused(t *testing.T) {
	node := func(name string, typ int8) kmsg.TopologyDescriptionNode {
		return kmsg.TopologyDescriptionNode{Name: name, NodeType: typ}
	}
	for want, in := range map[string]kmsg.TopologyDescription{
		`subtopology "3", node "x": unknown node type 0`:  {Subtopologies: []kmsg.TopologyDescriptionSubtopology{{SubtopologyID: "3", Nodes: []kmsg.TopologyDescriptionNode{node("x", 0)}}}},
		`subtopology "3", node "x": unknown node type 4`:  {Subtopologies: []kmsg.TopologyDescriptionSubtopology{{SubtopologyID: "3", Nodes: []kmsg.TopologyDescriptionNode{node("x", 4)}}}},
		`global store 0, node "s": unknown node type -1`:  {GlobalStores: []kmsg.TopologyDescriptionGlobalStore{{Source: node("s", -1), Processor: node("p", 2)}}},
		`global store 0, node "p": unknown node type 100`: {GlobalStores: []kmsg.TopologyDescriptionGlobalStore{{Source: node("s", 1), Processor: node("p", 100)}}},
		`global store 1 is a processor and a source, and must be a source and a processor`: {GlobalStores: []kmsg.TopologyDescriptionGlobalStore{
			{Source: node("s", 1), Processor: node("p", 2)}, {Source: node("p", 2), Processor: node("s", 1)}}},
	} {
		if _, err := FromWire(in.Subtopologies, in.GlobalStores); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for want, in := range map[string]Description{
		`subtopology "3", node "x": unknown node type 9`:                              {Subtopologies: []Subtopology{{ID: "3", Nodes: []Node{{Name: "x", Type: 9}}}}},
		`global store 0 is a source and a sink, and must be a source and a processor`: {GlobalStores: []GlobalStore{{Node{Type: Source}, Node{Type: Sink}}}},
	} {
		if _, err := ToWire(&in); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A predecessor is a successor seen from the other side.
func TestPredecessorsMirrorSuccessors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := anyDescription(fewNames).Draw(t, "d")
		d.Link()
		for _, s := range d.Subtopologies {
			for _, a := range s.Nodes {
				for _, b := range s.Nodes {
					if slices.Contains(b.Successors, a.Name) != slices.Contains(a.Predecessors, b.Name) &&
						!slices.ContainsFunc(s.Nodes, func(c Node) bool { return c.Name == b.Name && slices.Contains(c.Successors, a.Name) }) {
						t.Fatalf("%q leads to %q: %v and %v", b.Name, a.Name, b.Successors, a.Predecessors)
					}
				}
				if !slices.IsSortedFunc(a.Predecessors, compareJava) || len(slices.Compact(slices.Clone(a.Predecessors))) != len(a.Predecessors) {
					t.Fatalf("predecessors %q", a.Predecessors)
				}
			}
		}
	})
}

func TestCompareJavaIsByUTF16(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gen := rapid.StringOf(rapid.OneOf(rapid.SampledFrom([]rune("ab\uD7FF\uE000\uFFFD\uFFFF\U00010000\U0010FFFF")), rapid.Rune()))
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		want := slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
		if got := compareJava(a, b); cmp.Compare(got, 0) != want {
			t.Fatalf("compareJava(%q, %q) = %d, want %d", a, b, got, want)
		}
	})
}

// Boxes and frames do not overlap, and stand in their frames and in the picture.
func TestDrawingsAreInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := anyDescription(anyName).Draw(t, "d")
		p, err := d.draw(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		s, err := place(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		type rect struct{ x0, y0, x1, y1 float64 }
		of := func(at point, z size) rect { return rect{at.x, at.y, at.x + z.w, at.y + z.h} }
		within := func(in, out rect) bool {
			const e = 0.01
			return in.x0 >= out.x0-e && in.y0 >= out.y0-e && in.x1 <= out.x1+e && in.y1 <= out.y1+e
		}
		var things, boxes []rect
		for _, c := range s.clusters {
			things = append(things, of(c.at, c.size))
		}
		for i := range s.boxes {
			r := of(s.boxes[i].at, s.boxes[i].size)
			for _, f := range []float64{r.x0, r.y0, r.x1, r.y1} {
				if math.IsNaN(f) || math.IsInf(f, 0) {
					t.Fatalf("box %d stands at %v", i, r)
				}
			}
			boxes = append(boxes, r)
			if c := s.boxes[i].cluster; c == outside {
				things = append(things, r)
			} else if !within(r, things[c]) {
				t.Fatalf("box %d %v is not in its frame %v", i, r, things[c])
			}
			if !within(r, rect{0, 0, s.w, s.h}) {
				t.Fatalf("box %d %v is not in the picture %v", i, r, s.size)
			}
		}
		for _, group := range [][]rect{things, boxes} {
			for i := range group {
				for j := range i {
					if a, b := group[i], group[j]; a.x0 < b.x1-0.01 && b.x0 < a.x1-0.01 && a.y0 < b.y1-0.01 && b.y0 < a.y1-0.01 {
						t.Fatalf("%v and %v overlap", a, b)
					}
				}
			}
		}
	})
}

func TestLayersLeadDown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "n")
		vertex := rapid.IntRange(0, n-1)
		var edges []edge
		for range rapid.IntRange(0, 60).Draw(t, "edges") {
			if a, b := vertex.Draw(t, "a"), vertex.Draw(t, "b"); a < b { // no circles
				edges = append(edges, edge{from: a, to: b})
			}
		}
		ends := rapid.SliceOfN(rapid.SampledFrom([]end{anywhere, atTop, atBottom}), n, n).Draw(t, "ends")
		g, err := layers(context.Background(), make([]size, n), edges, ends)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range edges {
			if g.layer[e.from] >= g.layer[e.to] || len(g.routes[i]) != g.layer[e.to]-g.layer[e.from]-1 {
				t.Fatalf("edge %v from layer %d to %d with %d bends", e, g.layer[e.from], g.layer[e.to], len(g.routes[i]))
			}
		}
		seen := 0
		for l, row := range g.rows {
			for _, v := range row {
				if g.layer[v] != l {
					t.Fatalf("vertex %d of layer %d in row %d", v, g.layer[v], l)
				}
				seen++
			}
		}
		if seen != len(g.layer) {
			t.Fatalf("%d vertices in the rows, want %d", seen, len(g.layer))
		}
	})
}

// FuzzWire: whatever a broker answers, or an application pushes, is read or refused, and what is read can be drawn.
func FuzzWire(f *testing.F) {
	for _, c := range capturedAll(f) {
		_, body := c.push(f)
		f.Add(body)
	}
	for _, name := range names {
		w, err := ToWire(named(name))
		if err != nil {
			f.Fatal(err)
		}
		r := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
		r.TopologyDescription = w
		f.Add(r.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
		if r.ReadFrom(body) != nil {
			t.Skip("not a request")
		}
		d, err := FromWire(r.TopologyDescription.Subtopologies, r.TopologyDescription.GlobalStores)
		if err != nil {
			t.Skip("not a topology")
		}
		if _, err := ToWire(d); err != nil {
			t.Fatalf("read, but not written: %v", err)
		}
		for _, format := range Formats() {
			var b bytes.Buffer
			if err := d.Write(t.Context(), &b, format); err != nil {
				t.Fatal(err)
			}
			switch format {
			case JSON:
				if !json.Valid(b.Bytes()) {
					t.Fatalf("not JSON: %s", b.Bytes())
				}
			case SVG:
				svgTexts(t, b.String())
			case DOT, Mermaid:
				if i := strings.IndexFunc(b.String(), func(r rune) bool { return r < ' ' && r != '\n' || turns(r) }); i >= 0 {
					t.Fatalf("raw %q at %d of %s", b.String()[i], i, b.String())
				}
			}
		}
	})
}
