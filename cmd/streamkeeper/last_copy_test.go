package main

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/projection"
)

// The log topic is deleted, and the replica's directory is the last copy of the groups: a plain restart must not make an empty log of it.
func TestADeletedLogIsNotMadeAnewOverTheLastCopy(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir := t.TempDir()
	serve := func(args ...string) (*dev, <-chan int) {
		d := &dev{out: &text{}, err: &text{}}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan int, 1)
		go func() {
			ended <- run(ctx, append([]string{"serve", "--bootstrap-servers", strings.Join(c.ListenAddrs(), ","), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
				"--data-dir", dir, "--log-partitions", "4", "--log-format", "text", "--set", "group.streams.initial.rebalance.delay.ms=0"}, args...), d.out, d.err)
		}()
		d.stop = func() int { cancel(); return <-ended }
		return d, ended
	}
	ready := func(args ...string) *dev {
		t.Helper()
		d, ended := serve(args...)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("serve wrote:\n%s\n%s", d.out, d.err)
			}
		})
		d.bootstrap = d.err.wait(t, `is ready bootstrap=(\S+)`, ended)[1]
		return d
	}
	refused := func(args ...string) string {
		t.Helper()
		d, ended := serve(args...)
		select {
		case code := <-ended:
			if code != exitFailure {
				t.Fatalf("exit %d", code)
			}
		case <-time.After(time.Minute):
			t.Fatalf("it runs:\n%s", d.err)
		}
		return d.err.String()
	}

	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(t.Context(), 4, 1, nil, "in"); err != nil {
		t.Fatal(err)
	}
	d := ready()
	m := newMember(t, d, "orders")
	m.join(4)
	m.commit(0, 5)
	if code := d.stop(); code != 0 {
		t.Fatalf("exit %d", code)
	}

	if _, err := adm.DeleteTopic(t.Context(), "__streams_groups"); err != nil {
		t.Fatal(err)
	}
	said := refused()
	for _, part := range []string{"log topic __streams_groups does not exist", "holds 1 group (and the configuration of 0) of topic __streams_groups", "may be the last copy", "--accept-new-log"} {
		if !strings.Contains(said, part) {
			t.Errorf("%q is not in:\n%s", part, said)
		}
	}
	if topics, err := adm.ListTopicsWithInternal(t.Context(), "__streams_groups"); err != nil || topics.Has("__streams_groups") {
		t.Errorf("an empty log was made: %v, %v", topics, err)
	}
	// The directory's groups are written into a new log, and everything is as it was.
	restore := func(args ...string) (string, int) {
		var out text
		code := run(t.Context(), append([]string{"restore", "--bootstrap-servers", strings.Join(c.ListenAddrs(), ","), "--data-dir", dir}, args...), &out, &out)
		return out.String(), code
	}
	if out, code := restore("--dry-run"); code != 0 || !regexp.MustCompile(`\n__streams_groups +\S{22} +4 +1 +0 +1 +[1-9]\d*\n$`).MatchString(out) {
		t.Errorf("--dry-run: %d\n%s", code, out)
	}
	if out, code := restore(); code != 0 || !strings.HasPrefix(out, "restored 1 group with ") {
		t.Fatalf("restore: %d %s", code, out)
	}
	if out, code := restore(); code != exitFailure || !strings.Contains(out, "restore writes into an empty topic only") {
		t.Errorf("a second time: %d %s", code, out)
	}
	if got := refused(); !strings.Contains(got, "groups of another log") {
		t.Errorf("the directory is of the old log still:\n%s", got)
	}
	// Such a start touches neither what the directory holds of descriptions nor the cluster.
	if got := refused("--plugin-set", "topic=elsewhere"); !strings.Contains(got, "groups of another log") {
		t.Errorf("with another topic of descriptions, too:\n%s", got)
	}
	if held, err := projection.Look(projection.Config{Dir: filepath.Join(dir, "descriptions")}); err != nil || held.Topic != "__streams_groups-topologies" {
		t.Errorf("the directory has the descriptions of %q now, %v", held.Topic, err)
	}
	if topics, err := adm.ListTopics(t.Context(), "elsewhere"); err != nil || topics.Has("elsewhere") {
		t.Errorf("a topic of descriptions was made: %v, %v", topics, err)
	}
	d = ready("--accept-new-log")
	if out, code := restore(); code != exitFailure || !strings.Contains(out, "is in use by another process") {
		t.Errorf("restore from a replica that runs: %d %s", code, out)
	}
	if got := refused("--node-id", "1000002"); !strings.Contains(got, "streamkeeper: --data-dir: ") || !strings.Contains(got, "another replica runs with it, and each needs one of its own") {
		t.Errorf("a second replica with the directory: %s", got)
	}
	got := squeeze(must(t, d, "describe", "orders"))
	for _, line := range []string{"member-1 2 app-1 ", "in 0 5 0 0 0_0 member-1\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("describe lacks %q:\n%s", line, got)
		}
	}
	again := newMember(t, d, "orders")
	again.epoch = m.epoch
	again.beat(func(*kmsg.StreamsGroupHeartbeatRequest) {}) // the member of before goes on
	if code := d.stop(); code != 0 {
		t.Fatalf("exit %d", code)
	}
	if out, code := restore(); code != exitFailure || !strings.Contains(out, "there is nothing to restore") {
		t.Errorf("restore into the directory's own log: %d %s", code, out)
	}

	if _, err := adm.DeleteTopic(t.Context(), "__streams_groups"); err != nil {
		t.Fatal(err)
	}
	// Somebody else, another replica perhaps, made a topic of the name.
	compact := "compact"
	if _, err := adm.CreateTopic(t.Context(), 4, 1, map[string]*string{"cleanup.policy": &compact}, "__streams_groups"); err != nil {
		t.Fatal(err)
	}
	if got := refused(); !strings.Contains(got, "groups of another log") || !strings.Contains(got, "--accept-new-log") {
		t.Errorf("refused with\n%s", got)
	}
	d = ready("--accept-new-log")
	if got := squeeze(must(t, d, "list")); got != "GROUP STATE COORDINATOR\n" {
		t.Errorf("list: %q", got)
	}
	if code := d.stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
	if d := ready(); d.stop() != 0 { // and once it is accepted it needs no flag any more
		t.Error("the next start failed")
	}
}

// A topic may take smaller batches than the client library makes by itself, or larger ones.
func TestRestoreKeepsToTheBatchesOfTheTopic(t *testing.T) {
	const n, metadataBytes = 100, 4000 // 400 kB in one partition
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(n, "in"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir, upstream := t.TempDir(), strings.Join(c.ListenAddrs(), ",")
	serve := func(while func(d *dev), args ...string) {
		t.Helper()
		d := &dev{out: &text{}, err: &text{}}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		ended := make(chan int, 1)
		go func() {
			ended <- run(ctx, append([]string{"serve", "--bootstrap-servers", upstream, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data-dir", dir,
				"--log-format", "text", "--set", "group.streams.initial.rebalance.delay.ms=0"}, args...), d.out, d.err)
		}()
		d.bootstrap = d.err.wait(t, `is ready bootstrap=(\S+)`, ended)[1]
		while(d)
		cancel()
		if code := <-ended; code != 0 {
			t.Fatalf("exit %d: %s", code, d.err)
		}
	}
	serve(func(d *dev) {
		m := newMember(t, d, "orders")
		m.join(n)
		r := kmsg.NewPtrOffsetCommitRequest()
		r.Version, r.Group, r.MemberID, r.Generation = 9, m.group, "member-1", m.epoch
		topic := kmsg.NewOffsetCommitRequestTopic()
		topic.Topic = "in"
		for i := range n {
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.Metadata = int32(i), int64(i), kmsg.StringPtr(strings.Repeat("m", metadataBytes))
			topic.Partitions = append(topic.Partitions, p)
		}
		r.Topics = append(r.Topics, topic)
		resp, err := m.c.Exchange(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions {
			if p.ErrorCode != 0 {
				t.Fatalf("commit of partition %d: error %d", p.Partition, p.ErrorCode)
			}
		}
	}, "--log-partitions", "1")

	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	for _, batchBytes := range []string{"65536", "4000000"} {
		if _, err := adm.DeleteTopic(t.Context(), "__streams_groups"); err != nil {
			t.Fatal(err)
		}
		configs := map[string]*string{"cleanup.policy": kadm.StringPtr("compact"), "max.message.bytes": &batchBytes}
		if _, err := adm.CreateTopic(t.Context(), 1, 1, configs, "__streams_groups"); err != nil {
			t.Fatal(err)
		}
		var out text
		if code := run(t.Context(), []string{"restore", "--bootstrap-servers", upstream, "--data-dir", dir}, &out, &out); code != 0 {
			t.Errorf("batches of %s bytes: exit %d: %s", batchBytes, code, &out)
		}
	}
}
