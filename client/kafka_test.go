package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/client/topology"
	"streamkeeper/internal/kafkatest"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

// kafka44 is a Kafka 4.4 broker that coordinates streams groups and keeps topology descriptions in its own in-memory plugin.
func kafka44(t *testing.T) *kafkatest.Cluster {
	t.Helper()
	return kafkatest.Shared(t, kafkatest.Options{Version: "4.4.0", Streams: true, Properties: map[string]string{
		"group.streams.topology.description.plugin.class": "org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin",
		"group.streams.initial.rebalance.delay.ms":        "0",
		"group.streams.assignment.interval.ms":            "0",
	}})
}

func newClient(t *testing.T, bootstrap string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ClientID("go-member")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// running is a member that runs until it is stopped, and must then have ended without an error.
type running struct {
	*Member
	t      *testing.T
	cancel context.CancelFunc
	done   chan error
	mu     sync.Mutex
	log    []string
	pushes chan error
}

func runMember(t *testing.T, cl *kgo.Client, cfg MemberConfig) *running {
	t.Helper()
	r := &running{t: t, done: make(chan error, 1), pushes: make(chan error, 10)}
	note := func(what string, tasks Tasks) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.log = append(r.log, what+" "+tasks.String())
		return nil
	}
	cfg.Assign = func(_ context.Context, t Tasks) error { return note("assign", t) }
	cfg.Revoke = func(_ context.Context, t Tasks) error { return note("revoke", t) }
	cfg.Lose = func(t Tasks) { _ = note("lose", t) }
	cfg.Pushed = func(err error) { r.pushes <- err }
	m, err := NewMember(cl, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.Member, r.cancel = m, cancel
	go func() { r.done <- m.Run(ctx) }()
	t.Cleanup(r.stop)
	return r
}

func (r *running) stop() {
	r.cancel()
	select {
	case err := <-r.done:
		r.done <- nil
		if err != nil {
			r.t.Errorf("member %s ended: %v", r.ID(), err)
		}
	case <-time.After(time.Minute):
		r.t.Errorf("member %s does not end", r.ID())
	}
}

// waitTasks waits until the member has n active tasks.
func (r *running) waitTasks(n int) {
	r.t.Helper()
	kafkatest.Eventually(r.t, time.Minute, func() error {
		if got := r.Tasks(); len(got.Active) != n {
			return fmt.Errorf("tasks %v, want %d", got, n)
		}
		return nil
	})
}

// odd is an application as only a program can make it: names of all kinds, a node without successors, a pattern, a computed topic, two
// subtopologies with a gap between their ids, a global store.
func odd(in string) *topology.Description {
	out := in + "-out"
	d := &topology.Description{
		Subtopologies: []topology.Subtopology{
			{ID: "2", Nodes: []topology.Node{{Name: "by-pattern", Type: topology.Source, Successors: []string{"computed"}}, {Name: "computed", Type: topology.Sink}}},
			{ID: "0", Nodes: []topology.Node{
				{Name: "source", Type: topology.Source, Topics: []string{in}, Successors: []string{"Prozeß-\U0001F600", "loop"}},
				{Name: "Prozeß-\U0001F600", Type: topology.Processor, Stores: []string{"s2", "s1"}, Successors: []string{"sink"}},
				{Name: "Prozeß-\uFF5E", Type: topology.Processor},
				{Name: "loop", Type: topology.Processor, Successors: []string{"loop", "elsewhere"}},
				{Name: "מעבד", Type: topology.Processor, Successors: []string{"sink"}},
				{Name: strings.Repeat("n", 249), Type: topology.Processor},
				{Name: `"quotes" & <angles> \ {braces}`, Type: topology.Processor},
				{Name: "sink", Type: topology.Sink, SinkTopic: &out},
			}},
		},
		GlobalStores: []topology.GlobalStore{{
			Source:    topology.Node{Name: "global-source", Type: topology.Source, Topics: []string{"names"}, Successors: []string{"global-processor"}},
			Processor: topology.Node{Name: "global-processor", Type: topology.Processor, Stores: []string{"names-store"}},
		}},
	}
	return d
}

// describedBy waits for the topology description of a group, and checks that Kafka's own tool and we show the same.
func describedBy(t *testing.T, bootstrap string, admin *Admin, group string) *GroupDescription {
	t.Helper()
	var d *GroupDescription
	kafkatest.Eventually(t, time.Minute, func() error {
		got := admin.DescribeStreamsGroups(t.Context(), []string{group}, DescribeOptions{IncludeTopologyDescription: true, IncludeAuthorizedOperations: true})[0]
		if got.Err != nil {
			return got.Err
		}
		if d = got.Description; d.TopologyStatus != TopologyAvailable {
			return &NoTopologyError{group, d.TopologyStatus}
		}
		return nil
	})
	var text bytes.Buffer
	if err := d.WriteTopology(t.Context(), &text, topology.Text); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, exit := kafkatest.Tool(t, bootstrap, "kafka-streams-groups", "--describe", "--group", group, "--topology")
	if exit != 0 || stdout != text.String() {
		t.Errorf("kafka-streams-groups (exit %d) prints\n%s\n%s\nwe print\n%s", exit, stdout, stderr, text.String())
	}
	return d
}

// A Go program is a member of a group that Kafka's own coordinator keeps, and its topology is shown by Kafka's own tool.
func TestAGoMemberOnKafka(t *testing.T) {
	cluster := kafka44(t)
	const group = "go-app"
	kafkatest.CreateTopics(t, cluster.Bootstrap(), 4, group+"-in")
	cl := newClient(t, cluster.Bootstrap())
	admin := NewAdmin(cl)
	cfg := MemberConfig{
		Group: group, Subtopologies: []Subtopology{{ID: "0", SourceTopics: []string{group + "-in"}}}, Description: odd(group + "-in"),
		RackID: "rack", Tags: map[string]string{"zone": "z"}, Endpoint: &Endpoint{"localhost", 7}, ProcessID: "process-a",
	}
	a := runMember(t, cl, cfg)
	a.waitTasks(4)
	select {
	case err := <-a.pushes:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the topology description was not asked for")
	}
	d := describedBy(t, cluster.Bootstrap(), admin, group)
	want, err := topology.ToWire(cfg.Description)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := topology.ToWire(d.TopologyDescription); err != nil || !reflect.DeepEqual(back, want) {
		t.Errorf("pushed\n%+v\ndescribed\n%+v\n%v", want, back, err)
	}
	if d.State != "Stable" || len(d.Members) != 1 || len(d.AuthorizedOperations) == 0 || d.Assignor != "sticky" || d.Coordinator.ID != 1 {
		t.Errorf("%+v", d)
	}
	m := d.Members[0]
	if m.ID != a.ID() || m.Epoch != a.Epoch() || m.ClientID != "go-member" || m.ProcessID != "process-a" || *m.RackID != "rack" || m.Tags["zone"] != "z" ||
		*m.Endpoint != (Endpoint{"localhost", 7}) || !m.Assignment.Equal(a.Tasks()) || !m.Target.Equal(a.Tasks()) {
		t.Errorf("%+v", m)
	}

	in := group + "-in"
	if err := a.Commit(t.Context(), map[TopicPartition]Offset{{in, 0}: {0, -1, "hello"}, {in, 3}: {0, -1, ""}}); err != nil {
		t.Error(err)
	}
	err = a.Commit(t.Context(), map[TopicPartition]Offset{{in, 1}: {0, -1, strings.Repeat("x", 5000)}, {in, 2}: {0, -1, ""}})
	if !errors.Is(err, kerr.OffsetMetadataTooLarge) || !strings.Contains(err.Error(), in+"-1: ") {
		t.Errorf("commit with 5000 bytes of metadata: %v", err)
	}
	committed, err := a.Committed(t.Context(), TopicPartition{in, 0}, TopicPartition{in, 1}, TopicPartition{in, 2})
	if err != nil || len(committed) != 3 || committed[0].Offset != 0 || committed[0].Metadata != "hello" || committed[1].Offset != NoOffset || committed[2].Offset != 0 {
		t.Errorf("%+v, %v", committed, err)
	}

	// A second one takes half of the tasks, and gives them back.
	cfg.ProcessID, cfg.DisableTopologyPush = "process-b", true
	b := runMember(t, newClient(t, cluster.Bootstrap()), cfg)
	b.waitTasks(2)
	a.waitTasks(2)
	if err := admin.DeleteStreamsGroups(t.Context(), group)[0].Err; !errors.Is(err, kerr.NonEmptyGroup) {
		t.Errorf("delete of a group with members: %v", err)
	}
	listed, err := admin.ListStreamsGroups(t.Context(), "Stable", "Reconciling")
	if err != nil || len(listed) == 0 || listed[0].Coordinator != d.Coordinator {
		t.Errorf("%+v, %v", listed, err)
	}
	a.stop()
	b.waitTasks(4)
	a.mu.Lock()
	if got, want := strings.Join(a.log, ", "), "assign active 0_0 0_1 0_2 0_3, "; !strings.HasPrefix(got, want) || !strings.Contains(a.log[len(a.log)-1], "revoke") {
		t.Errorf("the first member was told %s", got)
	}
	a.mu.Unlock()
	b.stop()
	// The description outlives the members, but not the group.
	if d := describedBy(t, cluster.Bootstrap(), admin, group); d.State != "Empty" || len(d.Members) != 0 {
		t.Errorf("%+v", d)
	}
	for _, d := range admin.DeleteStreamsGroups(t.Context(), group, "no-such-group") {
		if d.Group == group && d.Err != nil || d.Group != group && !errors.Is(d.Err, kerr.GroupIDNotFound) {
			t.Errorf("delete %s: %v", d.Group, d.Err)
		}
	}
	got := admin.DescribeStreamsGroups(t.Context(), []string{group}, DescribeOptions{IncludeTopologyDescription: true})[0]
	if !errors.Is(got.Err, kerr.GroupIDNotFound) || got.Err.Error() != "Group "+group+" not found." {
		t.Errorf("after the deletion: %+v, %v", got.Description, got.Err)
	}
}

// A member that keeps its topology to itself.
func TestOptingOutOnKafka(t *testing.T) {
	cluster := kafka44(t)
	const group = "go-silent"
	kafkatest.CreateTopics(t, cluster.Bootstrap(), 1, group+"-in")
	cl := newClient(t, cluster.Bootstrap())
	m := runMember(t, cl, MemberConfig{Group: group, Subtopologies: []Subtopology{{ID: "0", SourceTopics: []string{group + "-in"}}}, Description: odd("x"), DisableTopologyPush: true})
	m.waitTasks(1)
	got := NewAdmin(cl).DescribeStreamsGroups(t.Context(), []string{group, "no-such-group"}, DescribeOptions{IncludeTopologyDescription: true})
	if got[0].Err != nil || got[0].Description.TopologyStatus != TopologyNotStored || !errors.Is(got[1].Err, kerr.GroupIDNotFound) {
		t.Fatalf("%+v", got)
	}
	stdout, _, exit := kafkatest.Tool(t, cluster.Bootstrap(), "kafka-streams-groups", "--describe", "--group", group, "--topology")
	err := got[0].Description.WriteTopology(t.Context(), &bytes.Buffer{}, topology.Text)
	if want := fmt.Sprintf("\nError: %v\n", err); exit != 1 || stdout != want {
		t.Errorf("the tool prints %q (exit %d), we %q", stdout, exit, want)
	}
}

// What a Java application pushes is read, and its offsets.
func TestAJavaApplicationOnKafka(t *testing.T) {
	cluster := kafka44(t)
	const group = "java-app"
	kafkatest.CreateTopics(t, cluster.Bootstrap(), 2, group+"-in", group+"-out")
	cl := newClient(t, cluster.Bootstrap())
	for i := range 10 {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: group + "-in", Key: []byte(fmt.Sprint(i)), Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	app := kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: cluster.Bootstrap(), Group: group, Topology: "count"})
	app.WaitTasks(4)
	admin := NewAdmin(cl)
	d := describedBy(t, cluster.Bootstrap(), admin, group)
	if got := d.TopologyDescription.Subtopologies; len(got) != 2 || len(got[1].Nodes) < 3 {
		t.Errorf("%+v", got)
	}
	kafkatest.WaitCommitted(t, cluster.Bootstrap(), group, group+"-in", time.Minute)
	app.Stop()
	all := admin.ListStreamsGroupOffsets(t.Context(), map[string][]TopicPartition{group: nil, "no-such-group": nil}, OffsetsOptions{RequireStable: true})
	if len(all) != 2 || all[0].Err != nil || all[1].Err != nil || len(all[1].Offsets) != 0 {
		t.Fatalf("%+v", all)
	}
	sum := int64(0)
	for _, o := range all[0].Offsets {
		if o.Topic == group+"-in" {
			sum += o.Offset
		}
	}
	if sum != 10 {
		t.Errorf("offsets %+v add up to %d, want 10", all[0].Offsets, sum)
	}
	some := admin.ListStreamsGroupOffsets(t.Context(), map[string][]TopicPartition{group: {{group + "-in", 0}, {"elsewhere", 3}}}, OffsetsOptions{})
	if o := some[0].Offsets; len(o) != 2 || o[0].Topic != "elsewhere" || o[0].Offset != NoOffset || o[1].Offset < 1 {
		t.Errorf("%+v", some)
	}
}

// The broker is killed and comes back: the member finds it again, and is still the same member with the same tasks.
func TestABrokerThatIsKilled(t *testing.T) {
	cluster := kafka44(t)
	const group = "go-restart"
	kafkatest.CreateTopics(t, cluster.Bootstrap(), 3, group+"-in")
	cl := newClient(t, cluster.Bootstrap())
	m := runMember(t, cl, MemberConfig{Group: group, Subtopologies: []Subtopology{{ID: "0", SourceTopics: []string{group + "-in"}}}, Description: odd("x")})
	m.waitTasks(3)
	admin := NewAdmin(cl)
	describedBy(t, cluster.Bootstrap(), admin, group)
	epoch := m.Epoch()
	cluster.Restart(1)
	// A call that is made meanwhile waits for the coordinator. The plugin has forgotten the description, and the coordinator does not know.
	got := admin.DescribeStreamsGroups(t.Context(), []string{group}, DescribeOptions{IncludeTopologyDescription: true})[0]
	if got.Err != nil || got.Description.TopologyStatus != TopologyNotStored || len(got.Description.Members) != 1 || got.Description.Members[0].ID != m.ID() {
		t.Fatalf("%+v, %v", got.Description, got.Err)
	}
	// Joining again is something that only a member does that was heard.
	other := runMember(t, newClient(t, cluster.Bootstrap()), MemberConfig{Group: group, Subtopologies: []Subtopology{{ID: "0", SourceTopics: []string{group + "-in"}}}})
	other.waitTasks(1)
	m.waitTasks(2)
	if m.Epoch() <= epoch {
		t.Errorf("epoch %d, before %d", m.Epoch(), epoch)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := strings.Join(m.log, ", "); strings.Contains(all, "lose") {
		t.Errorf("the member was told %s", all)
	}
}

// A cluster that does not keep streams groups says so, and so do we.
func TestAClusterWithoutStreamsGroups(t *testing.T) {
	cluster := kafkatest.Shared(t, kafkatest.Options{})
	kafkatest.CreateTopics(t, cluster.Bootstrap(), 1, "in")
	cl := newClient(t, cluster.Bootstrap())
	m, err := NewMember(cl, MemberConfig{Group: "g", Subtopologies: []Subtopology{{ID: "0", SourceTopics: []string{"in"}}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := m.Run(ctx); !errors.Is(err, kerr.UnsupportedVersion) || !strings.Contains(err.Error(), "the cluster does not support the streams group protocol") {
		t.Errorf("member: %v", err)
	}
	if got := NewAdmin(cl).DescribeStreamsGroups(ctx, []string{"g"}, DescribeOptions{})[0]; !errors.Is(got.Err, kerr.UnsupportedVersion) {
		t.Errorf("describe: %v", got.Err)
	}
}
