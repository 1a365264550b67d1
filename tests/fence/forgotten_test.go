package fence

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// forgottenAfter is when it forgets a producer.
const forgottenAfter = 4 * time.Second

// forgetful is a broker that forgets within seconds who wrote to a partition; replicas then renew their claims every second.
func forgetful(version string) kafkatest.Options {
	o := options(version)
	o.Properties["producer.id.expiration.ms"] = fmt.Sprint(forgottenAfter.Milliseconds())
	o.Properties["producer.id.expiration.check.interval.ms"] = "500"
	return o
}

// TestTheClusterForgetsTheProducer: a successor that can't renew its claim writes all the same, so that the partition's leader does not forget it. One that
// sleeps is forgotten, and the leader takes what the
// former owner had under way, under its lower epoch. Nobody counts it; the successor, when it wakes up, claims anew and repairs.
func TestTheClusterForgetsTheProducer(t *testing.T) {
	t.Parallel()
	for _, version := range versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, forgetful(version))
			s := w.commitUnderWay()
			s.former.Pause()
			w.waitOwner(0, s.next.node, s.behind)
			w.useNext(s.next, s.group, "m2", nextOffset)

			s.next.relay.SetAnswer(noEpochs)
			w.notForgotten(0, forgottenAfter+2*time.Second)
			s.next.Pause()
			s.next.relay.SetAnswer(nil)
			w.waitProducerForgotten(0)
			s.former.relay.Drop(s.held) // the cluster takes it
			w.waitVoid()
			s.next.Resume()
			w.useNext(s.next, s.group, "m3", nextOffset+1)
			s.wake()
			for _, v := range w.waitRepaired().Void() {
				if v.ProducerID != s.first.ProducerID || v.Tenure.From == s.first.From {
					t.Errorf("an unexpected void record: %v", v)
				}
			}
			w.judge(0)
		})
	}
}

// noEpochs is a cluster that does not let a replica have producer epochs any more. (One whose coordinator is away is asked again for longer than these
// brokers remember a producer.)
func noEpochs(req kmsg.Request) kmsg.Response {
	q, ok := req.(*kmsg.InitProducerIDRequest)
	if !ok {
		return nil
	}
	resp := q.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.SetVersion(q.GetVersion())
	resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = kerr.TransactionalIDAuthorizationFailed.Code, -1, -1
	return resp
}

// notForgotten looks for a while whether the leader of a partition of the log knows its producer.
func (w *world) notForgotten(p int32, d time.Duration) {
	w.t.Helper()
	adm := kafkatest.Admin(w.t, w.cluster.Bootstrap())
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(200 * time.Millisecond) { // looks: the broker's clock decides
		if known, err := w.producers(adm, p); err == nil && len(known) == 0 {
			w.t.Fatal("the leader has forgotten the producer of an owner that lives")
		}
	}
}

// waitProducerForgotten waits until the leader of a partition of the log knows of no producer.
func (w *world) waitProducerForgotten(p int32) {
	w.t.Helper()
	adm := kafkatest.Admin(w.t, w.cluster.Bootstrap())
	kafkatest.Eventually(w.t, patience, func() error {
		known, err := w.producers(adm, p)
		if err == nil && len(known) > 0 {
			err = fmt.Errorf("the leader still knows %+v", known)
		}
		return err
	})
}

// producers are those that the leader of a partition of the log knows.
func (w *world) producers(adm *kadm.Client, p int32) ([]kadm.DescribedProducer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	described, err := adm.DescribeProducers(ctx, kadm.TopicsSet{w.topic: {p: {}}})
	if err != nil {
		return nil, err
	}
	for _, d := range described.SortedPartitions() {
		if d.Err != nil {
			return nil, errors.Join(errors.New("DescribeProducers"), d.Err)
		}
	}
	return described.SortedProducers(), nil
}
