package eventlog

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/internal/kafkatest"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

// The brokers of these tests forget producers within seconds, so that what the fence can't do is seen in seconds.
const (
	transactionalIDExpiration = 6 * time.Second
	producerIDExpiration      = 4 * time.Second
)

func forgetful(version string) kafkatest.Options {
	return kafkatest.Options{Version: version, Properties: map[string]string{
		"transactional.id.expiration.ms":                             fmt.Sprint(transactionalIDExpiration.Milliseconds()),
		"transaction.remove.expired.transaction.cleanup.interval.ms": "500",
		"producer.id.expiration.ms":                                  fmt.Sprint(producerIDExpiration.Milliseconds()),
		"producer.id.expiration.check.interval.ms":                   "500",
	}}
}

// onKafka runs test on each version of Kafka that is supported.
func onKafka(t *testing.T, test func(t *testing.T, seeds []string)) {
	for _, version := range []string{"4.4.0", "3.9.1"} {
		t.Run(version, func(t *testing.T) {
			test(t, strings.Split(kafkatest.Shared(t, forgetful(version)).Bootstrap(), ","))
		})
	}
}

func topic(name string) func(*KafkaConfig) { return func(c *KafkaConfig) { c.Topic = name } }

func TestKafkaSettingsAndLog(t *testing.T) {
	onKafka(t, func(t *testing.T, seeds []string) {
		k := open(t, seeds, topic("plain"), partitions(3))
		s := k.Settings()
		if s.TransactionalIDExpiration != transactionalIDExpiration || s.ProducerIDExpiration != producerIDExpiration || s.MinCompactionLag != time.Hour || s.BatchBytesMax != 1048588 || s.DeleteRetention != 24*time.Hour {
			t.Fatalf("%+v", s)
		}
		if k.RenewInterval() != time.Second {
			t.Fatal(k.RenewInterval())
		}
		m := newMemory()
		follow(t, k, m)
		w := claim(t, k, 2)
		large := strings.Repeat("x", k.BatchBytesMax())
		for !fitsBatch([]Raw{kv("a", large)}, k.BatchBytesMax()) {
			large = large[1:]
		}
		mustPut(t, w, kv("a", large))
		mustPut(t, w, kv("a", "1"), Raw{Key: []byte("b")})
		if _, err := put(t, w, kv("a", large+"x")); !errors.Is(err, ErrTooLarge) {
			t.Fatal(err)
		}
		other := open(t, seeds, topic("plain"))
		claimed := time.Now()
		next := claim(t, other, 2)
		_, err := put(t, w, kv("a", "2"))
		refusedSince(t, claimed, "a write of the claim before", err, ErrFenced)
		mustPut(t, next, kv("a", "3"))
		if err := next.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		reaches(t, k, m, 2)
		equal(t, "log", m.values(2), []string{"a=" + large, "a=1", "b=", "a=3"})
		equal(t, "resets", m.why(), nil)
	})
}

// TestKafkaRenewedClaimOutlivesExpiry: neither the transactional id nor the partition's memory of the producer expires
// under an owner that writes nothing of its own for longer than both.
func TestKafkaRenewedClaimOutlivesExpiry(t *testing.T) {
	onKafka(t, func(t *testing.T, seeds []string) {
		k, other := open(t, seeds, topic("renewed"), partitions(1)), open(t, seeds, topic("renewed"), partitions(1))
		predecessor := claim(t, k, 0)
		before := predecessor.Claim()
		predecessor.Close()
		w := claim(t, other, 0)
		began := w.Claim()
		time.Sleep(transactionalIDExpiration + producerIDExpiration) // the brokers' clocks are real ones
		eventually(t, func() error {                                 // a slow machine renews later
			if now := w.Claim(); now.ProducerEpoch < began.ProducerEpoch+5 {
				return fmt.Errorf("claim %+v, later %+v", began, now)
			}
			return nil
		})
		now, unrenewed := w.Claim(), time.Now()
		eventually(t, func() error {
			looked := time.Now()
			if w.Claim().ProducerEpoch == now.ProducerEpoch {
				unrenewed = looked
				return errors.New("not renewed again")
			}
			return nil
		})
		refusedSince(t, unrenewed, "a write of the epoch before", writeAs(t, k, before, "late"), kerr.InvalidProducerEpoch)
		mustPut(t, w, kv("a", "1"))
		if now = w.Claim(); now.ProducerID != began.ProducerID {
			t.Fatalf("claim %+v, later %+v", began, now)
		}
		claimed := time.Now()
		next, err := k.ClaimAfter(t.Context(), 0, Ownership{}, &Owner{Ownership: Ownership{ProducerID: now.ProducerID}}, time.Hour)
		if err != nil || next.Claim().FreshProducer {
			t.Fatalf("%+v, %v", next, err)
		}
		_, err = put(t, w, kv("a", "2"))
		refusedSince(t, claimed, "a write of the claim before", err, ErrFenced)
	})
}

// refusedSince checks that a write was refused by the memory that the leader has of a later one, which is no older than since. Where the machine stood still for so
// long that the leader may have forgotten it, a write that was not refused says nothing, and the test ends there.
func refusedSince(t testing.TB, since time.Time, what string, err, want error) {
	t.Helper()
	took := time.Since(since)
	switch {
	case errors.Is(err, want):
	case took > producerIDExpiration/2:
		t.Skipf("%s: %v, after %v: the leader may have forgotten who wrote", what, err, took)
	default:
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

// writeAs writes one record as a claim's owner would whose batches are late, and returns the leader's answer.
func writeAs(t testing.TB, k *Kafka, c Claim, value string) error {
	t.Helper()
	op := operation{time.Now().UnixMilli(), []Raw{kv("late", value)}}
	late := &onceParcel{p: c.Partition, batch: appendBatch(nil, c.ProducerID, c.ProducerEpoch, 1, []operation{op}), outcome: make(chan error, 1)}
	k.sender(k.leaders.get(c.Partition).node).add(late)
	return <-late.outcome
}

// TestKafkaExpiredTransactionalID: the next claim gets another producer id, whose epochs fence nobody; the claimer fences the former id by hand, under an
// epoch that the cluster gave to nobody. So no lease is waited. What the predecessor writes once the leader has forgotten that id is void for readers.
func TestKafkaExpiredTransactionalID(t *testing.T) {
	onKafka(t, func(t *testing.T, seeds []string) {
		k := open(t, seeds, topic("expired"), partitions(1))
		m := newMemory()
		follow(t, k, m)
		w := claim(t, k, 0)
		old := w.Claim()
		mustPut(t, w, kv("a", "1"))
		w.Close() // nobody renews
		prev := &Owner{Ownership: Ownership{ProducerID: old.ProducerID}}
		var next Writer
		var fenced time.Time
		eventually(t, func() error { // a claim counts as use of the transactional id: ask as rarely as it expires
			time.Sleep(transactionalIDExpiration + time.Second) // the broker's clock can't be moved
			fenced = time.Now()
			w, err := k.ClaimAfter(t.Context(), 0, Ownership{NodeID: 7}, prev, time.Hour)
			if err != nil {
				return err
			}
			if c := w.Claim(); c.ProducerID == old.ProducerID {
				w.Close()
				return fmt.Errorf("the same producer id: %+v", c)
			}
			next = w
			return nil
		})
		if next.Claim().FreshProducer {
			t.Error("the former producer id could not be fenced")
		}
		refusedSince(t, fenced, "a write of a predecessor with another producer id", writeAs(t, k, old, "fenced"), kerr.InvalidProducerEpoch)
		fenced = time.Now()
		if again, err := k.ClaimAfter(t.Context(), 0, Ownership{NodeID: 8}, prev, time.Hour); err != nil || again.Claim().FreshProducer {
			t.Errorf("a second claimer that knows the predecessor alone: %v", err)
		}
		refusedSince(t, fenced, "a write of the first claimer after the second", writeAs(t, k, next.Claim(), "fenced"), kerr.InvalidProducerEpoch)
		eventually(t, func() error { return writeAs(t, k, old, "forgotten") })
		reaches(t, k, m, 0)
		m.mu.Lock()
		defer m.mu.Unlock()
		i := slices.IndexFunc(m.entries[0], func(e Entry) bool { return string(e.Value) == "forgotten" }) // a renewal may have come after it
		if i < 0 || !voids(t, m.entries[0], m.entries[0][i].Offset) {
			t.Fatalf("what the predecessor wrote counts (%d): %+v", i, m.entries[0])
		}
	})
}

// voids says whether a reader of entries voids the one at offset.
func voids(t testing.TB, entries []Entry, offset int64) bool {
	var f Fence
	for _, e := range entries {
		if key, err := DecodeKey(e.Key); err == nil && key.Type == TypeOwnership {
			r, err := Decode(Raw{e.Key, e.Value})
			if err != nil {
				t.Fatal(err)
			}
			f.Observe(e, r.Value.(*Ownership))
			continue
		}
		if v := f.Void(e); e.Offset == offset {
			return v
		}
	}
	t.Fatalf("no entry at offset %d", offset)
	return false
}

// TestKafkaEpochsAreUsedUp: after 32,767 epochs comes another producer id. A renewal that meets it ends the writer, and
// the claim after it fences the former id all the same.
func TestKafkaEpochsAreUsedUp(t *testing.T) {
	seeds := strings.Split(kafkatest.Shared(t, forgetful("4.4.0")).Bootstrap(), ",")
	k := open(t, seeds, topic("used-up"), partitions(1))
	const last = 32766 // Kafka keeps 32,767 for itself
	c, err := k.initProducer(t.Context(), Claim{ProducerID: -1, ProducerEpoch: -1})
	for c.ProducerEpoch < last-3 && err == nil {
		c, err = k.initProducer(t.Context(), Claim{ProducerID: -1, ProducerEpoch: -1})
	}
	if err != nil {
		t.Fatal(err)
	}
	w := claim(t, k, 0) // renewed every second
	began := w.Claim()
	if began.ProducerID != c.ProducerID {
		t.Fatalf("claim %+v after %+v", began, c)
	}
	eventually(t, func() error {
		if !dead(w) {
			return fmt.Errorf("still alive: %+v", w.Claim())
		}
		return nil
	})
	if _, err := put(t, w, kv("a", "1")); !errors.Is(err, ErrClaimExpired) {
		t.Fatal(err)
	}
	fenced := time.Now()
	next, err := k.ClaimAfter(t.Context(), 0, Ownership{}, &Owner{Ownership: Ownership{ProducerID: began.ProducerID}}, time.Hour)
	if err != nil || next.Claim().FreshProducer || next.Claim().ProducerID == began.ProducerID {
		t.Fatalf("%+v, %v", next, err)
	}
	mustPut(t, next, kv("a", "2"))
	refusedSince(t, fenced, "a write of the last epoch of the former producer id", writeAs(t, k, w.Claim(), "late"), kerr.InvalidProducerEpoch)
}

func TestKafkaTransactions(t *testing.T) {
	onKafka(t, func(t *testing.T, seeds []string) {
		name := testTopic // of transact
		k := open(t, seeds, topic(name), partitions(1))
		w := claim(t, k, 0)
		m := newMemory()
		follow(t, k, m)
		for i, how := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
			transact(t, seeds, how, kv("t", fmt.Sprint(i+1)))
			eventually(t, func() error { // Kafka writes the markers after it has answered
				if got := m.values(0); len(got) < 2*(i+1) {
					return fmt.Errorf("read %v", got)
				}
				return nil
			})
		}
		mustPut(t, w, kv("a", "1"))
		reaches(t, k, m, 0)
		equal(t, "log", m.values(0), []string{"t=1", "control1", "t=2", "control2", "a=1"})
	})
}

// TestKafkaBrokersDie: three brokers, of which one after the other is killed, or stands still, while four partitions are
// appended to. Nothing acknowledged is lost, nothing is doubled.
func TestKafkaBrokersDie(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Version: "4.4.0", Brokers: 3})
	const parts = 4
	change := []func(*KafkaConfig){partitions(parts), topic("dying")}
	k := open(t, strings.Split(c.Bootstrap(), ","), change...)
	m := newMemory()
	follow(t, k, m)
	stop := make(chan struct{})
	owners := make([]*owner, parts)
	var wg sync.WaitGroup
	for p := range owners {
		o := &owner{k: k, p: int32(p), name: fmt.Sprintf("p%d", p)}
		owners[p] = o
		wg.Go(func() { o.runUntil(t, stop) })
	}
	for broker := 1; broker <= 3; broker++ {
		if broker == 3 {
			c.Pause(broker)
			time.Sleep(12 * time.Second) // until the controllers take it for dead
			c.Resume(broker)
		} else {
			c.Kill(broker)
			time.Sleep(2 * time.Second) // appends go on meanwhile, on the two others
			c.Restart(broker)
		}
		time.Sleep(3 * time.Second) // replicas catch up, or the next would take the last copy away
	}
	close(stop)
	wg.Wait()
	total := 0
	for p, o := range owners {
		reaches(t, k, m, int32(p))
		m.mu.Lock()
		checkLog(t, m.entries[int32(p)], o.attempts)
		m.mu.Unlock()
		for _, a := range o.attempts {
			if a.err == nil {
				total++
			} else {
				t.Logf("%s: %v", a.name, a.err)
			}
		}
	}
	t.Logf("%d operations acknowledged", total)
	if total < 1000 {
		t.Errorf("only %d operations were acknowledged", total)
	}
	equal(t, "resets", m.why(), nil)
}
