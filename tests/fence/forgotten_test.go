package fence

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// forgetful is a broker that forgets within seconds who wrote to a partition; replicas then renew their claims every second.
func forgetful(version string) kafkatest.Options {
	o := options(version)
	o.Properties["producer.id.expiration.ms"] = "4000"
	o.Properties["producer.id.expiration.check.interval.ms"] = "500"
	return o
}

// TestTheClusterForgetsTheProducer: a successor that can't renew its claim, and writes nothing, is forgotten by the partition's leader, which then takes what the
// former owner had under way, under its lower epoch. Nobody counts it; the successor, whose next write the leader no longer takes, claims anew and repairs.
func TestTheClusterForgetsTheProducer(t *testing.T) {
	t.Parallel()
	for _, version := range versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, forgetful(version))
			first := w.owner(0)
			s := w.commitUnderWay()
			s.former.Pause()
			w.waitOwner(0, s.next.node, s.behind)
			w.useNext(s.next, s.group, "m2", nextOffset)

			s.next.relay.SetAnswer(noEpochs)
			w.waitProducerForgotten(0)
			s.former.relay.Drop(s.held) // the cluster takes it
			w.waitVoid()
			s.next.relay.SetAnswer(nil)
			w.useNext(s.next, s.group, "m3", nextOffset+1)
			s.wake()
			for _, v := range w.waitRepaired().Void() {
				if v.ProducerID != first.ProducerID || v.Tenure.NodeID == s.former.node {
					t.Errorf("an unexpected void record: %v", v)
				}
			}
			w.judge(0)
		})
	}
}

// noEpochs is a cluster whose transaction coordinator is away.
func noEpochs(req kmsg.Request) kmsg.Response {
	q, ok := req.(*kmsg.InitProducerIDRequest)
	if !ok {
		return nil
	}
	resp := q.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.SetVersion(q.GetVersion())
	resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = kerr.CoordinatorNotAvailable.Code, -1, -1
	return resp
}

// waitProducerForgotten waits until the leader of a partition of the log knows of no producer.
func (w *world) waitProducerForgotten(p int32) {
	w.t.Helper()
	adm := kafkatest.Admin(w.t, w.cluster.Bootstrap())
	kafkatest.Eventually(w.t, patience, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		described, err := adm.DescribeProducers(ctx, kadm.TopicsSet{w.topic: {p: {}}})
		if err != nil {
			return err
		}
		all := described.SortedProducers()
		if len(all) > 0 {
			return fmt.Errorf("the leader still knows %+v", all)
		}
		for _, d := range described.SortedPartitions() {
			if d.Err != nil {
				return errors.Join(errors.New("DescribeProducers"), d.Err)
			}
		}
		return nil
	})
}
