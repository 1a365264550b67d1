package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "run this seed alone")
	seedsFlag  = flag.Int("seeds", 0, "how many new seeds to run; 100 where 0, 10 with -short")
	forFlag    = flag.Duration("for", 0, "run new seeds for that long instead")
	faultsFlag = flag.String("faults", "all", "with -seed: the numbers of the faults to make, 3,17; none for none")
	chaosFlag  = flag.Duration("chaos", 0, "with -seed: how long faults are made; what the seed draws where 0")
	muteFlag   = flag.String("mute", "", "with -seed: groups without members, group-0,group-2")
)

// options are what can be asked of a run besides its seed.
type options struct {
	verbose bool
	only    []int // numbers of the faults to make; nil: all
	chaos   time.Duration
	mute    []string
	// sabotage breaks the system, or a client, on purpose: the invariants must notice.
	sabotage string
	// sole is the name of the one fault that is made, now and then and for long; "": all are.
	sole string
	// silent keeps the checker from judging what clients were told, which the histories of the clients are for, too.
	silent bool
}

func (o options) makes(fault int) bool      { return o.only == nil || slices.Contains(o.only, fault) }
func (o options) mutes(group string) bool   { return slices.Contains(o.mute, group) }
func (o options) sabotages(how string) bool { return o.sabotage == how }

// flags are the options that the command line gives.
func flagOptions(t *testing.T) options {
	o := options{verbose: testing.Verbose(), chaos: *chaosFlag}
	if *muteFlag != "" {
		o.mute = strings.Split(*muteFlag, ",")
	}
	switch *faultsFlag {
	case "all":
	case "none":
		o.only = []int{}
	default:
		for _, n := range strings.Split(*faultsFlag, ",") {
			number, err := strconv.Atoi(n)
			if err != nil {
				t.Fatalf("-faults: %v", err)
			}
			o.only = append(o.only, number)
		}
	}
	return o
}

// again is the command that plays a run again.
func (o options) again(seed uint64) string {
	s := fmt.Sprintf("go test ./tests/sim -run TestSimulation -v -seed %d", seed)
	if o.only != nil {
		list := "none"
		if len(o.only) > 0 {
			list = strings.Trim(strings.Join(strings.Fields(fmt.Sprint(o.only)), ","), "[]")
		}
		s += " -faults " + list
	}
	if o.chaos > 0 {
		s += fmt.Sprintf(" -chaos %v", o.chaos)
	}
	if len(o.mute) > 0 {
		s += " -mute " + strings.Join(o.mute, ",")
	}
	return s
}

// TestSimulation runs the seeds that failed once, and then new ones, as many side by side as there are processors. It stops at
// the first failure, which it shrinks.
func TestSimulation(t *testing.T) {
	if *seedFlag != 0 {
		runSeed(t, *seedFlag, flagOptions(t), false)
		return
	}
	old := regressions(t)
	n := *seedsFlag
	switch {
	case *forFlag > 0:
		n = 1 << 30
	case n > 0:
	case testing.Short():
		n = 10
	default:
		n = 100
	}
	first := uint64(time.Now().UnixNano())
	fmt.Fprintf(os.Stderr, "sim: seeds from %d\n", first) // first of all, whatever happens then
	var next, done atomic.Int64
	var failed atomic.Bool
	begin := time.Now()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for !failed.Load() {
				i := int(next.Add(1) - 1)
				seed := first + uint64(i-len(old))
				if i < len(old) {
					seed = old[i]
				} else if i >= len(old)+n || *forFlag > 0 && time.Since(begin) > *forFlag {
					return
				}
				if !runSeed(t, seed, options{}, true) {
					failed.Store(true)
				}
				done.Add(1)
			}
		})
	}
	workers.Wait()
	fmt.Fprintf(os.Stderr, "sim: %d histories, %.0f a minute\n", done.Load(), float64(done.Load())/time.Since(begin).Minutes())
}

// runSeed runs one history as a subtest.
func runSeed(t *testing.T, seed uint64, o options, shrinks bool) bool {
	return t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
		f := play(t, seed, o)
		if f.violation == "" {
			return
		}
		t.Errorf("seed %d: %s", seed, f.violation)
		if shrinks {
			f = shrink(t, f)
			t.Logf("shrunk to %s: %s", f.size(), f.violation)
		}
		if !o.verbose {
			t.Log("\n" + strings.Join(f.history, "\n"))
		}
		t.Logf("again with: %s", f.options.again(seed))
	})
}

// outcome is what came of a run.
type outcome struct {
	seed      uint64
	options   options
	violation string // "": none
	history   []string
	faults    []int // that were made
	groups    []string
	lasted    time.Duration // until the violation, or the end of the faults
}

func (f outcome) size() string {
	return fmt.Sprintf("%d faults, %d groups, %v", len(f.faults), len(f.groups)-len(f.options.mute), f.lasted.Round(time.Second))
}

// play runs one history in virtual time.
func play(t *testing.T, seed uint64, o options) (f outcome) {
	var w *world
	synctest.Test(t, func(*testing.T) {
		w = newWorld(seed, o)
		f = outcome{seed: seed, options: o, violation: w.run(), history: w.history, faults: w.begun, lasted: w.plan.chaos}
		if f.violation != "" {
			f.lasted = w.violated.Sub(w.start)
		}
		for g := range w.groups {
			f.groups = append(f.groups, groupName(g))
		}
	})
	if f.violation == "" {
		f.violation = w.judge()
	}
	return f
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
