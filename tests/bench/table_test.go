package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// results are the numbers of all rounds by row and system. Rows keep the order of their first appearance.
type results struct {
	rows   []string
	values map[string]map[string][]float64
	less   map[string]bool // rows where less is better
}

func newResults() *results {
	return &results{values: map[string]map[string][]float64{}, less: map[string]bool{}}
}

func (r *results) add(system, row string, value float64) {
	if r.values[row] == nil {
		r.rows = append(r.rows, row)
		r.values[row] = map[string][]float64{}
	}
	r.values[row][system] = append(r.values[row][system], value)
}

// addLess is add for a row where less is better.
func (r *results) addLess(system, row string, value float64) {
	r.less[row] = true
	r.add(system, row, value)
}

// addMeasure adds the rows of a phase over n connections.
func (r *results) addMeasure(system string, n int, what string, m measure) {
	row := func(unit string) string {
		if n == 1 {
			return fmt.Sprintf("1 connection: %s, %s", what, unit)
		}
		return fmt.Sprintf("%d connections: %s, %s", n, what, unit)
	}
	r.add(system, row("per second"), m.perSecond)
	for _, p := range []float64{0.5, 0.95, 0.99} {
		r.addLess(system, row(fmt.Sprintf("p%.0f ms", p*100)), float64(m.percentile(p))/float64(time.Millisecond))
	}
	if m.cpu > 0 {
		r.addLess(system, row("processor time each, µs"), float64(m.cpu)/float64(time.Microsecond)/float64(max(len(m.latencies), 1)))
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v) == 0 {
		return 0
	}
	if len(v)%2 == 1 {
		return v[len(v)/2]
	}
	return (v[len(v)/2-1] + v[len(v)/2]) / 2
}

func number(v float64) string {
	switch {
	case v >= 1000:
		s := fmt.Sprintf("%.0f", v)
		return s[:len(s)-3] + "," + s[len(s)-3:]
	case v >= 10:
		return fmt.Sprintf("%.0f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// markdown is the table: medians, the spread of the rounds, and how many times better the second system is (above 1
// is better, whether more or less is what counts).
func (r *results) markdown(first, second string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | %s | %s | ratio |\n|---|---|---|---|\n", first, second)
	for _, row := range r.rows {
		a, c := r.values[row][first], r.values[row][second]
		ratio := ""
		if ma, mc := median(a), median(c); ma > 0 && mc > 0 {
			x := mc / ma
			if r.less[row] {
				x = ma / mc
			}
			ratio = fmt.Sprintf("%.2f", x)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", row, cell(a), cell(c), ratio)
	}
	return b.String()
}

func cell(v []float64) string {
	switch len(v) {
	case 0:
		return "–"
	case 1:
		return number(v[0])
	}
	return fmt.Sprintf("%s (%s–%s)", number(median(v)), number(slices.Min(v)), number(slices.Max(v)))
}
