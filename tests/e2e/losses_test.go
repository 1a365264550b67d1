package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
	"streamkeeper/internal/wire"
)

// goneIn is how long replicas may take to notice that their log topic is not what it was: the patience with brokers that have just
// started (10 s), a look at the metadata, and a busy machine.
const goneIn = time.Minute

// TestLogTopicIsDeletedOrGrowsUnderReplicas: the log topic is deleted under three running replicas, and later has partitions added. They
// say so and end, nobody makes an empty one, and nobody tells a client meanwhile that it has no offsets. A log restored from the data
// directory of one of them takes the application on where it was.
func TestLogTopicIsDeletedOrGrowsUnderReplicas(t *testing.T) {
	t.Parallel()
	r := startFleet(t, kafkatest.Shared(t, kafka44), 3, "--plugin", "none", "--accept-new-log=false")
	r.waitSpread(r.nodes...)
	adm := kafkatest.Admin(t, r.cluster.Bootstrap())
	const group = "bereft"
	kafkatest.CreateTopics(t, r.cluster.Bootstrap(), partitions, group+"-in", group+"-out")
	load := kafkatest.NewLoad(t, r.cluster.Bootstrap(), group+"-in")
	sink := kafkatest.Watch(t, r.cluster.Bootstrap(), group+"-out")
	a := kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: r.bootstrap(), Group: group})
	a.WaitTasks(partitions)
	load.Send(200)
	sink.WaitAll(200, outcome)
	kafkatest.WaitCommitted(t, r.bootstrap(), group, group+"-in", outcome)
	before := kafkatest.Committed(t, r.bootstrap(), group, group+"-in")

	for _, ruin := range []struct {
		what string
		do   func() error
		says string
	}{
		{"the log topic is deleted", func() error {
			_, err := adm.DeleteTopic(t.Context(), r.topic)
			return err
		}, "log topic " + r.topic + " is gone: it was deleted while the process ran"},
		{"the log topic gets another partition", func() error {
			resp, err := adm.UpdatePartitions(t.Context(), 9, r.topic)
			if err == nil {
				err = resp.Error()
			}
			return err
		}, "log topic " + r.topic + " has 9 partitions, had 8 when the process started"},
	} {
		t.Logf("— %s", ruin.what)
		if err := ruin.do(); err != nil {
			t.Fatal(err)
		}
		r.neverWithoutOffsets(group, before)
		for _, node := range r.nodes {
			k := r.replicas[node]
			if code := k.WaitExit(goneIn); code == 0 || !strings.Contains(k.Output(), ruin.says) {
				t.Errorf("replica %d ended with exit code %d, and does not say %q:\n%s", node, code, ruin.says, k.Output())
			}
		}
		if ruin.what == "the log topic gets another partition" {
			r.refusesToStart(nodeOne, "partition")
			if _, err := adm.DeleteTopic(t.Context(), r.topic); err != nil { // its records are in the directories
				t.Fatal(err)
			}
		}
		for _, node := range r.nodes {
			r.refusesToStart(node, "may be the last copy")
		}
		if topics, err := adm.ListTopicsWithInternal(t.Context(), r.topic); err != nil || topics.Has(r.topic) {
			t.Errorf("there is a log topic again: %v, %v", topics, err)
		}

		// As docs/operations.md says.
		out, errOut, exit := kafkatest.Streamkeeper(t, "restore", "--bootstrap-servers", r.cluster.Bootstrap(), "--log-topic", r.topic, "--data-dir", r.replicas[nodeTwo].DataDir())
		if exit != 0 || !strings.HasPrefix(out, "restored 1 group with ") {
			t.Fatalf("restore: exit %d\n%s%s", exit, out, errOut)
		}
		for _, node := range r.nodes {
			r.replicas[node].Set("--accept-new-log", "true")
			r.replicas[node].Start()
		}
		for _, node := range r.nodes {
			r.replicas[node].WaitReady()
		}
		if got := kafkatest.Committed(t, r.bootstrap(), group, group+"-in"); !atLeast(got, before) {
			t.Errorf("committed after the restoration %v, before %v", got, before)
		}
		mark := sink.Mark()
		load.Send(100)
		n := load.Sent()
		sink.WaitAll(n, outcome)
		kafkatest.WaitCommitted(t, r.bootstrap(), group, group+"-in", outcome)
		before = kafkatest.Committed(t, r.bootstrap(), group, group+"-in")
		t.Logf("%d records came out for 100 that went in", len(sink.Seen())-mark)
		a.WaitTasks(partitions)
		if u := a.Uncaught(); len(u) > 0 {
			t.Errorf("%s: the application had uncaught exceptions: %q", ruin.what, u)
		}
		for _, node := range r.nodes { // once they have taken it they need no flag any more
			r.replicas[node].Set("--accept-new-log", "false")
		}
	}
	checkTenuresOf(t, sink)
}

func checkTenuresOf(t *testing.T, sink *kafkatest.Sink) {
	t.Helper()
	for _, b := range kafkatest.CheckTenures(sink.Seen()) {
		t.Error(b)
	}
}

// atLeast says that each offset is there and none has gone back.
func atLeast(got, before map[int32]int64) bool {
	for p, offset := range before {
		if now, ok := got[p]; !ok || now < offset {
			return false
		}
	}
	return true
}

// refusesToStart starts a replica as it is, which must end with words.
func (r *fleet) refusesToStart(node int32, words string) {
	r.t.Helper()
	k := r.replicas[node]
	k.Start()
	if code := k.WaitExit(goneIn); code == 0 || !strings.Contains(k.Output(), words) {
		r.t.Errorf("replica %d, started again, ended with exit code %d and does not say %q:\n%s", node, code, words, k.Output())
	}
}

// neverWithoutOffsets asks all replicas for the group's offsets until they have ended. The answers may be errors that a client tries again
// after, and offsets; not that there are none.
func (r *fleet) neverWithoutOffsets(group string, least map[int32]int64) {
	t := r.t
	t.Helper()
	answers := map[string]int{}
	running := func() (n int) {
		for _, k := range r.replicas {
			if k.Running() {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(goneIn); running() > 0; time.Sleep(50 * time.Millisecond) { // a question now and then, until the last has ended
		if time.Now().After(deadline) {
			t.Errorf("%d replicas still run after %s; the answers were %v", running(), goneIn, answers)
			return
		}
		for _, node := range r.nodes {
			answers[r.askOffsets(node, group, least)]++
		}
	}
	t.Logf("answers to OffsetFetch until all had ended: %v", answers)
}

// askOffsets asks one replica, as a client would on a connection of its own, and says in a word what came.
func (r *fleet) askOffsets(node int32, group string, least map[int32]int64) string {
	t := r.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	cl, err := wire.Dial(ctx, r.replicas[node].Bootstrap(), "by-hand")
	if err != nil {
		return "no connection"
	}
	defer cl.Close()
	resp, err := cl.Exchange(ctx, kafkatest.FetchAll(group))
	if err != nil {
		return "no answer"
	}
	got := resp.(*kmsg.OffsetFetchResponse).Groups[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		if !kerr.IsRetriable(err) {
			t.Errorf("replica %d answers OffsetFetch with %v", node, err)
		}
		return err.Error()[:strings.IndexByte(err.Error()+":", ':')]
	}
	offsets := map[int32]int64{}
	for _, topic := range got.Topics {
		if topic.Topic != group+"-in" {
			continue
		}
		for _, p := range topic.Partitions {
			offsets[p.Partition] = p.Offset
		}
	}
	if !atLeast(offsets, least) {
		t.Errorf("replica %d answers OffsetFetch with %v, and %v had been committed", node, offsets, least)
	}
	return "offsets"
}

// TestDataDirectoryIsLost: the data directory of a replica is removed while it is stopped, another's under it while it runs, and at last all are, with all
// replicas killed. The first and the last read the log again; the second is the worse for it in nothing that a client sees.
func TestDataDirectoryIsLost(t *testing.T) {
	t.Parallel()
	r := startFleet(t, kafkatest.Shared(t, kafka44), 2, "--plugin", "none")
	r.waitSpread(r.nodes...)
	const group = "careless"
	kafkatest.CreateTopics(t, r.cluster.Bootstrap(), partitions, group+"-in", group+"-out")
	load := kafkatest.NewLoad(t, r.cluster.Bootstrap(), group+"-in")
	sink := kafkatest.Watch(t, r.cluster.Bootstrap(), group+"-out")
	a := kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: r.bootstrap(), Group: group})
	a.WaitTasks(partitions)
	load.Send(100)
	sink.WaitAll(100, outcome)
	kafkatest.WaitCommitted(t, r.bootstrap(), group, group+"-in", outcome)
	before := kafkatest.Committed(t, r.bootstrap(), group, group+"-in")
	owner, other := r.ownerOf(group)
	states := len(a.Events("TASKS"))

	r.replicas[other].Stop()
	if err := os.RemoveAll(r.replicas[other].DataDir()); err != nil {
		t.Fatal(err)
	}
	r.replicas[other].Start()
	r.replicas[other].WaitReady()
	r.waitSpread(r.nodes...)
	if got := kafkatest.Committed(t, r.bootstrap(), group, group+"-in"); !atLeast(got, before) {
		t.Errorf("after a directory was removed: committed %v, before %v", got, before)
	}

	owner, other = r.ownerOf(group)
	if err := os.RemoveAll(r.replicas[owner].DataDir()); err != nil {
		t.Fatal(err)
	}
	// More than its memory holds, so that it has to write: what it can't is what this is about.
	fillMemtables(t, r, group)
	said := ""
	kafkatest.Eventually(t, outcome, func() error {
		if !r.replicas[owner].Running() {
			said = "it ended"
			return nil
		}
		for _, words := range []string{"the store is unusable", "projection: rebuilt from the log"} {
			if strings.Contains(r.replicas[owner].Output(), words) {
				said = words
				return nil
			}
		}
		return fmt.Errorf("replica %d runs on without a word of its directory", owner)
	})
	t.Logf("without its directory replica %d: %s", owner, said)
	for range 40 {
		r.askOffsets(owner, group, before)
		r.askOffsets(other, group, before)
		time.Sleep(50 * time.Millisecond) // over two seconds, while it finds out and mends
	}
	load.Send(100)
	sink.WaitAll(200, outcome)
	kafkatest.WaitCommitted(t, r.bootstrap(), group, group+"-in", outcome)
	r.waitSpread(r.nodes...)
	for _, node := range r.nodes {
		r.replicas[node].WaitReady()
	}

	before = kafkatest.Committed(t, r.bootstrap(), group, group+"-in")
	for _, node := range r.nodes {
		r.replicas[node].Kill()
	}
	for _, node := range r.nodes {
		if err := os.RemoveAll(r.replicas[node].DataDir()); err != nil {
			t.Fatal(err)
		}
		r.replicas[node].Start()
	}
	started := time.Now()
	for r.replicas[owner].Ready() != nil || r.replicas[other].Ready() != nil { // nobody is told meanwhile that there is nothing
		if time.Since(started) > 3*goneIn {
			t.Fatalf("%s after the start of replicas without a directory: %v, %v", time.Since(started), r.replicas[owner].Ready(), r.replicas[other].Ready())
		}
		r.askOffsets(owner, group, before)
		r.askOffsets(other, group, before)
		if !r.replicas[owner].Running() || !r.replicas[other].Running() {
			t.Fatal("a replica whose directory is lost does not start")
		}
	}
	r.askOffsets(owner, group, before)
	r.askOffsets(other, group, before)
	load.Send(100)
	sink.WaitAll(load.Sent(), outcome)
	kafkatest.WaitCommitted(t, r.bootstrap(), group, group+"-in", outcome)
	if n := len(a.Events("TASKS")); n != states || len(a.Uncaught()) > 0 {
		t.Errorf("the application had the tasks %q meanwhile, and uncaught exceptions %q", a.Events("TASKS"), a.Uncaught())
	}
	checkTenuresOf(t, sink)
	checkFence(t, r.topic, readLog(t, r.cluster.Bootstrap(), r.topic))
}

const (
	fillerPartitions = 100
	fillerCommits    = 60
	fillerMetadata   = 4000 // bytes; Kafka's default limit is 4096
)

// fillMemtables makes each replica write to its disk, by commits of some 24 MB in all to groups without members.
func fillMemtables(t *testing.T, r *fleet, like string) {
	t.Helper()
	group := like + "-filler"
	c := &converts{t: t, r: r, in: group, adm: kafkatest.Admin(t, r.bootstrap())}
	kafkatest.CreateTopics(t, r.cluster.Bootstrap(), fillerPartitions, group)
	c.partitions = fillerPartitions
	c.join("to fill the disk", group)
	for i := range fillerCommits {
		var offsets kadm.Offsets
		for p := range int32(fillerPartitions) {
			offsets.Add(kadm.Offset{Topic: group, Partition: p, At: int64(i), LeaderEpoch: -1, Metadata: strings.Repeat("m", fillerMetadata)})
		}
		kafkatest.Eventually(t, outcome, func() error { // once the member has left; and again while a replica can't
			return c.adm.CommitAllOffsets(t.Context(), group, offsets)
		})
	}
}
