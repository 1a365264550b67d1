package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"streamkeeper/eventlog"
	"streamkeeper/internal/history"
	"streamkeeper/shard"
	"streamkeeper/shard/groupconfig"
)

const (
	historyMax = 3000 // lines that a failure shows at most
	// idleInterval is how often a reader is told that it still stands at the log's end; half a second with Kafka. It costs a fifth of a run.
	idleInterval = 3 * time.Second
)

// plan is what a seed draws before anything begins.
type plan struct {
	replicas   int
	partitions int32 // of the log
	groups     int
	tasks      int32 // of the stateless subtopology at the start
	sideTasks  int32 // of the stateful one
	clients    int   // in each group at the start
	chaos      time.Duration
	// deleteRetention is the log's; short ones make a replica that was away for long read everything again.
	deleteRetention time.Duration
	// lies: coordinators of the ownership group that were replaced confirm heartbeats.
	lies bool
	// loses: the log loses acknowledged records.
	loses bool
	// keepsFormer: the cluster does not let a claimer fence a producer id that it has forgotten. Not where there are lies, too: together they leave a
	// replaced owner nothing by which it could know that its writes are acknowledged and don't count (D4).
	keepsFormer bool
	// converts: groups go from one protocol to the other, and back. What a conversion does at the cluster rests on leases and on what was acknowledged, so
	// not where either is worth nothing.
	converts bool
}

func drawPlan(rng *rand.Rand) plan {
	p := plan{
		replicas: 1 + rng.IntN(3), partitions: 1 + rng.Int32N(4), groups: 1 + rng.IntN(4), tasks: 1 + rng.Int32N(6), sideTasks: 1 + rng.Int32N(3),
		clients: rng.IntN(5), chaos: time.Duration(60+rng.IntN(300)) * time.Second,
		deleteRetention: []time.Duration{3 * time.Minute, 24 * time.Hour}[rng.IntN(2)], lies: rng.IntN(2) == 0, keepsFormer: rng.IntN(2) == 0,
	}
	p.loses = !p.lies && rng.IntN(2) == 0
	return p
}

// world is one simulated world.
type world struct {
	seed    uint64
	options options
	plan
	start     time.Time
	cluster   *cluster
	network   *network
	brokers   *brokers
	broke     *sockets // of the brokers
	catalogue *catalogue
	settings  *groupconfig.Broker // of all replicas
	silent    map[string]bool     // groups whose topics get no records
	log       *eventlog.Fake
	ownership *shard.FakeGroup
	replicas  []*replica
	checker   *checker
	recorder  *history.Recorder
	losses    []atomic.Int32           // by partition: how often it lost something
	spoils    map[string]*atomic.Int32 // by group: how often a conversion that came late spoiled its offsets
	unfollow  func()

	ctx        context.Context // ends with the run or the first violation
	cancel     context.CancelFunc
	active     sync.WaitGroup // clients and the cleanup
	serving    sync.WaitGroup // brokers
	restarting sync.WaitGroup // replicas that ended by themselves

	mu        sync.Mutex
	calm      bool
	peace     time.Time            // since when nothing goes wrong; zero: something does
	beats     map[string]time.Time // when a heartbeat was sent, by replica and group
	clients   []*client
	consumers []*client       // classic ones
	classic   map[string]bool // groups whose applications are classic at the moment
	born      int
	history   []string
	violation string
	violated  time.Time // when
	begun     []int     // numbers of the faults that were made
}

func newWorld(seed uint64, o options) *world {
	w := &world{seed: seed, options: o, start: time.Now()}
	w.plan = drawPlan(w.rng("plan"))
	w.cluster, w.settings = newCluster(w.plan), drawSettings(w.rng("settings"))
	w.network, w.brokers, w.broke = newNetwork(), &brokers{w: w, groups: map[string]*classicGroup{}}, newSockets(&gate{})
	w.catalogue = &catalogue{rng: w.rng("catalogue"), kept: map[string]int32{}, keeps: o.sabotages(keeper)}
	w.beats = map[string]time.Time{}
	w.silent = map[string]bool{}
	for g := range w.groups {
		w.silent[groupName(g)] = w.rng("silence of "+groupName(g)).IntN(4) == 0
	}
	if o.chaos > 0 {
		w.plan.chaos = o.chaos
	}
	if o.sole != "" {
		w.plan.lies, w.plan.loses = o.sole == deposed || o.sole == blinded, o.sole == cutOff
	}
	if w.plan.converts = o.converts; o.converts {
		w.plan.lies, w.plan.loses = false, false
	}
	w.spoils, w.classic = map[string]*atomic.Int32{}, map[string]bool{}
	for g := range w.groups {
		w.spoils[groupName(g)] = new(atomic.Int32)
		w.classic[groupName(g)] = w.converts && w.rng("kind of "+groupName(g)).IntN(2) == 0
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	// One entry a read, so that what a reader gets at once does not depend on a race.
	w.log = eventlog.NewFake(eventlog.FakeOptions{Partitions: w.partitions, EntriesPerRead: 1, IdleInterval: idleInterval})
	for p := range w.partitions {
		if w.keepsFormer && !w.lies {
			w.log.KeepFormer(p)
		}
	}
	w.ownership = shard.NewFakeGroup(shard.FakeGroupOptions{Partitions: w.partitions})
	w.losses = make([]atomic.Int32, w.partitions)
	w.checker = newChecker(w)
	w.recorder = history.NewRecorder(func() time.Duration { return time.Since(w.start) })
	for n := range w.plan.replicas {
		percent := 100 - driftMost + w.rng(fmt.Sprintf("boot clock %d", n+1)).Int64N(2*driftMost+1)
		w.replicas = append(w.replicas, &replica{
			w: w, turn: make(chan struct{}, 1), boot: &bootClock{start: w.start, percent: percent}, node: int32(n + 1), rng: w.rng(fmt.Sprintf("replica %d", n+1)), fs: vfs.NewCrashableMem(),
		})
	}
	w.note("seed %d: %+v", seed, w.plan)
	return w
}

// rng is the source of randomness of one part of the world; each has its own, so that no part's draws depend on the order in
// which others draw.
func (w *world) rng(part string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(part))
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// delays makes a function that draws how long a message of some kind is under way. Each kind has its own stream, and messages of
// one kind must follow each other: what happens at the same instant must not race for draws. It is safe for concurrent use.
func (w *world) delays(part string) func(kind string) time.Duration {
	var mu sync.Mutex
	rngs := map[string]*rand.Rand{}
	return func(kind string) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if rngs[kind] == nil {
			rngs[kind] = w.rng("delays of " + part + ", " + kind)
		}
		d := delay(rngs[kind])
		if w.isCalm() {
			d = min(d, delayMost)
		}
		return d
	}
}

// delayMost is the longest that messages are under way where nothing goes wrong.
const delayMost = 5100 * time.Microsecond

func delay(rng *rand.Rand) time.Duration {
	d := time.Duration(100_000 + rng.Int64N(5_000_000)) // 0.1 to 5 ms
	if rng.IntN(200) == 0 {
		d += time.Duration(rng.Int64N(int64(3 * time.Second)))
	}
	return d
}

// note writes a line of history.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(format, args...)
}

func (w *world) noteLocked(format string, args ...any) {
	line := fmt.Sprintf("%10.4f  %s", time.Since(w.start).Seconds(), fmt.Sprintf(format, args...))
	if len(w.history) >= historyMax {
		w.history = slices.Delete(w.history, 1, historyMax/4) // the first line tells the plan
	}
	w.history = append(w.history, line)
	if w.options.verbose {
		fmt.Println(line)
	}
}

// violate ends the run: something happened that must not.
func (w *world) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.violation != "" {
		return
	}
	w.violation = fmt.Sprintf(format, args...)
	w.violated = time.Now()
	w.noteLocked("VIOLATION: %s", w.violation)
	w.cancel()
}

func (w *world) isCalm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calm
}

// sleep returns false if the run ended meanwhile.
func (w *world) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// pause lets virtual time pass.
func pause(d time.Duration) {
	time.Sleep(d) // in a bubble: it costs nothing, and is how long the simulated thing takes
}

func groupName(n int) string { return fmt.Sprintf("group-%d", n) }

// owner asks the replicas, beginning anywhere, who owns the group's partition, as FindCoordinator does.
func (w *world) owner(group string, rng *rand.Rand) *replica {
	first := rng.IntN(len(w.replicas))
	for i := range w.replicas {
		p := w.replicas[(first+i)%len(w.replicas)].reachable()
		if p == nil || p.gate.isShut() {
			continue
		}
		o, ok := p.host.Owner(p.host.Partition(group))
		if !ok {
			return nil // COORDINATOR_NOT_AVAILABLE
		}
		return w.replicas[o.NodeID-1]
	}
	return nil
}

// run lets the world live and returns what was violated, "" for nothing.
func (w *world) run() string {
	w.follow()
	for _, r := range w.replicas {
		r.start()
	}
	for g := range w.groups {
		for range w.plan.clients {
			w.launch(groupName(g))
		}
	}
	w.active.Go(w.cleanup)
	w.active.Go(w.admin)
	w.active.Go(w.passerBy)
	w.active.Go(w.inquirer)
	if w.converts {
		w.active.Go(w.migrate)
	}
	chaos, over := context.WithTimeout(w.ctx, w.chaos)
	w.faults(chaos)
	over()
	w.note("the faults stop")
	w.settle()
	w.orderlyMoves()
	w.settle()
	w.cancel()
	w.active.Wait()
	w.compare()
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.violation
}

// follow starts the brokers, and begins to check the log.
func (w *world) follow() {
	if err := w.brokers.listen(w.broke); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		for errors.Is(w.log.Follow(ctx, w.checker), eventlog.ErrTopicGone) { // and is there again
		}
	})
	w.unfollow = func() { cancel(); ended.Wait() }
}

// stop ends everything.
func (w *world) stop() {
	w.cancel()
	w.active.Wait()
	w.restarting.Wait()
	for _, r := range w.replicas {
		r.shutdown()
	}
	w.unfollow()
	w.broke.kill(false)
	w.serving.Wait()
	pause(2 * appendDeadline) // claims that were under way give up
	w.log.Close()
}

// logger writes what the program under test logs into the history.
func (w *world) logger(part string, node int32) *slog.Logger {
	return slog.New(slog.NewTextHandler(historyWriter{w}, &slog.HandlerOptions{
		Level: slog.LevelInfo,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		},
	})).With("of", fmt.Sprintf("%s %d", part, node))
}

type historyWriter struct{ w *world }

func (h historyWriter) Write(b []byte) (int, error) {
	h.w.note("    %s", strings.TrimSpace(string(b)))
	return len(b), nil
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	ks := make([]K, 0, len(m))
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}
