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
	seedFlag     = flag.Uint64("seed", 0, "run this seed alone")
	seedsFlag    = flag.Int("seeds", 0, "how many new seeds to run; 100 where 0, 10 with -short")
	forFlag      = flag.Duration("for", 0, "run new seeds for that long instead")
	faultsFlag   = flag.String("faults", "all", "with -seed: the numbers of the faults to make, 3,17; none for none")
	chaosFlag    = flag.Duration("chaos", 0, "with -seed: how long faults are made; what the seed draws where 0")
	convertsFlag = flag.Bool("converts", false, "with -seed: groups are converted to classic ones and back")
	muteFlag     = flag.String("mute", "", "with -seed: groups without members, group-0,group-2")
)

// options are what can be asked of a run besides its seed.
type options struct {
	verbose bool
	only    []int // numbers of the faults to make; nil: all
	chaos   time.Duration
	mute    []string
	// converts: groups are converted. New seeds are run with it and without, by turns.
	converts bool
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
	o := options{verbose: testing.Verbose(), chaos: *chaosFlag, converts: *convertsFlag}
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
	if o.converts {
		s += " -converts"
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
	var next, done, converting, conversions, spoils atomic.Int64
	var failed atomic.Bool
	begin := time.Now()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for !failed.Load() {
				i := int(next.Add(1) - 1)
				seed, o := first+uint64(i-len(old)), options{converts: i%2 == 0}
				if i < len(old) {
					seed, o = old[i].seed, options{converts: old[i].converts}
				} else if i >= len(old)+n || *forFlag > 0 && time.Since(begin) > *forFlag {
					return
				}
				f, ok := runSeed(t, seed, o, true)
				if !ok {
					failed.Store(true)
				}
				if done.Add(1); o.converts {
					converting.Add(1)
				}
				conversions.Add(int64(f.conversions))
				spoils.Add(int64(f.spoils))
			}
		})
	}
	workers.Wait()
	fmt.Fprintf(os.Stderr, "sim: %d histories, %.0f a minute; %d of them with %d conversions, of which %d came to the cluster too late\n",
		done.Load(), float64(done.Load())/time.Since(begin).Minutes(), converting.Load(), conversions.Load(), spoils.Load())
	if converting.Load() >= 20 && conversions.Load() == 0 {
		t.Error("nothing was converted")
	}
}

// runSeed runs one history as a subtest.
func runSeed(t *testing.T, seed uint64, o options, shrinks bool) (f outcome, ok bool) {
	ok = t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
		f = play(t, seed, o)
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
	return f, ok
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
	// conversions are groups that went from one protocol to the other; spoils what late requests of conversions did that nothing prevents.
	conversions, spoils int
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
	f.conversions, f.spoils = w.checker.conversions, w.checker.spoils
	return f
}

// regression is a seed that failed once.
type regression struct {
	seed     uint64
	converts bool
}

// regressions reads testdata/seeds.txt: a seed a line, with "converts" behind it where it was run with that, and what it found.
func regressions(t *testing.T) []regression {
	b, err := os.ReadFile("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	var seeds []regression
	for i, line := range strings.Split(string(b), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		line, how, _ := strings.Cut(line, " ")
		seed, err := strconv.ParseUint(line, 10, 64)
		if err != nil {
			t.Fatalf("testdata/seeds.txt:%d: %v", i+1, err)
		}
		seeds = append(seeds, regression{seed, strings.TrimSpace(how) == "converts"})
	}
	return seeds
}
