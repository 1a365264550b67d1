package shard

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

func restartAfterAKill(t *testing.T, w *world) {
	old := w.start("old", 1)
	w.shared(20*time.Second, old)
	old.cut()
	// Another address, as a container has after a restart.
	again := w.start("again", 1)
	w.eventually(20*time.Second, "the new process has everything", func() bool { return again.count() == testPartitions })
	again.stop()
}

// restartAfterAKillAtOnce: whoever knows the member that the killed process was need not wait for the end of its session.
func restartAfterAKillAtOnce(t *testing.T, w *world) {
	var former atomic.Value
	cfg := w.config(1, "old:9292")
	cfg.SessionTimeout, cfg.Joined = 2*max(30*time.Second, w.patience), func(id string) { former.Store(id) }
	old, other := w.run(w.make("old", cfg)), w.start("other", 2)
	w.shared(20*time.Second, old, other)
	old.cut()
	old.stop() // it can't tell anybody
	again := w.config(1, "again:9292")
	again.Former = former.Load().(string)
	w.shared(30*time.Second, w.run(w.make("again", again)), other) // a session is twice as long

	// Whom the group does not know any more, nobody misses.
	other.stop()
	last := w.config(2, "last:9292")
	last.Former = "nobody"
	w.run(w.make("last", last))
	w.eventually(20*time.Second, "the partitions are shared again", func() bool { return w.replicas[3].count() > 0 })
}

func TestRunBeforeTheClusterIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const port = 9092
		n := new(kfake.VirtualNetwork)
		w := emptyWorld(t, fmt.Sprint("localhost:", port)).bubbled(n)
		a := w.start("a", 1)
		time.Sleep(w.session) // of the bubble: it has tried in vain
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.ListenFn(n.Listen), kfake.SeedTopics(testPartitions, w.topic),
			kfake.GroupMinSessionTimeout(100*time.Millisecond), kfake.BrokerConfigs(testSettings))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		w.shared(20*time.Second, a)
		a.stop()
	})
}

// processThatWakesUpHasNoLease: a stopped process that wakes up must see its lease as over before it answers anything: a child process answers a
// question that was put into its pipe while it was stopped.
func processThatWakesUpHasNoLease(t *testing.T, w *world) {
	child := exec.Command(os.Args[0], "-test.run=^TestMembershipChild$", "-test.v=false")
	child.Env = append(os.Environ(), "MEMBERSHIP_CHILD="+w.seeds+" "+w.topic)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); _ = child.Process.Kill(); _ = child.Wait() }()
	answers := bufio.NewScanner(out)
	ask := func() string {
		if _, err := io.WriteString(in, "?\n"); err != nil {
			t.Fatal(err)
		}
		if !answers.Scan() {
			t.Fatalf("child is gone: %v", answers.Err())
		}
		return answers.Text()
	}
	w.eventually(20*time.Second, "the child has a lease on everything", func() bool { return ask() == "true 50" })

	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	other := w.start("other", 2)
	w.eventually(20*time.Second, "the other has everything", func() bool { return other.count() == testPartitions })
	if _, err := io.WriteString(in, "?\n"); err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !answers.Scan() {
		t.Fatalf("child is gone: %v", answers.Err())
	}
	if got := answers.Text(); got != "false 0" {
		t.Errorf("first answer after the pause: %q, want no lease and no partition", got)
	}
	w.eventually(20*time.Second, "the child takes part again", func() bool { return ask() == "true 25" })
}

// TestMembershipChild is the process of processThatWakesUpHasNoLease; by itself it does nothing.
func TestMembershipChild(t *testing.T) {
	args := strings.Fields(os.Getenv("MEMBERSHIP_CHILD"))
	if len(args) != 2 {
		return
	}
	w := emptyWorld(t, args[0])
	w.topic = args[1]
	r := w.start("child", 1)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		now, n := r.Lease().Now(), 0
		for p := range int32(testPartitions) {
			if r.Lease().ValidFor(p, now) {
				n++
			}
		}
		fmt.Println(r.LeaseValid(), n)
	}
	os.Exit(0) // without a word to the group
}
