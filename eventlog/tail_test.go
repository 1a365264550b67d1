package eventlog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// transact writes recs to partition 0 in a transaction of a client's, compressed.
func transact(t testing.TB, seeds []string, how kgo.TransactionEndTry, recs ...Raw) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.TransactionalID(fmt.Sprintf("client-%d", time.Now().UnixNano())),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.ZstdCompression(), kgo.GzipCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		record := &kgo.Record{Topic: testTopic, Key: r.Key, Value: r.Value, Headers: []kgo.RecordHeader{{Key: "generation", Value: []byte("7")}}}
		if err := cl.ProduceSync(t.Context(), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cl.EndTransaction(t.Context(), how); err != nil {
		t.Fatal(err)
	}
}

func TestTailReadsTransactionsAndControlRecords(t *testing.T) {
	c := fakeCluster(t)
	k := open(t, c.ListenAddrs(), partitions(1))
	w := claim(t, k, 0)
	mustPut(t, w, kv("a", "1"))
	long := strings.Repeat("x", 1000) // long enough to be compressed
	transact(t, c.ListenAddrs(), kgo.TryCommit, kv("t", long))
	transact(t, c.ListenAddrs(), kgo.TryAbort, kv("t", "2"))
	mustPut(t, w, kv("a", "2"))
	m := newMemory()
	follow(t, k, m)
	reaches(t, k, m, 0)
	equal(t, "log", m.values(0), []string{"a=1", "t=" + long, "control1", "t=2", "control2", "a=2"})
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, e := range m.entries[0][1:] {
		client := i >= 1 && i <= 4
		if e.Transactional != client || client == (e.ProducerID == w.Claim().ProducerID) {
			t.Errorf("%+v", e)
		}
		if (i == 1 || i == 3) && (len(e.Headers) != 1 || e.Headers[0].Key != "generation" || string(e.Headers[0].Value) != "7") {
			t.Errorf("headers %+v", e.Headers)
		}
	}
}

func TestTailTellsTheEnd(t *testing.T) {
	clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
		k := open(t, c.ListenAddrs(), partitions(4), dial)
		m := newMemory()
		follow(t, k, m)
		eventually(t, func() error {
			for p := range int32(4) {
				if m.atEnd(p) < 3 {
					return fmt.Errorf("partition %d: told %d times that it is at the end", p, m.atEnd(p))
				}
			}
			return nil
		})
		before := m.atEnd(0)
		time.Sleep(time.Second) // what is looked at is how often something happens in a time
		if n := m.atEnd(0) - before; n > 12 {
			t.Fatalf("told the end %d times in a second, with a read wait of 100 ms", n)
		}
	})
}

func TestTailGoesOnAfterCompaction(t *testing.T) {
	c := fakeCluster(t)
	k := open(t, c.ListenAddrs(), partitions(1))
	w := claim(t, k, 0)
	for i := range 30 {
		mustPut(t, w, kv("a", fmt.Sprint(i)), kv("b", fmt.Sprint(i)))
	}
	if err := w.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Compact()
	m := newMemory()
	m.resume[0] = Position{20, EpochNone}
	follow(t, k, m)
	reaches(t, k, m, 0)
	equal(t, "log", m.values(0), []string{"a=29", "b=29"})
	mustPut(t, claim(t, k, 0), kv("a", "new"))
	reaches(t, k, m, 0)
	equal(t, "log", m.values(0), []string{"a=29", "b=29", "a=new"})
	equal(t, "resets", m.why(), nil)
}

func TestTailBeginsAtTheLogsStart(t *testing.T) {
	c := fakeCluster(t)
	k := open(t, c.ListenAddrs(), partitions(2))
	w := claim(t, k, 0)
	for i := range 10 {
		mustPut(t, w, kv("a", fmt.Sprint(i)))
	}
	if err := c.DeleteRecords(testTopic, 0, 8); err != nil {
		t.Fatal(err)
	}
	fresh, behind := newMemory(), newMemory()
	behind.resume[0] = Position{3, 0}
	follow(t, k, fresh)
	follow(t, k, behind)
	for _, m := range []*memory{fresh, behind} {
		reaches(t, k, m, 0)
		equal(t, "log", m.values(0), []string{"a=7", "a=8", "a=9"})
	}
	equal(t, "resets of one that had read nothing", fresh.why(), nil)
	equal(t, "resets of one that had", behind.why(), []string{"0: the log starts at offset 8, after 3, up to which it was read"})
}

func TestTailNoticesALogThatWasCutOff(t *testing.T) {
	c := fakeCluster(t)
	k := open(t, c.ListenAddrs(), partitions(1))
	w := claim(t, k, 0)
	for i := range 5 {
		mustPut(t, w, kv("a", fmt.Sprint(i)))
	}
	all := []string{"a=0", "a=1", "a=2", "a=3", "a=4"}

	beyond := newMemory()
	beyond.resume[0] = Position{100, EpochNone}
	follow(t, k, beyond)
	eventually(t, func() error {
		if len(beyond.values(0)) < 5 {
			return fmt.Errorf("read %v", beyond.values(0))
		}
		return nil
	})
	equal(t, "log", beyond.values(0), all)
	equal(t, "resets", beyond.why(), []string{"0: the log was cut off: it ends at offset 6, before 100, up to which it was read"})

	// A leader that says that our epoch ends before our position: after a move, while the tail runs.
	m := newMemory()
	follow(t, k, m)
	reaches(t, k, m, 0)
	c.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r := req.(*kmsg.OffsetForLeaderEpochRequest)
		resp := r.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = testTopic
		rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		rp.LeaderEpoch, rp.EndOffset = r.Topics[0].Partitions[0].LeaderEpoch, 2
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	for node := range int32(3) {
		if err := c.MoveTopicPartition(testTopic, 0, node); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		if len(m.why())+len(beyond.why()) < 2 { // whichever of the two asks first gets the answer
			return errors.New("no reset")
		}
		return nil
	})
	why := slices.Concat(m.why(), beyond.why()[1:])
	if len(why) != 1 || !strings.Contains(why[0], "ends at offset 2, and ") {
		t.Fatal(why)
	}
	for _, m := range []*memory{m, beyond} {
		eventually(t, func() error {
			if got := m.values(0); !slices.Equal(got, all) {
				return fmt.Errorf("read %v", got)
			}
			return nil
		})
	}
}

func TestCutOff(t *testing.T) {
	pos := Position{10, 5}
	for _, test := range []struct {
		leader, epoch int32
		end           int64
		cut           bool
	}{
		{6, 5, 10, false}, {6, 5, 20, false}, {6, 5, 9, true}, {6, 4, 10, true}, {6, 4, 3, true},
		{6, -1, -1, false}, {5, -1, -1, false}, {4, -1, -1, true},
	} {
		if why := cutOff(pos, leadership{1, test.leader}, test.epoch, test.end); (why != "") != test.cut {
			t.Errorf("%+v: %q", test, why)
		}
	}
}

func TestTailFollowerErrors(t *testing.T) {
	clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
		k := open(t, c.ListenAddrs(), partitions(4), dial)
		m := newMemory()
		tries := map[int32]int{}
		stuck := make(chan struct{})
		m.fail = func(p int32, b Batch) error {
			if len(b.Entries) == 0 {
				return nil
			}
			tries[p]++
			switch {
			case p == 0:
				return ErrRefused
			case p == 1 && tries[p] == 1:
				return fmt.Errorf("%w: format", ErrRebuild)
			case p == 2 && tries[p] < 3:
				return errors.New("disk")
			}
			return nil
		}
		slow := &slowFollower{memory: m, p: 3, stuck: stuck}
		for p := range int32(4) {
			mustPut(t, claim(t, k, p), kv("a", fmt.Sprint(p)))
		}
		ended := make(chan error, 1)
		go func() { ended <- k.Follow(t.Context(), slow) }()
		for p := int32(1); p < 3; p++ {
			reaches(t, k, m, p)
			equal(t, "log", m.values(p), []string{fmt.Sprintf("a=%d", p)})
		}
		equal(t, "of the refused and the stuck", slices.Concat(m.values(0), m.values(3)), nil)
		// While one is stuck the others are read without delay.
		w := claim(t, k, 2)
		began := time.Now()
		for i := range 20 {
			mustPut(t, w, kv("b", fmt.Sprint(i)))
			reaches(t, k, m, 2)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Fatalf("20 appends were read one after the other in %v", took)
		}
		close(stuck)
		reaches(t, k, m, 3)
		equal(t, "resets", m.why(), []string{"1: " + ErrRebuild.Error() + ": format"})
		k.Close()
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if tries[0] != 1 {
			t.Fatalf("a refused partition was tried %d times", tries[0])
		}
	})
}

// slowFollower does not return from the first batch of p until stuck is closed.
type slowFollower struct {
	*memory
	p     int32
	stuck chan struct{}
}

func (s *slowFollower) Batch(p int32, b Batch) error {
	if p == s.p {
		<-s.stuck
	}
	return s.memory.Batch(p, b)
}
