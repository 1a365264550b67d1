package sim

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run this seed alone")
	seedsFlag = flag.Int("seeds", 0, "how many new seeds to run; 20 where 0, 4 with -short")
	forget    = flag.Bool("forget", false, "let the cluster forget producer ids, which acknowledged writes do not survive yet")
	forFlag   = flag.Duration("for", 0, "run new seeds for that long instead")
)

// TestSimulation runs the seeds that failed once, and then new ones.
func TestSimulation(t *testing.T) {
	if *seedFlag != 0 {
		runSeed(t, *seedFlag, testing.Verbose())
		return
	}
	for _, seed := range regressions(t) {
		runSeed(t, seed, false)
	}
	n := *seedsFlag
	switch {
	case *forFlag > 0:
		n = 1 << 30
	case n > 0:
	case testing.Short():
		n = 4
	default:
		n = 20
	}
	first := uint64(time.Now().UnixNano())
	fmt.Fprintf(os.Stderr, "sim: seeds from %d\n", first) // first of all, whatever happens then
	for begin := time.Now(); n > 0 && (*forFlag == 0 || time.Since(begin) < *forFlag) && !t.Failed(); n-- {
		runSeed(t, first, false)
		first++
	}
}

func runSeed(t *testing.T, seed uint64, verbose bool) {
	t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(seed, verbose)
			if v := w.run(); v != "" {
				if !verbose {
					t.Log("\n" + strings.Join(w.history, "\n"))
				}
				t.Errorf("seed %d: %s\nagain with: go test ./tests/sim -run TestSimulation -seed %d -v", seed, v, seed)
			}
		})
	})
}

// regressions reads testdata/seeds.txt: a seed a line, and what it found.
func regressions(t *testing.T) []uint64 {
	b, err := os.ReadFile("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	var seeds []uint64
	for i, line := range strings.Split(string(b), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		seed, err := strconv.ParseUint(line, 10, 64)
		if err != nil {
			t.Fatalf("testdata/seeds.txt:%d: %v", i+1, err)
		}
		seeds = append(seeds, seed)
	}
	return seeds
}
