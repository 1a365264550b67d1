package eventlog

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const annexTopic = "annex"

var annexing = Annexing{What: "side topic", Advice: "name another one", BatchBytesWanted: 2 << 20}

func openAnnex(t testing.TB, seeds []string, change ...func(*KafkaConfig)) *Kafka {
	t.Helper()
	cfg := KafkaConfig{SeedBrokers: seeds, Topic: annexTopic, Partitions: 2, ReadWait: 100 * time.Millisecond}
	for _, c := range change {
		c(&cfg)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	k, err := OpenAnnex(ctx, cfg, annexing)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// annexes are both kinds, each with its log.
func annexes(t *testing.T, test func(t *testing.T, log Log, annex Annex)) {
	t.Run("fake", func(t *testing.T) {
		log, annex := NewFake(FakeOptions{Partitions: 2}), NewFake(FakeOptions{Topic: annexTopic, Partitions: 2})
		defer log.Close()
		defer annex.Close()
		test(t, log, annex)
	})
	t.Run("kfake", func(t *testing.T) {
		seeds := fakeCluster(t).ListenAddrs()
		test(t, open(t, seeds, partitions(2)), openAnnex(t, seeds))
	})
}

// TestAdoptedClaims: a former owner is refused from the present one's first record on, and no claim begins twice.
func TestAdoptedClaims(t *testing.T) {
	annexes(t, func(t *testing.T, log Log, annex Annex) {
		claimOf := func() Writer {
			t.Helper()
			w, err := log.Claim(t.Context(), 1, Ownership{NodeID: 7, Instance: "a", LogID: "the log's"})
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		adopt := func(w Writer) (Writer, error) {
			return annex.Adopt(t.Context(), Ownership{NodeID: 7, Instance: "a", LogID: "the log's"}, w.Claim())
		}
		first := claimOf()
		a, err := adopt(first)
		if err != nil {
			t.Fatal(err)
		}
		c := a.Claim()
		if c.ProducerID != first.Claim().ProducerID || c.ProducerEpoch != first.Claim().ProducerEpoch || c.Generation != 0 || c.Partition != 1 {
			t.Errorf("claim %+v, adopted from %+v", c, first.Claim())
		}
		if offset := mustPut(t, a, kv("k", "1")); offset != 1 {
			t.Errorf("offset %d, want 1", offset)
		}
		if _, err := adopt(first); !errors.Is(err, ErrClaimUsed) {
			t.Errorf("adopted twice: %v", err)
		}
		a.Renew() // has no claim of its own
		mustPut(t, a, kv("k", "2"))
		if got := a.Claim(); got != c {
			t.Errorf("an adopted claim renews itself: %+v", got)
		}
		second := claimOf()
		// Before the new owner's first record Kafka takes what the former one writes; kfake refuses it already.
		records := int64(5)
		if _, err := put(t, a, kv("k", "early")); err == nil {
			records++
		} else if !errors.Is(err, ErrFenced) {
			t.Error(err)
		}
		b, err := adopt(second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := put(t, a, kv("k", "late")); !errors.Is(err, ErrFenced) {
			t.Errorf("a former owner's write: %v", err)
		}
		mustPut(t, b, kv("k", "3"))
		if end, err := annex.End(t.Context(), 1); err != nil || end != records {
			t.Errorf("end %d, want %d; %v", end, records, err)
		}
		// A renewal of the log's writer is a claim to adopt.
		epoch := second.Claim().ProducerEpoch
		second.Renew()
		eventually(t, func() error {
			if second.Claim().ProducerEpoch == epoch {
				return errors.New("not renewed")
			}
			return nil
		})
		if b, err = adopt(second); err != nil {
			t.Fatal(err)
		}
		mustPut(t, b, kv("k", "4"))
		if o := lastOwnership(t, annex); o.NodeID != 7 || o.Claim != -1 || o.LogID != "" || o.ProducerEpoch != second.Claim().ProducerEpoch {
			t.Errorf("ownership record %+v", o)
		}
	})
}

// lastOwnership reads partition 1.
func lastOwnership(t *testing.T, annex Annex) (last Ownership) {
	t.Helper()
	end, err := annex.End(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	m := newMemory()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = annex.Follow(ctx, m)
	}()
	eventually(t, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.pos[1].Offset < end {
			return errors.New("not read yet")
		}
		return nil
	})
	cancel()
	<-done
	for _, e := range m.entries[1] {
		if IsOwnershipKey(e.Key) {
			v, err := DecodeValue(TypeOwnership, e.Value)
			if err != nil {
				t.Fatal(err)
			}
			last = *v.(*Ownership)
		}
	}
	return last
}

func TestValueBytesMax(t *testing.T) {
	seeds := fakeCluster(t).ListenAddrs()
	log, annex := open(t, seeds, partitions(2)), openAnnex(t, seeds)
	w, err := annex.Adopt(t.Context(), Ownership{}, claim(t, log, 0).Claim())
	if err != nil {
		t.Fatal(err)
	}
	if got := annex.BatchBytesMax(); got != 2<<20 {
		t.Errorf("max.message.bytes is %d", got)
	}
	key := strings.Repeat("k", 300)
	fits := ValueBytesMax(len(key), annex.BatchBytesMax())
	mustPut(t, w, kv(key, strings.Repeat("x", fits)))
	if _, err := put(t, w, kv(key, strings.Repeat("x", fits+50))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("fifty bytes more: %v", err)
	}
	if got := ValueBytesMax(3<<20, annex.BatchBytesMax()); got != 0 {
		t.Errorf("with a key that does not fit: %d", got)
	}
}

// TestAnnexIsCheckedAndNoticed: its errors speak of what it is, and a topic that is gone is told apart.
func TestAnnexIsCheckedAndNoticed(t *testing.T) {
	c := fakeCluster(t)
	seeds := c.ListenAddrs()
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	compact := "compact"
	if _, err := adm.CreateTopic(t.Context(), 3, 1, map[string]*string{"cleanup.policy": &compact}, annexTopic); err != nil {
		t.Fatal(err)
	}
	cfg := KafkaConfig{SeedBrokers: seeds, Topic: annexTopic, Partitions: 2}
	if _, err := OpenAnnex(t.Context(), cfg, annexing); err == nil || err.Error() != "side topic annex: partition count is 3, must be 2: name another one" {
		t.Errorf("%v", err)
	}
	if _, err := adm.DeleteTopic(t.Context(), annexTopic); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []KafkaConfig{{SeedBrokers: seeds, Topic: annexTopic}, {SeedBrokers: seeds, Partitions: 2}} {
		if _, err := OpenAnnex(t.Context(), bad, annexing); err == nil {
			t.Errorf("opened with %+v", bad)
		}
	}
	log, annex := open(t, seeds, partitions(2)), openAnnex(t, seeds)
	w, err := annex.Adopt(t.Context(), Ownership{}, claim(t, log, 0).Claim())
	if err != nil {
		t.Fatal(err)
	}
	ended := follow(t, annex, newMemory())
	if _, err := adm.DeleteTopic(t.Context(), annexTopic); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.CreateTopic(t.Context(), 2, 1, map[string]*string{"cleanup.policy": &compact}, annexTopic); err != nil {
		t.Fatal(err)
	}
	annex.leaders.refresh()
	select {
	case err := <-ended:
		if !errors.Is(err, ErrTopicGone) || !strings.Contains(err.Error(), "side topic annex was deleted and made again") {
			t.Errorf("Follow: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("a topic that was replaced is not noticed")
	}
	if _, err := put(t, w, kv("k", "1")); !errors.Is(err, ErrTopicGone) {
		t.Errorf("append: %v", err)
	}
	if _, err := annex.Adopt(t.Context(), Ownership{}, Claim{Partition: 1, ProducerID: 77}); !errors.Is(err, ErrTopicGone) {
		t.Errorf("adopt: %v", err)
	}
	if err := annex.leaders.gone(); !errors.Is(err, ErrTopicGone) || !strings.Contains(err.Error(), "side topic annex was deleted while the process ran") {
		t.Errorf("%v", err)
	}
}

// TestAnnexOfAClusterWithALimit: the topic is made with the cluster's own batch size where the wanted one is refused.
func TestAnnexOfAClusterWithALimit(t *testing.T) {
	c := fakeCluster(t)
	refusals := 0
	c.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		r := req.(*kmsg.CreateTopicsRequest)
		for _, config := range r.Topics[0].Configs {
			if config.Name == "max.message.bytes" {
				refusals++
				resp := r.ResponseKind().(*kmsg.CreateTopicsResponse)
				rt := kmsg.NewCreateTopicsResponseTopic()
				rt.Topic, rt.ErrorCode = r.Topics[0].Topic, kerr.PolicyViolation.Code
				resp.Topics = append(resp.Topics, rt)
				return resp, nil, true
			}
		}
		return nil, nil, false
	})
	annex := openAnnex(t, c.ListenAddrs())
	if refusals != 1 || annex.BatchBytesMax() >= annexing.BatchBytesWanted {
		t.Errorf("%d refusals, max.message.bytes %d", refusals, annex.BatchBytesMax())
	}
	topic, err := annex.topicConfigs(t.Context())
	if err != nil || topic["cleanup.policy"] != "compact" || topic["min.compaction.lag.ms"] != "3600000" {
		t.Errorf("the other settings are %v, %v", topic, err)
	}
}
