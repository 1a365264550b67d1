package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"streamkeeper/internal/kafkatest"
)

// smallDisk is a file system of its own for the length of the test. It needs root.
func smallDisk(t *testing.T, megabytes int) string {
	t.Helper()
	dir, ok := kafkatest.SmallDisk(t, megabytes)
	if !ok && kafkatest.InCI() {
		t.Fatal("only root can mount a small file system")
	}
	if !ok {
		t.Skip("skipped: only root can mount a small file system; the package projection tests a full disk without one")
	}
	return dir
}

// TestFullDisk: the disk of one of two replicas is full. It serves its groups from memory, answers nothing wrong and says that it is not
// ready; when there is space again it goes on. When there is none for long it leaves its shards to the other one.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 256)
	r := newFleet(t, kafkatest.Shared(t, kafka44), 2, "--plugin", "none")
	r.replicas[nodeOne] = kafkatest.NewStreamkeeper(t, serveArgs(t, r.cluster, "--plugin", "none", "--node-id", fmt.Sprint(nodeOne), "--data-dir", filepath.Join(disk, "data"))...)
	cramped := r.replicas[nodeOne]
	for _, node := range r.nodes {
		r.replicas[node].Start()
	}
	for _, node := range r.nodes {
		r.replicas[node].WaitReady()
	}
	r.waitSpread(r.nodes...)

	group := oneGroupEach(t, r, "cramped")[0]
	kafkatest.CreateTopics(t, r.cluster.Bootstrap(), partitions, group+"-in", group+"-out")
	load := kafkatest.NewLoad(t, r.cluster.Bootstrap(), group+"-in")
	sink := kafkatest.Watch(t, r.cluster.Bootstrap(), group+"-out")
	a := kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: r.bootstrap(), Group: group})
	a.WaitTasks(partitions)
	states := len(a.Events("TASKS"))
	// goesOn: what goes in comes out and is committed, and nobody is told less than was committed before.
	goesOn := func() {
		t.Helper()
		load.Send(100)
		sink.WaitAll(load.Sent(), outcome)
		kafkatest.WaitCommitted(t, r.bootstrap(), group, group+"-in", outcome)
		before := kafkatest.Committed(t, r.bootstrap(), group, group+"-in")
		load.Send(50)
		for range 10 {
			for _, node := range r.nodes {
				r.askOffsets(node, group, before)
			}
		}
	}
	says := func(words string) {
		t.Helper()
		kafkatest.Eventually(t, outcome, func() error {
			if !strings.Contains(cramped.Output(), words) {
				return fmt.Errorf("replica %d does not say %q", nodeOne, words)
			}
			return nil
		})
	}
	goesOn()

	filler := kafkatest.FillDisk(t, disk, "filler")
	fillMemtables(t, r, group)
	says("the disk is full")
	goesOn()
	if status, body := cramped.Get("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "no space") {
		t.Errorf("/readyz with a full disk: %d %s", status, body)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	says("the disk has space again")
	cramped.WaitReady()
	goesOn()

	kafkatest.FillDisk(t, disk, "filler")
	for i := 0; cramped.Running() && strings.Count(cramped.Output(), "the disk is full") < 2; i++ { // a memtable may be nearly empty after the last flush
		fillMemtables(t, r, fmt.Sprintf("%s-again-%d", group, i))
	}
	says("shards can't be served here and are left to other replicas")
	r.waitSpread(nodeTwo)
	if status, body := cramped.Get("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "no space") {
		t.Errorf("/readyz of a replica that can't store: %d %s", status, body)
	}
	if !cramped.Running() {
		t.Errorf("the replica with the full disk has ended:\n%s", cramped.Output())
	}
	goesOn()
	sink.WaitAll(load.Sent(), outcome)
	if n := len(a.Events("TASKS")); n != states || len(a.Uncaught()) > 0 {
		t.Errorf("the application had the tasks %q meanwhile, and uncaught exceptions %q", a.Events("TASKS"), a.Uncaught())
	}
	checkTenuresOf(t, sink)
	checkFence(t, r.topic, readLog(t, r.cluster.Bootstrap(), r.topic))
}
