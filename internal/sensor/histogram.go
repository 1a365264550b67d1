package sensor

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// The buckets of a histogram: microseconds one by one up to exact, and from there exact buckets for each power of two, which keeps two and
// a half digits. Durations above the last bucket, 67 seconds, are counted in it; Kafka's histograms end at one minute.
const (
	exactBits = 8
	exact     = 1 << exactBits
	bitsMax   = 26
	buckets   = exact * (bitsMax - exactBits + 1)
)

// Histogram counts durations. The zero value is ready; Record is safe for concurrent use and costs two atomic additions.
type Histogram struct {
	counts [buckets]atomic.Int64
	sum    atomic.Int64 // ns
}

// Record counts a duration; a negative one, of a clock that was set back, as none.
func (h *Histogram) Record(d time.Duration) {
	d = max(d, 0)
	h.counts[bucketOf(d)].Add(1)
	h.sum.Add(int64(d))
}

func bucketOf(d time.Duration) int {
	v := uint64(d / time.Microsecond)
	if v < exact {
		return int(v)
	}
	shift := bits.Len64(v) - exactBits - 1
	return min(exact+shift*exact+int(v>>shift)-exact, buckets-1)
}

// upper is the longest duration of a bucket, in whole microseconds.
func upper(bucket int) time.Duration {
	if bucket < exact {
		return time.Duration(bucket) * time.Microsecond
	}
	shift := (bucket - exact) / exact
	v := uint64((bucket-exact)%exact+exact+1)<<shift - 1
	return time.Duration(v) * time.Microsecond
}

// Count is how many durations were recorded.
func (h *Histogram) Count() int64 { return h.snapshot().n }

// snapshot is what was counted up to a moment.
type snapshot struct {
	counts []int64
	n      int64
	sum    time.Duration
}

func (h *Histogram) snapshot() snapshot {
	s := snapshot{counts: make([]int64, buckets)}
	for i := range h.counts {
		s.counts[i] = h.counts[i].Load()
		s.n += s.counts[i]
	}
	s.sum = time.Duration(h.sum.Load())
	return s
}

// Cumulative returns how many durations were recorded, their sum, and how many were not above each bound, for a histogram as Prometheus knows it. Bounds
// ascend.
func (h *Histogram) Cumulative(bounds []time.Duration) (n int64, sum time.Duration, below []int64) {
	s := h.snapshot()
	below = make([]int64, len(bounds))
	i, seen := 0, int64(0)
	for b, bound := range bounds {
		for ; i < buckets && upper(i) <= bound; i++ {
			seen += s.counts[i]
		}
		below[b] = seen
	}
	return s.n, s.sum, below
}
