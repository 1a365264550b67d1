package fence

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/eventlog"
	"streamkeeper/internal/history"
	"streamkeeper/internal/kafkatest"
)

var full = flag.Bool("full", false, "all steps on all versions of Kafka, and what waits for expiries")

func TestMain(m *testing.M) {
	flag.Parse()
	// Worlds wait for sessions to end most of the time: more of them than processors run side by side.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(kafkatest.Main(m))
}

// versions are those on which a test is played.
func versions() []string {
	if *full {
		return []string{kafkatest.V44, kafkatest.V391}
	}
	return []string{kafkatest.V44}
}

const (
	partitions = 2
	nodeOne    = int32(1000001)
	nodeTwo    = int32(1000002)
	// session is that of the ownership group: short, because each step waits for one, and long enough for a machine that is busy.
	session = 3 * time.Second
	// patience is how long anything may take that must happen.
	patience = 90 * time.Second
)

// replica is one streamkeeper, the relay before it, and a client of it.
type replica struct {
	*kafkatest.Keeper
	*asker
	relay *kafkatest.Relay
}

// world is a cluster with two replicas.
type world struct {
	t       *testing.T
	cluster *kafkatest.Cluster
	topic   string
	rec     *history.Recorder
	nodes   map[int32]*replica
	groups  int
}

// prepared are the clusters, by address, that have the topic of the groups.
var prepared struct {
	sync.Mutex
	clusters map[string]bool
}

// prepare has the cluster have that topic.
func prepare(t *testing.T, c *kafkatest.Cluster) {
	prepared.Lock()
	defer prepared.Unlock()
	if prepared.clusters[c.Bootstrap()] {
		return
	}
	kafkatest.CreateTopics(t, c.Bootstrap(), 1, inTopic)
	if prepared.clusters == nil {
		prepared.clusters = map[string]bool{}
	}
	prepared.clusters[c.Bootstrap()] = true
}

// options are those of a broker that lets the ownership group's session be short.
func options(version string) kafkatest.Options {
	return kafkatest.Options{Version: version, Properties: map[string]string{"group.min.session.timeout.ms": "1000"}}
}

func newWorld(t *testing.T, o kafkatest.Options, more ...string) *world {
	w := &world{t: t, cluster: kafkatest.Shared(t, o), nodes: map[int32]*replica{}}
	w.topic = "__log_" + strings.Map(func(r rune) rune {
		if strings.ContainsRune("/ ,.-'", r) {
			return '_'
		}
		return r
	}, t.Name())
	start := time.Now()
	w.rec = history.NewRecorder(func() time.Duration { return time.Since(start) })
	prepare(t, w.cluster)
	for _, id := range []int32{nodeOne, nodeTwo} {
		r := &replica{relay: kafkatest.NewRelay(t, "127.0.0.1", fmt.Sprint(id))}
		var seeds []string
		for _, broker := range w.seeds() {
			seeds = append(seeds, r.relay.Through(broker))
		}
		r.Keeper = kafkatest.NewStreamkeeper(t, append([]string{"serve", "--bootstrap-servers", strings.Join(seeds, ","), "--log-topic", w.topic,
			"--log-partitions", fmt.Sprint(partitions), "--node-id", fmt.Sprint(id), "--ownership-session-timeout", session.String(), "--shutdown-timeout", session.String(), "--plugin", "none",
			"--set", "group.streams.initial.rebalance.delay.ms=0", "--set", "group.streams.assignment.interval.ms=0"}, more...)...)
		r.Start()
		r.asker = &asker{t: t, rec: w.rec, node: id, addr: r.Bootstrap()}
		w.nodes[id] = r
	}
	for _, r := range w.nodes {
		r.WaitReady()
	}
	w.ready()
	return w
}

func (w *world) seeds() []string { return strings.Split(w.cluster.Bootstrap(), ",") }

// ready waits until both replicas serve, a shard each.
func (w *world) ready() {
	w.t.Helper()
	kafkatest.Eventually(w.t, patience, func() error {
		owned := map[int32]int{}
		for p := range int32(partitions) {
			if o := w.owner(p); o != nil {
				owned[o.NodeID]++
			}
		}
		for id, r := range w.nodes {
			if err := r.Ready(); err != nil {
				return fmt.Errorf("node %d: %w", id, err)
			}
			if owned[id] == 0 {
				return fmt.Errorf("node %d owns no shard: %v", id, owned)
			}
		}
		return nil
	})
}

// readTimeout is how long the test itself waits for a broker that hangs before it asks another one; 10 s by default.
const readTimeout = 2 * time.Second

func (w *world) log() history.Log {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := history.ReadLog(ctx, w.topic, kgo.SeedBrokers(w.seeds()...), kgo.RequestTimeoutOverhead(readTimeout))
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// owner is the last claim of a partition in the log; nil where there is none.
func (w *world) owner(p int32) *history.Tenure {
	w.t.Helper()
	j, bad := w.log().Judge()
	for _, v := range bad {
		w.t.Error(v)
	}
	if ts := j.Tenures[p]; len(ts) > 0 {
		return ts[len(ts)-1]
	}
	return nil
}

// waitOwner waits for a claim by a node behind an offset.
func (w *world) waitOwner(p, node int32, behind int64) {
	w.t.Helper()
	kafkatest.Eventually(w.t, patience, func() error {
		if o := w.owner(p); o == nil || o.NodeID != node || o.From <= behind {
			return fmt.Errorf("partition %d is owned by %+v, want node %d", p, o, node)
		}
		return nil
	})
}

// group names a group of its own in a partition.
func (w *world) group(p int32) string {
	for {
		w.groups++
		if g := fmt.Sprintf("g%d", w.groups); eventlog.Partition(g, partitions) == p {
			return g
		}
	}
}

// until repeats a request until it is answered without an error.
func (w *world) until(what string, f func() error) {
	w.t.Helper()
	kafkatest.Eventually(w.t, patience, func() error {
		if err := f(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}

// mayBe judges the answer of a replica that may have been replaced: it is right (history.Check sees to that), or it says that another one, or the
// same one later, is to be asked; it must not say what is untrue.
func (w *world) mayBe(what string, err error) {
	w.t.Helper()
	for _, ok := range []error{kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.RequestTimedOut} {
		if errors.Is(err, ok) {
			return
		}
	}
	var k *kerr.Error
	if errors.As(err, &k) {
		w.t.Errorf("%s: a replica that was replaced answers %v", what, err)
	}
}

// refused says that the cluster took nothing that it should have refused. Where a claim has another producer id than the one before, because that
// one was forgotten meanwhile, the cluster can't know.
func (w *world) refused(j history.Judged) {
	w.t.Helper()
	for _, v := range j.Void() {
		if v.Tenure == nil || v.ProducerID == v.Tenure.ProducerID {
			w.t.Errorf("the cluster took what it should have refused: %v", v)
		}
	}
}

// waitRepaired waits until each record that does not count is followed by one of its key that does: compaction would keep it otherwise.
func (w *world) waitRepaired() history.Judged {
	w.t.Helper()
	var j history.Judged
	kafkatest.Eventually(w.t, patience, func() error {
		j, _ = w.log().Judge()
		for _, v := range j.Void() {
			if !slices.ContainsFunc(j.Records[v.Partition], func(s history.Stood) bool { return s.Record.Key == v.Record.Key && !s.Void && s.Offset > v.Offset }) {
				return fmt.Errorf("not repaired: %v", v)
			}
		}
		return nil
	})
	return j
}

// judge compares what clients were told with itself and with the log.
func (w *world) judge(stale time.Duration) history.Judged {
	w.t.Helper()
	h := w.rec.History()
	j, bad := h.CheckLog(w.log())
	for _, v := range append(h.Check(history.Options{Stale: stale}), bad...) {
		w.t.Error(v)
	}
	return j
}
