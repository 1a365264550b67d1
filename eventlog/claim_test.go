package eventlog

import (
	"context"
	"errors"
	"fmt"
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

func renewing(d time.Duration) func(*KafkaConfig) {
	return func(c *KafkaConfig) { c.RenewInterval = d }
}

// batchOf is the batch that a Produce request has for a partition.
func batchOf(t testing.TB, p kmsg.ProduceRequestTopicPartition) kmsg.RecordBatch {
	var b kmsg.RecordBatch
	if err := b.ReadFrom(p.Records); err != nil {
		t.Error(err)
	}
	return b
}

// answer is a Produce response with one code for the request's first partition.
func answer(req kmsg.Request, code int16) kmsg.Response {
	r := req.(*kmsg.ProduceRequest)
	resp := r.ResponseKind().(*kmsg.ProduceResponse)
	rt := kmsg.NewProduceResponseTopic()
	rt.Topic, rt.TopicID = r.Topics[0].Topic, r.Topics[0].TopicID
	rp := kmsg.NewProduceResponseTopicPartition()
	rp.Partition, rp.ErrorCode, rp.BaseOffset = r.Topics[0].Partitions[0].Partition, code, 1
	rt.Partitions = append(rt.Partitions, rp)
	resp.Topics = append(resp.Topics, rt)
	return resp
}

func TestFenceIsProvenOnce(t *testing.T) {
	c := fakeCluster(t)
	var probes atomic.Int64
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		for _, p := range req.(*kmsg.ProduceRequest).Topics[0].Partitions {
			if b := batchOf(t, p); b.ProducerEpoch == 0 && b.FirstSequence == 0 {
				probes.Add(1)
			}
		}
		return nil, nil, false
	})
	k := open(t, c.ListenAddrs(), partitions(6))
	var wg sync.WaitGroup
	for p := range int32(6) {
		wg.Go(func() {
			w, err := k.Claim(t.Context(), p, Ownership{})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := put(t, w, kv("a", "1")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	// The one that proved it begins with epoch 1, the others with 0: their ownership records are of epoch 0 too.
	if n := probes.Load(); n != 1+5 {
		t.Fatalf("%d batches of epoch 0 and sequence 0, want a probe and five claims", n)
	}
}

func TestClusterWithoutFenceIsRefused(t *testing.T) {
	for _, test := range []struct {
		name string
		code int16
		want string
	}{
		{"accepted", 0, "accepted epoch 0 of producer id"},
		{"refused for another reason", kerr.OutOfOrderSequenceNumber.Code, "OUT_OF_ORDER_SEQUENCE_NUMBER"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := fakeCluster(t)
			var probe kmsg.RecordBatch
			c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				if b := batchOf(t, req.(*kmsg.ProduceRequest).Topics[0].Partitions[0]); b.ProducerEpoch == 0 {
					probe = b
					return answer(req, test.code), nil, true
				}
				return nil, nil, false
			})
			k := open(t, c.ListenAddrs(), partitions(2))
			_, err := k.Claim(t.Context(), 0, Ownership{NodeID: 5})
			if !errors.Is(err, ErrFenceUnproven) || !strings.Contains(err.Error(), test.want) {
				t.Fatal(err)
			}
			if _, again := k.Claim(t.Context(), 1, Ownership{}); !errors.Is(again, ErrFenceUnproven) {
				t.Fatalf("the next claim: %v", again)
			}
			var e Entry
			if _, err := decodeRecord(probe.Records, 0, &e); err != nil {
				t.Fatal(err)
			}
			r, err := Decode(Raw{e.Key, e.Value})
			if o, ok := r.Value.(*Ownership); err != nil || !ok || o.ProducerEpoch != 1 || o.Claim != 0 || o.NodeID != 5 {
				t.Fatalf("the probe would do harm: %+v, %v", r, err)
			}
		})
	}
}

// TestWhatIsNoVerdictOnTheFence: an answer to the probe that may be another one the next time does not end this replica's claims for good.
func TestWhatIsNoVerdictOnTheFence(t *testing.T) {
	for name, test := range map[string]struct {
		lost bool  // the claim is acknowledged, and lost
		code int16 // of the answer to the probe
		want error
	}{
		"the clock was set":        {false, kerr.InvalidTimestamp.Code, kerr.InvalidTimestamp},
		"a right was taken":        {false, kerr.TopicAuthorizationFailed.Code, kerr.TopicAuthorizationFailed},
		"the log lost the claim":   {true, 0, ErrOutcomeUnknown},
		"the authorizer is strict": {false, kerr.ClusterAuthorizationFailed.Code, kerr.ClusterAuthorizationFailed},
	} {
		t.Run(name, func(t *testing.T) {
			c := fakeCluster(t)
			var well atomic.Bool
			c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				probe := batchOf(t, req.(*kmsg.ProduceRequest).Topics[0].Partitions[0]).ProducerEpoch == 0
				switch {
				case well.Load():
				case probe:
					return answer(req, test.code), nil, true
				case test.lost:
					return answer(req, 0), nil, true
				}
				return nil, nil, false
			})
			k := open(t, c.ListenAddrs(), partitions(2))
			if _, err := k.Claim(t.Context(), 0, Ownership{NodeID: 5}); !errors.Is(err, test.want) || errors.Is(err, ErrFenceUnproven) {
				t.Fatalf("the first claim: %v", err)
			}
			well.Store(true)
			mustPut(t, claim(t, k, 0), kv("a", "1"))
			mustPut(t, claim(t, k, 1), kv("a", "1"))
		})
	}
}

func TestEpochThatDoesNotRiseIsRefused(t *testing.T) {
	c := fakeCluster(t)
	c.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.(*kmsg.InitProducerIDRequest).ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ProducerID, resp.ProducerEpoch = 7, 0
		return resp, nil, true
	})
	k := open(t, c.ListenAddrs(), partitions(1))
	if _, err := k.Claim(t.Context(), 0, Ownership{}); !errors.Is(err, ErrFenceUnproven) {
		t.Fatal(err)
	}
}

func TestProofThatFailedIsTriedAgain(t *testing.T) {
	clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
		k := open(t, c.ListenAddrs(), partitions(1), deadline(200*time.Millisecond), dial)
		fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.CoordinatorNotAvailable, Count: -1})
		if _, err := k.Claim(t.Context(), 0, Ownership{}); err == nil || errors.Is(err, ErrFenceUnproven) {
			t.Fatal(err)
		}
		fault.Remove()
		mustPut(t, claim(t, k, 0), kv("a", "1"))
	})
}

func TestRenewalBetweenBatches(t *testing.T) {
	c := fakeCluster(t)
	k := open(t, c.ListenAddrs(), partitions(1), renewing(100*time.Millisecond))
	m := newMemory()
	follow(t, k, m)
	w := claim(t, k, 0)
	first := w.Claim()
	var want []string
	for i := 0; w.Claim().ProducerEpoch < first.ProducerEpoch+5; i++ {
		mustPut(t, w, kv("a", fmt.Sprint(i)))
		want = append(want, fmt.Sprintf("a=%d", i))
		if i%20 == 0 {
			time.Sleep(time.Millisecond) // so that the log stays small while renewals become due
		}
	}
	last := w.Claim()
	if last.ProducerID != first.ProducerID || last.Generation <= first.Generation {
		t.Fatalf("from %+v to %+v", first, last)
	}
	reaches(t, k, m, 0)
	equal(t, "log", m.values(0), want)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries[0] {
		if e.Offset == last.Generation {
			r, err := Decode(Raw{e.Key, e.Value})
			if o, ok := r.Value.(*Ownership); err != nil || !ok || o.ProducerEpoch != last.ProducerEpoch || e.ProducerEpoch != last.ProducerEpoch || o.Claim != -1 {
				t.Fatalf("renewal %+v, %+v, %v", e, r, err)
			}
			return
		}
	}
	t.Fatalf("no record at the generation %d", last.Generation)
}

// TestRenewalDoesNotTakeOver: kfake lets anybody raise the epoch with an old one, so only what is in the log tells.
func TestRenewalDoesNotTakeOver(t *testing.T) {
	c := fakeCluster(t)
	k := open(t, c.ListenAddrs(), partitions(1), renewing(200*time.Millisecond))
	other := open(t, c.ListenAddrs())
	w := claim(t, k, 0)
	mustPut(t, w, kv("a", "1"))
	eventually(t, func() error { // its claim may fall between the two steps of a renewal, and is fenced by it then
		_, err := other.Claim(t.Context(), 0, Ownership{})
		return err
	})
	eventually(t, func() error {
		if w.(*appender).check(time.Now()); !dead(w) {
			return errors.New("the writer lives on")
		}
		return nil
	})
	if _, err := put(t, w, kv("a", "3")); !errors.Is(err, ErrFenced) {
		t.Fatal(err)
	}
}

func dead(w Writer) bool {
	a := w.(*appender)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err != nil
}

// TestRenewalSeesTransactionsOfOthers: what clients write inside their transactions is no claim.
func TestRenewalSeesTransactionsOfOthers(t *testing.T) {
	c := fakeCluster(t)
	k := open(t, c.ListenAddrs(), partitions(1), renewing(300*time.Millisecond))
	w := claim(t, k, 0)
	first := w.Claim()
	transact(t, c.ListenAddrs(), kgo.TryCommit, kv("tx", "1"))
	eventually(t, func() error {
		if w.Claim().ProducerEpoch < first.ProducerEpoch+1 {
			return errors.New("not renewed")
		}
		return nil
	})
	mustPut(t, w, kv("a", "1"))
}

func TestRenewalFails(t *testing.T) {
	for _, test := range []struct {
		name string
		code *kerr.Error
		id   int64
		want error // nil: the writer goes on, and is renewed later
	}{
		{"fenced", kerr.ProducerFenced, 0, ErrFenced},
		{"old epoch", kerr.InvalidProducerEpoch, 0, ErrFenced},
		{"forgotten", kerr.InvalidProducerIDMapping, 0, ErrClaimExpired},
		{"another producer id", nil, 99, ErrClaimExpired},
		{"forbidden for now", kerr.TransactionalIDAuthorizationFailed, 0, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := fakeCluster(t)
			k := open(t, c.ListenAddrs(), partitions(1), renewing(100*time.Millisecond))
			w := claim(t, k, 0)
			first := w.Claim()
			asked := make(chan struct{})
			c.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
				if r := req.(*kmsg.InitProducerIDRequest); r.ProducerID != first.ProducerID || r.ProducerEpoch < first.ProducerEpoch {
					t.Errorf("the renewal doesn't name the epoch in force: %+v", r)
				}
				close(asked)
				resp := req.(*kmsg.InitProducerIDRequest).ResponseKind().(*kmsg.InitProducerIDResponse)
				resp.ProducerID = test.id
				if test.code != nil {
					resp.ErrorCode = test.code.Code
				}
				return resp, nil, true
			})
			<-asked
			refused := w.Claim().ProducerEpoch
			if test.want != nil {
				if _, err := put(t, w, kv("a", "1")); !errors.Is(err, test.want) {
					t.Fatal(err)
				}
				return
			}
			mustPut(t, w, kv("a", "1"))
			eventually(t, func() error {
				if w.Claim().ProducerEpoch == refused {
					return errors.New("not renewed")
				}
				return nil
			})
		})
	}
}

// TestFreshProducerIsFencedOrWaitedFor: where the producer id is another one than the predecessor's, that one is fenced, and where the cluster does not take
// that, a lease is waited.
func TestFreshProducerIsFencedOrWaitedFor(t *testing.T) {
	c := fakeCluster(t)
	k := open(t, c.ListenAddrs(), partitions(1))
	w := claim(t, k, 0)
	now := Owner{Ownership: Ownership{ProducerID: w.Claim().ProducerID}}
	old, released := now, now
	old.ProducerID--
	released.ProducerID--
	released.Released = true
	var code int16
	var fences []kmsg.RecordBatch
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if b := batchOf(t, req.(*kmsg.ProduceRequest).Topics[0].Partitions[0]); b.ProducerEpoch == formerEpoch {
			fences = append(fences, b)
			return answer(req, code), nil, true
		}
		return nil, nil, false
	})
	for _, test := range []struct {
		name          string
		prev          *Owner
		code          int16
		fenced, fresh bool
	}{
		{"none", nil, 0, false, false},
		{"same", &now, 0, false, false},
		{"released", &released, 0, false, false},
		{"another", &old, 0, true, false},
		{"another, fenced before", &old, kerr.OutOfOrderSequenceNumber.Code, true, false},
		{"another, and the cluster asks its coordinator", &old, kerr.InvalidProducerEpoch.Code, true, true},
		{"another, and the cluster does not know it", &old, kerr.InvalidProducerIDMapping.Code, true, true},
	} {
		const lease = 150 * time.Millisecond
		code, fences = test.code, nil
		began := time.Now()
		w, err := k.ClaimAfter(t.Context(), 0, Ownership{NodeID: 5}, test.prev, lease)
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		if w.Claim().FreshProducer != test.fresh || test.fresh && took < lease {
			t.Errorf("%s: fresh %v after %v", test.name, w.Claim().FreshProducer, took)
		}
		if len(fences) > 1 || (len(fences) == 1) != test.fenced {
			t.Errorf("%s: %d batches under the former producer id", test.name, len(fences))
			continue
		}
		for _, b := range fences {
			var e Entry
			if _, err := decodeRecord(b.Records, 0, &e); err != nil {
				t.Fatal(err)
			}
			r, err := Decode(Raw{e.Key, e.Value})
			if o, ok := r.Value.(*Ownership); err != nil || !ok || b.ProducerID != old.ProducerID || o.ProducerID != old.ProducerID || o.ProducerEpoch != formerEpoch || o.Claim != -1 || o.NodeID != 5 {
				t.Errorf("%s: fenced by %+v, %v", test.name, r, err)
			}
		}
	}
}

// TestAClaimThatIsNotRenewedWritesAllTheSame: the leader would forget its producer otherwise, and accept older epochs again.
func TestAClaimThatIsNotRenewedWritesAllTheSame(t *testing.T) {
	c := fakeCluster(t)
	k := open(t, c.ListenAddrs(), partitions(1), renewing(50*time.Millisecond))
	w := claim(t, k, 0)
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.TransactionalIDAuthorizationFailed, Count: -1})
	defer fault.Remove()
	first, err := k.End(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if end, err := k.End(t.Context(), 0); err != nil || end < first+3 {
			return fmt.Errorf("the log ends at %d, was %d, %v", end, first, err)
		}
		return nil
	})
	mustPut(t, w, kv("a", "1"))
}

// TestATailThatIsReadTooSlowly: what is behind the last known claim can't be read within the time of an append, at no try. The claim is made all the same, with the
// known producer fenced, and one lease waited for others.
func TestATailThatIsReadTooSlowly(t *testing.T) {
	clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
		k := open(t, c.ListenAddrs(), partitions(1), deadline(300*time.Millisecond), dial)
		w := claim(t, k, 0)
		mustPut(t, w, kv("a", "1"))
		fenced := 0
		c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if b := batchOf(t, req.(*kmsg.ProduceRequest).Topics[0].Partitions[0]); b.ProducerEpoch == formerEpoch {
				fenced++
				return answer(req, 0), nil, true
			}
			return nil, nil, false
		})
		c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			c.SleepControl(func() { time.Sleep(time.Second) }) // each read takes longer than an append may
			return nil, nil, false
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		const lease = 150 * time.Millisecond
		prev := &Owner{Ownership: Ownership{ProducerID: w.Claim().ProducerID - 1}, Offset: 0}
		next, err := k.ClaimAfter(ctx, 0, Ownership{NodeID: 5}, prev, lease)
		if err != nil {
			t.Fatal(err)
		}
		if !next.Claim().FreshProducer || fenced != 1 {
			t.Errorf("claim %+v, %d fences", next.Claim(), fenced)
		}
	})
}
