package topology

import (
	"bufio"
	"context"
	"fmt"
)

// writeDOT writes the picture for Graphviz. Boxes are named by their number, so nothing depends on names being unique;
// names are only ever labels.
func (d *Description) writeDOT(ctx context.Context, w *bufio.Writer, notes Notes) error {
	p, err := d.draw(ctx)
	if err != nil {
		return err
	}
	p.note(d, notes)
	t := texter{Writer: w, pulse: pulse{ctx: ctx}}
	t.put("digraph topology {\n",
		"  graph [fontname=\"Helvetica\", compound=true];\n",
		"  node [fontname=\"Helvetica\", fontsize=11, style=filled, fillcolor=white];\n",
		"  edge [color=\"#555555\"];\n")
	box := func(indent string, i int) {
		b := &p.boxes[i]
		label := dotText(b.name)
		if b.note != "" {
			label += `\n(` + b.note + ")"
		}
		t.put(indent, fmt.Sprintf("b%d [label=\"%s\", %s];\n", i, label, dotStyle[b.kind]))
	}
	for i, c := range p.clusters {
		label := dotText(c.title)
		for _, n := range c.notes {
			label += `\n` + dotText(n)
		}
		t.put(fmt.Sprintf("  subgraph cluster_%d {\n    label=\"%s\"; style=rounded; color=\"#888888\";\n", i, label))
		for _, b := range c.boxes {
			box("    ", b)
		}
		t.put("  }\n")
	}
	for _, b := range p.outer() {
		box("  ", b)
	}
	for _, a := range p.arrows {
		if a.use {
			t.put(fmt.Sprintf("  b%d -> b%d [dir=none, style=dashed];\n", a.from, a.to))
		} else {
			t.put(fmt.Sprintf("  b%d -> b%d;\n", a.from, a.to))
		}
	}
	t.put("}\n")
	return t.err
}

var dotStyle = map[boxKind]string{
	boxSource:    `shape=box, style="filled,rounded", fillcolor="#d5e8d4"`,
	boxProcessor: `shape=box`,
	boxSink:      `shape=box, style="filled,rounded", fillcolor="#ffe6cc"`,
	boxStore:     `shape=cylinder, fillcolor="#fff2cc"`,
	boxTopic:     `shape=cds, fillcolor="#dae8fc"`,
	boxUnknown:   `shape=box, style="filled,dashed", fillcolor="#f8cecc"`,
}

// dotText is a name as the content of a quoted label. In a label Graphviz reads a backslash as the start of an escape and
// an ampersand as that of a character reference.
func dotText(name string) string {
	return escape(visible(name), "&#%d;", func(r rune) string {
		switch r {
		case '"':
			return `\"`
		case '\\':
			return `\\`
		case '&':
			return "&amp;"
		}
		return ""
	})
}
