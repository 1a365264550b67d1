package fence

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/eventlog"
	"streamkeeper/internal/history"
	"streamkeeper/internal/kafkatest"
)

var full = flag.Bool("full", false, "all steps on all versions of Kafka, and what waits for expiries")

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

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
	relay *relay
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
var prepared = map[string]bool{}

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
	if !prepared[w.cluster.Bootstrap()] {
		prepared[w.cluster.Bootstrap()] = true
		kafkatest.CreateTopics(t, w.cluster.Bootstrap(), 1, inTopic)
	}
	for _, id := range []int32{nodeOne, nodeTwo} {
		r := &replica{relay: newRelay(t, fmt.Sprint(id))}
		r.Keeper = kafkatest.StartStreamkeeper(t, append([]string{"serve", "--bootstrap-servers", r.relay.through(w.cluster.Bootstrap()), "--log-topic", w.topic,
			"--log-partitions", fmt.Sprint(partitions), "--node-id", fmt.Sprint(id), "--ownership-session-timeout", session.String(), "--shutdown-timeout", session.String(), "--plugin", "none",
			"--set", "group.streams.initial.rebalance.delay.ms=0", "--set", "group.streams.assignment.interval.ms=0"}, more...)...)
		r.asker = &asker{t: t, rec: w.rec, node: id, addr: r.Bootstrap()}
		w.nodes[id] = r
	}
	w.ready()
	return w
}

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

func (w *world) log() history.Log {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := history.ReadLog(ctx, w.topic, kgo.SeedBrokers(w.cluster.Bootstrap()))
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
