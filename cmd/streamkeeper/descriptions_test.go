package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

func exchange[R kmsg.Response](t *testing.T, c *wire.Client, version int16, r kmsg.Request) R {
	t.Helper()
	r.SetVersion(version)
	resp, err := c.Exchange(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(R)
}

// describe89 asks for a group with its topology description.
func (m *member) describe89() kmsg.StreamsGroupDescribeResponseGroup {
	m.t.Helper()
	r := kmsg.NewPtrStreamsGroupDescribeRequest()
	r.Groups, r.IncludeTopologyDescription = []string{m.group}, true
	return exchange[*kmsg.StreamsGroupDescribeResponse](m.t, m.c, 1, r).Groups[0]
}

func (m *member) push(node string) *kmsg.StreamsGroupTopologyDescriptionUpdateResponse {
	m.t.Helper()
	r := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
	r.Group, r.MemberID = m.group, "member-1"
	r.TopologyDescription.Subtopologies = []kmsg.TopologyDescriptionSubtopology{{SubtopologyID: "0",
		Nodes: []kmsg.TopologyDescriptionNode{{Name: node, NodeType: 1, SourceTopics: []string{"in"}}}}}
	return exchange[*kmsg.StreamsGroupTopologyDescriptionUpdateResponse](m.t, m.c, 0, r)
}

func offers93(t *testing.T, c *wire.Client) bool {
	t.Helper()
	r := kmsg.NewPtrApiVersionsRequest()
	r.ClientSoftwareName, r.ClientSoftwareVersion = "test", "1"
	for _, k := range exchange[*kmsg.ApiVersionsResponse](t, c, 3, r).ApiKeys {
		if k.ApiKey == 93 {
			return true
		}
	}
	return false
}

func metricsOf(t *testing.T, d *dev) string {
	t.Helper()
	resp, err := http.Get("http://" + d.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The life of a description in a whole process: asked for, pushed, described, kept as long as its group, deleted with it.
func TestDescriptionsWithThePluginMemory(t *testing.T) {
	lifeOfADescription(t, "--plugin", "memory")
}

// By default they are kept on the cluster.
func TestDescriptionsByDefault(t *testing.T) { lifeOfADescription(t) }

func lifeOfADescription(t *testing.T, args ...string) {
	d := startDev(t, t.TempDir(), append(args, "--plugin-set", "epochs.max=2", "--set", "offsets.retention.check.interval.ms=200",
		"--set", "group.streams.min.heartbeat.interval.ms=1", "--set", "group.streams.heartbeat.interval.ms=100")...)
	produce(t, d, 1)
	m := newMember(t, d, "orders")
	if !offers93(t, m.c) {
		t.Error("93 is not offered")
	}
	asked := m.beat(func(r *kmsg.StreamsGroupHeartbeatRequest) {
		r.RebalanceTimeoutMillis, r.ProcessID = 60_000, kmsg.StringPtr("process-1")
		r.ActiveTasks, r.StandbyTasks, r.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
		s := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
		s.SubtopologyID, s.SourceTopics = "0", []string{"in"}
		r.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{s}}
	}).TopologyDescriptionRequired
	if !asked || m.beat(func(*kmsg.StreamsGroupHeartbeatRequest) {}).TopologyDescriptionRequired {
		t.Errorf("asked at the join %v, or twice", asked)
	}
	if g := m.describe89(); g.TopologyDescriptionStatus != 1 {
		t.Errorf("status before the push: %d", g.TopologyDescriptionStatus)
	}
	none := "streamkeeper: No topology description is stored for streams group 'orders'.\n" +
		"A member was asked for the topology description and has not pushed it yet. Asked once, the last time "
	if out, err, code := execute(t, d, "describe", "orders", "--topology"); code != exitFailure || out != "" || !strings.HasPrefix(err, none) {
		t.Errorf("describe --topology before the push: %d %q %q", code, out, err)
	}
	if out, err, code := execute(t, d, "describe", "orders", "-o", "svg"); code != exitUsage || out != "" || err != "streamkeeper: --output svg is for --topology\n" {
		t.Errorf("describe -o svg: %d %q %q", code, out, err)
	}
	if r := m.push("first"); r.ErrorCode != 0 || r.ErrorMessage != nil {
		t.Fatalf("push: %d %v", r.ErrorCode, r.ErrorMessage)
	}
	g := m.describe89()
	if g.TopologyDescriptionStatus != 3 || g.TopologyDescription == nil || g.TopologyDescription.Subtopologies[0].Nodes[0].Name != "first" {
		t.Errorf("status after the push: %d, %+v", g.TopologyDescriptionStatus, g.TopologyDescription)
	}
	const text = "Topologies:\n   Sub-topology: 0\n    Source: first (topics: [in])\n      --> none\n\n\n"
	if got := must(t, d, "describe", "orders", "--topology"); got != text {
		t.Errorf("describe --topology prints %q, want %q", got, text)
	}
	for format, want := range map[string]string{"json": `"first"`, "dot": "digraph", "mermaid": "flowchart", "svg": "<svg"} {
		if got := must(t, d, "describe", "orders", "--topology", "-o", format); !strings.Contains(got, want) {
			t.Errorf("describe --topology as %s lacks %s:\n%s", format, want, got)
		}
	}
	metrics := metricsOf(t, d)
	for _, line := range []string{"set_success_total 1", "get_success_total 6", "delete_success_total 0", "set_error_total 0"} {
		if want := "streamkeeper_streams_group_topology_description_" + line; !hasSample(metrics, want) {
			t.Errorf("metrics lack %s:\n%s", want, grep(metrics, "topology"))
		}
	}
	// The group has neither members nor offsets now: a cycle deletes the description, and then the group.
	m.leave()
	for i := 0; m.describe89().ErrorCode != 69; i++ {
		if i == 200 {
			t.Fatalf("the group does not expire: %+v", m.describe89())
		}
		time.Sleep(50 * time.Millisecond) // the cycle's own interval
	}
	if metrics := metricsOf(t, d); !hasSample(metrics, "streamkeeper_streams_group_topology_description_delete_success_total 1") ||
		!hasSample(metrics, "streamkeeper_streams_group_topology_description_cleanup_eligible_total 1") {
		t.Errorf("metrics after the expiry:\n%s", grep(metrics, "topology"))
	}
}

// TestDescriptionsOnTheCluster: they outlive the process, and the directory of the topic's projection.
func TestDescriptionsOnTheCluster(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--plugin-set", "topic=descriptions", "--log-topic", "groups"}
	d := startDev(t, dir, args...)
	produce(t, d, 1)
	m := newMember(t, d, "orders")
	m.join(4)
	if r := m.push("first"); r.ErrorCode != 0 {
		t.Fatalf("push: %d %v", r.ErrorCode, r.ErrorMessage)
	}
	stored := func() {
		t.Helper()
		if got := must(t, d, "describe", "orders", "--topology"); !strings.Contains(got, "Source: first") {
			t.Errorf("describe --topology prints %q", got)
		}
	}
	stored()
	if metrics := metricsOf(t, d); !hasSample(metrics, "streamkeeper_description_topic_lag 0") || !hasSample(metrics, "streamkeeper_description_topic_waiting_bytes 0") ||
		!strings.Contains(metrics, "streamkeeper_description_topic_bytes") {
		t.Errorf("metrics:\n%s", grep(metrics, "description_topic"))
	}
	d.stop()
	d = startDev(t, dir, args...)
	stored()
	d.stop()
	if err := os.RemoveAll(filepath.Join(dir, "descriptions")); err != nil {
		t.Fatal(err)
	}
	d = startDev(t, dir, args...)
	stored()
	if code := d.stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
	for args, want := range map[string]string{
		"--plugin-set topic=groups": "--plugin-set topic=groups: that is the record log",
		"--plugin-set topic=in":     `topology description topic in: `,
	} {
		var out, err text
		code := run(t.Context(), append([]string{"dev", "--listen", "127.0.0.1:0", "--admin-listen", "", "--log-topic", "groups", "--data-dir", dir}, strings.Fields(args)...), &out, &err)
		if code != 1 || !strings.Contains(err.String(), want) {
			t.Errorf("%s: exit %d, %s; want …%s…", args, code, err.String(), want)
		}
	}
}

func TestWithoutPluginNobodyIsAsked(t *testing.T) {
	d := startDev(t, t.TempDir(), "--plugin", "none")
	produce(t, d, 1)
	m := newMember(t, d, "orders")
	if offers93(t, m.c) {
		t.Error("93 is offered")
	}
	m.join(4)
	if r := m.push("first"); r.ErrorCode != 35 || r.ErrorMessage == nil || *r.ErrorMessage != "The broker has no streams group topology description plugin configured." {
		t.Errorf("push: %d %v", r.ErrorCode, r.ErrorMessage)
	}
	if g := m.describe89(); g.TopologyDescriptionStatus != 1 {
		t.Errorf("status %d", g.TopologyDescriptionStatus)
	}
	if metrics := metricsOf(t, d); strings.Contains(metrics, "topology_description") {
		t.Errorf("metrics:\n%s", grep(metrics, "topology"))
	}
}

func TestWrongPluginSettingsAreSaidBeforeAnythingStarts(t *testing.T) {
	for args, want := range map[string]string{
		"--plugin tape":                              `--plugin: unknown topology description plugin "tape": there are topic, memory, http, none`,
		"--plugin none --plugin-set url=x":           "--plugin: there are settings for a topology description plugin, but the plugin is none",
		"--plugin memory --plugin-set size=1":        `--plugin: plugin memory: unknown setting "size"`,
		"--plugin memory --plugin-set epochs.max=-1": "epochs.max",
	} {
		var out, err text
		code := run(t.Context(), append([]string{"serve", "--bootstrap-servers", "127.0.0.1:1", "--data-dir", t.TempDir()}, strings.Fields(args)...), &out, &err)
		if code != exitUsage || !strings.Contains(err.String(), want) {
			t.Errorf("%s: exit %d, %s; want …%s…", args, code, err.String(), want)
		}
	}
}

// hasSample finds "name value" among samples that carry labels.
func hasSample(metrics, sample string) bool {
	name, value, _ := strings.Cut(sample, " ")
	for line := range strings.Lines(metrics) {
		if f := strings.Fields(line); len(f) == 2 && (f[0] == name || strings.HasPrefix(f[0], name+"{")) && f[1] == value {
			return true
		}
	}
	return false
}

func grep(text, word string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			fmt.Fprint(&b, line)
		}
	}
	return b.String()
}
