package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// A place whose coordinator keeps topology descriptions, in memory.
func describingBefore44(t *testing.T) *place {
	c := kafkatest.Shared(t, kafka44)
	return keeperPlace(kafkatest.StartStreamkeeper(t, serveArgs(t, c, "--plugin", "memory")...), c)
}

func describingEmbedded(t *testing.T) *place {
	return keeperPlace(kafkatest.StartStreamkeeper(t, keeperArgs("dev", "--plugin", "memory")...), nil)
}

func TestTopologyServeBefore44(t *testing.T) {
	topologyStory(t, describingBefore44(t), "count", "count", 4)
}
func TestTopologyEmbeddedLog(t *testing.T) {
	topologyStory(t, describingEmbedded(t), "stateless", "filter", 2)
}

// topologyStory: a real application is asked for its description and pushes it, Kafka's tool prints what it prints before Kafka, and
// deleting the group removes it. A description that the plugin has lost is not there, without harm to anything.
func topologyStory(t *testing.T, p *place, captured, topology string, tasks int) {
	golden := readCalls(t, "testdata/cli-topology.jsonl")
	group := "g-" + captured
	kafkatest.CreateTopics(t, p.streams, 2, group+"-in", group+"-out")
	app := kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: p.streams, Group: group, Topology: topology})
	app.WaitTasks(tasks)
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.streams))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	kafkatest.Eventually(t, outcome, func() error {
		if s := descriptionStatus(t.Context(), cl, group); s != "status 3" {
			return fmt.Errorf("description: %s", s)
		}
		return nil
	})
	golden.compare(t, p, captured+" live topology")
	if out, errOut, exit := kafkatest.Streamkeeper(t, "describe", group, "--topology", "--bootstrap-servers", p.streams); exit != 0 || out != golden[captured+" live topology"].Stdout {
		t.Errorf("streamkeeper describe --topology: exit %d\n%s%s", exit, out, errOut)
	}
	app.Stop()
	golden.compare(t, p, captured+" empty topology")
	deleteGroup(t, p, group)
	golden.compare(t, p, captured+" deleted topology")
	metrics := func(lines ...string) {
		t.Helper()
		_, body := p.keeper.Get("/metrics")
		for _, l := range lines {
			name, value, _ := strings.Cut(l, " ")
			if !strings.Contains(body, "\nstreamkeeper_streams_group_topology_description_"+name+"_total") || !sampled(body, name, value) {
				t.Errorf("/metrics lacks %s", l)
			}
		}
	}
	metrics("set_success 1", "set_error 0", "delete_success 1", "delete_error 0", "get_error 0")

	again := kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: p.streams, Group: group, Topology: topology, Name: "again"})
	again.WaitTasks(tasks)
	kafkatest.Eventually(t, outcome, func() error {
		if s := descriptionStatus(t.Context(), cl, group); s != "status 3" {
			return fmt.Errorf("description of the group's second life: %s", s)
		}
		return nil
	})
	p.killCoordinator() // what was in memory is lost
	kafkatest.Eventually(t, outcome, func() error {
		if s := descriptionStatus(t.Context(), cl, group); s != "status 1" {
			return fmt.Errorf("description after the restart: %s", s)
		}
		return nil
	})
	again.Stop()
	deleteGroup(t, p, group)
	for _, a := range []*kafkatest.App{app, again} {
		if u := a.Uncaught(); len(u) > 0 {
			t.Errorf("instance %s had uncaught exceptions: %q", a.Name(), u)
		}
	}
}

// sampled finds one of Kafka's counters of topology descriptions with its value.
func sampled(metrics, name, value string) bool {
	for line := range strings.Lines(metrics) {
		f := strings.Fields(line)
		if len(f) == 2 && strings.HasPrefix(f[0], "streamkeeper_streams_group_topology_description_"+name+"_total") && f[1] == value {
			return true
		}
	}
	return false
}

// descriptionStatus asks the coordinator for a group with its description.
func descriptionStatus(ctx context.Context, cl *kgo.Client, group string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r := kmsg.NewPtrStreamsGroupDescribeRequest()
	r.Groups, r.IncludeTopologyDescription = []string{group}, true
	resp, err := r.RequestWith(ctx, cl)
	switch {
	case err != nil:
		return err.Error()
	case len(resp.Groups) != 1:
		return fmt.Sprintf("%d groups", len(resp.Groups))
	case resp.Groups[0].ErrorCode != 0:
		return fmt.Sprintf("code %d", resp.Groups[0].ErrorCode)
	}
	return fmt.Sprintf("status %d", resp.Groups[0].TopologyDescriptionStatus)
}
