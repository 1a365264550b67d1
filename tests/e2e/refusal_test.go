package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/client"
	"streamkeeper/client/explain"
	"streamkeeper/client/topology"
	"streamkeeper/internal/kafkatest"
)

// A description that the plugin refuses for good: Kafka's tools say of it what they say before Kafka, the reason in the log is a record that they skip,
// and our own command tells it, also after a kill.
func TestARefusalAndKafkasTools(t *testing.T) {
	k := kafkatest.NewFaultyStreamkeeper(t, nil, keeperArgs("dev", "--plugin", "faulty")...)
	k.Start()
	k.WaitReady()
	const group = "refused;set:permanent"
	kafkatest.CreateTopics(t, k.Bootstrap(), 2, "refused-in")
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Bootstrap()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	pushes := make(chan error, 1)
	m, err := client.NewMember(cl, client.MemberConfig{
		Group: group, Subtopologies: []client.Subtopology{{ID: "0", SourceTopics: []string{"refused-in"}}},
		Description: &topology.Description{Subtopologies: []topology.Subtopology{{ID: "0", Nodes: []topology.Node{{Name: "in", Type: topology.Source, Topics: []string{"refused-in"}}}}}},
		Assign:      func(context.Context, client.Tasks) error { return nil }, Revoke: func(context.Context, client.Tasks) error { return nil },
		Pushed: func(err error) { pushes <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	select {
	case err := <-pushes:
		if err == nil || !strings.Contains(err.Error(), "set fails, call 1") {
			t.Errorf("the push: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the description was not asked for")
	}
	check := func() {
		t.Helper()
		kafkatest.Eventually(t, outcome, func() error { // a member whose coordinator was killed comes back by itself
			d := client.NewAdmin(cl).DescribeStreamsGroups(t.Context(), []string{group}, client.DescribeOptions{Explain: true})[0]
			if d.Err != nil {
				return d.Err
			}
			if e := d.Description.Explanation.Description; e.Cause != explain.Refused || e.Reason != "set fails, call 1" || e.Member != m.ID() {
				t.Fatalf("explained as %+v", e)
			}
			return nil
		})
	}
	check()
	out, errOut, exit := kafkatest.Tool(t, k.Bootstrap(), "kafka-streams-groups", "--describe", "--topology", "--group", group)
	if want := "\nError: No topology description is stored for streams group '" + group + "'.\n"; exit != 1 || out != want {
		t.Errorf("kafka-streams-groups: exit %d, %q %q, want %q", exit, out, errOut, want)
	}
	dir := t.TempDir()
	if out, errOut, exit := kafkatest.Streamkeeper(t, "log", "--bootstrap-servers", k.Bootstrap(), "--segments", dir); exit != 0 {
		t.Fatalf("streamkeeper log --segments: exit %d\n%s%s", exit, out, errOut)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no segments in %s: %v", dir, err)
	}
	out, errOut, exit = kafkatest.Tool(t, "", "kafka-dump-log", "--offsets-decoder", "--print-data-log", "--files", strings.Join(files, ","))
	if exit != 0 || !strings.Contains(out, `"failedDescriptionTopologyEpoch":0`) || strings.Contains(out, "isvalid: false") {
		t.Errorf("kafka-dump-log: exit %d\n%s%s", exit, out, errOut)
	}
	if strings.Contains(out, `"type":"32002"`) || !strings.Contains(out, "32002") {
		t.Errorf("kafka-dump-log does not skip the reason as a type that it does not know:\n%s", out)
	}
	k.Kill()
	k.Restart()
	check()
}
