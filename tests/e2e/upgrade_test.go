package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/client"
	"streamkeeper/internal/kafkatest"
)

// pushPatience is how long a member may not be asked again for its description: the back-off after the first question, 30 s and 20 %.
const pushPatience = outcome

// watched is an application whose peace is to be kept: what it looked like, to be compared with what it looks like later.
type watched struct {
	p         *play
	apps      []*kafkatest.App
	load      *kafkatest.Load
	rows      []string // the group's epochs, members with their epochs and tasks
	disturbed bool
	events    []int // how many events of states and tasks each instance had
}

func (w *watched) members(bootstrap string) []string {
	w.p.t.Helper()
	d := describe(w.p.t, bootstrap, w.p.group)
	rows := []string{fmt.Sprintf("group epoch %d, assignment epoch %d", d.Epoch, d.AssignmentEpoch)}
	for _, m := range d.Members {
		rows = append(rows, fmt.Sprintf("%s %d %s", m.ID, m.Epoch, m.Assignment))
	}
	slices.Sort(rows)
	return rows
}

func (w *watched) eventCounts() (n []int) {
	for _, a := range w.apps {
		n = append(n, len(a.Events("STATE"))+len(a.Events("TASKS"))+len(a.Events("STANDBYS"))+len(a.Uncaught()))
	}
	return n
}

func (w *watched) remember() {
	w.p.t.Helper()
	w.rows, w.events = w.members(w.p.streams), w.eventCounts()
}

// undisturbed fails the test if a member is another one, has another epoch or other tasks, or an instance was in another state meanwhile.
func (w *watched) undisturbed(when string) {
	t := w.p.t
	t.Helper()
	failed := t.Failed()
	defer func() { w.disturbed = w.disturbed || t.Failed() && !failed }()
	if rows := w.members(w.p.streams); !slices.Equal(rows, w.rows) {
		t.Errorf("%s: the members of %s were\n%s\nand are\n%s", when, w.p.group, strings.Join(w.rows, "\n"), strings.Join(rows, "\n"))
	}
	if n := w.eventCounts(); !slices.Equal(n, w.events) {
		for _, a := range w.apps {
			t.Errorf("%s: %s of %s: states %q, tasks %q, uncaught %q", when, a.Name(), w.p.group, a.Events("STATE"), a.Events("TASKS"), a.Uncaught())
		}
	}
}

// TestPluginIsSwitchedOnAndOffReplicaByReplica: two replicas before a cluster without streams groups keep no descriptions. Then they
// are restarted one after the other, under load, to keep them; one of them is restarted without, and with them again. Applications of
// Kafka Streams 4.3 and 4.4, mixed in one group, and one that keeps its description to itself, notice nothing of it all.
func TestPluginIsSwitchedOnAndOffReplicaByReplica(t *testing.T) {
	r := startTwoReplicas(t, "--plugin", "none")
	r.waitShares(4, 4)
	c := &cast{place: &place{streams: r.bootstrap(), direct: r.cluster.Bootstrap(), cluster: r.cluster}, host: kafkatest.StartAppHost(t, kafkatest.V44)}
	older := &cast{place: c.place, host: kafkatest.StartAppHost(t, kafkatest.V43)}
	silent := map[string]string{"topology.description.push.enabled": "false"}

	// mixed has an instance of 4.4 and one of 4.3, old one of 4.3, quiet one of 4.4 that pushes nothing.
	newWatched := func(group string) *watched {
		p := c.stageAs(t, "upgrade-"+group, partitions)
		return &watched{p: p, load: kafkatest.NewWords(t, p.direct, p.in, words)}
	}
	mixed, old, quiet := newWatched("mixed"), newWatched("old"), newWatched("quiet")
	counted := kafkatest.AppOptions{Topology: "counted"}
	mixed.apps = []*kafkatest.App{c.host.Start(t, mixed.p.options("new", counted)), older.host.Start(t, mixed.p.options("old", counted))}
	old.apps = []*kafkatest.App{older.host.Start(t, old.p.options("old", counted))}
	quiet.apps = []*kafkatest.App{c.host.Start(t, quiet.p.options("quiet", kafkatest.AppOptions{Topology: "counted", Config: silent}))}
	waitSpread(t, []int{partitions, partitions}, mixed.apps...)
	old.apps[0].WaitTasks(2 * partitions)
	quiet.apps[0].WaitTasks(2 * partitions)
	all := []*watched{mixed, old, quiet}
	for _, w := range all {
		w.remember()
		w.load.Run(20)
	}
	undisturbed := func(when string) {
		t.Helper()
		for _, w := range all {
			w.undisturbed(when)
		}
	}
	// statuses waits until the coordinators say so of the groups mixed, old and quiet: of one whose owner keeps no descriptions, NOT_STORED.
	keeps := map[int32]bool{}
	statuses := func(when string, want ...client.TopologyStatus) {
		t.Helper()
		kafkatest.Eventually(t, pushPatience, func() error {
			for i, w := range all {
				d := describeTopology(t, r.bootstrap(), w.p.group)
				expected := want[i]
				if !keeps[d.Coordinator.ID] {
					expected = client.TopologyNotStored
				}
				if d.TopologyStatus != expected {
					return fmt.Errorf("%s: the description of %s at replica %d is %s, want %s", when, w.p.group, d.Coordinator.ID, d.TopologyStatus, expected)
				}
			}
			return nil
		})
	}
	const stored, notStored = client.TopologyAvailable, client.TopologyNotStored
	statuses("without a plugin", notStored, notStored, notStored)

	restart := func(node int32, plugin string) {
		t.Helper()
		k := r.replicas[node]
		k.Stop()
		r.waitSharesOf(node, 0)
		k.Set("--plugin", plugin)
		k.Start()
		k.WaitReady()
		r.waitShares(4, 4)
		keeps[node] = plugin != "none"
	}
	for _, step := range []struct {
		node   int32
		plugin string
	}{{nodeOne, descriptions}, {nodeTwo, descriptions}, {nodeOne, "none"}, {nodeOne, descriptions}} {
		when := fmt.Sprintf("replica %d has been restarted with --plugin %s", step.node, step.plugin)
		restart(step.node, step.plugin)
		statuses(when, stored, notStored, notStored)
		undisturbed(when)
	}
	if d := describeTopology(t, r.bootstrap(), mixed.p.group); len(d.TopologyDescription.Subtopologies) != 2 {
		t.Errorf("the description that was pushed has %d subtopologies", len(d.TopologyDescription.Subtopologies))
	}

	// The application decides to tell, and is asked.
	quiet.apps[0].Stop()
	quiet.apps = append(quiet.apps, c.host.Start(t, quiet.p.options("talkative", counted)))
	quiet.apps[1].WaitTasks(2 * partitions)
	statuses("after the application was restarted to push", stored, notStored, stored)

	for _, w := range all {
		w.load.Halt()
		w.p.sink.WaitCounts(w.load.Counts(), outcome)
		kafkatest.WaitCommitted(t, r.bootstrap(), w.p.group, w.p.in, outcome)
		w.p.oneOwner(nil)
		w.p.calm(w.apps...)
	}
	for _, w := range []*watched{mixed, old} { // each task had one owner, all the time
		tenures := map[string]bool{}
		for _, a := range w.apps {
			for _, of := range tenuresOf(w.p.sink, a.Name()) {
				tenures[of] = true
			}
		}
		if len(tenures) != partitions { // of the subtopology that writes
			t.Errorf("%s: the tenures were %v", w.p.group, tenures)
		}
	}
	if out, errOut, exit := kafkatest.Tool(t, r.bootstrap(), "kafka-streams-groups", "--describe", "--group", old.p.group, "--topology"); exit != 1 ||
		!strings.Contains(out, "No topology description is stored for streams group '"+old.p.group+"'") {
		t.Errorf("describe --topology of an application of 4.3: exit %d\n%s%s", exit, out, errOut)
	}
}

// descriptions is the plugin that replicas share.
const descriptions = "topic"

func describeTopology(t *testing.T, bootstrap, group string) *client.GroupDescription {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	d := client.NewAdmin(cl).DescribeStreamsGroups(t.Context(), []string{group}, client.DescribeOptions{IncludeTopologyDescription: true})[0]
	if d.Err != nil {
		t.Fatalf("describe %s: %v", group, d.Err)
	}
	return d.Description
}
