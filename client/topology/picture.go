package topology

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// picture is what DOT, Mermaid and SVG draw. Boxes, not names, are its identities: two nodes of one name are two boxes, and two
// subtopologies of one id two clusters. Topics stand outside the clusters and once each, so that the way from one
// subtopology to the next can be seen; stores stand in theirs.
type picture struct {
	clusters []cluster
	boxes    []box
	arrows   []arrow
}

type cluster struct {
	title string
	notes []string // lines below the title
	boxes []int
}

type box struct {
	kind    boxKind
	cluster int // outside for topics
	name    string
	note    string // what the name does not say, in words of our own
}

const outside = -1

type boxKind int

const (
	boxSource boxKind = iota
	boxProcessor
	boxSink
	boxStore
	boxTopic
	boxUnknown // a successor that is not a node of the subtopology
)

type arrow struct {
	from, to int
	use      bool // a processor and its store: no direction
}

const (
	notePattern  = "topics by pattern"
	noteComputed = "topic computed per record"
	noteUnknown  = "not in this subtopology"
)

// draw makes the picture. It is in the order of the description, so the same description makes the same picture.
func (d *Description) draw(ctx context.Context) (*picture, error) {
	p := &drawer{pulse: pulse{ctx: ctx}, topics: map[string]int{}}
	for i := range d.Subtopologies {
		s := &d.Subtopologies[i]
		if err := p.scope("Sub-topology: "+s.ID, s.Nodes); err != nil {
			return nil, err
		}
	}
	for i := range d.GlobalStores {
		s := &d.GlobalStores[i]
		title := "Global store"
		if len(s.Processor.Stores) > 0 {
			title += ": " + strings.Join(sortedCopy(s.Processor.Stores), ", ")
		}
		if err := p.scope(title, s.nodes()); err != nil {
			return nil, err
		}
	}
	return &p.picture, nil
}

// Notes are lines to stand below the titles of subtopologies, by their ids: who runs them, for example.
type Notes map[string][]string

// note puts the notes into the picture; of a description, whose subtopologies are the first clusters.
func (p *picture) note(d *Description, notes Notes) {
	for i := range d.Subtopologies {
		lines := notes[d.Subtopologies[i].ID]
		if len(lines) > notesMax {
			more := fmt.Sprintf("and %d more", len(lines)-notesMax)
			lines = append(slices.Clone(lines[:notesMax]), more)
		}
		p.clusters[i].notes = lines
	}
}

type drawer struct {
	picture
	pulse  pulse
	topics map[string]int
}

func (p *drawer) box(kind boxKind, in int, name, note string) int {
	p.boxes = append(p.boxes, box{kind: kind, cluster: in, name: name, note: note})
	i := len(p.boxes) - 1
	if in != outside {
		p.clusters[in].boxes = append(p.clusters[in].boxes, i)
	}
	return i
}

func (p *drawer) arrow(a arrow) error {
	if len(p.arrows) == pictureArrowsMax {
		return fmt.Errorf("%w: it has more than %d arrows; text and json have no such limit", ErrTooLarge, pictureArrowsMax)
	}
	p.arrows = append(p.arrows, a)
	return p.pulse.err()
}

func (p *drawer) topic(name string) int {
	i, ok := p.topics[name]
	if !ok {
		i = p.box(boxTopic, outside, name, "")
		p.topics[name] = i
	}
	return i
}

// scope draws the nodes of a subtopology, or of a global store.
func (p *drawer) scope(title string, nodes []Node) error {
	in := len(p.clusters)
	p.clusters = append(p.clusters, cluster{title: title})
	byName := make(map[string][]int, len(nodes))
	first := len(p.boxes)
	for i := range nodes {
		n := &nodes[i]
		kind, note := boxProcessor, ""
		switch n.Type {
		case Source:
			kind = boxSource
			if len(n.Topics) == 0 {
				note = notePattern
			}
		case Sink:
			kind = boxSink
			if n.SinkTopic == nil {
				note = noteComputed
			}
		}
		byName[n.Name] = append(byName[n.Name], p.box(kind, in, n.Name, note))
	}
	stores, unknown := map[string]int{}, map[string]int{}
	once := func(boxes map[string]int, kind boxKind, name, note string) int {
		i, ok := boxes[name]
		if !ok {
			i = p.box(kind, in, name, note)
			boxes[name] = i
		}
		return i
	}
	for i := range nodes {
		n := &nodes[i]
		var arrows []arrow
		at := first + i
		switch n.Type {
		case Source:
			for _, t := range distinct(n.Topics) {
				arrows = append(arrows, arrow{from: p.topic(t), to: at})
			}
		case Sink:
			if n.SinkTopic != nil {
				arrows = append(arrows, arrow{from: at, to: p.topic(*n.SinkTopic)})
			}
		default:
			for _, s := range distinct(n.Stores) {
				arrows = append(arrows, arrow{from: at, to: once(stores, boxStore, s, ""), use: true})
			}
		}
		for _, a := range arrows {
			if err := p.arrow(a); err != nil {
				return err
			}
		}
		for _, s := range distinct(n.Successors) {
			targets := byName[s]
			if targets == nil {
				targets = []int{once(unknown, boxUnknown, s, noteUnknown)}
			}
			for _, to := range targets {
				if err := p.arrow(arrow{from: at, to: to}); err != nil {
					return err
				}
			}
		}
	}
	return p.pulse.err()
}

// outer are the boxes that stand in no cluster, in order.
func (p *picture) outer() []int {
	var out []int
	for i := range p.boxes {
		if p.boxes[i].cluster == outside {
			out = append(out, i)
		}
	}
	return slices.Clip(out)
}
