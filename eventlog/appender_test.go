package eventlog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func deadline(d time.Duration) func(*KafkaConfig) {
	return func(c *KafkaConfig) { c.AppendDeadline = d }
}

func options(opts ...kgo.Opt) func(*KafkaConfig) {
	return func(c *KafkaConfig) { c.ClientOptions = append(c.ClientOptions, opts...) }
}

func TestErrorsOfProduce(t *testing.T) {
	for _, test := range []struct {
		code *kerr.Error
		want error // nil: repeated until it goes well
	}{
		{kerr.RequestTimedOut, nil}, // kfake appends all the same, as a leader does whose replicas lag
		{kerr.NotEnoughReplicasAfterAppend, nil},
		{kerr.NotEnoughReplicas, nil},
		{kerr.NotLeaderForPartition, nil},
		{kerr.UnknownTopicOrPartition, nil},
		{kerr.KafkaStorageError, nil},
		{kerr.CorruptMessage, nil},
		{kerr.UnknownServerError, nil},
		{kerr.InvalidProducerEpoch, ErrFenced},
		{kerr.ProducerFenced, ErrFenced},
		{kerr.OutOfOrderSequenceNumber, ErrOutcomeUnknown},
		{kerr.UnknownProducerID, ErrOutcomeUnknown},
		{kerr.DuplicateSequenceNumber, ErrOutcomeUnknown},
		{kerr.MessageTooLarge, ErrAppendRefused},
		{kerr.TopicAuthorizationFailed, ErrAppendRefused},
		{kerr.InvalidRecord, ErrAppendRefused},
	} {
		t.Run(test.code.Message, func(t *testing.T) {
			c := fakeCluster(t)
			k := open(t, c.ListenAddrs(), partitions(1))
			w := claim(t, k, 0)
			mustPut(t, w, kv("a", "1"))
			fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: testTopic, Err: test.code, Count: 3})
			offset, err := put(t, w, kv("a", "2"), kv("b", "2"))
			hits := fault.Hits()
			fault.Remove()
			if test.want == nil {
				if err != nil || offset != 2 || hits != 3 {
					t.Fatalf("offset %d, %v after %d faults", offset, err, hits)
				}
				if next := mustPut(t, w, kv("a", "3")); next != 4 {
					t.Fatalf("the next is at %d: the repeats were appended too", next)
				}
				return
			}
			if !errors.Is(err, test.want) || !errors.Is(err, test.code) && test.want != ErrFenced {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			if _, again := put(t, w, kv("a", "3")); again != err {
				t.Fatalf("the dead writer answers %v, after %v", again, err)
			}
			w = claim(t, k, 0)
			mustPut(t, w, kv("a", "3"))
		})
	}
}

func TestOutcomeIsUnknownAtTheDeadline(t *testing.T) {
	clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
		k := open(t, c.ListenAddrs(), partitions(1), deadline(300*time.Millisecond), dial)
		w := claim(t, k, 0)
		fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: testTopic, Err: kerr.NotEnoughReplicas, Count: -1})
		began := time.Now()
		var o outcomes
		w.Append(1, []Raw{kv("b", "1")}, o.done("first"))
		w.Append(1, []Raw{kv("b", "1")}, nil)
		w.Barrier(nil)
		if _, err := put(t, w, kv("a", "1")); !errors.Is(err, ErrOutcomeUnknown) || !strings.Contains(err.Error(), "NOT_ENOUGH_REPLICAS") {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 300*time.Millisecond || took > 5*time.Second {
			t.Fatalf("deadline of 300 ms after %v", took)
		}
		fault.Remove()
		if len(o.list()) != 1 {
			t.Fatal(o.list())
		}
	})
}

// cutter is a dialer whose connections are cut: the request reaches the broker, the answer doesn't reach us.
type cutter struct {
	cut atomic.Int64 // how many more answers are lost
	key int16        // of the requests whose answers are lost
}

func (c *cutter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, c: c}, nil
}

type cutConn struct {
	net.Conn
	c      *cutter
	doomed atomic.Bool
}

// Write notes a request whose answer is to be lost. kgo writes a request with one call: size, key, version, …
func (c *cutConn) Write(b []byte) (int, error) {
	if len(b) > 6 && int16(b[4])<<8|int16(b[5]) == c.c.key && c.c.cut.Load() > 0 && c.c.cut.Add(-1) >= 0 {
		c.doomed.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.doomed.Load() {
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

func TestLostAcknowledgementsAreRepeatedByteForByte(t *testing.T) {
	c := fakeCluster(t)
	cut := &cutter{key: int16(kmsg.Produce)}
	k := open(t, c.ListenAddrs(), partitions(1), options(kgo.Dialer(cut.dial)))
	m := newMemory()
	follow(t, k, m)
	w := claim(t, k, 0)
	var want []string
	for i := range 50 {
		cut.cut.Store(int64(i % 3))
		v := fmt.Sprint(i)
		if o := mustPut(t, w, kv("a", v), kv("b", v)); o != int64(1+2*i) {
			t.Fatalf("append %d is at %d", i, o)
		}
		want = append(want, "a="+v, "b="+v)
	}
	reaches(t, k, m, 0)
	equal(t, "log", m.values(0), want)
}

func TestLeaderMoves(t *testing.T) {
	c := fakeCluster(t)
	k := open(t, c.ListenAddrs(), partitions(2))
	m := newMemory()
	follow(t, k, m)
	ws := []Writer{claim(t, k, 0), claim(t, k, 1)}
	var want []string
	for i := range 60 {
		for p, w := range ws {
			if i%3 == p {
				if err := c.MoveTopicPartition(testTopic, int32(p), int32(i/3%3)); err != nil {
					t.Fatal(err)
				}
			}
			mustPut(t, w, kv("a", fmt.Sprint(i)))
		}
		want = append(want, fmt.Sprintf("a=%d", i))
	}
	for p := range ws {
		reaches(t, k, m, int32(p))
		equal(t, "log", m.values(int32(p)), want)
	}
	equal(t, "resets", m.why(), nil)
}

func TestOneRequestCarriesAllPartitions(t *testing.T) {
	const n = 20
	c := fakeCluster(t, kfake.NumBrokers(1))
	k := open(t, c.ListenAddrs(), partitions(n))
	ws := make([]Writer, n)
	for p := range ws {
		ws[p] = claim(t, k, int32(p))
	}
	var mu sync.Mutex
	var sizes []int
	arrived, release := make(chan struct{}), make(chan struct{})
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		sizes = append(sizes, len(req.(*kmsg.ProduceRequest).Topics[0].Partitions))
		first := len(sizes) == 1
		mu.Unlock()
		if first {
			close(arrived)
			c.SleepControl(func() { <-release })
		}
		return nil, nil, false
	})
	var wg sync.WaitGroup
	appendTo := func(p int, value string) {
		wg.Add(1)
		ws[p].Append(1, []Raw{kv("a", value)}, func(_ int64, err error) {
			defer wg.Done()
			if err != nil {
				t.Error(err)
			}
		})
	}
	appendTo(0, "first")
	<-arrived
	for p := range n {
		appendTo(p, "one")
		appendTo(p, "two")
	}
	close(release)
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	equal(t, "partitions of each request", sizes, []int{1, n})
}

func TestBacklogIsBounded(t *testing.T) {
	c := fakeCluster(t)
	k := open(t, c.ListenAddrs(), partitions(1))
	w := claim(t, k, 0)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: testTopic, Err: kerr.NotEnoughReplicas, Count: -1})
	failed := make(chan error, 1000)
	value := strings.Repeat("x", 900<<10)
	for range BacklogBytesMax/len(value) + 1 {
		w.Append(1, []Raw{kv("a", value)}, func(_ int64, err error) { failed <- err })
	}
	if err := <-failed; !errors.Is(err, ErrBacklog) {
		t.Fatal(err)
	}
}

func TestCloseFailsWhatWaits(t *testing.T) {
	c := fakeCluster(t)
	k := open(t, c.ListenAddrs(), partitions(2))
	w, v := claim(t, k, 0), claim(t, k, 1)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: testTopic, Err: kerr.NotEnoughReplicas, Count: -1})
	var o outcomes
	w.Append(1, []Raw{kv("a", "1")}, o.done("w"))
	w.Barrier(o.done("w barrier"))
	v.Append(1, []Raw{kv("a", "1")}, o.done("v"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := w.Release(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	k.Close()
	k.Close()
	got := o.list()
	slices.Sort(got)
	equal(t, "outcomes", got, []string{"v: " + ErrClosed.Error(), "w barrier: " + ErrClosed.Error(), "w: " + ErrClosed.Error()})
	if _, err := k.Claim(t.Context(), 0, Ownership{}); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if _, err := k.End(t.Context(), 0); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if err := k.Follow(t.Context(), newMemory()); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}
