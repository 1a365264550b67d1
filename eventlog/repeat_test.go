package eventlog

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// owned is what the ownership records of a whole log say to a reader of it: each of them must count, and so must all else of their producer. last is the newest, which is
// what compaction leaves.
func owned(t *testing.T, entries []Entry) (last Ownership, claims, repeats int) {
	t.Helper()
	var f Fence
	for _, e := range entries {
		r, err := Decode(Raw{e.Key, e.Value})
		o, ok := r.Value.(*Ownership)
		if err != nil || !ok {
			if f.Void(e) && e.ProducerID == last.ProducerID {
				t.Errorf("offset %d, of epoch %d, is void", e.Offset, e.ProducerEpoch)
			}
			continue
		}
		if !f.Observe(e, o) {
			t.Errorf("the ownership record at offset %d, in a batch of epoch %d, does not count: %+v", e.Offset, e.ProducerEpoch, *o)
		}
		if last = *o; o.Claim < 0 {
			claims++
		} else {
			repeats++
		}
	}
	return last, claims, repeats
}

// slow has the cluster keep the next request of a kind for a second.
func slow(c *kfake.Cluster, key kmsg.Key) {
	c.ControlKey(key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.SleepControl(func() { time.Sleep(time.Second) })
		return nil, nil, false
	})
}

// TestRepeatOfAClaimNamesWhatItIsWrittenUnder: a barrier or a release that waits while the writer is renewed is written under the new epoch, and must name that and its
// generation, or no reader would take it.
func TestRepeatOfAClaimNamesWhatItIsWrittenUnder(t *testing.T) {
	for name, before := range map[string]func(c *kfake.Cluster, w Writer){
		"the renewal was asked for just now": func(_ *kfake.Cluster, w Writer) { w.Renew() },
		"a batch is under way, and the renewal due": func(c *kfake.Cluster, w Writer) {
			slow(c, kmsg.Produce)
			w.Append(1, []Raw{kv("a", "1")}, nil)
			time.Sleep(time.Second / 2)
			w.Renew()
		},
		"the coordinator is asked": func(c *kfake.Cluster, w Writer) {
			slow(c, kmsg.InitProducerID)
			w.Renew()
			time.Sleep(time.Second / 2)
		},
		"the renewed claim is being written": func(c *kfake.Cluster, w Writer) {
			slow(c, kmsg.Produce)
			w.Renew()
			time.Sleep(time.Second / 2)
		},
		"what others wrote is looked through": func(c *kfake.Cluster, w Writer) {
			if err := w.(*appender).k.client.ProduceSync(context.Background(), &kgo.Record{Topic: testTopic, Key: []byte("b")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			slow(c, kmsg.Fetch)
			w.Renew()
			time.Sleep(time.Second / 2)
		},
	} {
		for _, released := range []bool{false, true} {
			t.Run(map[bool]string{false: "barrier: ", true: "release: "}[released]+name, func(t *testing.T) {
				clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
					k := open(t, c.ListenAddrs(), partitions(1), dial)
					w := claim(t, k, 0)
					first := w.Claim()
					before(c, w)
					if released {
						if err := w.Release(t.Context()); err != nil {
							t.Fatal(err)
						}
					} else {
						done := make(chan error, 1)
						w.Barrier(func(_ int64, err error) { done <- err })
						if err := <-done; err != nil {
							t.Fatal(err)
						}
						mustPut(t, w, kv("a", "2"))
					}
					if now := w.Claim(); now.ProducerEpoch != first.ProducerEpoch+1 {
						t.Fatalf("claim %+v, after %+v: not renewed", now, first)
					}
					m := newMemory()
					follow(t, k, m)
					reaches(t, k, m, 0)
					last, claims, repeats := owned(t, m.entries[0])
					if last.Released != released || claims != 2 || repeats != 1 {
						t.Errorf("%d claims, %d repeats, the last of them %+v", claims, repeats, last)
					}
				})
			})
		}
	}
}

// TestNothingTakesAReleaseBack: what the writer still writes behind the record that releases the partition says so, too.
func TestNothingTakesAReleaseBack(t *testing.T) {
	release := func(c *kfake.Cluster, w Writer) chan error {
		released := make(chan error, 1)
		go func() { released <- w.Release(context.Background()) }()
		time.Sleep(time.Second / 2)
		return released
	}
	for name, test := range map[string]func(c *kfake.Cluster, w Writer) chan error{
		"a barrier behind it": func(c *kfake.Cluster, w Writer) chan error {
			slow(c, kmsg.Produce)
			released := release(c, w)
			w.Barrier(nil)
			return released
		},
		"a renewal behind it": func(c *kfake.Cluster, w Writer) chan error {
			slow(c, kmsg.Produce)
			released := release(c, w)
			w.Renew()
			return released
		},
		"a renewal before it fails": func(c *kfake.Cluster, w Writer) chan error {
			var asked atomic.Bool
			c.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
				c.SleepControl(func() { time.Sleep(time.Second) })
				asked.Store(true)
				resp := req.(*kmsg.InitProducerIDRequest).ResponseKind().(*kmsg.InitProducerIDResponse)
				resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
				return resp, nil, true
			})
			w.Renew()
			released := release(c, w)
			if !asked.Load() && len(released) > 0 {
				t.Error("the release did not wait for the renewal")
			}
			return released
		},
	} {
		t.Run(name, func(t *testing.T) {
			clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
				k := open(t, c.ListenAddrs(), partitions(1), dial)
				w := claim(t, k, 0)
				if err := <-test(c, w); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute) // whatever is on its way arrives
				m := newMemory()
				follow(t, k, m)
				reaches(t, k, m, 0)
				if last, _, _ := owned(t, m.entries[0]); !last.Released {
					t.Errorf("the log's last word is %+v", last)
				}
			})
		})
	}
}

// TestFakeRepeatOfAClaimNamesWhatItIsWrittenUnder: the same of the Fake.
func TestFakeRepeatOfAClaimNamesWhatItIsWrittenUnder(t *testing.T) {
	inBubble(t, FakeOptions{}, func(t *testing.T, f *Fake, m *memory) {
		w := fakeClaim(t, f, 0)
		f.HoldAcks(0)
		w.Append(1, []Raw{kv("a", "1")}, nil)
		w.Renew()
		w.Barrier(nil)
		f.ReleaseAcks(0)
		f.HoldAppends(0)
		w.Renew()
		released := make(chan error, 1)
		go func() { released <- w.Release(t.Context()) }()
		synctest.Wait()
		f.ReleaseAppends(0)
		if err := <-released; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		last, claims, repeats := owned(t, m.entries[0])
		if !last.Released || claims != 3 || repeats != 2 {
			t.Errorf("%d claims, %d repeats, the last of them %+v", claims, repeats, last)
		}
	})
}
