package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client/explain"
	"streamkeeper/plugin"
	"streamkeeper/plugin/faulty"
)

// joinOver joins with one subtopology over the topic.
func (m *member) joinOver(topic string) {
	m.t.Helper()
	m.beat(func(r *kmsg.StreamsGroupHeartbeatRequest) {
		r.RebalanceTimeoutMillis, r.ProcessID = 60_000, kmsg.StringPtr("process-1")
		r.ActiveTasks, r.StandbyTasks, r.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
		s := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
		s.SubtopologyID, s.SourceTopics = "0", []string{topic}
		r.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{s}}
	})
}

func explanationOf(t *testing.T, d *dev, group string) explain.Group {
	t.Helper()
	var described struct{ Explanation explain.Group }
	if err := json.Unmarshal([]byte(must(t, d, "describe", group, "-o", "json")), &described); err != nil {
		t.Fatal(err)
	}
	return described.Explanation
}

// What an operator reads of a group that does not start, as text and as JSON, and after what was missing is there.
func TestDescribeSaysWhy(t *testing.T) {
	d := startDev(t, t.TempDir(), "--plugin", "none", "--set", "group.streams.min.heartbeat.interval.ms=1", "--set", "group.streams.heartbeat.interval.ms=100")
	m := newMember(t, d, "orders")
	m.joinOver("in")
	got := must(t, d, "describe", "orders")
	for _, want := range []string{
		"Why NotReady:\n  - Source topics in are missing. Make them, or correct the application; the group goes on by itself.\n",
		"\nThis coordinator keeps no topology descriptions. Start all replicas without --plugin none.\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("describe lacks %q:\n%s", want, got)
		}
	}
	e := explanationOf(t, d, "orders")
	if e.State != "NotReady" || e.Reasons[0].Code != explain.MissingSourceTopics || e.Reasons[0].Topics[0].Name != "in" || e.Description.Cause != explain.NoPlugin || time.Since(e.At).Abs() > time.Hour {
		t.Errorf("as JSON %+v", e)
	}
	produce(t, d, 1)
	for i := 0; ; i++ { // a machine that is busy makes a member of this replica silent between its heartbeat and the question
		m.beat(func(*kmsg.StreamsGroupHeartbeatRequest) {})
		got := must(t, d, "describe", "orders")
		if strings.Contains(got, " Stable ") && !strings.Contains(got, "Why ") {
			break
		}
		if i == 1000 {
			t.Fatalf("a stable group without reasons does not come:\n%s", got)
		}
		time.Sleep(10 * time.Millisecond) // the replica sees the topic when it polls, and the group has its initial delay
	}
	time.Sleep(300 * time.Millisecond) // longer than two heartbeat intervals of this replica: the member is silent
	if e := explanationOf(t, d, "orders"); len(e.Reasons) != 1 || e.Reasons[0].Code != explain.SilentMember || e.Reasons[0].Member != "member-1" {
		t.Errorf("of a silent member: %+v", e.Reasons)
	}
	m.leave()
	if got := must(t, d, "describe", "orders"); !strings.Contains(got, "Why Empty:\n  - The group has no members.") {
		t.Errorf("of an empty group:\n%s", got)
	}
}

// Every legal id is shown: one line each, no control character, and JSON that has it as it is.
func TestDescribeOfHostileNames(t *testing.T) {
	d := startDev(t, t.TempDir(), "--plugin", "none")
	for _, group := range []string{"a.b", `qu"o'te`, "ta\tb\nnl", "\u202eltr", "שלום", "🦆", "\x1b[2J", strings.Repeat("x", 249)} {
		m := newMember(t, d, group)
		m.joinOver("no-such-topic")
		text := must(t, d, "describe", group)
		if !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\t\u202e") || strings.Count(text, "\n") != 10 {
			t.Errorf("%q as text, %d lines: %q", group, strings.Count(text, "\n"), text)
		}
		var described struct{ Group string }
		if err := json.Unmarshal([]byte(must(t, d, "describe", group, "-o", "json")), &described); err != nil || described.Group != group {
			t.Errorf("%q as JSON is %q, %v", group, described.Group, err)
		}
	}
	if list := must(t, d, "list"); strings.ContainsAny(list, "\x1b\t\u202e") || strings.Count(list, "\n") != 9 {
		t.Errorf("list: %q", list)
	}
}

// A plugin in memory forgets with its process what the log says is stored. That is seen, and with the setting a member is asked again.
func TestALostDescriptionIsSeenAndAskedForAgain(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--plugin", "memory", "--set", "group.streams.min.heartbeat.interval.ms=1", "--set", "group.streams.heartbeat.interval.ms=100"}
	d := startDev(t, dir, args...)
	m := newMember(t, d, "orders")
	m.joinOver("in")
	if r := m.push("first"); r.ErrorCode != 0 {
		t.Fatal(r.ErrorCode)
	}
	if e := explanationOf(t, d, "orders"); e.Description.Cause != explain.Stored {
		t.Errorf("%+v", e.Description)
	}
	restart := func(more ...string) {
		t.Helper()
		d.stop()
		d = startDev(t, dir, append(args, more...)...)
		again := newMember(t, d, "orders")
		again.epoch = m.epoch
		m = again
	}
	lost := func(todo string) {
		t.Helper()
		_, err, code := execute(t, d, "describe", "orders", "--topology")
		want := "No topology description is stored for streams group 'orders'.\nThe topology description was stored, and the plugin memory does not have it any more. " + todo
		if code != exitFailure || !strings.Contains(err, want) {
			t.Errorf("describe --topology: %d %q, want %q", code, err, want)
		}
	}
	restart()
	lost("With --plugin-reask-lost its members would be asked again.\n")
	if m.beat(func(*kmsg.StreamsGroupHeartbeatRequest) {}).TopologyDescriptionRequired {
		t.Error("asked without the setting")
	}
	restart("--plugin-reask-lost")
	lost("Its members are asked again.\n")
	if !m.beat(func(*kmsg.StreamsGroupHeartbeatRequest) {}).TopologyDescriptionRequired {
		t.Error("not asked again")
	}
	if r := m.push("second"); r.ErrorCode != 0 {
		t.Fatal(r.ErrorCode)
	}
	if got := must(t, d, "describe", "orders", "--topology"); !strings.Contains(got, "Source: second") {
		t.Errorf("after the push: %s", got)
	}
	// And by itself, once the cleanup cycle has come by.
	restart("--plugin-reask-lost", "--set", "offsets.retention.check.interval.ms=50")
	for i := 0; !m.beat(func(*kmsg.StreamsGroupHeartbeatRequest) {}).TopologyDescriptionRequired; i++ {
		if i == 500 {
			t.Fatal("the cleanup cycle does not find what is lost")
		}
		time.Sleep(20 * time.Millisecond) // the cycle's own pace
	}
	if metrics := metricsOf(t, d); !hasSample(metrics, "streamkeeper_plugin_lost_total 1") {
		t.Errorf("metrics:\n%s", grep(metrics, "lost"))
	}
}

// Who runs what, which epochs there are, and what changed between two.
func TestTopologyWithMembersAndEpochs(t *testing.T) {
	d := startDev(t, t.TempDir(), "--plugin", "memory")
	produce(t, d, 1)
	m := newMember(t, d, "orders")
	m.join(4)
	if r := m.push("first"); r.ErrorCode != 0 {
		t.Fatal(r.ErrorCode)
	}
	const text = "Topologies:\n   Sub-topology: 0\n    Source: first (topics: [in])\n      --> none\n\n\n"
	got := must(t, d, "describe", "orders", "--topology", "--members")
	if want := text + "TASK ROLE MEMBER CLIENT-ID HOST PROCESS\n0_0 active member-1 app-1 127.0.0.1 process-1\n"; !strings.HasPrefix(squeeze(got), squeeze(want)) {
		t.Errorf("--members prints %q, want %q", squeeze(got), want)
	}
	var running struct {
		Description struct{ Subtopologies []struct{ ID string } }
		Tasks       []struct{ Task, Role, Member string }
	}
	if err := json.Unmarshal([]byte(must(t, d, "describe", "orders", "--topology", "--members", "-o", "json")), &running); err != nil ||
		len(running.Tasks) != 4 || running.Tasks[3].Task != "0_3" || running.Description.Subtopologies[0].ID != "0" {
		t.Errorf("as JSON %+v, %v", running, err)
	}
	for format, want := range map[string]string{"dot": `Sub-topology: 0\n0_0 active app-1 (member-1)\n0_1`, "mermaid": "Sub-topology: 0<br>"} {
		if got := must(t, d, "describe", "orders", "--topology", "--members", "-o", format); !strings.Contains(got, want) {
			t.Errorf("as %s it lacks %q:\n%s", format, want, got)
		}
	}
	if got := must(t, d, "describe", "orders", "--epochs"); got != "TOPOLOGY-EPOCH\n0  current\n" {
		t.Errorf("--epochs prints %q", got)
	}
	if got := squeeze(strings.ReplaceAll(must(t, d, "describe", "orders", "--epochs", "-o", "json"), "\n", "")); got != `{ "group": "orders", "topologyEpoch": 0, "epochs": [ 0 ]}` {
		t.Errorf("--epochs prints %q", got)
	}
	if got := must(t, d, "describe", "orders", "--topology", "--epoch", "0"); got != text {
		t.Errorf("--epoch 0 prints %q", got)
	}
	if got := must(t, d, "describe", "orders", "--topology", "--diff", "0"); got != "No difference.\n" {
		t.Errorf("--diff 0 prints %q", got)
	}
	if got := must(t, d, "describe", "orders", "--topology", "--diff", "0", "-o", "json"); !strings.Contains(got, `"nodesAdded": []`) {
		t.Errorf("--diff 0 as JSON prints %q", got)
	}
	none := "streamkeeper: No topology description of topology epoch 3 is stored for streams group 'orders'.\nStored: 0.\n"
	for _, args := range [][]string{{"--epoch", "3"}, {"--diff", "3"}, {"--diff", "0", "--epoch", "3"}} {
		if out, err, code := execute(t, d, append([]string{"describe", "orders", "--topology"}, args...)...); code != exitFailure || out != "" || err != none {
			t.Errorf("%v: %d %q %q", args, code, out, err)
		}
	}
	for want, args := range map[string][]string{
		"--members, --epoch and --diff are for --topology":     {"--members"},
		"--epochs stands alone, with --output text or json":    {"--epochs", "--topology", "-o", "dot"},
		"--diff goes with --epoch, and --output text or json":  {"--topology", "--diff", "0", "--members"},
		"--members is for --output text, json, dot or mermaid": {"--topology", "--members", "-o", "svg"},
		"--output mermaid is for --topology":                   {"-o", "mermaid"},
	} {
		if out, err, code := execute(t, d, append([]string{"describe", "orders"}, args...)...); code != exitUsage || out != "" || err != "streamkeeper: "+want+"\n" {
			t.Errorf("%v: %d %q %q", args, code, out, err)
		}
	}
}

// Why the plugin refused a description for good is known after a restart, and goes with the group.
func TestTheReasonOfARefusalSurvives(t *testing.T) {
	before := morePlugins
	morePlugins = []plugin.Factory{{Name: "refusing", Open: func(*plugin.Values) (plugin.Plugin, error) { return faulty.New(faulty.Config{}), nil }}}
	defer func() { morePlugins = before }()
	dir := t.TempDir()
	d := startDev(t, dir, "--plugin", "refusing")
	const group = "orders;set:permanent*1"
	m := newMember(t, d, group)
	m.joinOver("in")
	refused := m.push("first")
	if refused.ErrorCode != 135 || refused.ErrorMessage == nil {
		t.Fatalf("push: %d", refused.ErrorCode)
	}
	check := func() {
		t.Helper()
		e := explanationOf(t, d, group)
		if e.Description.Cause != explain.Refused || e.Description.Reason != *refused.ErrorMessage || e.Description.Member != "member-1" || e.Description.ReasonAt == nil {
			t.Errorf("%+v", e.Description)
		}
		if _, err, _ := execute(t, d, "describe", group, "--topology"); !strings.Contains(err, "refused the topology description for good; nobody is asked again. The plugin says: \""+*refused.ErrorMessage+"\"") {
			t.Errorf("describe --topology: %q", err)
		}
	}
	check()
	if got := must(t, d, "log", "--group", group); !strings.Contains(got, "TopologyDescriptionRefusal") || !strings.Contains(got, *refused.ErrorMessage) {
		t.Errorf("the log lacks the refusal:\n%s", got)
	}
	d.stop()
	d = startDev(t, dir, "--plugin", "refusing")
	check()
	again := newMember(t, d, group)
	again.epoch = m.epoch
	again.leave()
	must(t, d, "delete", group)
	next := newMember(t, d, group)
	next.joinOver("in")
	if e := explanationOf(t, d, group); e.Description.Cause == explain.Refused || e.Description.Reason != "" {
		t.Errorf("a group of the same id: %+v", e.Description)
	}
}
