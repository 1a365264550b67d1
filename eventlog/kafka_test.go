package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const testTopic = "log"

// fakeCluster is an embedded cluster.
func fakeCluster(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// clusterInBubble runs a test in the virtual time of a bubble, with a cluster on a network in memory, which dial leads to: for what is expected of times, whoever else uses the machine.
func clusterInBubble(t *testing.T, test func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)), opts ...kfake.Opt) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := new(kfake.VirtualNetwork)
		c := fakeCluster(t, append([]kfake.Opt{kfake.Ports(9092, 9093, 9094), kfake.ListenFn(n.Listen)}, opts...)...)
		t.Cleanup(func() { time.Sleep(10 * time.Minute) }) // requests that sleep in the cluster end before it is closed, or closing it hangs
		test(t, c, options(kgo.Dialer(n.DialContext)))
	})
}

// open opens a log on seeds, with changes to the configuration.
func open(t testing.TB, seeds []string, change ...func(*KafkaConfig)) *Kafka {
	t.Helper()
	k, err := tryOpen(seeds, change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

func tryOpen(seeds []string, change ...func(*KafkaConfig)) (*Kafka, error) {
	cfg := KafkaConfig{SeedBrokers: seeds, Topic: testTopic, ReadWait: 100 * time.Millisecond}
	for _, c := range change {
		c(&cfg)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return OpenKafka(ctx, cfg)
}

func partitions(n int32) func(*KafkaConfig) { return func(c *KafkaConfig) { c.Partitions = n } }

// logged sends the log to the test's.
func logged(t testing.TB) func(*KafkaConfig) {
	return func(c *KafkaConfig) {
		c.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
}

func claim(t testing.TB, k *Kafka, p int32) Writer {
	t.Helper()
	w, err := k.Claim(t.Context(), p, Ownership{NodeID: 1, Instance: "a"})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// put appends and waits.
func put(t testing.TB, w Writer, recs ...Raw) (int64, error) {
	t.Helper()
	type outcome struct {
		offset int64
		err    error
	}
	done := make(chan outcome, 1)
	w.Append(time.Now().UnixMilli(), recs, func(offset int64, err error) { done <- outcome{offset, err} })
	select {
	case o := <-done:
		return o.offset, o.err
	case <-time.After(60 * time.Second):
		t.Fatal("an append has no outcome after a minute")
		return 0, nil
	}
}

func mustPut(t testing.TB, w Writer, recs ...Raw) int64 {
	t.Helper()
	offset, err := put(t, w, recs...)
	if err != nil {
		t.Fatal(err)
	}
	return offset
}

// follow starts a follower that is stopped at the test's end; its error is sent to the channel.
func follow(t testing.TB, k *Kafka, m *memory) chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- k.Follow(ctx, m)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return ended
}

// eventually waits until check has no complaint.
func eventually(t testing.TB, check func() error) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // another process' progress can't be waited for otherwise
	}
}

// reaches waits until m has read p up to the log's end.
func reaches(t testing.TB, k *Kafka, m *memory, p int32) {
	t.Helper()
	end, err := k.End(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if pos := m.position(p); pos.Offset < end {
			return fmt.Errorf("partition %d is read up to %d of %d", p, pos.Offset, end)
		}
		return nil
	})
}

func TestAppendsAreReadBack(t *testing.T) {
	cluster := fakeCluster(t)
	k := open(t, cluster.ListenAddrs(), partitions(3))
	m := newMemory()
	follow(t, k, m)
	w := claim(t, k, 1)
	if c := w.Claim(); c.Partition != 1 || c.ProducerEpoch != 1 || c.Generation != 0 {
		t.Fatalf("first claim %+v", c)
	}
	if o := mustPut(t, w, kv("a", "1"), Raw{Key: []byte("b")}); o != 1 {
		t.Fatal(o)
	}
	var o outcomes
	waits := make(chan struct{})
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.SleepControl(func() { <-waits }) // the first one, so that what follows it shares a batch
		return nil, nil, false
	})
	w.Append(7, []Raw{kv("c", "1")}, o.done("c"))
	w.Append(8, nil, o.done("none"))
	w.Append(9, []Raw{kv("d", strings.Repeat("x", k.BatchBytesMax()))}, o.done("large"))
	w.Append(3, []Raw{kv("e", "1"), kv("e", "2")}, o.done("e"))
	w.Barrier(o.done("barrier"))
	close(waits)
	if err := w.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Append(9, []Raw{kv("f", "1")}, o.done("f"))
	reaches(t, k, m, 1)
	equal(t, "read", m.values(1), []string{"a=1", "b=", "c=1", "e=1", "e=2"})
	eventually(t, func() error {
		if n := len(o.list()); n < 6 {
			return fmt.Errorf("%d outcomes", n)
		}
		return nil
	})
	got := o.list()
	got[2], _, _ = strings.Cut(got[2], ":")
	equal(t, "outcomes", got, []string{"c@3", "none: " + ErrEmptyAppend.Error(), "large", "e@4", "barrier@4", "f: " + ErrClosed.Error()})
	m.mu.Lock()
	defer m.mu.Unlock()
	entries := m.entries[1]
	last, err := Decode(Raw{entries[len(entries)-1].Key, entries[len(entries)-1].Value})
	if err != nil || !last.Value.(*Ownership).Released || last.Value.(*Ownership).Claim != 0 {
		t.Fatalf("last record %+v, %v", last, err)
	}
	if e := entries[3]; e.Offset != 3 || e.Timestamp != 7 || e.ProducerID != w.Claim().ProducerID || e.ProducerEpoch != 1 || e.Transactional || e.Control != ControlNone {
		t.Fatalf("%+v", e)
	}
	if e := entries[5]; e.Timestamp != 3 {
		t.Fatalf("%+v", e)
	}
}

func TestLaterClaimFencesTheEarlier(t *testing.T) {
	c := fakeCluster(t)
	k := open(t, c.ListenAddrs(), partitions(1))
	other := open(t, c.ListenAddrs())
	w := claim(t, k, 0)
	mustPut(t, w, kv("a", "1"))
	next := claim(t, other, 0)
	if _, err := put(t, w, kv("a", "2")); !errors.Is(err, ErrFenced) {
		t.Fatal(err)
	}
	if _, err := put(t, w, kv("a", "2")); !errors.Is(err, ErrFenced) {
		t.Fatalf("a dead writer answers %v", err)
	}
	mustPut(t, next, kv("a", "3"))
	if w.Backlog() != 0 || next.Backlog() != 0 {
		t.Fatal("backlog", w.Backlog(), next.Backlog())
	}
}
