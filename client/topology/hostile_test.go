package topology

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-graphviz"
)

// names are legal in Kafka, or at least on the wire, and were trouble somewhere.
var names = []string{
	"a", "KSTREAM-SOURCE-0000000000", "with.dots.in.it", "with_under_score", strings.Repeat("n", 249), "..", "-", "1. first", "- item",
	`say "hello"`, `'single'`, "`tick`", `C:\new\name`, `\N \G \l`, `ends with \`, `\"`, "a&b", "&amp;", "&#65;", "<b>bold</b>", "</text><script>alert(1)</script>", "]]>", "<!--",
	"end", "subgraph", "graph", "click", "%%{init}%%", "#quot;", "a --> b", "a;b", "x{y}", "[z]", "|pipe|", "$HOME", "%s%d%n", "{{.}}",
	"مرحبا", "שלום-עולם", "a\u202Eb", "\u2066iso", "日本語のノード", "Ünïcödé", "e\u0301", "🎉", "👩‍👩‍👧‍👦", "🇩🇪", "\U0001F600\uFFFD",
	"", " ", "  two  spaces ", "tab\there", "line\nbreak", "carriage\rreturn", "nul\x00byte", "\x1b[31mred", "\x7f", "\u0085", "\u2028", "\uFFFE", "\U0010FFFF",
	"bad \xff\xfe utf8", "\xed\xa0\x80",
}

// named is a description with the name in every place that has one.
func named(name string) *Description {
	return &Description{
		Subtopologies: []Subtopology{{ID: name, Nodes: []Node{
			{Name: name, Type: Source, Topics: []string{name}, Successors: []string{"p" + name}},
			{Name: "p" + name, Type: Processor, Stores: []string{name}, Successors: []string{"s" + name, "gone" + name}},
			{Name: "s" + name, Type: Sink, SinkTopic: &name},
		}}},
		GlobalStores: []GlobalStore{{Source: Node{Name: name, Type: Source, Topics: []string{name}, Successors: []string{"g"}}, Processor: Node{Name: "g", Type: Processor, Stores: []string{name}}}},
	}
}

func written(t testing.TB, d *Description, f Format) string {
	t.Helper()
	var b bytes.Buffer
	if err := d.Write(context.Background(), &b, f); err != nil {
		t.Fatalf("%s: %v", f, err)
	}
	return b.String()
}

// svgTexts parses a drawing and returns the tooltips and the lines of text in it.
func svgTexts(t testing.TB, svg string) (titles, lines []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	d.Strict = true
	var in []string
	var text strings.Builder
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return titles, lines
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%.2000s", err, svg)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			in = append(in, tok.Name.Local)
			text.Reset()
			if !slices.Contains([]string{"svg", "title", "defs", "marker", "path", "rect", "g", "text"}, tok.Name.Local) {
				t.Fatalf("element %s", tok.Name.Local)
			}
		case xml.CharData:
			text.Write(tok)
		case xml.EndElement:
			switch in = in[:len(in)-1]; tok.Name.Local {
			case "title":
				titles = append(titles, text.String())
			case "text":
				lines = append(lines, text.String())
			}
		}
	}
}

func TestNamesInSVG(t *testing.T) {
	for _, name := range names {
		titles, lines := svgTexts(t, written(t, named(name), SVG))
		for _, want := range []string{"source " + visible(name), "processor " + visible("p"+name), "sink " + visible("s"+name), "topic " + visible(name), "store " + visible(name),
			"unknown successor " + visible("gone"+name)} {
			if !slices.Contains(titles, want) {
				t.Errorf("name %q: no tooltip %q in %q", name, want, titles)
			}
		}
		if all := strings.Join(lines, ""); !strings.Contains(all, visible("p"+name)) {
			t.Errorf("name %q is not in the text %q", name, all)
		}
	}
}

// Graphviz itself reads what we write, and what it draws holds the names.
func TestNamesInDOT(t *testing.T) {
	gv, err := graphviz.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer gv.Close()
	for _, name := range names {
		dot := written(t, named(name), DOT)
		g, err := graphviz.ParseBytes([]byte(dot))
		if err != nil {
			t.Fatalf("name %q: %v\n%s", name, err, dot)
		}
		var out bytes.Buffer
		if err := gv.Render(t.Context(), g, graphviz.SVG, &out); err != nil {
			t.Fatalf("name %q: %v\n%s", name, err, dot)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		texts := map[string]int{}
		for _, m := range regexp.MustCompile(`<text [^>]*>([^<]*)</text>`).FindAllStringSubmatch(out.String(), -1) {
			var s string
			if err := xml.Unmarshal([]byte("<a>"+m[1]+"</a>"), &s); err != nil {
				t.Fatal(err)
			}
			texts[strings.ReplaceAll(s, "\u00a0", " ")]++
		}
		for _, want := range []string{visible(name), visible("p" + name), visible("s" + name), visible("gone" + name), "Sub-topology: " + name} {
			if want = visible(want); texts[want] == 0 {
				t.Errorf("name %q: Graphviz draws no %q but %v", name, want, texts)
			}
		}
	}
}

var mermaidLabel = regexp.MustCompile(`^ *[bc0-9subgraph ]+[(\[{/]+"([^"]*)"`)

func TestNamesInMermaid(t *testing.T) {
	reference := regexp.MustCompile(`#(\d+);`)
	for _, name := range names {
		text := written(t, named(name), Mermaid)
		var labels []string
		for line := range strings.Lines(text) {
			m := mermaidLabel.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			for _, r := range reference.ReplaceAllString(strings.ReplaceAll(m[1], "<br>", ""), "") {
				if r < 0x80 && !strings.ContainsRune("-_.:, ()", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') || turns(r) {
					t.Errorf("name %q: %q holds %q, raw", name, m[1], r)
				}
			}
			labels = append(labels, reference.ReplaceAllStringFunc(m[1], func(s string) string {
				n, err := strconv.Atoi(s[1 : len(s)-1])
				if err != nil {
					t.Fatal(err)
				}
				return string(rune(n))
			}))
		}
		for _, want := range []string{visible(name), visible("p" + name), visible("s" + name), visible("gone"+name) + "<br>(not in this subtopology)", visible("Sub-topology: " + name)} {
			if !slices.Contains(labels, want) {
				t.Errorf("name %q: no label %q in %q", name, want, labels)
			}
		}
		if got, want := strings.Count(text, "\n"), strings.Count(written(t, named("plain"), Mermaid), "\n"); got != want {
			t.Errorf("name %q: %d lines, want %d", name, got, want)
		}
	}
}

func TestNamesInTextAndJSON(t *testing.T) {
	for _, name := range names {
		if text := written(t, named(name), Text); !strings.Contains(text, "    Source: "+name+" (topics: ["+name+"])\n      --> p"+name+"\n") {
			t.Errorf("name %q: %s", name, text)
		}
		var back Description
		if err := json.Unmarshal([]byte(written(t, named(name), JSON)), &back); err != nil {
			t.Fatalf("name %q: %v", name, err)
		}
		want := named(strings.ToValidUTF8(name, "\ufffd"))
		if !utf8.ValidString(name) {
			continue // how many U+FFFD a run of wrong bytes becomes is the encoder's business
		}
		want.Link()
		if !reflect.DeepEqual(&back, want) {
			t.Errorf("name %q came back as %+v", name, back)
		}
	}
}

// chain is a subtopology of n nodes in a row.
func chain(n int) *Description {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{Name: fmt.Sprintf("node-%06d", i), Type: Processor, Successors: []string{fmt.Sprintf("node-%06d", i+1)}}
	}
	nodes[0].Type, nodes[0].Topics = Source, []string{"in"}
	nodes[n-1] = Node{Name: nodes[n-1].Name, Type: Sink, SinkTopic: &nodes[0].Topics[0]}
	return &Description{Subtopologies: []Subtopology{{ID: "0", Nodes: nodes}}}
}

func TestAChainOf100000Nodes(t *testing.T) {
	d := chain(100_000)
	for _, f := range Formats() {
		start := time.Now()
		var b bytes.Buffer
		err := d.Write(t.Context(), &b, f)
		if f == SVG {
			if want := "topology too large to draw: it has 100001 boxes and 100001 arrows, and as svg at most 5000 and 10000 are drawn; use text, json, dot or mermaid"; !errors.Is(err, ErrTooLarge) || err.Error() != want || b.Len() > 0 {
				t.Errorf("svg: %v, want %s", err, want)
			}
		} else if err != nil || strings.Count(b.String(), "\n") < 100_000 {
			t.Errorf("%s: %d bytes, %v", f, b.Len(), err)
		}
		if took := time.Since(start); took > 30*time.Second { // a fraction of a second on an idle machine
			t.Errorf("%s took %v", f, took)
		}
	}
	if b, err := d.MarshalJSON(); err != nil || !json.Valid(b) {
		t.Errorf("not JSON: %v", err)
	}
}

// The largest drawing is made in bounded time, whatever leads where.
func TestTheLargestDrawings(t *testing.T) {
	const n = svgBoxesMax
	name := func(i int) string { return strconv.Itoa((i%n + n) % n) }
	for shape, successors := range map[string]func(i int) []string{
		"a circle":           func(i int) []string { return []string{name(i + 1)} },
		"two circles":        func(i int) []string { return []string{name(i + 1), name(i - 1)} },
		"long leaps":         func(i int) []string { return []string{name(i + 1), name(i * 7919)} },
		"to itself":          func(i int) []string { return []string{name(i)} },
		"all from one":       func(i int) []string { return []string{name(0)} },
		"nothing":            func(i int) []string { return nil },
		"a hundred, densely": func(i int) []string { return slices.Repeat([]string{name(i * i % 100), name(i % 97)}, 1) },
	} {
		d := &Description{Subtopologies: []Subtopology{{ID: "0"}}}
		for i := range n {
			d.Subtopologies[0].Nodes = append(d.Subtopologies[0].Nodes, Node{Name: name(i), Type: Processor, Successors: successors(i)})
		}
		start := time.Now()
		titles, _ := svgTexts(t, written(t, d, SVG))
		if len(titles) != n+1 {
			t.Errorf("%s: %d tooltips, want %d", shape, len(titles), n+1)
		}
		if took := time.Since(start); took > 30*time.Second { // about a second on an idle machine
			t.Errorf("%s took %v", shape, took)
		}
	}
}

// Nodes that share their names multiply the arrows between them: that ends at a limit.
func TestNodesOfOneName(t *testing.T) {
	const n = 20_000
	d := &Description{Subtopologies: []Subtopology{{ID: "0"}}}
	for i := range n {
		d.Subtopologies[0].Nodes = append(d.Subtopologies[0].Nodes, Node{Name: fmt.Sprintf("before-%d", i), Type: Processor, Successors: []string{"x"}})
	}
	for range n {
		d.Subtopologies[0].Nodes = append(d.Subtopologies[0].Nodes, Node{Name: "x", Type: Processor})
	}
	d.Link()
	if got := len(d.Subtopologies[0].Nodes[2*n-1].Predecessors); got != n {
		t.Errorf("%d predecessors, want %d", got, n)
	}
	for f, want := range map[Format]string{
		Text:    "topology too large to draw: as text it has more than 268435456 bytes",
		JSON:    "topology too large to draw: as json it has more than 268435456 bytes",
		DOT:     "topology too large to draw: it has more than 1048576 arrows; text and json have no such limit",
		Mermaid: "topology too large to draw: it has more than 1048576 arrows; text and json have no such limit",
		SVG:     "topology too large to draw: it has more than 1048576 arrows; text and json have no such limit",
	} {
		if err := d.Write(t.Context(), io.Discard, f); !errors.Is(err, ErrTooLarge) || err.Error() != want {
			t.Errorf("%s: %v, want %s", f, err, want)
		}
	}
	// A few of them are drawn, each with its arrows.
	d = &Description{Subtopologies: []Subtopology{{ID: "0", Nodes: []Node{{Name: "a", Type: Processor, Successors: []string{"b"}}, {Name: "b", Type: Processor}, {Name: "b", Type: Processor}}}}}
	if got := strings.Count(written(t, d, DOT), "->"); got != 2 {
		t.Errorf("%d arrows, want 2", got)
	}
}

func TestACancelledContextEndsTheWork(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("the reader has gone")
	cancel(cause)
	for _, f := range Formats() {
		if err := chain(2_000).Write(ctx, io.Discard, f); !errors.Is(err, cause) {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// full is a disk with no room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestAWriterThatFails(t *testing.T) {
	for _, f := range Formats() {
		if err := chain(1_000).Write(context.Background(), full{}, f); err == nil || err.Error() != "no space left" {
			t.Errorf("%s: %v", f, err)
		}
	}
}

func TestFormats(t *testing.T) {
	for _, f := range Formats() {
		if got, err := ParseFormat(strings.ToUpper(string(f))); err != nil || got != f {
			t.Errorf("%s: %q, %v", f, got, err)
		}
	}
	want := `unknown topology format "png", want one of text, json, dot, mermaid, svg`
	if _, err := ParseFormat("png"); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := (&Description{}).Write(t.Context(), io.Discard, "png"); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for _, f := range Formats() { // nothing at all is something to draw
		written(t, &Description{}, f)
		written(t, &Description{Subtopologies: []Subtopology{{}}}, f)
	}
}

// The texts that kafka-streams-groups has for what the captured applications don't do.
func TestTextOfWhatIsRare(t *testing.T) {
	d := &Description{
		Subtopologies: []Subtopology{{ID: "0", Nodes: []Node{
			{Name: "pattern", Type: Source, Successors: []string{"z", "p", "p"}},
			{Name: "p", Type: Processor, Stores: []string{"\U0001F600", "\uE000", "a", "a"}, Successors: []string{"p", "elsewhere"}},
			{Name: "z", Type: Sink},
			{Name: "lone", Type: Sink},
		}}},
		GlobalStores: []GlobalStore{{Source: Node{Name: "gs", Type: Source, Topics: []string{"t"}, Successors: []string{"gp"}}, Processor: Node{Name: "gp", Type: Processor, Stores: []string{"s"}}}},
	}
	want := `Topologies:
   Sub-topology: 0
    Source: pattern (topics: [])
      --> p, z
    Processor: p (stores: [a, ` + "\U0001F600, \uE000" + `])
      --> elsewhere, p
      <-- p, pattern
    Sink: z (topic: null)
      <-- pattern
    Sink: lone (topic: null)
      <-- none

   Sub-topology: 1 for global store (will not generate tasks)
    Source: gs (topics: [t])
      --> gp
    Processor: gp (stores: [s])
      --> none
      <-- gs

`
	if got := d.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
