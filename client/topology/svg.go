package topology

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
)

// The drawing is laid out here rather than by Graphviz: a description comes from an application that may be wrong or
// hostile, so the time has to be bounded and the work stoppable, and the same description has to give the same bytes.

// Measures in pixels, of a fixed-width font of 12.
const (
	svgCell, svgLine    = 7.3, 15.0
	svgPadX, svgPadY    = 10.0, 7.0
	svgMargin, svgTitle = 16.0, 22.0
	svgLineCells        = 36 // a longer name is wrapped: 249 characters are 7 lines
)

var (
	svgGapInside = size{24, 34}
	svgGapBeyond = size{40, 48}
)

// svgBox is a box that has its words and its place.
type svgBox struct {
	*box
	size
	lines []string
	note  string
	at    point
}

// svgDrawing is a picture with places.
type svgDrawing struct {
	*picture
	size
	boxes    []svgBox
	clusters []svgFrame
	routes   [][]point // the bends of each arrow
}

// svgFrame is the frame of a cluster. Its title is one line: cut where it is wider than the content by far.
type svgFrame struct {
	size
	at    point
	title string
}

// writeSVG draws the picture as a self-contained SVG: no scripts, links or fonts, names only as text.
func (d *Description) writeSVG(ctx context.Context, w *bufio.Writer) error {
	p, err := d.draw(ctx)
	if err != nil {
		return err
	}
	if len(p.boxes) > svgBoxesMax || len(p.arrows) > svgArrowsMax {
		return fmt.Errorf("%w: it has %d boxes and %d arrows, and as svg at most %d and %d are drawn; use text, json, dot or mermaid",
			ErrTooLarge, len(p.boxes), len(p.arrows), svgBoxesMax, svgArrowsMax)
	}
	s, err := place(ctx, p)
	if err != nil {
		return err
	}
	t := texter{Writer: w, pulse: pulse{ctx: ctx}}
	s.write(&t)
	return t.err
}

// place lays the picture out twice: the boxes of each cluster, then the clusters and the topics.
func place(ctx context.Context, p *picture) (*svgDrawing, error) {
	s := &svgDrawing{picture: p, boxes: make([]svgBox, len(p.boxes)), clusters: make([]svgFrame, len(p.clusters)), routes: make([][]point, len(p.arrows))}
	for i := range p.boxes {
		s.boxes[i] = measured(&p.boxes[i])
	}
	inside := make([][]int, len(p.clusters)) // the arrows within each cluster
	var across []int                         // and those between things
	for i, a := range p.arrows {
		if c := p.boxes[a.from].cluster; c != outside && c == p.boxes[a.to].cluster {
			inside[c] = append(inside[c], i)
		} else {
			across = append(across, i)
		}
	}
	local := make([]int, len(p.boxes))
	plans := make([]*plan, len(p.clusters))
	for c := range p.clusters {
		members := p.clusters[c].boxes
		sizes, ends := make([]size, len(members)), make([]end, len(members))
		for i, b := range members {
			local[b], sizes[i], ends[i] = i, s.boxes[b].size, boxEnd[p.boxes[b].kind]
		}
		edges := make([]edge, len(inside[c]))
		for i, a := range inside[c] {
			edges[i] = edge{from: local[p.arrows[a].from], to: local[p.arrows[a].to]}
		}
		var err error
		if plans[c], err = arrange(ctx, sizes, edges, ends, svgGapInside); err != nil {
			return nil, err
		}
		s.clusters[c] = framed(p.clusters[c].title, plans[c].size)
	}
	// Things: the clusters, then the topics.
	var sizes []size
	for c := range s.clusters {
		sizes = append(sizes, s.clusters[c].size)
	}
	outer := p.outer()
	for i, b := range outer {
		local[b] = len(s.clusters) + i
		sizes = append(sizes, s.boxes[b].size)
	}
	thing := func(b int) int {
		if c := p.boxes[b].cluster; c != outside {
			return c
		}
		return local[b]
	}
	touch := func(b int) float64 { // where a box stands in its cluster, from the center
		if c := p.boxes[b].cluster; c != outside {
			return svgMargin + plans[c].at[local[b]].x + s.boxes[b].w/2 - s.clusters[c].w/2
		}
		return 0
	}
	edges := make([]edge, len(across))
	for i, a := range across {
		from, to := p.arrows[a].from, p.arrows[a].to
		edges[i] = edge{thing(from), thing(to), touch(from), touch(to)}
	}
	all, err := arrange(ctx, sizes, edges, make([]end, len(sizes)), svgGapBeyond)
	if err != nil {
		return nil, err
	}
	for c := range s.clusters {
		f := &s.clusters[c]
		f.at = point{all.at[c].x + svgMargin, all.at[c].y + svgMargin}
		for i, b := range p.clusters[c].boxes {
			s.boxes[b].at = point{f.at.x + svgMargin + plans[c].at[i].x, f.at.y + svgMargin + svgTitle + plans[c].at[i].y}
		}
		for i, a := range inside[c] {
			for _, b := range plans[c].routes[i] {
				s.routes[a] = append(s.routes[a], point{f.at.x + svgMargin + b.x, f.at.y + svgMargin + svgTitle + b.y})
			}
		}
	}
	for i, b := range outer {
		at := all.at[len(s.clusters)+i]
		s.boxes[b].at = point{at.x + svgMargin, at.y + svgMargin}
	}
	for i, a := range across {
		for _, b := range all.routes[i] {
			s.routes[a] = append(s.routes[a], point{b.x + svgMargin, b.y + svgMargin})
		}
	}
	s.size = size{all.w + 2*svgMargin, all.h + 2*svgMargin}
	return s, nil
}

// boxEnd keeps sources at the upper and sinks at the lower side of their cluster, where their topics are.
var boxEnd = map[boxKind]end{boxSource: atTop, boxSink: atBottom}

func measured(b *box) svgBox {
	out := svgBox{box: b, lines: wrap(visible(b.name), svgLineCells)}
	widest := 6 // cells
	for _, l := range out.lines {
		widest = max(widest, width(l))
	}
	n := len(out.lines)
	if b.note != "" {
		out.note = "(" + b.note + ")"
		widest = max(widest, width(out.note))
		n++
	}
	out.size = size{float64(widest)*svgCell + 2*svgPadX, float64(n)*svgLine + 2*svgPadY}
	switch b.kind {
	case boxStore:
		out.h += 8 // the lid
	case boxTopic:
		out.w += 16 // the slants
	}
	return out
}

func framed(title string, content size) svgFrame {
	f := svgFrame{size: size{content.w + 2*svgMargin, content.h + 2*svgMargin + svgTitle}}
	title = visible(title)
	f.w = max(f.w, float64(min(width(title), svgLineCells))*svgCell+2*svgMargin)
	if lines := wrap(title, int((f.w-2*svgMargin)/svgCell+0.5)); len(lines) > 1 {
		title = strings.TrimRight(lines[0], " ") + "…"
	}
	f.title = title
	return f
}

func (s *svgDrawing) write(t *texter) {
	t.put(fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%s\" height=\"%s\" viewBox=\"0 0 %[1]s %[2]s\" "+
		"font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"12\">\n", px(s.w), px(s.h)),
		"<title>Kafka Streams topology</title>\n",
		"<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">",
		"<path d=\"M0 0L8 4L0 8z\" fill=\"#555\"/></marker></defs>\n",
		"<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n")
	for i := range s.clusters {
		f := &s.clusters[i]
		t.put(fmt.Sprintf("<rect x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" rx=\"6\" fill=\"#fafafa\" stroke=\"#999\"/>\n", px(f.at.x), px(f.at.y), px(f.w), px(f.h)))
	}
	t.put("<g fill=\"none\" stroke=\"#555\">\n")
	for i := range s.arrows {
		s.arrow(t, i)
	}
	t.put("</g>\n")
	for i := range s.clusters { // over the arrows, with a halo, so that they can be read
		f := &s.clusters[i]
		t.put(fmt.Sprintf("<text x=\"%s\" y=\"%s\" font-weight=\"bold\" fill=\"#333\" stroke=\"#fafafa\" stroke-width=\"4\" paint-order=\"stroke\" "+
			"xml:space=\"preserve\">%s</text>\n", px(f.at.x+svgMargin), px(f.at.y+svgMargin+8), svgText(f.title)))
	}
	for i := range s.boxes {
		s.boxes[i].write(t)
	}
	t.put("</svg>\n")
}

var svgNames = map[boxKind]string{
	boxSource: "source", boxProcessor: "processor", boxSink: "sink", boxStore: "store", boxTopic: "topic", boxUnknown: "unknown successor",
}

var svgStyles = map[boxKind]string{
	boxSource: `fill="#d5e8d4" stroke="#5a8a50"`, boxProcessor: `fill="#fff" stroke="#555"`, boxSink: `fill="#ffe6cc" stroke="#b5762a"`,
	boxStore: `fill="#fff2cc" stroke="#a8902f"`, boxTopic: `fill="#dae8fc" stroke="#5676a8"`, boxUnknown: `fill="#f8cecc" stroke="#a8504c" stroke-dasharray="4"`,
}

func (b *svgBox) write(t *texter) {
	x, y := b.at.x, b.at.y
	t.put("<g><title>", svgNames[b.kind], " ", svgText(visible(b.name)), "</title>")
	top := y + svgPadY
	switch b.kind {
	case boxStore:
		t.put(fmt.Sprintf("<path d=\"M%[1]s %[2]sv%[3]sa%[4]s 5 0 0 0 %[5]s 0v-%[3]sa%[4]s 5 0 0 0 -%[5]s 0a%[4]s 5 0 0 0 %[5]s 0\" %[6]s/>",
			px(x), px(y+5), px(b.h-10), px(b.w/2), px(b.w), svgStyles[b.kind]))
		top += 8
	case boxTopic:
		t.put(fmt.Sprintf("<path d=\"M%s %sh%sl-8 %sh-%sz\" %s/>", px(x+8), px(y), px(b.w-8), px(b.h), px(b.w-8), svgStyles[b.kind]))
	default:
		round := "2"
		if b.kind == boxSource || b.kind == boxSink {
			round = "10"
		}
		t.put(fmt.Sprintf("<rect x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" rx=\"%s\" %s/>", px(x), px(y), px(b.w), px(b.h), round, svgStyles[b.kind]))
	}
	line := func(text, style string) {
		top += svgLine
		t.put(fmt.Sprintf("<text x=\"%s\" y=\"%s\" text-anchor=\"middle\" xml:space=\"preserve\"%s>%s</text>", px(x+b.w/2), px(top-4), style, svgText(text)))
	}
	for _, l := range b.lines {
		line(l, "")
	}
	if b.note != "" {
		line(b.note, ` fill="#666" font-style="italic"`)
	}
	t.put("</g>\n")
}

// arrow leads from the lower edge of the upper box to the upper edge of the lower one, through its bends; the tip is where it
// leads to. One that leads to its own box is a loop at its right.
func (s *svgDrawing) arrow(t *texter, i int) {
	a := s.arrows[i]
	from, to := &s.boxes[a.from], &s.boxes[a.to]
	style := ` marker-end="url(#tip)"`
	if a.use {
		style = ` stroke-dasharray="3"`
	}
	if a.from == a.to {
		x, y := from.at.x+from.w, from.at.y+from.h/2
		t.put(fmt.Sprintf("<path d=\"M%s %sc18 -14 18 14 0 10\"%s/>\n", px(x), px(y-5), style))
		return
	}
	bends, turned := s.routes[i], from.at.y > to.at.y
	upper, lower := from, to
	if turned {
		upper, lower = to, from
	}
	points := make([]point, 0, len(bends)+2)
	points = append(points, point{upper.at.x + upper.w/2, upper.at.y + upper.h})
	points = append(points, bends...)
	points = append(points, point{lower.at.x + lower.w/2, lower.at.y})
	if from.at.y == to.at.y { // side by side: from edge to edge
		points = []point{{from.at.x + from.w, from.at.y + from.h/2}, {to.at.x, to.at.y + to.h/2}}
		if from.at.x > to.at.x {
			points = []point{{from.at.x, from.at.y + from.h/2}, {to.at.x + to.w, to.at.y + to.h/2}}
		}
	}
	var d strings.Builder
	at := func(k int) point {
		if turned {
			return points[len(points)-1-k]
		}
		return points[k]
	}
	fmt.Fprintf(&d, "M%s %s", px(at(0).x), px(at(0).y))
	for k := 1; k < len(points); k++ {
		p, q := at(k-1), at(k)
		mid := px((p.y + q.y) / 2)
		fmt.Fprintf(&d, "C%s %s %s %s %s %s", px(p.x), mid, px(q.x), mid, px(q.x), px(q.y))
	}
	t.put("<path d=\"", d.String(), "\"", style, "/>\n")
}

// px is a length with one digit: enough for the eye, and the same on every machine.
func px(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }

// svgText is a visible name as the text of an element.
func svgText(s string) string {
	return escape(s, "&#%d;", func(r rune) string {
		switch r {
		case '&':
			return "&amp;"
		case '<':
			return "&lt;"
		case '>':
			return "&gt;"
		case '"':
			return "&quot;"
		case '\'':
			return "&#39;"
		}
		return ""
	})
}
