package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"streamkeeper/internal/history"
	"streamkeeper/internal/kafkatest"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

const (
	replicas      = 3
	brokers       = 3
	logPartitions = 8
	firstNode     = int32(1000001)
	inTopic       = "chaos-in"
	inPartitions  = 4
	listenPort    = 9292 // in a namespace of its own every replica has the same
	logTopic      = "__chaos_log"
	// ownershipSession is the default: what the bounds are made of.
	ownershipSession = 6 * time.Second
	// diskMB is more than a projection of a run takes.
	diskMB = 256
)

// world is what a run happens in.
type world struct {
	t       *testing.T
	start   time.Time
	cluster *kafkatest.Cluster
	net     *network // nil: loopback
	keepers [replicas]*kafkatest.Keeper
	relays  [replicas]*kafkatest.Relay // nil unless the world is relayed
	rec     *history.Recorder
	members []*member
	// onlookers are one for each replica.
	onlookers []*onlooker
	stages    []*stage
	apps      []*application
	// disks are small file systems that hold the data directories; none where they can't be mounted.
	disks []string
	// full is the number of disks that are full.
	full int
	// busy says which replicas something is going wrong with.
	busy [replicas]bool
	// skewed says that a clock was wrong in this run, clocks that one may be.
	skewed, clocks bool
	patient        bool
	expired        map[clientOf]bool // clients of applications who were told that their member is unknown
}

// cast says who plays in a world.
type cast struct {
	groups int // of two Go members each
	apps   int // real applications
	stages int // JVMs for them
	clocks bool
	// patient: what happens to applications may last longer than their session.
	patient bool
	// relayed: one broker alone, whom replicas reach through relays, on loopback. Nothing goes wrong but what the relays do.
	relayed bool
}

func newWorld(t *testing.T, c cast) *world {
	w := &world{t: t, start: time.Now(), clocks: c.clocks, patient: c.patient}
	w.rec = history.NewRecorder(w.now)
	o := kafkatest.Options{Version: kafkatest.V44, Brokers: brokers, Properties: map[string]string{
		"auto.leader.rebalance.enable": "false", // leaders move when the test says so
		"num.replica.fetchers":         "1",
	}}
	if c.relayed {
		o.Brokers = 1
	} else {
		var why string
		if w.net, why = newNetwork(t, c.stages); w.net == nil {
			t.Logf("NO NETWORK NAMESPACES: %s. Replicas run on loopback, and are not cut from anything; what needs no namespace is played.", why)
		} else {
			o.Host = w.net.host(1)
		}
	}
	w.cluster = kafkatest.Start(t, o)
	kafkatest.CreateTopics(t, w.cluster.Bootstrap(), inPartitions, inTopic)
	for range w.keepers {
		if disk, ok := kafkatest.SmallDisk(t, diskMB); ok {
			w.disks = append(w.disks, disk)
		}
	}
	for i := range w.keepers {
		bootstrap := w.cluster.Bootstrap()
		if c.relayed {
			w.relays[i] = kafkatest.NewRelay(t, "127.0.0.1", fmt.Sprint("before replica ", i))
			bootstrap = w.relays[i].Through(bootstrap)
		}
		args := []string{"serve", "--bootstrap-servers", bootstrap, "--log-topic", logTopic, "--log-partitions", fmt.Sprint(logPartitions),
			"--node-id", fmt.Sprint(firstNode + int32(i)), "--ownership-session-timeout", ownershipSession.String(), "--shutdown-timeout", "10s",
			"--set", "group.streams.initial.rebalance.delay.ms=0", "--set", "group.streams.min.session.timeout.ms=6000",
			"--set", "group.streams.session.timeout.ms=12000", "--set", "group.streams.min.heartbeat.interval.ms=200",
			"--set", "group.streams.heartbeat.interval.ms=500",
			"--set", "group.streams.num.standby.replicas=1"}
		if len(w.disks) == replicas {
			args = append(args, "--data-dir", filepath.Join(w.disks[i], "data"))
		}
		if w.net == nil {
			w.keepers[i] = kafkatest.NewStreamkeeper(t, args...)
		} else {
			at := func(port int) string { return fmt.Sprintf("%s:%d", w.net.address(i), port) }
			w.keepers[i] = kafkatest.NewStreamkeeperIn(t, w.net.enter(i), append(args, "--listen", at(listenPort), "--admin-listen", at(listenPort-1),
				"--broker-port-base", fmt.Sprint(listenPort+1))...)
		}
		if c.clocks {
			w.keepers[i].SkewClock(0)
		}
		w.keepers[i].Start()
	}
	for _, k := range w.keepers {
		k.WaitReady()
	}
	w.keepLog()
	w.startApps(c.apps, c.stages)
	for g := range c.groups {
		for m := range 2 {
			w.members = append(w.members, w.newMember(fmt.Sprintf("group-%d", g), fmt.Sprintf("m%d", m)))
		}
	}
	return w
}

func (w *world) now() time.Duration { return time.Since(w.start) }

// logf tells what happens, with the time since the start.
func (w *world) logf(format string, a ...any) {
	w.t.Helper()
	w.t.Logf("%8.2fs "+format, append([]any{w.now().Seconds()}, a...)...)
}

// addresses are those that clients bootstrap to.
func (w *world) addresses() []string {
	var all []string
	for _, k := range w.keepers {
		all = append(all, k.Bootstrap())
	}
	return all
}

// brokerPorts are the ports of brokers, as iptables wants them.
func (w *world) brokerPorts(nodes ...int) string {
	var ports []string
	for _, n := range nodes {
		_, port, _ := strings.Cut(w.cluster.Addr(n), ":")
		ports = append(ports, port)
	}
	return strings.Join(ports, ",")
}

func everyBroker() []int { return []int{1, 2, 3} }
