package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// describingBefore44 is a place whose coordinator keeps topology descriptions on the cluster, as it does by default.
func describingBefore44(t *testing.T) *place {
	c := kafkatest.Shared(t, kafka44)
	return keeperPlace(kafkatest.StartStreamkeeper(t, serveArgs(t, c, "--plugin", "topic")...), c)
}

// describingInMemory is one that loses them at a restart, and has members asked again.
func describingInMemory(t *testing.T) *place {
	return keeperPlace(kafkatest.StartStreamkeeper(t, keeperArgs("dev", "--plugin", "memory", "--plugin-reask-lost")...), nil)
}

func TestTopologyServeBefore44(t *testing.T) {
	t.Parallel() // its groups are its own
	p := describingBefore44(t)
	topologyStory(t, p, "count", "count", 4, func(app *kafkatest.App, status func(string)) {
		p.killCoordinator()
		status("status 3")
		app.Stop()
		p.keeper.Stop()
		if err := os.RemoveAll(p.keeper.DataDir()); err != nil {
			t.Fatal(err)
		}
		p.keeper.Start()
		p.keeper.WaitReady()
		status("status 3")
		other := kafkatest.StartStreamkeeper(t, serveArgs(t, p.cluster, "--plugin", "topic", "--node-id", fmt.Sprint(nodeTwo))...)
		p.keeper.Stop()
		statusAt(t, other.Bootstrap(), "g-count", "status 3")
		checkDescriptionTopic(t, other.Bootstrap(), p.logTopic+"-topologies", "g-count")
		p.keeper.Start()
		p.keeper.WaitReady()
		status("status 3")
	})
}

func TestTopologyEmbeddedLog(t *testing.T) {
	t.Parallel()
	p := describingInMemory(t)
	topologyStory(t, p, "stateless", "filter", 2, func(app *kafkatest.App, status func(string)) {
		p.killCoordinator() // what was in memory is lost, without harm to anything; who asks for it makes that seen
		status("status 3")  // the application has pushed again
		if _, body := p.keeper.Get("/metrics"); !regexp.MustCompile(`(?m)^streamkeeper_plugin_lost_total(\{.*\})? 1$`).MatchString(body) {
			t.Errorf("it was not found to be lost:\n%s", body)
		}
	})
}

// checkDescriptionTopic: what is in the topic can be read by eye.
func checkDescriptionTopic(t *testing.T, bootstrap, name, group string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), outcome)
	defer cancel()
	want, seen := fmt.Sprintf(`{"v":1,"group":%q,"epoch":0}`, group), []string{}
	for !slices.Contains(seen, want) {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%s has no record with the key %s, but %q", name, want, seen)
		}
		fetches.EachRecord(func(r *kgo.Record) { seen = append(seen, string(r.Key)) })
	}
}

// topologyStory: a real application is asked for its description and pushes it, Kafka's tool prints what it prints before Kafka, and
// deleting the group removes it. later is what happens in the group's second life; its function waits for the status of the description.
func topologyStory(t *testing.T, p *place, captured, topology string, tasks int, later func(app *kafkatest.App, status func(string))) {
	golden := readCalls(t, "testdata/cli-topology.jsonl")
	group := "g-" + captured
	kafkatest.CreateTopics(t, p.streams, 2, group+"-in", group+"-out")
	app := kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: p.streams, Group: group, Topology: topology})
	app.WaitTasks(tasks)
	statusAt(t, p.streams, group, "status 3")
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
	statusAt(t, p.streams, group, "status 3")
	later(again, func(want string) { statusAt(t, p.streams, group, want) })
	if again.Running() {
		again.Stop()
	}
	deleteGroup(t, p, group)
	statusAt(t, p.streams, group, "code 69")
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

// statusAt waits until the description of a group has that status for those who ask at the address.
func statusAt(t *testing.T, bootstrap, group, want string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	kafkatest.Eventually(t, outcome, func() error {
		if s := descriptionStatus(t.Context(), cl, group); s != want {
			return fmt.Errorf("description of %s: %s, want %s", group, s, want)
		}
		return nil
	})
}

// descriptionStatus asks the coordinator for a group with its description.
func descriptionStatus(ctx context.Context, cl *kgo.Client, group string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r := kmsg.NewPtrStreamsGroupDescribeRequest()
	r.Groups, r.IncludeTopologyDescription = []string{group}, true
	coordinator := kadm.NewClient(cl).FindGroupCoordinators(ctx, group)[group] // kgo sends requests of this kind to any node
	if coordinator.Err != nil {
		return coordinator.Err.Error()
	}
	at, err := kgo.NewClient(kgo.SeedBrokers(net.JoinHostPort(coordinator.Host, strconv.Itoa(int(coordinator.Port)))))
	if err != nil {
		return err.Error()
	}
	defer at.Close()
	resp, err := r.RequestWith(ctx, at.SeedBrokers()[0])
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
