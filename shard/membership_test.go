package shard

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/eventlog"
	"streamkeeper/internal/kafkatest"
)

const testPartitions = 50

// testTimes are short, so that a session ends within a test. The real broker allows them by a setting.
var testTimes = struct{ session, heartbeat time.Duration }{2 * time.Second, 250 * time.Millisecond}

// verboseLevel is what go test -v shows of the memberships' logs; LevelDebug adds the client's.
var verboseLevel = slog.LevelInfo

// world is a cluster with a log topic, and knows at any time which of its replicas believe what.
type world struct {
	t     testing.TB
	seeds string
	topic string

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
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
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
	case <-time.After(20 * time.Second):
		r.w.t.Errorf("%s: Run does not return", r.name)
	}
}

func (w *world) config(nodeID int32, address string) MembershipConfig {
	c := MembershipConfig{
		Opts: []kgo.Opt{kgo.SeedBrokers(w.seeds)}, LogTopic: w.topic, NodeID: nodeID, Address: address,
		SessionTimeout: testTimes.session, HeartbeatInterval: testTimes.heartbeat,
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

// eventually waits until f says true; what says what is waited for.
func (w *world) eventually(within time.Duration, what string, f func() bool) time.Duration {
	w.t.Helper()
	start := time.Now()
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

func TestMembershipOnAnEmbeddedLog(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.BrokerConfigs(testSettings))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	membershipScenarios(t, strings.Join(c.ListenAddrs(), ","))
}

func TestMembershipOnKafka(t *testing.T) {
	membershipScenarios(t, kafkatest.Start(t, kafkatest.Options{Version: "4.4.0", Brokers: 1, Properties: testSettings}).Bootstrap())
}

func membershipScenarios(t *testing.T, seeds string) {
	for _, s := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"ReplicasShareThePartitions", replicasShareThePartitions},
		{"ReplicaThatDisappearsLosesItsLeaseBeforeOthersTakeOver", replicaThatDisappears},
		{"LeaseSurvivesARebalanceThatWaits", leaseSurvivesARebalanceThatWaits},
		{"LeaveIsQuickWhileTheGroupWaits", leaveIsQuickWhileTheGroupWaits},
		{"NodeIDOfALiveReplicaIsRefused", nodeIDOfALiveReplicaIsRefused},
		{"NodeIDThatWasTakenMeanwhileIsGivenUp", nodeIDTakenMeanwhile},
		{"RestartAfterAKillTakesItsNodeIDBack", restartAfterAKill},
		{"RestartAfterAKillAtOnce", restartAfterAKillAtOnce},
		{"SessionTimeoutThatTheClusterRefusesIsExplained", sessionTimeoutIsRefused},
		{"ProcessThatWakesUpHasNoLease", processThatWakesUpHasNoLease},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel() // they wait most of the time, each in a group of its own
			s.run(t, newWorld(t, seeds))
		})
	}
}

func newWorld(t testing.TB, seeds string) *world {
	w := &world{t: t, seeds: seeds, topic: fmt.Sprintf("log-%d", time.Now().UnixNano())}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds))
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

func replicasShareThePartitions(t *testing.T, w *world) {
	a := w.start("a", 1)
	t.Logf("the first replica has everything after %v", w.shared(20*time.Second, a))
	b := w.start("b", 2)
	joined := w.shared(20*time.Second, a, b)
	t.Logf("the second has its half after %v", joined)

	members, err := a.Members(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var all []int32
	seen := map[int32]string{}
	for _, m := range members {
		seen[m.NodeID] = m.Address
		all = append(all, m.Partitions...)
	}
	slices.Sort(all)
	if len(members) != 2 || seen[1] != "a:9292" || seen[2] != "b:9292" || len(slices.Compact(all)) != testPartitions {
		t.Errorf("members: %+v", members)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	start := time.Now()
	mine := slices.Collect(func(yield func(int32) bool) {
		for p := range int32(testPartitions) {
			if b.Lease().ValidFor(p, b.Lease().Now()) && !yield(p) {
				return
			}
		}
	})
	if len(mine) != testPartitions/2 {
		t.Errorf("the lease of b covers %d partitions", len(mine))
	}
	if err := b.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	left := time.Since(start)
	if b.count() != 0 {
		t.Errorf("b holds %d partitions after it left", b.count())
	}
	until := b.Lease().UntilOf(mine[0])
	if !b.Lease().ValidFor(mine[0], b.Lease().Now()) {
		t.Error("a leaving replica may not serve on")
	}
	w.shared(20*time.Second, a)
	t.Logf("planned move: left in %v, all assigned after %v", left, time.Since(start))
	if got := b.Lease().UntilOf(mine[0]); got != until {
		t.Error("the lease of a replica that left was prolonged")
	}
	b.stop()
	if b.lost != 0 || a.lost != 0 {
		t.Errorf("lost in a planned move: a %d, b %d", a.lost, b.lost)
	}
}

func replicaThatDisappears(t *testing.T, w *world) {
	a, b := w.start("a", 1), w.start("b", 2)
	w.shared(20*time.Second, a, b)
	start := time.Now()
	b.cut()
	// world.Assigned fails the test if b's lease still covers what a is assigned.
	w.eventually(20*time.Second, "a has everything", func() bool { return a.count() == testPartitions })
	t.Logf("taken over %v after the cut, session %v", time.Since(start), testTimes.session)
	if b.LeaseValid() {
		t.Error("b believes in its lease")
	}
	if b.count() > 0 {
		// kgo may still be trying; whatever it believes, the lease is over.
		t.Logf("b still lists %d partitions", b.count())
	}
	b.gone.Store(false)
	w.shared(20*time.Second, a, b)
	if b.lost != testPartitions/2 {
		t.Errorf("b was told that %d partitions are lost, want %d", b.lost, testPartitions/2)
	}
}

func leaseSurvivesARebalanceThatWaits(t *testing.T, w *world) {
	// A member that died just before another joined holds the rebalance up until its session is over; the members that
	// wait in their joins must keep their leases.
	a, b := w.start("a", 1), w.start("b", 2)
	w.shared(20*time.Second, a, b)
	b.cut()
	c := w.start("c", 3)
	lapsed := false
	w.eventually(20*time.Second, "a and c have everything", func() bool {
		lapsed = lapsed || !a.LeaseValid()
		return a.count()+c.count() == testPartitions
	})
	if lapsed {
		t.Error("the lease of a lapsed while the group waited for the dead one")
	}
	if a.lost > 0 {
		t.Errorf("a lost %d partitions", a.lost)
	}
}

func leaveIsQuickWhileTheGroupWaits(t *testing.T, w *world) {
	cfg := w.config(2, "b:9292")
	cfg.SessionTimeout = 10 * time.Second // the group will wait for this one
	a, b := w.start("a", 1), w.run(w.make("b", cfg))
	w.shared(20*time.Second, a, b)
	b.cut()
	c := w.start("c", 3)
	w.eventually(10*time.Second, "c is in the group", func() bool {
		ms, err := a.Members(context.Background())
		return err == nil && len(ms) == 3
	})
	time.Sleep(2 * testTimes.heartbeat) // a has heard of the rebalance and waits in its join
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	start := time.Now()
	if err := a.Leave(ctx); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("leaving took %v", d)
	}
	w.eventually(20*time.Second, "c has everything", func() bool { return c.count() == testPartitions })
}

func nodeIDOfALiveReplicaIsRefused(t *testing.T, w *world) {
	a := w.start("a", 1)
	w.shared(20*time.Second, a)
	t.Run("other address", func(t *testing.T) {
		err := w.make("b", w.config(1, "b:9292")).Run(context.Background(), a)
		if !errors.Is(err, eventlog.ErrNodeIDTaken) || !strings.Contains(err.Error(), "a:9292") || !strings.Contains(err.Error(), "--node-id") {
			t.Errorf("error: %v", err)
		}
		if a.count() != testPartitions || a.lost != 0 {
			t.Error("the refused one disturbed the running one")
		}
	})
	t.Run("same address", func(t *testing.T) {
		twin := w.make("twin", w.config(1, "a:9292"))
		ran := make(chan error, 1)
		w.mu.Lock()
		w.replicas = append(w.replicas, twin)
		w.mu.Unlock()
		go func() { ran <- twin.Run(context.Background(), twin) }()
		select {
		case err := <-ran:
			if !errors.Is(err, eventlog.ErrNodeIDTaken) {
				t.Errorf("error: %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("two replicas with one node id and address go on for ever")
		}
		w.shared(20*time.Second, a)
	})
}

// nodeIDTakenMeanwhile: a replica is away for longer than its session, another one comes with its node id, and the first one is back: it ends.
func nodeIDTakenMeanwhile(t *testing.T, w *world) {
	first := w.start("first", 1)
	w.shared(20*time.Second, first)
	first.cut()
	second := w.start("second", 1)
	w.shared(20*time.Second, second)
	first.gone.Store(false)
	select {
	case <-first.ended:
	case <-time.After(40 * time.Second):
		t.Fatal("two replicas with one node id go on for ever")
	}
	for _, part := range []string{"node id 1 ", "second:9292", "first:9292", "--node-id"} {
		if first.err == nil || !strings.Contains(first.err.Error(), part) {
			t.Errorf("the one that came back ends with %v, which does not say %q", first.err, part)
		}
	}
	if !errors.Is(first.err, eventlog.ErrNodeIDTaken) {
		t.Errorf("the one that came back ends with %v", first.err)
	}
	first.err = nil // as it should be
	w.shared(20*time.Second, second)
}

func restartAfterAKill(t *testing.T, w *world) {
	old := w.start("old", 1)
	w.shared(20*time.Second, old)
	old.cut()
	// Another address, as a container has after a restart.
	again := w.start("again", 1)
	w.eventually(20*time.Second, "the new process has everything", func() bool { return again.count() == testPartitions })
	again.stop()
}

// restartAfterAKillAtOnce: whoever knows the member that the killed process was need not wait for the end of its session.
func restartAfterAKillAtOnce(t *testing.T, w *world) {
	var former atomic.Value
	cfg := w.config(1, "old:9292")
	cfg.SessionTimeout, cfg.Joined = time.Minute, func(id string) { former.Store(id) }
	old, other := w.run(w.make("old", cfg)), w.start("other", 2)
	w.shared(20*time.Second, old, other)
	old.cut()
	old.stop() // it can't tell anybody
	again := w.config(1, "again:9292")
	again.Former = former.Load().(string)
	w.shared(30*time.Second, w.run(w.make("again", again)), other) // a session is twice as long

	// Whom the group does not know any more, nobody misses.
	other.stop()
	last := w.config(2, "last:9292")
	last.Former = "nobody"
	w.run(w.make("last", last))
	w.eventually(20*time.Second, "the partitions are shared again", func() bool { return w.replicas[3].count() > 0 })
}

func sessionTimeoutIsRefused(t *testing.T, w *world) {
	cfg := w.config(1, "a:9292")
	cfg.SessionTimeout, cfg.HeartbeatInterval = 400*time.Millisecond, 100*time.Millisecond
	r := w.make("a", cfg)
	err := r.Run(context.Background(), r)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"ownership.session.timeout.ms=400", "group.min.session.timeout.ms=500", "group.max.session.timeout.ms="} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	if r.LeaseValid() {
		t.Error("lease")
	}
}

func TestMembershipConfigIsChecked(t *testing.T) {
	good := MembershipConfig{LogTopic: "log", NodeID: 1, Address: "h:1"}
	if _, err := NewMembership(good); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*MembershipConfig){
		"log topic":                      func(c *MembershipConfig) { c.LogTopic = "" },
		"node id -1":                     func(c *MembershipConfig) { c.NodeID = -1 },
		"host:port":                      func(c *MembershipConfig) { c.Address = "" },
		"negative":                       func(c *MembershipConfig) { c.LeaseMargin = -1 },
		"ownership.lease.margin.ms=5000": func(c *MembershipConfig) { c.LeaseMargin = 5 * time.Second },
		"heartbeat.interval.ms=4000":     func(c *MembershipConfig) { c.HeartbeatInterval = 4 * time.Second },
	} {
		c := good
		change(&c)
		if _, err := NewMembership(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error that says %q, got %v", want, err)
		}
	}
}

func TestMemberClientID(t *testing.T) {
	if got := memberClientID(1000001, "[::1]:9292"); got != "sk/1000001@[::1]:9292" {
		t.Error(got)
	}
	for id, want := range map[string]struct {
		node    int32
		address string
		ok      bool
	}{
		"sk/1000001@127.0.0.1:9292": {1000001, "127.0.0.1:9292", true},
		"sk/0@a@b:1":                {0, "a@b:1", true},
		"sk/1@":                     {-1, "", false},
		"sk/@a:1":                   {-1, "", false},
		"sk/-1@a:1":                 {-1, "", false},
		"sk/99999999999@a:1":        {-1, "", false},
		"sk/1":                      {-1, "", false},
		"consumer-1":                {-1, "", false},
		"":                          {-1, "", false},
	} {
		if node, address, ok := parseMemberClientID(id); node != want.node || address != want.address || ok != want.ok {
			t.Errorf("%q: %d %q %v, want %+v", id, node, address, ok, want)
		}
	}
}

func TestRunBeforeTheClusterIsThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr)
	l.Close()
	w := &world{t: t, seeds: addr.String(), topic: "log"}
	a := w.start("a", 1)
	time.Sleep(testTimes.session) // it has tried in vain
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(addr.Port), kfake.SeedTopics(testPartitions, "log"),
		kfake.GroupMinSessionTimeout(100*time.Millisecond), kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w.shared(20*time.Second, a)
	a.stop()
}

// processThatWakesUpHasNoLease: a stopped process that wakes up must see its lease as over before it answers anything: a child process answers a
// question that was put into its pipe while it was stopped.
func processThatWakesUpHasNoLease(t *testing.T, w *world) {
	child := exec.Command(os.Args[0], "-test.run=^TestMembershipChild$", "-test.v=false")
	child.Env = append(os.Environ(), "MEMBERSHIP_CHILD="+w.seeds+" "+w.topic)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); _ = child.Process.Kill(); _ = child.Wait() }()
	answers := bufio.NewScanner(out)
	ask := func() string {
		if _, err := io.WriteString(in, "?\n"); err != nil {
			t.Fatal(err)
		}
		if !answers.Scan() {
			t.Fatalf("child is gone: %v", answers.Err())
		}
		return answers.Text()
	}
	w.eventually(20*time.Second, "the child has a lease on everything", func() bool { return ask() == "true 50" })

	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	other := w.start("other", 2)
	w.eventually(20*time.Second, "the other has everything", func() bool { return other.count() == testPartitions })
	if _, err := io.WriteString(in, "?\n"); err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !answers.Scan() {
		t.Fatalf("child is gone: %v", answers.Err())
	}
	if got := answers.Text(); got != "false 0" {
		t.Errorf("first answer after the pause: %q, want no lease and no partition", got)
	}
	w.eventually(20*time.Second, "the child takes part again", func() bool { return ask() == "true 25" })
}

// TestMembershipChild is the process of processThatWakesUpHasNoLease; by itself it does nothing.
func TestMembershipChild(t *testing.T) {
	args := strings.Fields(os.Getenv("MEMBERSHIP_CHILD"))
	if len(args) != 2 {
		return
	}
	w := &world{t: t, seeds: args[0], topic: args[1]}
	r := w.start("child", 1)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		now, n := r.Lease().Now(), 0
		for p := range int32(testPartitions) {
			if r.Lease().ValidFor(p, now) {
				n++
			}
		}
		fmt.Println(r.LeaseValid(), n)
	}
	os.Exit(0) // without a word to the group
}
