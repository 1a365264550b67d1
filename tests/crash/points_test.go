package crash

// point is where a process dies.
type point struct {
	what  string // see step
	after bool   // it has had its effect, and the answer is on its way; else before the effect
}

func (p point) String() string {
	if p.after {
		return "after " + p.what
	}
	return "before " + p.what
}

// around is before and after each.
func around(steps ...string) []point {
	var points []point
	for _, s := range steps {
		points = append(points, point{s, false}, point{s, true})
	}
	return points
}

var (
	pushPoints   = around("marker", "call", "stored")
	deletePoints = around("marker", "call", "nothing stored", "tombstone")
)
