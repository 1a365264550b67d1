package sim

import (
	"slices"
	"testing"
	"time"
)

// shrinkMax is for how long a failure is shrunk, in real time: long enough for a few hundred runs, and short beside the time that it takes
// to read what is left.
const shrinkMax = 40 * time.Second

// shrink looks for a smaller history of the same seed that fails, too, in whatever way: one without some of the groups, with a
// shorter time, with fewer faults. It returns the last one that failed.
func shrink(t *testing.T, f outcome) outcome {
	begin := time.Now()
	tries := func(change func(*options)) bool {
		if time.Since(begin) > shrinkMax {
			return false
		}
		o := f.options
		change(&o)
		next := play(t, f.seed, o)
		if next.violation == "" {
			return false
		}
		f = next
		return true
	}
	// First what makes all later runs shorter.
	tries(func(o *options) { o.chaos = f.lasted.Round(time.Second) + time.Second })
	for _, group := range f.groups {
		tries(func(o *options) { o.mute = append(slices.Clone(o.mute), group) })
	}
	// Then faults: all of them, halves, quarters, single ones.
	for size := max(1, len(f.faults)); size > 0; size /= 2 {
		for from := 0; from < len(f.faults); {
			rest := slices.Concat(f.faults[:from], f.faults[min(from+size, len(f.faults)):])
			if !tries(func(o *options) { o.only = slices.Concat([]int{}, rest) }) {
				from += size
			}
		}
	}
	tries(func(o *options) { o.chaos = f.lasted.Round(time.Second) + time.Second })
	return f
}
