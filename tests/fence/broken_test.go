package fence

import (
	"errors"
	"slices"
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

// pretend has the cluster's answers to appends made up: they are acknowledged and go nowhere. It is what a log without a fence is like for
// the owner that was replaced: whatever it writes is acknowledged, and counts for nobody.
func (r *replica) pretend() {
	offset := int64(1 << 40)
	r.relay.SetAnswer(func(req kmsg.Request) kmsg.Response {
		switch q := req.(type) {
		case *kmsg.HeartbeatRequest:
			resp := q.ResponseKind().(*kmsg.HeartbeatResponse)
			resp.SetVersion(q.GetVersion())
			return resp
		case *kmsg.ProduceRequest:
			resp := q.ResponseKind().(*kmsg.ProduceResponse)
			resp.SetVersion(q.GetVersion())
			for _, t := range q.Topics {
				rt := kmsg.NewProduceResponseTopic()
				rt.Topic, rt.TopicID = t.Topic, t.TopicID
				for _, p := range t.Partitions {
					rp := kmsg.NewProduceResponseTopicPartition()
					rp.Partition, rp.BaseOffset = p.Partition, offset
					offset += 100
					rt.Partitions = append(rt.Partitions, rp)
				}
				resp.Topics = append(resp.Topics, rt)
			}
			return resp
		}
		return nil
	})
}

// TestABrokenFenceIsFound: where leases never end, or the cluster acknowledges what a replaced owner writes, clients are told what isn't so, and the
// checks of these tests say it. It is the same replica as everywhere here; what is broken is what it relies on.
func TestABrokenFenceIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options(kafkatest.V44))
	former, next, group, epoch, tail := w.split(true)
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

	// Read barriers: what is acknowledged proves nothing, and the former owner answers a fetch with what it remembers.
	former.pretend()
	if bad := w.rec.History().Check(history.Options{Stale: time.Hour}); len(bad) > 0 {
		t.Fatalf("before the fetch: %v", bad)
	}
	w.until("fetch", func() error { _, err := next.fetch(group); return err })
	w.until("fetch", func() error { _, err := former.fetch(group); return err })
	w.until("fetch", func() error { _, err := next.fetch(group); return err })
	if err := found(w.rec.History().Check(history.Options{Stale: time.Hour}), history.RuleLinearizable); err != nil {
		t.Error(err)
	}
	former.relay.Drop(tail)
	former.relay.SetAnswer(nil)
	former.relay.SetChange(nil)
}
