package topology

import (
	"context"
	"math"
	"slices"
)

type size struct{ w, h float64 }

type point struct{ x, y float64 }

// edge leads from a thing to another, and touches them at these distances from their centers, across.
type edge struct {
	from, to     int
	fromAt, toAt float64
}

func (e edge) turned() edge { return edge{e.to, e.from, e.toAt, e.fromAt} }

// plan says where things stand.
type plan struct {
	size
	at     []point   // the upper left corner of each
	routes [][]point // where each edge bends on its way from its upper to its lower end
}

// straightenings is how often boxes are moved towards their neighbours: after these it can't be seen any more.
const straightenings = 6

// arrange finds places for boxes: each connected part in layers, the parts in rows, like words on a page.
func arrange(ctx context.Context, sizes []size, edges []edge, ends []end, gap size) (*plan, error) {
	p := &plan{at: make([]point, len(sizes)), routes: make([][]point, len(edges))}
	var parts []*plan
	var members [][]int
	area, widest := 0.0, 0.0
	of := components(len(sizes), edges)
	partEdges := make([][]int, len(of))
	partOf := make([]int, len(sizes))
	for k, vs := range of {
		for _, v := range vs {
			partOf[v] = k
		}
	}
	for i, e := range edges {
		partEdges[partOf[e.from]] = append(partEdges[partOf[e.from]], i)
	}
	local := make([]int, len(sizes))
	for k, vs := range of {
		sub, subEnds := make([]size, len(vs)), make([]end, len(vs))
		for i, v := range vs {
			local[v], sub[i], subEnds[i] = i, sizes[v], ends[v]
		}
		es := make([]edge, len(partEdges[k]))
		for i, e := range partEdges[k] {
			es[i] = edges[e]
			es[i].from, es[i].to = local[edges[e].from], local[edges[e].to]
		}
		part, err := arrangePart(ctx, sub, es, subEnds, gap)
		if err != nil {
			return nil, err
		}
		parts, members = append(parts, part), append(members, vs)
		area += (part.w + gap.w) * (part.h + gap.h)
		widest = max(widest, part.w)
	}
	lineWidth := max(widest, math.Sqrt(area)*1.3) // a bit wider than high, as screens are
	x, y, lineHeight := 0.0, 0.0, 0.0
	for k, part := range parts {
		if x > 0 && x+part.w > lineWidth {
			x, y, lineHeight = 0, y+lineHeight+gap.h, 0
		}
		for i, v := range members[k] {
			p.at[v] = point{x + part.at[i].x, y + part.at[i].y}
		}
		for i, e := range partEdges[k] {
			for _, b := range part.routes[i] {
				p.routes[e] = append(p.routes[e], point{x + b.x, y + b.y})
			}
		}
		p.w, p.h = max(p.w, x+part.w), max(p.h, y+part.h)
		x, lineHeight = x+part.w+gap.w, max(lineHeight, part.h)
	}
	return p, nil
}

// components are the connected parts, in the order of their first members.
func components(n int, edges []edge) [][]int {
	parent := make([]int, n)
	for i := range parent {
		parent[i] = i
	}
	find := func(v int) int {
		for parent[v] != v {
			parent[v] = parent[parent[v]]
			v = parent[v]
		}
		return v
	}
	for _, e := range edges {
		a, b := find(e.from), find(e.to)
		parent[max(a, b)] = min(a, b) // the first member stays the root
	}
	var out [][]int
	number := map[int]int{}
	for v := range n {
		root := find(v)
		k, ok := number[root]
		if !ok {
			k = len(out)
			number[root] = k
			out = append(out, nil)
		}
		out[k] = append(out[k], v)
	}
	return out
}

// arrangePart places one connected part in layers.
func arrangePart(ctx context.Context, sizes []size, edges []edge, ends []end, gap size) (*plan, error) {
	g, err := layers(ctx, sizes, edges, ends)
	if err != nil {
		return nil, err
	}
	wide := g.wide
	center := make([]float64, len(g.layer)) // of each vertex, across
	for _, row := range g.rows {
		x := 0.0
		for _, v := range row {
			center[v] = x + wide(v)/2
			x += wide(v) + gap.w
		}
		for _, v := range row {
			center[v] -= x / 2
		}
	}
	for i := range straightenings {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if i%2 == 0 {
			for r := range g.rows {
				straighten(g.rows[r], g.up, center, wide, gap.w)
			}
		} else {
			for r := range slices.Backward(g.rows) {
				straighten(g.rows[r], g.down, center, wide, gap.w)
			}
		}
	}
	left, right := math.Inf(1), math.Inf(-1)
	for v := range g.layer {
		left, right = min(left, center[v]-wide(v)/2), max(right, center[v]+wide(v)/2)
	}
	p := &plan{at: make([]point, g.given), routes: make([][]point, len(edges))}
	top, bottom := make([]float64, len(g.rows)), make([]float64, len(g.rows)) // of each row
	y := 0.0
	for r, row := range g.rows {
		high := 0.0
		for _, v := range row {
			if v < g.given {
				high = max(high, sizes[v].h)
			}
		}
		top[r], bottom[r] = y, y+high
		for _, v := range row {
			if v < g.given {
				p.at[v] = point{center[v] - wide(v)/2 - left, y + (high-sizes[v].h)/2}
			}
		}
		y += high + gap.h
	}
	for i, route := range g.routes {
		for _, v := range route {
			x, r := center[v]-left, g.layer[v]
			p.routes[i] = append(p.routes[i], point{x, top[r]}, point{x, bottom[r]}) // straight through, between the boxes
		}
	}
	p.w, p.h = right-left, y-gap.h
	return p, nil
}

// straighten moves the vertices of a row as near as possible to the mean of their neighbours, in their order and with gaps
// between them: the least squares solution, found by pooling neighbours that push each other.
func straighten(row []int, neighbours [][]link, center []float64, wide func(int) float64, gap float64) {
	type pool struct {
		sum    float64 // of the wishes of its members, each less the member's distance from the first vertex of the row
		weight float64
		n      int
	}
	var pools []pool
	offset := make([]float64, len(row)) // of each center from that of the first, when all stand close
	for i, v := range row {
		if i > 0 {
			offset[i] = offset[i-1] + (wide(row[i-1])+wide(v))/2 + gap
		}
		wish, weight := center[v], 0.1 // where nothing pulls it stays, unless pushed
		if len(neighbours[v]) > 0 {
			wish, weight = 0, float64(len(neighbours[v]))
			for _, l := range neighbours[v] {
				wish += center[l.to] + l.away - l.here
			}
			wish /= weight
		}
		p := pool{sum: (wish - offset[i]) * weight, weight: weight, n: 1}
		for len(pools) > 0 {
			last := pools[len(pools)-1]
			if last.sum/last.weight <= p.sum/p.weight {
				break
			}
			p = pool{last.sum + p.sum, last.weight + p.weight, last.n + p.n}
			pools = pools[:len(pools)-1]
		}
		pools = append(pools, p)
	}
	i := 0
	for _, p := range pools {
		for range p.n {
			center[row[i]] = p.sum/p.weight + offset[i]
			i++
		}
	}
}
