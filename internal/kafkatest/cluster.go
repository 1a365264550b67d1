package kafkatest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Options says what kind of cluster to start. The zero value is one Kafka 4.4.0 broker without streams groups.
type Options struct {
	Version    string            // an Apache Kafka version, default V44
	Brokers    int               // 1 (default) to 5, each also a controller: a majority must be alive
	Streams    bool              // streams groups on: Kafka's own coordinator for the rebalance protocol of KIP-1071
	Properties map[string]string // more lines of server.properties, and other values for the harness's own
	HeapMB     int               // heap of each broker in MiB, default 300
	Classes    string            // a folder of tests/jvm whose classes the brokers have on their class path, for plugins
	Host       string            // where brokers listen and are reached, default 127.0.0.1
	JVM        []string          // JVM options instead of those that make for a quick start (for measurements)
}

func (o Options) withDefaults() (Options, error) {
	if o.Version == "" {
		o.Version = V44
	}
	v, err := fullVersion(o.Version)
	if err != nil {
		return o, err
	}
	o.Version = v
	if o.Brokers == 0 {
		o.Brokers = 1
	}
	if o.Brokers < 1 || o.Brokers > 5 {
		return o, fmt.Errorf("kafkatest.Options.Brokers is %d, want 1 to 5", o.Brokers)
	}
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if o.HeapMB == 0 {
		o.HeapMB = 300
	}
	if o.Streams && strings.HasPrefix(o.Version, "3.") {
		return o, fmt.Errorf("Kafka %s has no streams groups", o.Version)
	}
	return o, nil
}

func (o Options) key() string {
	return fmt.Sprintf("%+v", o) // maps print in the order of their keys
}

const (
	brokerStartTimeout = 90 * time.Second // 5 s on an idle machine; the machine may be busy with other tests
	brokerStopTimeout  = 30 * time.Second // a controlled shutdown of a broker that leads partitions takes a second
	formatTimeout      = 60 * time.Second
	startTriesMax      = 3 // a port can be taken between our look and the broker's bind
)

// Cluster is a running Kafka cluster. Brokers are numbered 1, 2, …, which are their node ids. All methods fail the
// test they were made for when something doesn't work.
type Cluster struct {
	tb testing.TB
	*cluster
}

type cluster struct {
	opts  Options
	dir   string
	mu    sync.Mutex // the processes of nodes
	nodes []*node
}

// Start starts a cluster of the test's own. It is stopped and its data removed when the test ends.
func Start(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	NeedJava(tb)
	c, err := startCluster(tb.TempDir(), o)
	if err != nil {
		tb.Fatalf("start Kafka: %v", err)
	}
	tb.Cleanup(c.close)
	return c.view(tb)
}

var shared struct {
	sync.Mutex
	clusters map[string]*cluster
}

// Shared is a cluster for all tests of the test binary that ask for the same options: started at the first call, it
// lives until Main, or the process, ends. Tests that use it must not leave it stopped, and must use topics and
// groups of their own.
func Shared(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	NeedJava(tb)
	shared.Lock()
	defer shared.Unlock()
	key := o.key()
	c := shared.clusters[key]
	if c == nil {
		dir, err := workDir("kafka")
		if err == nil {
			c, err = startCluster(dir, o)
		}
		if err != nil {
			tb.Fatalf("start a shared Kafka: %v", err)
		}
		if shared.clusters == nil {
			shared.clusters = make(map[string]*cluster)
		}
		shared.clusters[key] = c
	}
	return c.view(tb)
}

// StopShared stops the shared cluster with these options, if there is one: for a test package that goes from one
// cluster to the next on a small machine.
func StopShared(o Options) {
	shared.Lock()
	defer shared.Unlock()
	if c := shared.clusters[o.key()]; c != nil {
		c.close()
		os.RemoveAll(c.dir)
		delete(shared.clusters, o.key())
	}
}

// Main runs the tests and stops what Shared and Bootstrap have started:
//
//	func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }
//
// Without it the shared processes are killed when the test binary ends, and their data is removed by a later one.
func Main(m *testing.M) int {
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	for _, c := range shared.clusters {
		c.close()
	}
	stopContainer()
	if root, err := workRoot(); err == nil {
		os.RemoveAll(root)
	}
	return code
}

func (c *cluster) view(tb testing.TB) *Cluster {
	for _, n := range c.nodes {
		logTailOnFailure(tb, fmt.Sprintf("Kafka broker %d (%s)", n.id, c.opts.Version), n.logFile())
	}
	return &Cluster{tb: tb, cluster: c}
}

func (n *node) logFile() string    { return filepath.Join(n.dir, "broker.log") }
func (n *node) properties() string { return filepath.Join(n.dir, "server.properties") }

func startCluster(dir string, o Options) (*cluster, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	var tried error
	for i := range startTriesMax {
		c := &cluster{opts: o, dir: filepath.Join(dir, fmt.Sprint("try", i))}
		if tried = c.start(); tried == nil {
			return c, nil
		}
		taken := c.logsContain("Address already in use")
		c.kill()
		if !taken {
			break
		}
	}
	return nil, tried
}

func (c *cluster) start() error {
	port, err := ReservePorts(2 * c.opts.Brokers)
	if err != nil {
		return err
	}
	for i := range c.opts.Brokers {
		n := &node{id: i + 1, host: c.opts.Host, port: port + i, ctrlPort: port + c.opts.Brokers + i, dir: filepath.Join(c.dir, fmt.Sprintf("broker%d", i+1))}
		c.nodes = append(c.nodes, n)
	}
	id := make([]byte, 16)
	rand.Read(id)
	id[0] &= 0x7f // Kafka's ids never start with '-', which its command line would take for an option
	clusterID := base64.RawURLEncoding.EncodeToString(id)
	errs := make(chan error)
	for _, n := range c.nodes {
		go func() { errs <- c.format(n, clusterID) }()
	}
	for range c.nodes {
		err = errors.Join(err, <-errs)
	}
	if err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := c.run(n); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := c.waitReady(n, len(c.nodes)); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) format(n *node, clusterID string) error {
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(n.properties(), []byte(properties(n, c.nodes, c.opts)), 0o644); err != nil {
		return err
	}
	args := []string{"format", "--config", n.properties(), "--cluster-id", clusterID}
	if c.opts.Streams {
		args = append(args, "--feature", "streams.version=1")
	}
	classes, err := c.classes() // the tool reads the broker's settings, and looks for the classes that they name
	if err != nil {
		return err
	}
	argv, err := java(c.opts.Version, classes, "tools-log4j2.properties", 128, nil, "kafka.tools.StorageTool", args...)
	if err != nil {
		return err
	}
	out, errOut, exit, err := runTool(formatTimeout, nil, argv...)
	if err != nil || exit != 0 {
		return fmt.Errorf("format the storage of broker %d: exit %d, %w\n%s%s", n.id, exit, orNone(err), tail(out), tail(errOut))
	}
	return nil
}

// classes is where Options.Classes is compiled; "" for none.
func (c *cluster) classes() (string, error) {
	if c.opts.Classes == "" {
		return "", nil
	}
	return compiled(c.opts.Classes)
}

func (c *cluster) run(n *node) error {
	classes, err := c.classes()
	if err != nil {
		return err
	}
	argv, err := java(c.opts.Version, classes, "broker-log4j2.properties", c.opts.HeapMB, c.opts.JVM, "kafka.Kafka", n.properties())
	if err != nil {
		return err
	}
	p, err := startProcess(fmt.Sprintf("Kafka broker %d", n.id), n.dir, n.logFile(), nil, argv...)
	if err != nil {
		return err
	}
	c.mu.Lock()
	n.proc = p
	c.mu.Unlock()
	return nil
}

// waitReady waits until the broker itself says that it, and at least the given number of brokers, are in the cluster.
func (c *cluster) waitReady(n *node, brokers int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.addr()), kgo.RequestRetries(0))
	if err != nil {
		return err
	}
	defer cl.Close()
	return n.proc.waitFor("answers to Metadata", brokerStartTimeout, func() (bool, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{}
		kresp, err := cl.SeedBrokers()[0].Request(ctx, req)
		if err != nil {
			return false, err
		}
		resp := kresp.(*kmsg.MetadataResponse)
		found := slices.ContainsFunc(resp.Brokers, func(b kmsg.MetadataResponseBroker) bool { return b.NodeID == int32(n.id) })
		return found && len(resp.Brokers) >= brokers, nil
	})
}

func (c *cluster) logsContain(s string) bool {
	for _, n := range c.nodes {
		if b, err := os.ReadFile(n.logFile()); err == nil && strings.Contains(string(b), s) {
			return true
		}
	}
	return false
}

func (c *cluster) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		if n.proc != nil {
			n.proc.kill()
		}
	}
}

// close kills: the data is thrown away, and three brokers that shut down in order wait for each other.
func (c *cluster) close() { c.kill() }

func (c *Cluster) node(i int) *node {
	c.tb.Helper()
	if i < 1 || i > len(c.nodes) {
		c.tb.Fatalf("there is no broker %d, they are numbered 1 to %d", i, len(c.nodes))
	}
	return c.nodes[i-1]
}

// Bootstrap is the address list of all brokers.
func (c *Cluster) Bootstrap() string {
	var s []string
	for _, n := range c.nodes {
		s = append(s, n.addr())
	}
	return strings.Join(s, ",")
}

// Addr is the address of broker i.
func (c *Cluster) Addr(i int) string { c.tb.Helper(); return c.node(i).addr() }

// Brokers is the number of brokers, running or not.
func (c *Cluster) Brokers() int { return len(c.nodes) }

// Version is the Kafka version.
func (c *Cluster) Version() string { return c.opts.Version }

// Stop is SIGTERM, a controlled shutdown, and waits for the end.
func (c *Cluster) Stop(i int) {
	c.tb.Helper()
	n := c.node(i)
	if err := n.proc.stop(brokerStopTimeout); err != nil {
		c.tb.Fatal(err)
	}
}

// Kill is SIGKILL, and waits for the end.
func (c *Cluster) Kill(i int) { c.tb.Helper(); c.node(i).proc.kill() }

// Pause is SIGSTOP: the broker's connections stay open and nothing is answered. Resume is SIGCONT.
func (c *Cluster) Pause(i int) { c.tb.Helper(); c.node(i).proc.pause() }

// Resume lets a paused broker go on.
func (c *Cluster) Resume(i int) { c.tb.Helper(); c.node(i).proc.signal(syscall.SIGCONT) }

// Restart starts broker i again, at the same address with the same data, after ending it (SIGKILL) if it still runs,
// and waits until it serves.
func (c *Cluster) Restart(i int) {
	c.tb.Helper()
	n := c.node(i)
	n.proc.kill()
	if err := c.run(n); err != nil {
		c.tb.Fatal(err)
	}
	if err := c.waitReady(n, 1); err != nil {
		c.tb.Fatal(err)
	}
}

// Pid is the process id of broker i.
func (c *Cluster) Pid(i int) int { c.tb.Helper(); return c.node(i).proc.pid() }

// DataDir is the log directory of broker i: one folder per partition, as kafka-dump-log wants it.
func (c *Cluster) DataDir(i int) string { c.tb.Helper(); return filepath.Join(c.node(i).dir, "data") }

// Log is what broker i has logged since its (last) start.
func (c *Cluster) Log(i int) string { c.tb.Helper(); return c.node(i).proc.output() }
