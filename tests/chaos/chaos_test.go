package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	seedFlag = flag.Uint64("seed", 0, "play this seed (0: the fixed one, then a random one)")
	forFlag  = flag.Duration("for", 0, "how long to go on; 0: a short run")
)

const (
	// fixedSeed is played in every run of the tests.
	fixedSeed = 7
	// shortBlows is the number of blows of a short run, for each of two seeds.
	shortBlows = 2
	groups     = 6
)

// calmMax is how long it may take after a blow until all groups work again. A replica that was cut off or paused for less than a session can find its
// session over only afterwards; then its shards go to others: a session, a heartbeat and the takeover. Members look for their coordinator, one
// replica after the other, each for the request time-out, and an expired member joins again. What is left is a machine that is busy, and Kafka's
// brokers, which take up to their own session of 6 s to agree on leaders.
const calmMax = 75 * time.Second

// TestChaos: see the package.
func TestChaos(t *testing.T) {
	t.Parallel()
	random := uint64(time.Now().UnixNano())
	seeds := []uint64{fixedSeed, random}
	if *seedFlag != 0 {
		seeds = []uint64{*seedFlag}
	} else if *forFlag > 0 {
		seeds = []uint64{random}
	}
	long := *forFlag > 0 || *seedFlag != 0
	c := cast{groups: groups, apps: 1, stages: 1}
	if long {
		c = cast{groups: groups, apps: 2, stages: 2, clocks: true, patient: true}
	}
	w := newWorld(t, c)
	stop := w.begin()
	begun := w.now()
	for _, seed := range seeds {
		t.Logf("SEED %d (go test ./tests/chaos -v -args -seed %d -for 10m)", seed, seed)
		d := &deck{draw: rand.New(rand.NewPCG(seed, 0))}
		for blow := 0; !t.Failed(); blow++ {
			if *forFlag > 0 && w.now()-begun > *forFlag || *forFlag == 0 && blow == shortBlows {
				break
			}
			w.blow(d)
		}
	}
	stop()
	for _, wrong := range w.judge() {
		t.Error(wrong)
	}
}

// begin has members play, and onlookers when all is up. The function that it returns ends them.
func (w *world) begin() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	for _, m := range w.members {
		running.Go(func() { m.run(ctx) })
	}
	stop = func() { cancel(); running.Wait() }
	w.t.Cleanup(stop)
	w.calm("the beginning")
	for i := range w.keepers {
		o := &onlooker{w: w, replica: i}
		w.onlookers = append(w.onlookers, o)
		running.Go(func() { o.run(ctx) })
	}
	return stop
}

// deck deals the faults in a shuffled order, each once before any comes again, so that a run of some length meets all of them.
type deck struct {
	draw *rand.Rand
	left []fault
}

func (d *deck) deal() fault {
	if len(d.left) == 0 {
		d.left = slices.Clone(faults)
		d.draw.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	}
	f := d.left[0]
	d.left = d.left[1:]
	return f
}

// blow lets one to three things go wrong at overlapping times, and waits until everything works again.
func (w *world) blow(d *deck) {
	type mending struct {
		at   time.Duration
		mend func()
	}
	var mends []mending
	var what []string
	used := map[string]bool{}
	draw := d.draw
	for range 1 + draw.IntN(3) {
		f := d.deal()
		target := draw.IntN(replicas)
		own := rand.New(rand.NewPCG(draw.Uint64(), 0))
		last := time.Duration(1+own.IntN(12)) * time.Second
		gap := time.Duration(own.IntN(2000)) * time.Millisecond
		if f.apps && w.patient {
			last *= 2
		}
		place := "brokers"
		switch {
		case f.apps:
			place = "applications"
		case !f.brokers:
			for used[fmt.Sprint("replica ", target)] { // each can have one fault at a time
				target = (target + 1) % replicas
			}
			place = fmt.Sprint("replica ", target)
		}
		if w.net == nil && !f.netless || f.apps && len(w.stages) == 0 || f.can != nil && !f.can(w) {
			continue
		}
		if used[place] { // two of three brokers are needed: this fault is for the next blow
			d.left = slices.Insert(d.left, 0, f)
			break
		}
		used[place] = true
		if !f.apps && !f.brokers {
			w.busy[target] = true
		}
		w.logf("%s, %s, for %v", f.name, place, last)
		mend, about := f.begin(w, target, own)
		if about != "" {
			w.logf("… %s", about)
		}
		what = append(what, f.name)
		mends = append(mends, mending{w.now() + last, func() {
			mend()
			w.logf("mended: %s, %s", f.name, place)
		}})
		time.Sleep(gap) // faults overlap by chance
	}
	slices.SortFunc(mends, func(a, b mending) int { return cmp.Compare(a.at, b.at) })
	for _, m := range mends {
		time.Sleep(m.at - w.now()) // for as long as the fault is to last
		m.mend()
	}
	clear(w.busy[:])
	w.calm(strings.Join(what, ", "))
}

// calm waits until all replicas are ready, and each group has its members, who have all its tasks, and commits.
func (w *world) calm(after string) {
	begun, sent := w.now(), w.sent()
	for {
		why := w.troubled(begun)
		if why == "" {
			why = w.appsTroubled(sent)
		}
		if why == "" {
			w.judgeAppLogs()
			w.logf("calm %.1fs after: %s", (w.now() - begun).Seconds(), after)
			return
		}
		if w.now()-begun > calmMax {
			w.t.Fatalf("%v after %s: %s", calmMax, after, why)
		}
		time.Sleep(100 * time.Millisecond) // between looks
	}
}

// troubled says what does not work yet that is asked for since begun.
func (w *world) troubled(begun time.Duration) string {
	for i, k := range w.keepers {
		if !k.Running() {
			w.t.Fatalf("replica %d has ended:\n%s", i, k.Output())
		}
		if err := k.Ready(); err != nil {
			return fmt.Sprintf("replica %d: %v", i, err)
		}
	}
	if why := w.shared(); why != "" {
		return why
	}
	tasks := map[string]int32{}
	for _, m := range w.members {
		tasks[m.group] += m.working.Load()
		for what, last := range map[string]int64{"heartbeat": m.beaten.Load(), "commit": m.counted.Load()} {
			if time.Duration(last) <= begun {
				return fmt.Sprintf("member %s has no acknowledged %s since; its last error: %v", m.id, what, m.lastErr.Load())
			}
		}
	}
	for group, n := range tasks {
		if n != inPartitions {
			return fmt.Sprintf("the members of %s have %d tasks of %d", group, n, inPartitions)
		}
	}
	return ""
}

// goroutinesMax is more than a replica with some dozen clients and three brokers ever needs; one that forgets an ended connection passes it in an hour.
const goroutinesMax = 500

// shared says which shard is served by nobody, or by two, and which replica grows.
func (w *world) shared() string {
	served := make([]int, logPartitions)
	for i, k := range w.keepers {
		_, body, err := k.TryGet("/shards")
		if err != nil {
			return err.Error() // a machine that stands still for seconds holds up more than replicas; one that answers nothing is found by calmMax
		}
		var st struct {
			Shards []struct {
				Partition int32
				Serving   bool
			}
		}
		if err := json.Unmarshal([]byte(body), &st); err != nil || len(st.Shards) != logPartitions {
			w.t.Fatalf("replica %d: /shards: %v: %s", i, err, body)
		}
		for _, s := range st.Shards {
			if s.Serving {
				served[s.Partition]++
			}
		}
		_, metrics, err := k.TryGet("/metrics")
		if err != nil {
			return err.Error()
		}
		n, ok := 0.0, false
		for line := range strings.Lines(metrics) {
			if v, is := strings.CutPrefix(line, "go_goroutines "); is {
				n, _ = strconv.ParseFloat(strings.TrimSpace(v), 64)
				ok = true
			}
		}
		if !ok || n > goroutinesMax {
			return fmt.Sprintf("replica %d has %v goroutines (told: %v)", i, n, ok)
		}
	}
	for p, n := range served {
		if n != 1 {
			return fmt.Sprintf("shard %d is served by %d replicas", p, n)
		}
	}
	return ""
}
