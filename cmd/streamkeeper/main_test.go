package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// text collects what a command writes while it runs.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// wait returns the first match of a pattern in what was written.
func (t *text) wait(tb testing.TB, pattern string, ended <-chan int) []string {
	tb.Helper()
	re := regexp.MustCompile(pattern)
	deadline := time.After(30 * time.Second)
	for {
		if m := re.FindStringSubmatch(t.String()); m != nil {
			return m
		}
		select {
		case code := <-ended:
			tb.Fatalf("the command ended with %d before it wrote %q:\n%s", code, pattern, t)
		case <-deadline:
			tb.Fatalf("the command did not write %q:\n%s", pattern, t)
		case <-time.After(20 * time.Millisecond): // a look at memory; there is nothing to be woken by
		}
	}
}

// dev is a running "streamkeeper dev".
type dev struct {
	bootstrap, admin string
	out, err         *text
	stop             func() int
}

func startDev(t *testing.T, dir string, args ...string) *dev {
	t.Helper()
	d := &dev{out: &text{}, err: &text{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		defer close(ended) // whoever waits for its words may have taken the code
		ended <- run(ctx, append([]string{"dev", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data-dir", dir,
			"--log-partitions", "4", "--set", "group.streams.initial.rebalance.delay.ms=0", "--log-level", "debug"}, args...), d.out, d.err)
	}()
	var once sync.Once
	code := -1
	d.stop = func() int {
		once.Do(func() { cancel(); code = <-ended })
		return code
	}
	t.Cleanup(func() {
		d.stop()
		if t.Failed() {
			t.Logf("dev wrote:\n%s\n%s", d.out, d.err)
		}
	})
	d.bootstrap = d.out.wait(t, `bootstrap\.servers +(\S+)`, ended)[1]
	d.admin = d.out.wait(t, `http://(\S+)`, ended)[1]
	return d
}

// execute runs a command of ours and returns what it wrote.
func execute(t *testing.T, d *dev, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, err text
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	code = run(ctx, append(args, "--bootstrap-servers", d.bootstrap), &out, &err)
	return out.String(), err.String(), code
}

func must(t *testing.T, d *dev, args ...string) string {
	t.Helper()
	out, err, code := execute(t, d, args...)
	if code != 0 {
		t.Fatalf("%v ended with %d: %s%s", args, code, out, err)
	}
	return out
}

// member speaks StreamsGroupHeartbeat on its own connection.
type member struct {
	t     *testing.T
	c     *wire.Client
	group string
	epoch int32
	tasks []kmsg.TaskIDs
}

func newMember(t *testing.T, d *dev, group string) *member {
	t.Helper()
	c, err := wire.Dial(t.Context(), d.bootstrap, "app-1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &member{t: t, c: c, group: group}
}

func (m *member) beat(edit func(*kmsg.StreamsGroupHeartbeatRequest)) *kmsg.StreamsGroupHeartbeatResponse {
	m.t.Helper()
	r := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.MemberEpoch = 1, m.group, "member-1", m.epoch
	edit(r)
	resp, err := m.c.Exchange(m.t.Context(), r)
	if err != nil {
		m.t.Fatal(err)
	}
	h := resp.(*kmsg.StreamsGroupHeartbeatResponse)
	if h.ErrorCode != 0 {
		m.t.Fatalf("heartbeat: error %d %v", h.ErrorCode, h.ErrorMessage)
	}
	m.epoch = h.MemberEpoch
	if h.ActiveTasks != nil {
		m.tasks = h.ActiveTasks
	}
	return h
}

// join joins with one subtopology over topic "in" and heartbeats until all its tasks are there.
func (m *member) join(tasks int) {
	m.t.Helper()
	m.beat(func(r *kmsg.StreamsGroupHeartbeatRequest) {
		r.RebalanceTimeoutMillis, r.ProcessID = 60_000, kmsg.StringPtr("process-1")
		r.ActiveTasks, r.StandbyTasks, r.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
		s := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
		s.SubtopologyID, s.SourceTopics = "0", []string{"in"}
		r.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{s}}
	})
	for i := 0; len(m.tasks) == 0 || len(m.tasks[0].Partitions) < tasks; i++ {
		if i == 100 {
			m.t.Fatalf("tasks %v, want %d", m.tasks, tasks)
		}
		time.Sleep(50 * time.Millisecond) // the group's own pace: the target is computed by a heartbeat
		m.beat(func(*kmsg.StreamsGroupHeartbeatRequest) {})
	}
}

func (m *member) leave() {
	m.t.Helper()
	m.beat(func(r *kmsg.StreamsGroupHeartbeatRequest) { r.MemberEpoch = -1 })
}

func (m *member) commit(partition int32, offset int64) {
	m.t.Helper()
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.MemberID, r.Generation = 9, m.group, "member-1", m.epoch
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = partition, offset
	tp := kmsg.NewOffsetCommitRequestTopic()
	tp.Topic, tp.Partitions = "in", []kmsg.OffsetCommitRequestTopicPartition{p}
	r.Topics = []kmsg.OffsetCommitRequestTopic{tp}
	resp, err := m.c.Exchange(m.t.Context(), r)
	if err != nil {
		m.t.Fatal(err)
	}
	if code := resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
		m.t.Fatalf("commit: error %d", code)
	}
}

// produce writes n records to partition 0 of topic "in", which makes the topic.
func produce(t *testing.T, d *dev, n int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(d.bootstrap), kgo.AllowAutoTopicCreation(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i := range n {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "in", Partition: 0, Value: []byte(fmt.Sprint(i))}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// squeeze makes one blank of many, so that tables compare without their widths.
func squeeze(s string) string { return regexp.MustCompile(`[ \t]+`).ReplaceAllString(s, " ") }

func TestCommandsOnARunningReplica(t *testing.T) {
	dir := t.TempDir()
	d := startDev(t, dir)
	produce(t, d, 7)
	m := newMember(t, d, "orders")
	m.join(4)
	m.commit(0, 5)

	if got, want := squeeze(must(t, d, "list")), fmt.Sprintf("GROUP STATE COORDINATOR\norders Stable %s (1000001)\n", d.bootstrap); got != want {
		t.Errorf("list\ngot  %q\nwant %q", got, want)
	}
	if got := must(t, d, "list", "--state", "Empty", "-o", "json"); got != "[]\n" {
		t.Errorf("list of empty groups: %q", got)
	}

	got := squeeze(must(t, d, "describe", "orders"))
	for _, line := range []string{
		fmt.Sprintf("orders Stable 2 2 0 sticky %s (1000001) 1\n", d.bootstrap),
		"member-1 2 app-1 127.0.0.1 process-1 active 0_0 0_1 0_2 0_3\n",
		"in 0 5 7 2 0_0 member-1\n",
		"in 3 - 0 0 0_3 member-1\n",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("describe lacks %q:\n%s", line, got)
		}
	}
	var description struct {
		Group, State string
		Members      []struct{ ID string }
		Offsets      []struct{ Committed, Lag *int64 }
	}
	if err := json.Unmarshal([]byte(must(t, d, "describe", "orders", "-o", "json")), &description); err != nil {
		t.Fatal(err)
	}
	if description.Group != "orders" || description.State != "Stable" || len(description.Members) != 1 || len(description.Offsets) != 4 || *description.Offsets[0].Lag != 2 {
		t.Errorf("describe as JSON: %+v", description)
	}

	if out, err, code := execute(t, d, "delete", "orders"); code != exitFailure || !strings.Contains(err, "group orders: ") || !strings.Contains(err, "NON_EMPTY_GROUP") {
		t.Errorf("delete of a group with members: %d %s%s", code, out, err)
	}
	if out, err, code := execute(t, d, "describe", "nobody"); code != exitFailure || err != "streamkeeper: Group nobody not found.\n" {
		t.Errorf("describe of a missing group: %d %s%q", code, out, err)
	}

	// The log: everything that happened, in Kafka's own record types.
	log := must(t, d, "log", "--group", "orders")
	for _, part := range []string{"StreamsGroupTopology ", "StreamsGroupMemberMetadata ", "group=orders member=member-1", "OffsetCommit ", "group=orders topic=in partition=0"} {
		if !strings.Contains(log, part) {
			t.Errorf("log lacks %q:\n%s", part, log)
		}
	}
	if strings.Contains(log, "Ownership") {
		t.Error("the log of one group shows records of none")
	}
	owners := 0
	for line := range strings.Lines(must(t, d, "log", "--json")) {
		var rec struct {
			Type   string
			Offset *int64
			Key    *struct{ Type string }
		}
		if err := json.Unmarshal([]byte(line), &rec); err != nil || rec.Offset == nil || rec.Key == nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if rec.Type == "Ownership" {
			owners++
		}
	}
	if owners < 4 {
		t.Errorf("%d ownership records, want one per partition at least", owners)
	}

	shards := squeeze(must(t, d, "shards", "--admin", d.admin))
	if n := strings.Count(shards, fmt.Sprintf(" 1000001 %s ", d.bootstrap)); n != 4 || strings.Count(shards, " 1000001 yes ") != 4 {
		t.Errorf("shards:\n%s", shards)
	}
	// The replica alone tells the same; one that is away hides nothing of it.
	var alone, partly, missing text
	if code := run(t.Context(), []string{"shards", "--admin", d.admin}, &alone, &missing); code != 0 || squeeze(alone.String()) != shards {
		t.Errorf("shards of the replica alone: exit %d, %s\n%s\nwant\n%s", code, missing.String(), alone.String(), shards)
	}
	if code := run(t.Context(), []string{"shards", "--admin", "127.0.0.1:1", "--admin", "http://" + d.admin}, &partly, &missing); code != exitFailure || squeeze(partly.String()) != shards || !strings.Contains(missing.String(), "127.0.0.1:1/shards") {
		t.Errorf("shards with a replica away: exit %d, %s\n%s", code, missing.String(), partly.String())
	}
	segments := filepath.Join(t.TempDir(), "segments")
	for _, name := range strings.Fields(must(t, d, "log", "--segments", segments)) {
		if info, err := os.Stat(name); err != nil || info.Size() == 0 || !strings.HasPrefix(name, filepath.Join(segments, "__streams_groups-")) {
			t.Errorf("segment %s: %v", name, err)
		}
	}
	if _, err, code := execute(t, d, "log", "--segments", segments); code != exitFailure || !strings.Contains(err, "is there already") {
		t.Errorf("segments over segments: %d %s", code, err)
	}

	resp, err := http.Get("http://" + d.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	var metrics bytes.Buffer
	_, _ = metrics.ReadFrom(resp.Body)
	resp.Body.Close()
	for _, line := range []string{"streamkeeper_offset_commit_total 1\n", `streamkeeper_num_partitions{state="active"} 4`, "streamkeeper_projection_lag 0\n", "streamkeeper_streams_group_rebalance_total "} {
		if !strings.Contains(metrics.String(), line) {
			t.Errorf("/metrics lacks %q", line)
		}
	}

	// Stopped and started again, everything is there; then the group goes.
	m.leave()
	if code := d.stop(); code != 0 {
		t.Fatalf("dev ended with %d", code)
	}
	d = startDev(t, dir)
	got = squeeze(must(t, d, "describe", "orders"))
	for _, line := range []string{"orders Empty 3 3 0 sticky", "in 0 5 7 2 - -\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("after a restart describe lacks %q:\n%s", line, got)
		}
	}
	if got := must(t, d, "delete", "orders"); got != "deleted orders\n" {
		t.Errorf("delete: %q", got)
	}
	if got := squeeze(must(t, d, "list")); got != "GROUP STATE COORDINATOR\n" {
		t.Errorf("list after the delete: %q", got)
	}
}

func TestFollowShowsWhatIsWrittenNow(t *testing.T) {
	d := startDev(t, t.TempDir())
	produce(t, d, 1)
	out := &text{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"log", "--follow", "--group", "later", "--bootstrap-servers", d.bootstrap}, out, out)
	}()
	out.wait(t, "PARTITION", ended)
	newMember(t, d, "later").join(4)
	out.wait(t, `StreamsGroupTargetAssignmentMember +group=later`, ended)
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("follow ended with %d: %s", code, out)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", exitUsage, "expected one of"},
		{"frobnicate", exitUsage, "unexpected argument frobnicate"},
		{"serve", exitUsage, "--bootstrap-servers"},
		{"describe", exitUsage, "<group>"},
		{"describe a b --topology", exitUsage, "--topology and --epochs are of one group"},
		{"describe --frob", exitUsage, "Try: streamkeeper describe --help\n"},
		{"frobnicate --frob", exitUsage, "Try: streamkeeper --help\n"},
		{"forget", exitUsage, "Try: streamkeeper forget --help\n"},
		{"forget x", exitUsage, "<node-id>"},
		{"serve --bootstrap-servers a:1 --node-id 0", exitUsage, "--node-id: 0 may be a broker's id"},
		{"serve --bootstrap-servers x --node-id=-5", exitUsage, "--node-id: -5 is negative\n--bootstrap-servers: \"x\" is not HOST:PORT"},
		{"dev --set group.streams.max.size=0", exitUsage, "--set: Invalid value 0 for configuration group.streams.max.size: Value must be at least 1"},
		{"log --segments x --follow", exitUsage, "--segments copies whole batches"},
		{"dev --plugin nonsense --data-dir /dev/null/x", exitUsage, "--plugin: "},
		{"describe g --members", exitUsage, "--members, --epoch and --diff are for --topology"},
		{"list --bootstrap-servers x", exitUsage, `--bootstrap-servers: "x" is not HOST:PORT`},
		{"list --bootstrap-servers x:99999", exitUsage, `"x:99999": "99999" is no port, want a number up to 65535`},
		{"shards --timeout 0s", exitUsage, "--timeout: 0s is no time to try"},
		{"shards --admin x", exitUsage, `--admin: "x" is not HOST:PORT`},
		{"shards --admin 127.0.0.1:1", exitFailure, "127.0.0.1:1/shards"},
		{"backup --bootstrap-servers x --to f", exitUsage, `--bootstrap-servers: "x" is not HOST:PORT`},
		{"restore --dry-run --data-dir /nowhere", exitFailure, "--data-dir: stat /nowhere: no such file or directory"},
		{"restore", exitUsage, "--bootstrap-servers: where to restore to is not given"},
		{"restore --bootstrap-servers x", exitUsage, `--bootstrap-servers: "x" is not HOST:PORT`},
		{"serve --config /nowhere.yaml", exitUsage, "/nowhere.yaml"},
		// Before the cluster is waited for, which is not there.
		{"serve --bootstrap-servers 127.0.0.1:1 --listen 127.0.0.1:0 --admin-listen= --data-dir /dev/null/x", exitFailure, "--data-dir: mkdir /dev/null: not a directory"},
		{"serve --bootstrap-servers 127.0.0.1:1 --listen 127.0.0.1:0 --admin-listen= --data-dir /proc", exitFailure, "--data-dir: /proc can't be written to: "},
		{"list --bootstrap-servers 127.0.0.1:1 --timeout 300ms", exitFailure, "127.0.0.1:1"},
		{"--help", 0, ""},
		{"version", 0, ""},
		{"--version", 0, ""},
	} {
		var out, err text
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		code := run(ctx, strings.Fields(c.args), &out, &err)
		cancel()
		if code != c.code || !strings.Contains(err.String(), c.want) {
			t.Errorf("%s: exit %d, want %d, with %q:\n%s", c.args, code, c.code, c.want, err.String())
		}
		if c.code == 0 && !strings.Contains(out.String(), "streamkeeper") {
			t.Errorf("%s wrote %q", c.args, out.String())
		}
	}
}

func TestDirectoryInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	startDev(t, dir)
	var out, err text
	code := run(context.Background(), []string{"dev", "--listen", "127.0.0.1:0", "--admin-listen", "", "--data-dir", dir}, &out, &err)
	if code != exitFailure || !strings.Contains(err.String(), "in use by another process") || !strings.Contains(err.String(), dir) {
		t.Errorf("exit %d: %s", code, err.String())
	}
}

func TestPortThatIsTakenIsRefused(t *testing.T) {
	d := startDev(t, t.TempDir())
	for flag, address := range map[string]string{"--listen": d.bootstrap, "--admin-listen": d.admin} {
		args := map[string]string{"--listen": "127.0.0.1:0", "--admin-listen": "127.0.0.1:0", "--data-dir": t.TempDir()}
		args[flag] = address
		line := []string{"dev"}
		for k, v := range args {
			line = append(line, k, v)
		}
		var out, err text
		if code := run(context.Background(), line, &out, &err); code != exitFailure || !strings.Contains(err.String(), address) {
			t.Errorf("%s: exit %d: %s", flag, code, err.String())
		}
	}
}
