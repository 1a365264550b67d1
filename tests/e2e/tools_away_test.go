package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// awayMax is how long one call of a tool may take while replicas are dead and hang: what Kafka's own tools give themselves
// (default.api.timeout.ms). On a quiet machine each takes a second or two; the times are printed.
const awayMax = time.Minute

// TestToolsWhileReplicasAreAway: of three replicas one is killed and one hangs. Once their shards are taken over all of Kafka's tools
// that are about groups, or ask every node for something else, work as if the two had never been, and so do our own commands, also where they are given the addresses of all three. In the end both are forgotten.
func TestToolsWhileReplicasAreAway(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t, kafka44)
	const in = "away-in"
	kafkatest.CreateTopics(t, c.Bootstrap(), 1, in)
	r := startFleet(t, c, 3, "--plugin", "none")
	r.waitSpread(r.nodes...)
	var groups []string
	shards := int32(len(r.owners()))
	for p := range shards {
		group := groupIn("away", p, shards)
		s := &seeker{r: r, group: group, in: in, asked: int(p), last: time.Now()}
		kafkatest.Eventually(t, outcome, func() error {
			err := s.once()
			if err != nil {
				s.hangUp()
			}
			return err
		})
		if _, err := s.ask(t.Context(), kafkatest.Member{Group: group, ID: "m", Epoch: -1}.Heartbeat()); err != nil {
			t.Fatal(err)
		}
		s.hangUp()
		groups = append(groups, group)
	}
	slices.Sort(groups)
	alive, dead, hanging := r.replicas[r.nodes[0]], r.replicas[r.nodes[1]], r.replicas[r.nodes[2]]
	dead.Kill()
	hanging.Pause()
	defer hanging.Resume()
	all, first := r.bootstrap(), groups[0]

	took := map[string]time.Duration{}
	run := func(what, want string, f func() (string, string, int)) {
		t.Helper()
		began := time.Now()
		out, errOut, exit := f()
		took[what] = time.Since(began).Round(10 * time.Millisecond)
		if exit != 0 || !strings.Contains(out, want) || want == "" && out != "" || took[what] > awayMax {
			t.Errorf("%s: exit %d after %s, want %q in\n%s%s", what, exit, took[what], want, out, errOut)
		}
	}
	ours := func(what, want string, args ...string) {
		t.Helper()
		run(what, want, func() (string, string, int) { return kafkatest.Streamkeeper(t, args...) })
	}
	whole := func(out string) {
		t.Helper()
		for _, g := range groups {
			if n := strings.Count(" "+strings.ReplaceAll(out, "\n", " \n ")+" ", " "+g+" "); n != 1 {
				t.Errorf("%s is %d times in\n%s", g, n, out)
			}
		}
	}
	// Begun before the shards are taken over it waits for that, with more time than by default where many tests share a machine.
	run("streamkeeper list, begun at once", first, func() (string, string, int) {
		out, errOut, exit := kafkatest.Streamkeeper(t, "list", "--bootstrap-servers", all, "--timeout", "50s")
		whole(out)
		return out, errOut, exit
	})
	r.waitSharesOf(r.nodes[0], int(shards))

	tools := kafkatest.Tools(t, alive.Bootstrap())
	plan := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(plan, fmt.Appendf(nil, `{"version":1,"partitions":[{"topic":%q,"partition":0,"replicas":[1]}]}`, in), 0o600); err != nil {
		t.Fatal(err)
	}
	here := fmt.Sprint(r.nodes[0])
	// Of an empty group Kafka's tool prints no offsets, whatever was committed: so it does before Kafka's own coordinator ("empty describe" of
	// testdata/cli-stateless.jsonl).
	for _, call := range []struct{ line, want string }{
		{"kafka-streams-groups --list", first},
		{"kafka-streams-groups --list --state", "Empty"},
		{"kafka-streams-groups --describe --group " + first, ""},
		{"kafka-streams-groups --describe --state --group " + first, "Empty"},
		{"kafka-streams-groups --describe --offsets --group " + first, ""},
		{"kafka-groups --list", "Streams"},
		{"kafka-consumer-groups --list --state", "streamkeeper-" + r.topic},
		{"kafka-consumer-groups --describe --state --group streamkeeper-" + r.topic, "Stable"},
		{"kafka-streams-groups --delete --group " + groups[1], "successful"},
		{"kafka-configs --describe --entity-type brokers", "Dynamic configs for broker " + here + " are:"},
		{"kafka-log-dirs --describe", `"broker":` + here},
		{"kafka-broker-api-versions", "id: 1 "},
		// What such a move leaves behind, which this tool takes away in the end, the brokers' first: of every node that it is shown.
		{"kafka-configs --alter --entity-type topics --entity-name " + in + " --add-config leader.replication.throttled.replicas=*", "Completed updating config"},
		{"kafka-reassign-partitions --verify --reassignment-json-file " + plan, "Clearing topic-level throttles on topic " + in},
	} {
		words := strings.Fields(call.line)
		run(call.line, call.want, func() (string, string, int) {
			out, errOut, exit := tools.Run(words[0], words[1:]...)
			if call.line == "kafka-streams-groups --list" || call.line == "kafka-groups --list" {
				whole(out)
			}
			return out, errOut, exit
		})
	}
	groups = slices.Delete(groups, 1, 2)
	if out, errOut, exit := tools.Run("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", in); exit != 0 || strings.Contains(out, "throttled") {
		t.Errorf("throttles are left: exit %d\n%s%s", exit, out, errOut)
	}

	// Whoever is given the hanging one as well may ask it first.
	ours("streamkeeper list", first, "list", "--bootstrap-servers", all)
	ours("streamkeeper describe", first, "describe", first, "--bootstrap-servers", all)
	ours("streamkeeper delete", "deleted "+groups[1], "delete", groups[1], "--bootstrap-servers", all)
	groups = slices.Delete(groups, 1, 2)
	ours("streamkeeper shards", fmt.Sprint(r.nodes[0]), "shards", "--bootstrap-servers", c.Bootstrap(), "--log-topic", r.topic)
	list := exchange(t, alive, kafkatest.ListStreams()).(*kmsg.ListGroupsResponse)
	if len(list.Groups) != len(groups) {
		t.Errorf("%d groups are left, want %v", len(list.Groups), groups)
	}
	if *long {
		run("kafka-streams-groups --list, given all three", first, func() (string, string, int) {
			return kafkatest.Tool(t, all, "kafka-streams-groups", "--list")
		})
	}
	r.forgetAway(r.nodes[0], r.nodes[1], r.nodes[2], groups)
	for what, d := range took {
		t.Logf("%-70s %s", what, d)
	}
}
