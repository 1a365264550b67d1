package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
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
	refused := func() string {
		t.Helper()
		d, ended := serve()
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
	for _, part := range []string{"log topic __streams_groups does not exist", "holds 1 groups of topic __streams_groups", "may be the last copy", "--accept-new-log"} {
		if !strings.Contains(said, part) {
			t.Errorf("%q is not in:\n%s", part, said)
		}
	}
	if topics, err := adm.ListTopicsWithInternal(t.Context(), "__streams_groups"); err != nil || topics.Has("__streams_groups") {
		t.Errorf("an empty log was made: %v, %v", topics, err)
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
