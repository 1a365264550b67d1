package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/internal/backup"
)

// serving starts replicas before one cluster.
type serving struct {
	t        *testing.T
	upstream string
	dir      string
}

func (s *serving) start(args ...string) *dev {
	s.t.Helper()
	d := &dev{out: &text{}, err: &text{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, append([]string{"serve", "--bootstrap-servers", s.upstream, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
			"--data-dir", s.dir, "--log-format", "text", "--set", "group.streams.initial.rebalance.delay.ms=0"}, args...), d.out, d.err)
	}()
	code, done := 0, false
	d.stop = func() int {
		if !done {
			cancel()
			code, done = <-ended, true
		}
		return code
	}
	s.t.Cleanup(func() {
		d.stop()
		if s.t.Failed() {
			s.t.Logf("serve wrote:\n%s", d.err)
		}
	})
	d.bootstrap = d.err.wait(s.t, `is ready bootstrap=(\S+)`, ended)[1]
	return d
}

func (s *serving) run(args ...string) (string, int) {
	var out text
	code := run(s.t.Context(), args, &out, &out)
	return out.String(), code
}

// A backup is taken while a replica serves, the topics are lost, and everything is there again.
func TestBackupAndRestore(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "in"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := &serving{t, strings.Join(c.ListenAddrs(), ","), t.TempDir()}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)

	d := s.start("--log-partitions", "4")
	m := newMember(t, d, "orders")
	m.join(4)
	m.commit(0, 5)
	m.commit(1, 7)
	configure(t, d, "not-there-yet")
	// Something of a replaced owner would be void, and a record of a description: the plugin's own tests tell what it looks like.
	description := &kgo.Record{Topic: "__streams_groups-topologies", Partition: eventlog.Partition("orders", 4), Key: []byte(`{"v":1,"group":"orders","epoch":9}`), Value: []byte("bytes")}
	before, err := adm.ListEndOffsets(t.Context(), "__streams_groups-topologies")
	if err != nil {
		t.Fatal(err)
	}
	written := false
	before.Each(func(o kadm.ListedOffset) { written = written || o.Offset > 0 })
	if !written { // nobody owns a partition of it, so a plain record counts
		if err := cl.ProduceSync(t.Context(), description).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}

	file := filepath.Join(t.TempDir(), "groups.backup")
	out, code := s.run("backup", "--bootstrap-servers", s.upstream, "--to", file)
	if code != 0 || !regexp.MustCompile(`(?m)^__streams_groups +\S+ +4 +\d+ +1 +1 +2$`).MatchString(out) || !regexp.MustCompile(`(?m)^__streams_groups-topologies +\S+ +4 +1 +- +- +-$`).MatchString(out) {
		t.Fatalf("backup: %d\n%s", code, out)
	}
	if again, code := s.run("restore", "--from", file, "--dry-run"); code != 0 || again != out {
		t.Errorf("--dry-run: %d\n%s", code, again)
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) != 1 {
		t.Errorf("beside the backup: %v", left)
	}
	if out, code := s.run("backup", "--bootstrap-servers", s.upstream, "--to", file); code != exitFailure || !strings.Contains(out, "exists: name another file") {
		t.Errorf("a second backup of the name: %d %s", code, out)
	}
	if out, code := s.run("restore", "--bootstrap-servers", s.upstream, "--from", file); code != exitFailure || !strings.Contains(out, "there is nothing to restore") {
		t.Errorf("restore into the log itself: %d %s", code, out)
	}
	if out, code := s.run("restore", "--bootstrap-servers", s.upstream, "--from", file, "--log-topic", "__other"); code != 0 {
		t.Errorf("restore into another topic: %d %s", code, out)
	}
	if code := d.stop(); code != 0 {
		t.Fatalf("exit %d", code)
	}
	if _, err := adm.DeleteTopics(t.Context(), "__streams_groups", "__streams_groups-topologies"); err != nil {
		t.Fatal(err)
	}

	// A damaged file is refused before anything is written.
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, whole[:len(whole)-3], 0o600); err != nil {
		t.Fatal(err)
	}
	out, code = s.run("restore", "--bootstrap-servers", s.upstream, "--from", bad)
	if code != exitFailure || !strings.Contains(out, "not a whole backup: at byte ") {
		t.Errorf("a damaged file: %d %s", code, out)
	}
	if topics, err := adm.ListTopicsWithInternal(t.Context(), "__streams_groups"); err != nil || topics.Has("__streams_groups") {
		t.Errorf("a topic was made for a damaged file: %v %v", topics, err)
	}

	if out, code = s.run("restore", "--bootstrap-servers", s.upstream, "--from", file); code != 0 || !strings.Contains(out, "restored 1 group with ") ||
		!strings.Contains(out, "restored 1 topology description into ") {
		t.Fatalf("restore: %d %s", code, out)
	}
	if out, code := s.run("restore", "--bootstrap-servers", s.upstream, "--from", file); code != exitFailure || !strings.Contains(out, "empty topic only") {
		t.Errorf("a second time: %d %s", code, out)
	}
	s.dir = t.TempDir()
	d = s.start()
	got := squeeze(must(t, d, "describe", "orders"))
	for _, line := range []string{"member-1 2 app-1 ", "in 0 5 0 0 0_0 member-1\n", "in 1 7 0 0 0_1 member-1\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("describe lacks %q:\n%s", line, got)
		}
	}
	again := newMember(t, d, "orders")
	again.epoch = m.epoch
	again.beat(func(*kmsg.StreamsGroupHeartbeatRequest) {}) // the member of before goes on
	again.commit(0, 6)
	d.stop()

	// What was backed up and restored is backed up as the same records.
	second := filepath.Join(t.TempDir(), "second")
	if out, code := s.run("backup", "--bootstrap-servers", s.upstream, "--log-topic", "__other", "--to", second); code != 0 {
		t.Fatalf("backup of what was restored: %d %s", code, out)
	}
	if one, two := contents(t, file), contents(t, second); !equal(one, two) {
		t.Errorf("the second generation differs:\n%q\n%q", one, two)
	}
}

// contents are the records of the log in a backup.
func contents(t *testing.T, file string) map[string]string {
	t.Helper()
	out := map[string]string{}
	if _, err := backup.Records(file, func(topic int, p int32, key, value []byte) error {
		if topic == 0 {
			out[string(rune('0'+p))+string(key)] = string(value)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		t.Fatalf("%s is empty", file)
	}
	return out
}

func equal(a, b map[string]string) bool {
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return len(a) == len(b)
}

// configure sets the session time-out of a group.
func configure(t *testing.T, d *dev, group string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(d.bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	v := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	v.Name, v.Value = "streams.num.standby.replicas", kmsg.StringPtr("1")
	r.Configs = append(r.Configs, v)
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil || resp.Resources[0].ErrorCode != 0 {
		t.Fatalf("%+v %v", resp, err)
	}
}

// A restore that is interrupted leaves a topic that no replica takes for the whole.
func TestAnInterruptedRestoreIsRefusedByReplicas(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := &serving{t, strings.Join(c.ListenAddrs(), ","), t.TempDir()}
	file := filepath.Join(t.TempDir(), "backup")
	w, err := backup.Create(file, backup.Header{Topics: []backup.Topic{{Name: "__streams_groups", Partitions: 2, Records: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Add(0, 1, []byte("key"), []byte("value")), w.Close()); err != nil {
		t.Fatal(err)
	}
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, errors.New("the broker is gone"), true
	})
	if said, code := s.run("restore", "--bootstrap-servers", s.upstream, "--from", file, "--timeout", "2s"); code != exitFailure || !strings.Contains(said, "has a part of the records only") {
		t.Fatalf("a restore that is interrupted: %d %s", code, said)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out text
	if code := run(ctx, []string{"serve", "--bootstrap-servers", s.upstream, "--listen", "127.0.0.1:0", "--admin-listen", "", "--data-dir", s.dir}, &out, &out); code != exitFailure ||
		!strings.Contains(out.String(), "delete the topic and run streamkeeper restore again") {
		t.Errorf("a replica: %d\n%s", code, &out)
	}
	if said, code := s.run("restore", "--bootstrap-servers", s.upstream, "--from", file); code != exitFailure || !strings.Contains(said, "delete the topic and run streamkeeper restore again") {
		t.Errorf("restore over it: %d %s", code, said)
	}
}
