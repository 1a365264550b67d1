package sensor

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestBucketsHoldTheirDurations(t *testing.T) {
	last := -1
	for us := int64(0); us < 80_000_000; us += 1 + us/1500 {
		d := time.Duration(us) * time.Microsecond
		b := bucketOf(d)
		if b < last || b >= buckets {
			t.Fatalf("%v is in bucket %d after %d", d, b, last)
		}
		last = b
		if up := upper(b); us < 1<<bitsMax && (up < d || float64(up-d) > 0.004*float64(d)) {
			t.Fatalf("%v is in bucket %d, which ends at %v", d, b, up)
		}
	}
	if bucketOf(time.Hour) != buckets-1 || bucketOf(0) != 0 {
		t.Errorf("an hour is in bucket %d, nothing in %d", bucketOf(time.Hour), bucketOf(0))
	}
}

func TestQuantilesAreThoseOfTheSortedDurations(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	var set Set
	var h Histogram
	w := set.Windowed(&h)
	var all []time.Duration
	for range 5000 {
		d := time.Duration(math.Exp(r.Float64()*17)) * time.Microsecond
		all = append(all, d)
		h.Record(d)
	}
	slices.Sort(all)
	qs := []float64{0.5, 0.95, 0.99, 0.999, 1}
	for i, got := range w.Quantiles(qs...) {
		want := all[int(math.Ceil(qs[i]*float64(len(all))))-1]
		if got < want || float64(got) > 1.005*float64(want)+1000 {
			t.Errorf("seed %d: quantile %v is %v, want %v", seed, qs[i], got, want)
		}
	}
	bounds := []time.Duration{time.Millisecond, time.Second, time.Hour}
	n, _, below := h.Cumulative(bounds)
	for i, b := range bounds {
		want := int64(0)
		for _, d := range all {
			if d <= b {
				want++
			}
		}
		if off := want - below[i]; off < 0 || off > want/100+1 { // of the bucket that the bound cuts
			t.Errorf("seed %d: %d of %d not above %v, want %d", seed, below[i], n, b, want)
		}
	}
}

func TestValuesCoverTheLastMinuteAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set Set
		go set.Run(t.Context())
		var count atomic.Int64
		var h Histogram
		rate, w := set.Rate(count.Load), set.Windowed(&h)
		count.Add(300)
		h.Record(time.Second)
		if got := rate.PerSecond(); got != 10 {
			t.Errorf("300 events at once are %v a second, want them over a window", got)
		}
		time.Sleep(Window - time.Second)
		if got := w.Quantiles(1)[0]; got < time.Second || got > 1005*time.Millisecond {
			t.Errorf("longest %v", got)
		}
		if mean, ok := w.Mean(); !ok || mean != time.Second {
			t.Errorf("mean %v, %v", mean, ok)
		}
		time.Sleep(Window)
		if got := rate.PerSecond(); got < 4.5 || got > 5.5 {
			t.Errorf("after most of two windows %v a second, want 300 over some 59 s", got)
		}
		time.Sleep(2 * Window)
		if got := rate.PerSecond(); got != 0 {
			t.Errorf("%v a second after everything is past", got)
		}
		if _, ok := w.Mean(); ok || w.Quantiles(0.5)[0] != 0 {
			t.Error("durations are remembered for ever")
		}
		for range 120 {
			count.Add(7)
			time.Sleep(time.Second)
		}
		if got := rate.PerSecond(); got < 6.8 || got > 7.2 {
			t.Errorf("a steady 7 a second is shown as %v", got)
		}
		if h.Count() != 1 {
			t.Errorf("%d durations in all", h.Count())
		}
	})
}

func TestShareOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set Set
		var busy atomic.Int64
		r := set.Rate(busy.Load)
		if got := r.Share(); got != 0 {
			t.Errorf("at the beginning %v", got)
		}
		time.Sleep(10 * time.Second)
		busy.Add(int64(time.Second))
		if got := r.Share(); got != 0.1 {
			t.Errorf("%v, want a tenth", got)
		}
	})
}

func TestRecordingFromManyGoroutinesLosesNothing(t *testing.T) {
	var h Histogram
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for range 1000 {
				h.Record(time.Duration(g) * time.Millisecond)
			}
		})
	}
	wg.Wait()
	h.Record(-time.Second)
	if n, sum, _ := h.Cumulative(nil); n != 8001 || sum != 28*1000*time.Millisecond {
		t.Errorf("%d durations, %v", n, sum)
	}
}

func BenchmarkRecord(b *testing.B) {
	var h Histogram
	for b.Loop() {
		h.Record(1234 * time.Microsecond)
	}
}
