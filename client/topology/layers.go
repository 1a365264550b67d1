package topology

import (
	"cmp"
	"context"
	"slices"
)

const (
	// sweepsMax is how often the order within the layers is improved, down and up: more than these change little.
	sweepsMax = 8

	// sweepsMin is once up and once down: where edges touch a wide thing counts for the order, but not as a crossing.
	sweepsMin = 2

	// bendsMax bounds the points at which long arrows pass a layer, per drawing: without it 10,000 arrows along a chain of 5,000
	// boxes would be 50 million. Arrows beyond it are drawn straight.
	bendsMax = 20_000
)

// end says where a box has to stand in a layered drawing.
type end int8

const (
	anywhere end = iota
	atTop        // in the first layer, if no arrow leads to it
	atBottom     // in the last layer, if no arrow leads from it
)

// layered is a graph whose vertices have layers and an order within them. Vertices beyond the given ones are bends.
type layered struct {
	given  int
	sizes  []size // of the given ones
	layer  []int
	rows   [][]int
	up     [][]link // neighbours in the layer above and below
	down   [][]link
	routes [][]int // the bends of each edge, from its upper to its lower end
}

// link leads to a neighbour. Where it touches the two is told as the distance from their centers, across.
type link struct {
	to         int
	here, away float64
}

// layers arranges a graph in layers so that edges lead down, as far as circles allow. Edges to oneself are passed over.
func layers(ctx context.Context, sizes []size, edges []edge, ends []end) (*layered, error) {
	n := len(sizes)
	g := &layered{given: n, sizes: sizes, layer: make([]int, n), routes: make([][]int, len(edges))}
	g.assign(acyclic(n, edges), ends)
	g.bend(edges)
	g.sort()
	best, crossings := clone2(g.rows), g.crossings()
	for i := range sweepsMax {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if crossings == 0 && i >= sweepsMin {
			break
		}
		g.sweep(i%2 == 1)
		if c := g.crossings(); c <= crossings {
			best, crossings = clone2(g.rows), c
		}
	}
	g.rows = best
	return g, nil
}

func clone2(rows [][]int) [][]int {
	out := make([][]int, len(rows))
	for i := range rows {
		out[i] = slices.Clone(rows[i])
	}
	return out
}

// acyclic turns edges round until there are no circles: those that lead back to a vertex from which the search came.
// The search keeps its own stack: a chain of thousands must not become as many calls.
func acyclic(n int, edges []edge) []edge {
	out := slices.Clone(edges)
	from := make([][]int, n)
	into := make([]int, n)
	for i, e := range edges {
		if e.from != e.to {
			from[e.from] = append(from[e.from], i)
			into[e.to]++
		}
	}
	const (
		fresh = iota
		open
		done
	)
	state := make([]int8, n)
	next := make([]int, n)
	search := func(root int) {
		stack := []int{root}
		state[root] = open
		for len(stack) > 0 {
			v := stack[len(stack)-1]
			if next[v] == len(from[v]) {
				state[v] = done
				stack = stack[:len(stack)-1]
				continue
			}
			i := from[v][next[v]]
			next[v]++
			switch to := edges[i].to; state[to] {
			case open:
				out[i] = edges[i].turned()
			case fresh:
				state[to] = open
				stack = append(stack, to)
			}
		}
	}
	for v := range n { // where nothing leads to first: then "back" is what a reader would call back
		if into[v] == 0 {
			search(v)
		}
	}
	for v := range n {
		if state[v] == fresh {
			search(v)
		}
	}
	return out
}

// assign gives each vertex the layer below its lowest predecessor.
func (g *layered) assign(edges []edge, ends []end) {
	n := g.given
	from := make([][]int, n)
	into, left := make([]int, n), make([]int, n)
	for _, e := range edges {
		if e.from != e.to {
			from[e.from] = append(from[e.from], e.to)
			into[e.to]++
		}
	}
	copy(left, into)
	var queue []int
	for v := range n {
		if left[v] == 0 {
			queue = append(queue, v)
		}
	}
	bottom := 0
	for i := 0; i < len(queue); i++ {
		v := queue[i]
		for _, to := range from[v] {
			g.layer[to] = max(g.layer[to], g.layer[v]+1)
			bottom = max(bottom, g.layer[to])
			if left[to]--; left[to] == 0 {
				queue = append(queue, to)
			}
		}
	}
	for _, v := range slices.Backward(queue) {
		switch {
		case ends[v] == atBottom && len(from[v]) == 0:
			g.layer[v] = bottom
		case into[v] == 0 && ends[v] != atTop && len(from[v]) > 0: // no further up than needed
			lowest := bottom
			for _, to := range from[v] {
				lowest = min(lowest, g.layer[to]-1)
			}
			g.layer[v] = lowest
		}
	}
}

// bend gives edges that pass layers a bend in each, and connects neighbouring layers.
func (g *layered) bend(edges []edge) {
	g.up, g.down = make([][]link, g.given), make([][]link, g.given)
	connect := func(a int, aAt float64, b int, bAt float64) {
		g.down[a] = append(g.down[a], link{b, aAt, bAt})
		g.up[b] = append(g.up[b], link{a, bAt, aAt})
	}
	bends := 0
	for i, e := range edges {
		if g.layer[e.from] > g.layer[e.to] {
			e = e.turned()
		}
		between := g.layer[e.to] - g.layer[e.from] - 1
		if between < 0 || bends+between > bendsMax {
			continue // to itself, or one too many
		}
		bends += between
		at, shift := e.from, e.fromAt
		for l := g.layer[e.from] + 1; l < g.layer[e.to]; l++ {
			v := len(g.layer)
			g.layer = append(g.layer, l)
			g.up, g.down = append(g.up, nil), append(g.down, nil)
			g.routes[i] = append(g.routes[i], v)
			connect(at, shift, v, 0)
			at, shift = v, 0
		}
		connect(at, shift, e.to, e.toAt)
	}
}

// sort fills the rows in the order of the vertices, bends next to where they come from.
func (g *layered) sort() {
	g.rows = make([][]int, slices.Max(g.layer)+1)
	for v := range g.layer {
		g.rows[g.layer[v]] = append(g.rows[g.layer[v]], v)
	}
	g.sweep(true)
}

// sweep orders each row by the mean place of its neighbours in the row before, downwards or upwards.
func (g *layered) sweep(downwards bool) {
	place := make([]float64, len(g.layer))
	number := func(row []int) {
		for i, v := range row {
			place[v] = float64(i)
		}
	}
	visit := func(row []int, neighbours [][]link) {
		number(row)
		key := make(map[int]float64, len(row))
		for _, v := range row {
			key[v] = place[v]
			if len(neighbours[v]) > 0 {
				sum := 0.0
				for _, l := range neighbours[v] {
					sum += place[l.to] + l.away/max(g.wide(l.to), 1) // less than half a place to either side
				}
				key[v] = sum / float64(len(neighbours[v]))
			}
		}
		slices.SortStableFunc(row, func(a, b int) int { return cmp.Compare(key[a], key[b]) })
		number(row)
	}
	if downwards {
		for i := range g.rows {
			visit(g.rows[i], g.up)
		}
		return
	}
	for i := range slices.Backward(g.rows) {
		visit(g.rows[i], g.down)
	}
}

// wide is the width of a vertex; bends have none.
func (g *layered) wide(v int) float64 {
	if v < g.given {
		return g.sizes[v].w
	}
	return 0
}

// crossings counts the pairs of edges between neighbouring rows that cross.
func (g *layered) crossings() int {
	place := make([]int, len(g.layer))
	widest := 0
	for _, row := range g.rows {
		widest = max(widest, len(row))
		for i, v := range row {
			place[v] = i
		}
	}
	tree := make([]int, widest+1) // sums of counts, by place (a Fenwick tree)
	total := 0
	for _, row := range g.rows {
		clear(tree)
		seen := 0
		for _, v := range row {
			for _, l := range g.down[v] { // those to the right of l.to that came before
				total += seen
				for i := place[l.to] + 1; i > 0; i -= i & -i {
					total -= tree[i]
				}
			}
			for _, l := range g.down[v] {
				seen++
				for i := place[l.to] + 1; i < len(tree); i += i & -i {
					tree[i]++
				}
			}
		}
	}
	return total
}
