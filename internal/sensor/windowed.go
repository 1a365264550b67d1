package sensor

import (
	"math"
	"time"
)

// Windowed is a histogram's last window (KafkaMetricHistogram and the sampled Max and Avg of Kafka 4.4).
type Windowed struct{ edges *edges[snapshot] }

// Windowed makes the window of a histogram.
func (s *Set) Windowed(h *Histogram) *Windowed {
	w := &Windowed{newEdges(h.snapshot)}
	s.add(w.edges)
	return w
}

// since is what was recorded in the window.
func (w *Windowed) since() snapshot {
	before, _, now := w.edges.since()
	d := snapshot{counts: make([]int64, buckets), sum: now.sum - before.sum}
	for i := range d.counts {
		d.counts[i] = now.counts[i] - before.counts[i]
		d.n += d.counts[i]
	}
	return d
}

// Quantiles returns, for each q of (0, 1], the duration that a part q of the recorded ones did not exceed; 1 gives the longest. All are 0 where
// nothing was recorded.
func (w *Windowed) Quantiles(qs ...float64) []time.Duration {
	d := w.since()
	out := make([]time.Duration, len(qs))
	for i, q := range qs {
		out[i] = d.quantile(q)
	}
	return out
}

func (s snapshot) quantile(q float64) time.Duration {
	rank := max(int64(math.Ceil(q*float64(s.n))), 1)
	seen := int64(0)
	for i, n := range s.counts {
		if seen += n; seen >= rank {
			return upper(i)
		}
	}
	return 0
}

// Mean is the average of what was recorded; ok is false where nothing was.
func (w *Windowed) Mean() (mean time.Duration, ok bool) {
	d := w.since()
	if d.n == 0 {
		return 0, false
	}
	return d.sum / time.Duration(d.n), true
}
