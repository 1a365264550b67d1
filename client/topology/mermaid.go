package topology

import (
	"bufio"
	"context"
	"fmt"
)

// mermaidArrows is what Mermaid draws without being configured otherwise (its settings maxEdges, and maxTextSize with 50,000
// characters).
const mermaidArrows = 500

// writeMermaid writes the picture as a Mermaid flowchart. As in DOT, boxes are numbers and names are labels.
func (d *Description) writeMermaid(ctx context.Context, w *bufio.Writer, notes Notes) error {
	p, err := d.draw(ctx)
	if err != nil {
		return err
	}
	p.note(d, notes)
	t := texter{Writer: w, pulse: pulse{ctx: ctx}}
	t.put("flowchart TD\n")
	if len(p.arrows) > mermaidArrows {
		t.put(fmt.Sprintf("  %%%% %d arrows: Mermaid draws %d unless maxEdges (and maxTextSize) are set higher\n", len(p.arrows), mermaidArrows))
	}
	box := func(indent string, i int) {
		b := &p.boxes[i]
		label := mermaidText(b.name)
		if b.note != "" {
			label += "<br>(" + b.note + ")"
		}
		t.put(indent, fmt.Sprintf("b%d", i), fmt.Sprintf(mermaidShape[b.kind], label), "\n")
	}
	for i, c := range p.clusters {
		title := mermaidText(c.title)
		for _, n := range c.notes {
			title += "<br>" + mermaidText(n)
		}
		t.put(fmt.Sprintf("  subgraph c%d[\"%s\"]\n", i, title))
		for _, b := range c.boxes {
			box("    ", b)
		}
		t.put("  end\n")
	}
	for _, b := range p.outer() {
		box("  ", b)
	}
	for _, a := range p.arrows {
		line := "-->"
		if a.use {
			line = "-.-"
		}
		t.put(fmt.Sprintf("  b%d %s b%d\n", a.from, line, a.to))
	}
	t.put("  classDef source fill:#d5e8d4\n  classDef sink fill:#ffe6cc\n  classDef store fill:#fff2cc\n",
		"  classDef topic fill:#dae8fc\n  classDef unknown fill:#f8cecc,stroke-dasharray:4\n")
	return t.err
}

var mermaidShape = map[boxKind]string{
	boxSource:    `(["%s"]):::source`,
	boxProcessor: `["%s"]`,
	boxSink:      `(["%s"]):::sink`,
	boxStore:     `[("%s")]:::store`,
	boxTopic:     `[/"%s"/]:::topic`,
	boxUnknown:   `{{"%s"}}:::unknown`,
}

// mermaidText is a name as the content of a quoted label. Mermaid's own form of character references is #decimal; (and
// #name;). Everything in ASCII that could be HTML, Markdown or syntax is written so: letters, digits and a few
// harmless signs are what is left, and even those not at the start, where a digit, a dash or a sign could begin a Markdown list.
func mermaidText(name string) string {
	start := true
	return escape(visible(name), "#%d;", func(r rune) string {
		first := start
		start = false
		switch {
		case r >= 0x80, r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
			return ""
		case first: // whatever else it is
		case r >= '0' && r <= '9', r == ' ', r == '-', r == '_', r == '.', r == ':', r == ',':
			return ""
		}
		return fmt.Sprintf("#%d;", r)
	})
}
