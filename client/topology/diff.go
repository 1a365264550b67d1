package topology

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Difference is what changed from one description of an application to another one. Lists are sorted and never nil.
//
// Nodes are told apart by their names, wherever they stand: Kafka Streams numbers subtopologies anew when one is added. Where names are
// not unique, the first of a name is compared with the first, and so on. Arrows are pairs of names.
type Difference struct {
	NodesAdded      []PlacedNode  `json:"nodesAdded"`
	NodesRemoved    []PlacedNode  `json:"nodesRemoved"`
	NodesChanged    []ChangedNode `json:"nodesChanged"`
	EdgesAdded      []Edge        `json:"edgesAdded"`
	EdgesRemoved    []Edge        `json:"edgesRemoved"`
	StoresAdded     []string      `json:"storesAdded"`
	StoresRemoved   []string      `json:"storesRemoved"`
	TopicsAdded     []TopicUse    `json:"topicsAdded"`
	TopicsRemoved   []TopicUse    `json:"topicsRemoved"`
	SubtopologiesIn [2]int        `json:"subtopologies"` // how many there were, and are
}

// PlacedNode is a node with its place.
type PlacedNode struct {
	Name string `json:"name"`
	Type string `json:"type"` // source, processor, sink
	// Subtopology is the id of its subtopology; GlobalStore says that it belongs to a global store instead.
	Subtopology string `json:"subtopology,omitempty"`
	GlobalStore bool   `json:"globalStore,omitempty"`
}

// ChangedNode is a node that is in both descriptions and not the same.
type ChangedNode struct {
	Name string `json:"name"`
	// What are the fields that differ: "type", "subtopology", "topics", "topic", "stores". Before and After are their values.
	What   []string `json:"what"`
	Before []string `json:"before"`
	After  []string `json:"after"`
}

// Edge is an arrow from a node to its successor.
type Edge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// TopicUse is a topic and what the application does with it.
type TopicUse struct {
	Topic string `json:"topic"`
	Use   string `json:"use"` // "read" or "written"
}

// Empty says that nothing changed.
func (d *Difference) Empty() bool {
	return len(d.NodesAdded)+len(d.NodesRemoved)+len(d.NodesChanged)+len(d.EdgesAdded)+len(d.EdgesRemoved)+
		len(d.StoresAdded)+len(d.StoresRemoved)+len(d.TopicsAdded)+len(d.TopicsRemoved) == 0
}

// Diff compares two descriptions. It takes time and memory in proportion to their size, as often as names may repeat in them.
func Diff(from, to *Description) *Difference {
	a, b := content(from), content(to)
	out := &Difference{
		NodesAdded: []PlacedNode{}, NodesRemoved: []PlacedNode{}, NodesChanged: []ChangedNode{},
		SubtopologiesIn: [2]int{len(from.Subtopologies), len(to.Subtopologies)},
	}
	for key, n := range a.nodes {
		other, stays := b.nodes[key]
		switch {
		case !stays:
			out.NodesRemoved = append(out.NodesRemoved, n.placed())
		default:
			if c := n.changed(other); c != nil {
				out.NodesChanged = append(out.NodesChanged, *c)
			}
		}
	}
	for key, n := range b.nodes {
		if _, was := a.nodes[key]; !was {
			out.NodesAdded = append(out.NodesAdded, n.placed())
		}
	}
	places := func(x, y PlacedNode) int {
		return cmp.Or(compareBool(x.GlobalStore, y.GlobalStore), compareIDs(x.Subtopology, y.Subtopology), compareJava(x.Name, y.Name), strings.Compare(x.Type, y.Type))
	}
	slices.SortFunc(out.NodesAdded, places)
	slices.SortFunc(out.NodesRemoved, places)
	slices.SortFunc(out.NodesChanged, func(x, y ChangedNode) int {
		return cmp.Or(compareJava(x.Name, y.Name), slices.Compare(x.Before, y.Before), slices.Compare(x.After, y.After))
	})
	edges := func(x, y Edge) int { return cmp.Or(compareJava(x.From, y.From), compareJava(x.To, y.To)) }
	out.EdgesRemoved, out.EdgesAdded = parted(a.edges, b.edges, edges)
	out.StoresRemoved, out.StoresAdded = parted(a.stores, b.stores, compareJava)
	out.TopicsRemoved, out.TopicsAdded = parted(a.topics, b.topics, func(x, y TopicUse) int {
		return cmp.Or(compareJava(x.Topic, y.Topic), strings.Compare(x.Use, y.Use))
	})
	return out
}

// parts is a description taken apart.
type parts struct {
	nodes  map[nodeKey]placed
	edges  map[Edge]struct{}
	stores map[string]struct{}
	topics map[TopicUse]struct{}
}

// nodeKey is a name and which one of that name it is.
type nodeKey struct {
	name string
	nth  int
}

type placed struct {
	*Node
	subtopology string
	global      bool
}

func content(d *Description) parts {
	p := parts{map[nodeKey]placed{}, map[Edge]struct{}{}, map[string]struct{}{}, map[TopicUse]struct{}{}}
	seen := map[string]int{}
	add := func(n *Node, subtopology string, global bool) {
		p.nodes[nodeKey{n.Name, seen[n.Name]}] = placed{n, subtopology, global}
		seen[n.Name]++
		for _, s := range n.Successors {
			p.edges[Edge{n.Name, s}] = struct{}{}
		}
		switch n.Type {
		case Source:
			for _, t := range n.Topics {
				p.topics[TopicUse{t, "read"}] = struct{}{}
			}
		case Processor:
			for _, s := range n.Stores {
				p.stores[s] = struct{}{}
			}
		case Sink:
			if n.SinkTopic != nil {
				p.topics[TopicUse{*n.SinkTopic, "written"}] = struct{}{}
			}
		}
	}
	for i := range d.Subtopologies {
		s := &d.Subtopologies[i]
		for j := range s.Nodes {
			add(&s.Nodes[j], s.ID, false)
		}
	}
	for i := range d.GlobalStores {
		add(&d.GlobalStores[i].Source, "", true)
		add(&d.GlobalStores[i].Processor, "", true)
	}
	return p
}

func (n placed) placed() PlacedNode {
	return PlacedNode{n.Name, n.Type.String(), n.subtopology, n.global}
}

// changed compares what a node is and where it stands; its arrows are compared as such. nil: nothing.
func (n placed) changed(o placed) *ChangedNode {
	c := &ChangedNode{Name: n.Name}
	compare := func(what, from, to string) {
		if from != to {
			c.What, c.Before, c.After = append(c.What, what), append(c.Before, from), append(c.After, to)
		}
	}
	list := func(names []string) string { return "[" + strings.Join(sortedCopy(names), ", ") + "]" }
	compare("type", n.Type.String(), o.Type.String())
	compare("subtopology", n.place(), o.place())
	if n.Type == o.Type {
		switch n.Type {
		case Source:
			compare("topics", list(n.Topics), list(o.Topics))
		case Processor:
			compare("stores", list(n.Stores), list(o.Stores))
		case Sink:
			compare("topic", sinkTopic(n.SinkTopic), sinkTopic(o.SinkTopic))
		}
	}
	if len(c.What) == 0 {
		return nil
	}
	return c
}

func (n placed) place() string {
	if n.global {
		return "global store"
	}
	return n.subtopology
}

func sinkTopic(t *string) string {
	if t == nil {
		return noteComputed
	}
	return *t
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// parted are the keys of a that are not in b, and the other way round, sorted.
func parted[T comparable](a, b map[T]struct{}, compare func(x, y T) int) (onlyA, onlyB []T) {
	only := func(a, b map[T]struct{}) []T {
		out := []T{}
		for k := range a {
			if _, ok := b[k]; !ok {
				out = append(out, k)
			}
		}
		slices.SortFunc(out, compare)
		return out
	}
	return only(a, b), only(b, a)
}

// Write writes the difference as Text or JSON, within the limit of descriptions; the other formats are an error. A line of the text begins with
// "+" for what was added, "-" for what was removed and "~" for what changed.
func (d *Difference) Write(ctx context.Context, w io.Writer, f Format) error {
	b := bufio.NewWriter(&limited{w: w, left: outputBytesMax, format: f})
	switch f {
	case JSON:
		e := json.NewEncoder(b)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(d); err != nil {
			return err
		}
	case Text:
		t := &texter{Writer: b, pulse: pulse{ctx: ctx}}
		if d.text(t); t.err != nil {
			return t.err
		}
	default:
		return fmt.Errorf("a difference is written as %s or %s, not as %s", Text, JSON, f)
	}
	return b.Flush()
}

func (d *Difference) text(t *texter) {
	if d.Empty() {
		t.put("No difference.\n")
		return
	}
	nodes := func(sign string, list []PlacedNode) {
		for _, n := range list {
			place := "global store"
			if !n.GlobalStore {
				place = "sub-topology " + line(n.Subtopology)
			}
			t.put(sign, " ", n.Type, " ", line(n.Name), " (", place, ")\n")
		}
	}
	nodes("+", d.NodesAdded)
	nodes("-", d.NodesRemoved)
	for _, n := range d.NodesChanged {
		for i, what := range n.What {
			t.put("~ ", line(n.Name), ": ", what, " ", line(n.Before[i]), " is now ", line(n.After[i]), "\n")
		}
	}
	edges := func(sign string, list []Edge) {
		for _, e := range list {
			t.put(sign, " ", line(e.From), " --> ", line(e.To), "\n")
		}
	}
	edges("+", d.EdgesAdded)
	edges("-", d.EdgesRemoved)
	stores := func(sign string, list []string) {
		for _, s := range list {
			t.put(sign, " store ", line(s), "\n")
		}
	}
	stores("+", d.StoresAdded)
	stores("-", d.StoresRemoved)
	topics := func(sign string, list []TopicUse) {
		for _, u := range list {
			t.put(sign, " topic ", line(u.Topic), " (", u.Use, ")\n")
		}
	}
	topics("+", d.TopicsAdded)
	topics("-", d.TopicsRemoved)
}

// line is a name in a line of text, whatever it holds.
func line(name string) string {
	return escape(visible(name), `\u%04x`, func(rune) string { return "" })
}
