package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

const testPartitions = 50

// times are those of a world. They are short, so that a session ends within a test. The real broker allows them by a setting.
type times struct {
	session, heartbeat time.Duration
	patience           time.Duration // with anything, at least
	leave              time.Duration // what leaving takes at most
}

var (
	// bubbleTimes are for virtual time, where nothing takes any.
	bubbleTimes = times{2 * time.Second, 250 * time.Millisecond, 0, 2 * time.Second}
	// realTimes are for a machine that may have no time for us for seconds.
	realTimes = times{8 * time.Second, time.Second, time.Minute, 8 * time.Second}
)

// verboseLevel is what go test -v shows of the memberships' logs; LevelDebug adds the client's.
var verboseLevel = slog.LevelInfo

// world is a cluster with a log topic, and knows at any time which of its replicas believe what.
type world struct {
	t     testing.TB
	seeds string
	topic string
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	clock Clock // of the leases
	times

	mu       sync.Mutex
	replicas []*replica
}

// replica is a membership with its listener, and a switch that cuts it off the network.
type replica struct {
	*KafkaMembership
	w    *world
	name string

	mu   sync.Mutex
	held map[int32]bool
	lost int

	gone  atomic.Bool // the network is cut
	conns sync.Map

	fetches atomic.Int64
	cancel  context.CancelFunc
	ended   chan struct{}
	err     error // of Run, once ended is closed
}

func (r *replica) Assigned(ps []int32) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	for _, o := range r.w.replicas {
		o.mu.Lock()
		for _, p := range ps {
			if o != r && o.held[p] && o.Lease().ValidFor(p, o.Lease().Now()) {
				r.w.t.Errorf("partition %d assigned to %s while %s holds it", p, r.name, o.name)
			}
			if o == r && r.held[p] {
				r.w.t.Errorf("partition %d assigned to %s twice", p, r.name)
			}
		}
		o.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range ps {
		r.held[p] = true
	}
}

func (r *replica) Revoked(ps []int32) { r.drop("revoked", ps) }

func (r *replica) Lost(ps []int32) {
	for _, p := range ps {
		if r.Lease().ValidFor(p, r.Lease().Now()) {
			r.w.t.Errorf("the lease of %s covers %d, which is lost", r.name, p)
		}
	}
	r.drop("lost", ps)
	r.mu.Lock()
	r.lost += len(ps)
	r.mu.Unlock()
}

func (r *replica) drop(what string, ps []int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(ps) == 0 || !slices.IsSorted(ps) {
		r.w.t.Errorf("%s of %s: %v", what, r.name, ps)
	}
	for _, p := range ps {
		if !r.held[p] {
			r.w.t.Errorf("partition %d is %s by %s, which does not hold it", p, what, r.name)
		}
		delete(r.held, p)
	}
}

func (r *replica) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.held)
}

func (r *replica) lostNow() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// OnBrokerWrite counts Fetch requests, which must not be there.
func (r *replica) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == 1 {
		r.fetches.Add(1)
	}
}

func (r *replica) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if r.gone.Load() {
		return nil, errors.New("the network is cut")
	}
	c, err := r.w.dial(ctx, network, addr)
	if err == nil {
		r.conns.Store(c, true)
	}
	return c, err
}

// cut takes the network away without a word to the group: what kill -9 looks like from there.
func (r *replica) cut() {
	r.gone.Store(true)
	r.conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
}

func (r *replica) stop() {
	r.cancel()
	select {
	case <-r.ended:
		if r.err != nil {
			r.w.t.Errorf("%s: Run: %v", r.name, r.err)
		}
	case <-time.After(max(20*time.Second, r.w.patience)):
		r.w.t.Errorf("%s: Run does not return", r.name)
	}
}

func (w *world) config(nodeID int32, address string) MembershipConfig {
	c := MembershipConfig{
		Opts: []kgo.Opt{kgo.SeedBrokers(w.seeds)}, LogTopic: w.topic, NodeID: nodeID, Address: address,
		SessionTimeout: w.session, HeartbeatInterval: w.heartbeat, Clock: w.clock,
	}
	if testing.Verbose() {
		c.Logger = slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: verboseLevel})).With("node", nodeID)
	}
	return c
}

func (w *world) make(name string, cfg MembershipConfig) *replica {
	w.t.Helper()
	r := &replica{w: w, name: name, held: map[int32]bool{}, ended: make(chan struct{})}
	cfg.Opts = append(cfg.Opts, kgo.Dialer(r.dial), kgo.WithHooks(r))
	m, err := NewMembership(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	r.KafkaMembership = m
	return r
}

func (w *world) start(name string, nodeID int32) *replica {
	w.t.Helper()
	return w.run(w.make(name, w.config(nodeID, name+":9292")))
}

func (w *world) run(r *replica) *replica {
	w.mu.Lock()
	w.replicas = append(w.replicas, r)
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { defer close(r.ended); r.err = r.Run(ctx, r) }()
	w.t.Cleanup(func() {
		r.stop()
		if f := r.fetches.Load(); f != 0 {
			w.t.Errorf("%s sent %d Fetch requests", r.name, f)
		}
	})
	return r
}

// eventually waits until f says true, for as long or for the patience of the world; what says what is waited for.
func (w *world) eventually(within time.Duration, what string, f func() bool) time.Duration {
	w.t.Helper()
	start := time.Now()
	within = max(within, w.patience)
	for !f() {
		if time.Since(start) > within {
			w.t.Fatalf("not within %v: %s (%s)", within, what, w)
		}
		time.Sleep(5 * time.Millisecond) // looking again, no assumption on timing
	}
	return time.Since(start)
}

func (w *world) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, r := range w.replicas {
		fmt.Fprintf(&b, "%s holds %d, lease valid: %v; ", r.name, r.count(), r.LeaseValid())
	}
	return b.String()
}

// testSettings let sessions end within a test; the lowest session time-out is one that a scenario goes below.
var testSettings = map[string]string{"group.min.session.timeout.ms": "500", "group.initial.rebalance.delay.ms": "0"}

// emptyWorld is a cluster that need not be there yet.
func emptyWorld(t testing.TB, seeds string) *world {
	return &world{t: t, seeds: seeds, topic: "log", dial: (&net.Dialer{}).DialContext, clock: BootClock(), times: realTimes}
}

// bubbled has the test run in the virtual time of a bubble, over a network in memory: sessions of two seconds end while nobody says anything, and not while the machine
// has no time for us.
func (w *world) bubbled(n *kfake.VirtualNetwork) *world {
	w.dial, w.clock, w.times = n.DialContext, bubbleClock{time.Now()}, bubbleTimes
	return w
}

// begun makes the log topic.
func (w *world) begun() *world {
	t := w.t
	w.topic = fmt.Sprintf("log-%d", time.Now().UnixNano())
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.seeds), kgo.Dialer(w.dial))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, testPartitions, 1, nil, w.topic); err != nil {
		t.Fatal(err)
	}
	// Records that a client which fetches would get.
	for p := range int32(testPartitions) {
		cl.Produce(ctx, &kgo.Record{Topic: w.topic, Partition: p, Value: []byte("v")}, nil)
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	return w
}

// shared waits until the replicas have the partitions between them, as evenly as can be, under leases.
func (w *world) shared(within time.Duration, rs ...*replica) time.Duration {
	w.t.Helper()
	return w.eventually(within, "partitions shared evenly", func() bool {
		sum := 0
		for _, r := range rs {
			n := r.count()
			if n < testPartitions/len(rs) || n > (testPartitions+len(rs)-1)/len(rs) || !r.LeaseValid() {
				return false
			}
			sum += n
		}
		return sum == testPartitions
	})
}
