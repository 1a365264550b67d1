package fence

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/internal/kafkatest"
)

// expiring is a broker that forgets transactional ids after ten seconds without a use; replicas then renew their claims every two and a half.
func expiring(version string) kafkatest.Options {
	o := options(version)
	o.Properties["transactional.id.expiration.ms"] = "10000"
	o.Properties["transaction.remove.expired.transaction.cleanup.interval.ms"] = "500"
	return o
}

// noFencing is a cluster that does not take an epoch that it gave to nobody.
func noFencing(req kmsg.Request) kmsg.Response {
	q, ok := req.(*kmsg.ProduceRequest)
	if !ok {
		return nil
	}
	refused := false
	resp := kafkatest.ProduceAnswer(q, func(p kmsg.ProduceRequestTopicPartition, a *kmsg.ProduceResponseTopicPartition) {
		var b kmsg.RecordBatch
		refused = refused || b.ReadFrom(p.Records) == nil && b.ProducerEpoch == math.MaxInt16
		a.BaseOffset, a.ErrorCode = -1, kerr.InvalidProducerEpoch.Code
	})
	if !refused {
		return nil
	}
	return resp
}

// TestTheClusterForgetsTheTransactionalID: then the successor has another producer id, whose epochs fence nobody. It fences the former owner's id by hand, and the
// cluster refuses what that one had under way. Where the cluster does not let it do that, it takes what the former owner had under way; nobody counts
// it, and the successor repairs what compaction would otherwise believe.
func TestTheClusterForgetsTheTransactionalID(t *testing.T) {
	t.Parallel()
	for _, version := range versions() {
		for _, fences := range []bool{true, false} {
			name := version + ", it can be fenced"
			if !fences {
				name = version + ", it can't be fenced"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				forgottenID(t, version, fences)
			})
		}
	}
}

func forgottenID(t *testing.T, version string, fences bool) {
	w := newWorld(t, expiring(version))
	s := w.working()
	s.next.Stop() // or it would keep the id alive
	before := w.owner(0)
	s.send()
	s.former.Pause()
	w.waitForgotten(fmt.Sprintf("%s-0", w.topic))

	if !fences {
		s.next.relay.SetAnswer(noFencing)
	}
	s.next.Start()
	w.waitOwner(0, s.next.node, before.From)
	w.useNext(s.next, s.group, "m2", nextOffset)
	if now := w.owner(0); now.ProducerID == before.ProducerID {
		t.Fatalf("the successor has the same producer id %d: nothing is tested", now.ProducerID)
	}
	s.former.relay.Drop(s.held)
	if !fences { // the cluster takes it
		w.waitVoid()
	}
	w.useNext(s.next, s.group, "m3", nextOffset+1)
	s.wake()
	if void := w.waitRepaired().Void(); (len(void) == 0) != fences {
		t.Errorf("void records: %v", void)
	}
	w.judge(0)
}

// waitForgotten waits until the cluster has forgotten a transactional id.
func (w *world) waitForgotten(id string) {
	w.t.Helper()
	adm := kafkatest.Admin(w.t, w.cluster.Bootstrap())
	kafkatest.Eventually(w.t, patience, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		listed, err := adm.ListTransactions(ctx, nil, nil)
		if err != nil {
			return err
		}
		if txn, ok := listed[id]; ok {
			return fmt.Errorf("the cluster still knows %s: %+v", id, txn)
		}
		return nil
	})
}

// waitVoid waits until a commit that does not count is in the log.
func (w *world) waitVoid() {
	w.t.Helper()
	kafkatest.Eventually(w.t, patience, func() error {
		j, _ := w.log().Judge()
		for _, v := range j.Void() {
			if v.Record.Key.Type == eventlog.TypeOffsetCommit {
				return nil
			}
		}
		return fmt.Errorf("the late write is not in the log")
	})
}
