package fence

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/history"
	"streamkeeper/internal/kafkatest"
)

// strip has a replica append without its producer id and epoch: what a log without a fence is like.
func (r *replica) strip() {
	r.relay.SetChange(func(req kmsg.Request) bool {
		q, ok := req.(*kmsg.ProduceRequest)
		if !ok {
			return false
		}
		for _, t := range q.Topics {
			for _, p := range t.Partitions {
				kafkatest.WithoutProducer(p.Records)
			}
		}
		return true
	})
}

// liar is a broker that was replaced and makes everything up that its replica relies on: it confirms heartbeats, says that there is nothing to read, and,
// once it makes appends up as well, lets what it acknowledged be read, and nothing else. No broker does all of that; it is what a log without a fence is like for the
// owner that was replaced: whatever it writes is acknowledged, is read back by itself, and counts for nobody.
type liar struct {
	mu      sync.Mutex
	appends bool
	end     int64 // of the log that it makes up, for all partitions
	batches map[int32][]madeUp
}

// madeUp is a batch of that log.
type madeUp struct {
	first int64
	bytes []byte
}

// pollMax is how long the liar keeps a fetch that brings nothing: without a wait the replica would ask all the time.
const pollMax = 20 * time.Millisecond

func (l *liar) answer(req kmsg.Request) kmsg.Response {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch q := req.(type) {
	case *kmsg.HeartbeatRequest:
		resp := q.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.SetVersion(q.GetVersion())
		return resp
	case *kmsg.FetchRequest:
		time.Sleep(pollMax) // see there
		return l.fetch(q)
	case *kmsg.ProduceRequest:
		if l.appends {
			return l.append(q)
		}
	}
	return nil
}

func (l *liar) fetch(q *kmsg.FetchRequest) kmsg.Response {
	resp := q.ResponseKind().(*kmsg.FetchResponse)
	resp.SetVersion(q.GetVersion())
	for _, t := range q.Topics {
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.Partition, rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = p.Partition, p.FetchOffset, p.FetchOffset, 0
			for _, b := range l.batches[p.Partition] {
				if b.first >= p.FetchOffset {
					rp.RecordBatches = append(rp.RecordBatches, b.bytes...)
					rp.HighWatermark = b.first + int64(binary.BigEndian.Uint32(b.bytes[23:])) + 1
				}
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (l *liar) append(q *kmsg.ProduceRequest) kmsg.Response {
	return kafkatest.ProduceAnswer(q, func(p kmsg.ProduceRequestTopicPartition, a *kmsg.ProduceResponseTopicPartition) {
		a.BaseOffset = l.end
		// The base offset is not part of what the checksum covers.
		b := madeUp{l.end, slices.Clone(p.Records)}
		binary.BigEndian.PutUint64(b.bytes, uint64(l.end))
		l.batches[p.Partition] = append(l.batches[p.Partition], b)
		l.end += 100
	})
}

// TestABrokenFenceIsFound: where a broker lies about everything, or the cluster acknowledges what a replaced owner writes, clients are told what isn't so, and the
// checks of these tests say it. It is the same replica as everywhere here; what is broken is what it relies on. Where less is broken (an append that is
// acknowledged and can't be read, say) it answers nothing, which the other tests show.
func TestABrokenFenceIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options(kafkatest.V44))
	lies := &liar{end: 1 << 40, batches: map[int32][]madeUp{}}
	former, next, group, epoch := w.split(func(former *replica) { former.relay.SetAnswer(lies.answer) })
	found := func(bad []history.Violation, rule string) error {
		if slices.ContainsFunc(bad, func(v history.Violation) bool { return v.Rule == rule }) {
			return nil
		}
		return errors.New("not found: " + rule)
	}
	inLog := func() []history.Violation {
		_, bad := w.rec.History().CheckLog(w.log())
		return bad
	}

	// The lease: its successor has raised the group's epoch, and longer than a lease later the former owner still tells the old one.
	kafkatest.Eventually(t, patience, func() error {
		if err := former.describe(group); err != nil {
			t.Fatalf("an owner that believes that its lease goes on: %v", err)
		}
		return found(w.rec.History().Check(history.Options{Stale: session}), history.RuleGroupEpoch)
	})
	if bad := inLog(); len(bad) > 0 {
		t.Fatalf("so far only an old answer was given: %v", bad)
	}

	// Producer ids: the cluster takes what it would refuse, and the former owner, which trusts its lease, doesn't read it back.
	former.strip()
	if err := former.commit(group, "m", epoch, wokenOffset); err != nil {
		t.Fatalf("the cluster refuses a batch without a producer id: %v", err)
	}
	if err := found(inLog(), history.RuleInLog); err != nil {
		t.Error(err)
	}
	j, _ := w.log().Judge()
	if void := j.Void(); len(void) != 1 || void[0].ProducerID != -1 {
		t.Errorf("void records %v, want the one that was written without a producer id", void)
	}

	// Read barriers: what is acknowledged and read back proves nothing, and the former owner answers a fetch with what it remembers.
	lies.mu.Lock()
	lies.appends = true
	lies.mu.Unlock()
	former.relay.SetChange(nil)
	if bad := w.rec.History().Check(history.Options{Stale: time.Hour}); len(bad) > 0 {
		t.Fatalf("before the fetch: %v", bad)
	}
	w.until("fetch", func() error { _, err := next.fetch(group); return err })
	w.until("fetch", func() error { _, err := former.fetch(group); return err })
	w.until("fetch", func() error { _, err := next.fetch(group); return err })
	if err := found(w.rec.History().Check(history.Options{Stale: time.Hour}), history.RuleLinearizable); err != nil {
		t.Error(err)
	}
	former.relay.SetAnswer(nil)
}
