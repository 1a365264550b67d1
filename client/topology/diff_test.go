package topology

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func diffText(t testing.TB, d *Difference) string {
	t.Helper()
	var b bytes.Buffer
	if err := d.Write(t.Context(), &b, Text); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestDiffOfAnUpgrade(t *testing.T) {
	out, other := "out", "other-out"
	before := &Description{Subtopologies: []Subtopology{{ID: "0", Nodes: []Node{
		{Name: "in", Type: Source, Topics: []string{"orders"}, Successors: []string{"count"}},
		{Name: "count", Type: Processor, Stores: []string{"counts"}, Successors: []string{"sink"}},
		{Name: "sink", Type: Sink, SinkTopic: &out},
	}}}}
	after := &Description{
		Subtopologies: []Subtopology{
			{ID: "0", Nodes: []Node{{Name: "extra", Type: Source, Topics: []string{"more"}}}},
			{ID: "10", Nodes: []Node{
				{Name: "in", Type: Source, Topics: []string{"returns", "orders"}, Successors: []string{"filter"}},
				{Name: "filter", Type: Processor, Successors: []string{"count"}},
				{Name: "count", Type: Processor, Stores: []string{"sums", "counts"}, Successors: []string{"sink"}},
				{Name: "sink", Type: Sink, SinkTopic: &other},
			}},
		},
		GlobalStores: []GlobalStore{{Source: Node{Name: "g", Type: Source, Topics: []string{"glob"}, Successors: []string{"gp"}}, Processor: Node{Name: "gp", Type: Processor, Stores: []string{"gs"}}}},
	}
	d := Diff(before, after)
	const want = `+ source extra (sub-topology 0)
+ processor filter (sub-topology 10)
+ source g (global store)
+ processor gp (global store)
~ count: subtopology 0 is now 10
~ count: stores [counts] is now [counts, sums]
~ in: subtopology 0 is now 10
~ in: topics [orders] is now [orders, returns]
~ sink: subtopology 0 is now 10
~ sink: topic out is now other-out
+ filter --> count
+ g --> gp
+ in --> filter
- in --> count
+ store gs
+ store sums
+ topic glob (read)
+ topic more (read)
+ topic other-out (written)
+ topic returns (read)
- topic out (written)
`
	if got := diffText(t, d); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var b bytes.Buffer
	if err := d.Write(t.Context(), &b, JSON); err != nil {
		t.Fatal(err)
	}
	var back Difference
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || !reflect.DeepEqual(&back, d) {
		t.Errorf("as JSON %s, %v", b.String(), err)
	}
	if back.SubtopologiesIn != [2]int{1, 2} {
		t.Errorf("subtopologies %v", back.SubtopologiesIn)
	}
	if err := d.Write(t.Context(), &b, SVG); err == nil || err.Error() != "a difference is written as text or json, not as svg" {
		t.Errorf("as a picture: %v", err)
	}
}

// Nothing differs from itself, what one way adds the other removes, and no description makes it fail.
func TestDiffOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyDescription(anyName).Draw(t, "a"), anyDescription(anyName).Draw(t, "b")
		if d := Diff(a, a.Clone()); !d.Empty() {
			t.Fatalf("a description differs from itself: %+v", d)
		}
		x, y := Diff(a, b), Diff(b, a)
		if !reflect.DeepEqual(x.NodesAdded, y.NodesRemoved) || !reflect.DeepEqual(x.EdgesRemoved, y.EdgesAdded) || !reflect.DeepEqual(x.StoresAdded, y.StoresRemoved) ||
			!reflect.DeepEqual(x.TopicsRemoved, y.TopicsAdded) || len(x.NodesChanged) != len(y.NodesChanged) {
			t.Fatalf("there\n%+v\nback\n%+v", x, y)
		}
		if again := Diff(a, b); !reflect.DeepEqual(again, x) {
			t.Fatalf("twice the same question, two answers:\n%+v\n%+v", x, again)
		}
	})
}

func TestNamesInDiffs(t *testing.T) {
	for _, name := range names {
		d := Diff(&Description{}, named(name))
		text := diffText(t, d)
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		want := len(d.NodesAdded) + len(d.EdgesAdded) + len(d.StoresAdded) + len(d.TopicsAdded)
		if !utf8.ValidString(text) || len(lines) != want || strings.ContainsAny(text, "\x1b\x00\r\u202e\u2066\u2028") {
			t.Errorf("name %q: %d lines, want %d:\n%s", name, len(lines), want, text)
		}
		var b bytes.Buffer
		if err := d.Write(t.Context(), &b, JSON); err != nil || !json.Valid(b.Bytes()) {
			t.Errorf("name %q as JSON: %v", name, err)
		}
	}
}

// A chain of 100,000 nodes against another one.
func TestDiffOfLargeDescriptions(t *testing.T) {
	chain := func(prefix string) *Description {
		s := Subtopology{ID: "0"}
		for i := range 100_000 {
			s.Nodes = append(s.Nodes, Node{Name: fmt.Sprint(prefix, i), Type: Processor, Successors: []string{fmt.Sprint(prefix, i+1)}})
		}
		return &Description{Subtopologies: []Subtopology{s}}
	}
	d := Diff(chain("a"), chain("b"))
	if len(d.NodesAdded) != 100_000 || len(d.EdgesRemoved) != 100_000 {
		t.Errorf("%d nodes, %d edges", len(d.NodesAdded), len(d.EdgesRemoved))
	}
	if n := strings.Count(diffText(t, d), "\n"); n != 400_000 {
		t.Errorf("%d lines", n)
	}
}

// Notes stand below the titles, in the formats that have them; hostile ones are labels like all names.
func TestNotesOfDrawings(t *testing.T) {
	d := &Description{Subtopologies: []Subtopology{{ID: "0", Nodes: []Node{{Name: "n", Type: Processor}}}, {ID: "1"}}}
	write := func(f Format, notes Notes) (string, error) {
		var b bytes.Buffer
		err := d.WriteWithNotes(t.Context(), &b, f, notes)
		return b.String(), err
	}
	notes := Notes{"0": {"0_0 active a", `0_1 "b"`}, "no such": {"x"}}
	for f, want := range map[Format]string{
		DOT:     `label="Sub-topology: 0\n0_0 active a\n0_1 \"b\"";`,
		Mermaid: `subgraph c0["Sub-topology: 0<br>#48;_0 active a<br>#48;_1 #34;b#34;"]`,
	} {
		if got, err := write(f, notes); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %v\n%s", f, err, got)
		}
	}
	for _, f := range []Format{Text, JSON, SVG} {
		if _, err := write(f, notes); err == nil || err.Error() != "topology as "+string(f)+" has no notes" {
			t.Errorf("%s: %v", f, err)
		}
		if got, err := write(f, Notes{}); err != nil || got != written(t, d, f) {
			t.Errorf("%s without notes: %v", f, err)
		}
	}
	many := make([]string, notesMax+5)
	if got, _ := write(DOT, Notes{"1": many}); !strings.Contains(got, "and 5 more") {
		t.Errorf("many notes: %.2000s", got)
	}
	for _, name := range names {
		got, err := write(DOT, Notes{"0": {name}})
		if plain := written(t, d, DOT); err != nil || strings.Count(got, "\n") != strings.Count(plain, "\n") {
			t.Errorf("note %q: %v\n%s", name, err, got)
		}
	}
	if _, err := write("png", nil); err == nil || errors.Is(err, ErrTooLarge) {
		t.Errorf("an unknown format: %v", err)
	}
}
