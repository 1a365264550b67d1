package crash

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/client"
	"streamkeeper/client/topology"
	"streamkeeper/internal/kafkatest"
	"streamkeeper/plugin/http/reference"
)

func TestMain(m *testing.M) {
	// Worlds wait for sessions to end most of the time: more of them than processors run side by side.
	if err := flag.Set("test.parallel", "10"); err != nil {
		panic(err)
	}
	os.Exit(kafkatest.Main(m))
}

func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short, and this builds streamkeeper and waits for processes that are killed and started again")
	}
}

const (
	// settled is how long anything may take to come right after a death: a session of the ownership group, a start of a process,
	// and the clients' own back-offs, on a machine that is busy.
	settled  = 90 * time.Second
	input    = "in"
	firstID  = 1000001
	logTopic = "__streams_groups"

	logPartitions = 4
)

// settings make groups and replicas quick.
var settings = []string{
	"--log-partitions", fmt.Sprint(logPartitions), "--ownership-session-timeout", "1500ms",
	"--set", "group.streams.initial.rebalance.delay.ms=0",
	"--set", "group.streams.min.heartbeat.interval.ms=200", "--set", "group.streams.heartbeat.interval.ms=200",
}

// world is a cluster, a service for the plugin, and replicas before them.
type world struct {
	t         *testing.T
	backend   backend
	cluster   *kfake.Cluster
	catalogue *reference.Catalogue
	service   *httptest.Server
	replicas  []*kafkatest.Keeper
	cl        *kgo.Client
	admin     *client.Admin

	mu    sync.Mutex
	death *death          // the one that is due
	asked []*http.Request // of the service
}

// death is where the next replica dies.
type death struct {
	point
	group string
	fired chan struct{} // closed when it has died
	by    string
}

func newWorld(t *testing.T, b backend, replicas int, more ...string) *world {
	t.Helper()
	w := &world{t: t, backend: b, catalogue: reference.New(0, 0)}
	tap := &tap{topic: logTopic, before: func(s step) bool { return !w.dies(s, false) }, after: func(s step) bool { return !w.dies(s, true) }}
	var err error
	if w.cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, input), kfake.ListenFn(tap.listen), kfake.GroupMinSessionTimeout(time.Second),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"})); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.cluster.Close)
	w.service = httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.service.Close)
	var seeds []string
	for i := range replicas {
		args := append([]string{"serve", "--bootstrap-servers", strings.Join(w.cluster.ListenAddrs(), ","), "--log-topic", logTopic,
			"--node-id", fmt.Sprint(firstID + i)}, settings...)
		k := kafkatest.NewStreamkeeper(t, slices.Concat(args, b.settings(w, i), more)...)
		k.Start()
		w.replicas = append(w.replicas, k)
		seeds = append(seeds, k.Bootstrap())
	}
	for _, k := range w.replicas {
		k.WaitReady()
	}
	if w.cl, err = kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(100*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.cl.Close)
	w.admin = client.NewAdmin(w.cl)
	return w
}

// replicaName is how a replica is told apart at the cluster (its client id) and at the service (the first part of the address).
func replicaName(i int) string { return fmt.Sprintf("streamkeeper-%d", firstID+i) }

// serve is the plugin's service.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	by, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	w.mu.Lock()
	w.asked = append(w.asked, r.Clone(context.Background()))
	w.mu.Unlock()
	s := step{what: "call", group: groupOf(r), by: by}
	if by != "test" && w.dies(s, false) {
		panic(http.ErrAbortHandler)
	}
	answer := httptest.NewRecorder()
	http.StripPrefix("/"+by, w.catalogue).ServeHTTP(answer, r)
	if by != "test" && w.dies(s, true) {
		panic(http.ErrAbortHandler)
	}
	for name, values := range answer.Header() {
		rw.Header()[name] = values
	}
	rw.WriteHeader(answer.Code)
	_, _ = rw.Write(answer.Body.Bytes())
}

// groupOf is the group that a request of the plugin's is about.
func groupOf(r *http.Request) string {
	_, group, _ := strings.Cut(r.URL.Path, "/groups/")
	group, _, _ = strings.Cut(group, "/")
	return group
}

// arm makes the next replica die that comes to the point with the group.
func (w *world) arm(p point, group string) *death {
	d := &death{point: p, group: group, fired: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.death = d
	return d
}

// dies kills the replica if it has come to where it is to die.
func (w *world) dies(s step, after bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.death
	if d == nil || d.what != s.what || d.after != after || d.group != s.group {
		return false
	}
	for i, k := range w.replicas {
		if replicaName(i) == strings.Replace(s.by, "/", "-", 1) {
			k.Kill()
			d.by, w.death = s.by, nil
			close(d.fired)
			return true
		}
	}
	return false // the test's own client
}

// wait waits for the death.
func (w *world) wait(d *death) {
	w.t.Helper()
	select {
	case <-d.fired:
	case <-time.After(settled):
		w.t.Fatalf("no replica came to die %s", d.point)
	}
}

// revive starts what is dead. Who is alone is waited for.
func (w *world) revive() {
	w.t.Helper()
	for _, k := range w.replicas {
		if k.Running() {
			continue
		}
		k.Start()
		if len(w.replicas) == 1 {
			k.WaitReady()
		}
	}
}

// member is a running member of a group, with a description to push.
type member struct {
	stop   func() error
	pushes chan error
	ended  chan error // has the end of Run when it has ended
}

func description() *topology.Description {
	out := "out"
	return &topology.Description{Subtopologies: []topology.Subtopology{{ID: "0", Nodes: []topology.Node{
		{Name: "SOURCE", Type: topology.Source, Topics: []string{input}, Successors: []string{"SINK"}},
		{Name: "SINK", Type: topology.Sink, SinkTopic: &out},
	}}}}
}

func (w *world) join(group string) *member {
	w.t.Helper()
	m := &member{pushes: make(chan error, 100), ended: make(chan error, 1)}
	c, err := client.NewMember(w.cl, client.MemberConfig{
		Group: group, Subtopologies: []client.Subtopology{{ID: "0", SourceTopics: []string{input}}}, Description: description(),
		Pushed: func(err error) {
			select {
			case m.pushes <- err:
			default: // enough is known
			}
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { m.ended <- c.Run(ctx) }()
	m.stop = sync.OnceValue(func() error {
		cancel()
		return <-m.ended
	})
	w.t.Cleanup(func() { _ = m.stop() })
	return m
}

// stored waits until the coordinator shows the group's description.
func (w *world) stored(group string) {
	w.t.Helper()
	kafkatest.Eventually(w.t, settled, func() error {
		d := w.describe(group)
		switch {
		case d.Err != nil:
			return d.Err
		case d.Description.TopologyDescription == nil:
			return fmt.Errorf("description status %v", d.Description.TopologyStatus)
		case !w.holds(group):
			return errors.New("it is shown, and the plugin has none")
		}
		return nil
	})
}

func (w *world) describe(group string) client.DescribedGroup {
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	return w.admin.DescribeStreamsGroups(ctx, []string{group}, client.DescribeOptions{IncludeTopologyDescription: true})[0]
}

// gone says whether the group does not exist.
func (w *world) gone(group string) bool {
	return errors.Is(w.describe(group).Err, kerr.GroupIDNotFound)
}

// empty waits until the group has no members.
func (w *world) empty(group string) {
	w.t.Helper()
	kafkatest.Eventually(w.t, settled, func() error {
		d := w.describe(group)
		if d.Err == nil && len(d.Description.Members) > 0 {
			return fmt.Errorf("%d members", len(d.Description.Members))
		}
		return d.Err
	})
}
