package fence

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// isMetadata matches what a replica hears of leaders.
func isMetadata(f kafkatest.Frame) bool {
	_, ok := f.Request.(*kmsg.MetadataRequest)
	return ok && f.Response != nil
}

// leaderEnd matches the question to a leader where a partition of the log ends, in one way.
func (w *world) leaderEnd(way way) func(kafkatest.Frame) bool {
	return func(f kafkatest.Frame) bool {
		q, ok := f.Request.(*kmsg.ListOffsetsRequest)
		return ok && way.is(f) && q.ReplicaID == -1 && slices.ContainsFunc(q.Topics, func(t kmsg.ListOffsetsRequestTopic) bool { return t.Topic == w.topic })
	}
}

// oldEnd is a leader that was replaced, and answers that nothing has been written since.
func (w *world) oldEnd(end int64) func(kmsg.Request) kmsg.Response {
	is := w.leaderEnd(asked)
	return func(req kmsg.Request) kmsg.Response {
		if !is(kafkatest.Frame{Request: req}) {
			return nil
		}
		q := req.(*kmsg.ListOffsetsRequest)
		resp := q.ResponseKind().(*kmsg.ListOffsetsResponse)
		resp.SetVersion(q.GetVersion())
		for _, t := range q.Topics {
			rt := kmsg.NewListOffsetsResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewListOffsetsResponseTopicPartition()
				rp.Partition, rp.Offset, rp.Timestamp, rp.LeaderEpoch = p.Partition, end, -1, p.CurrentLeaderEpoch
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	}
}

// denied asks a replica for a committed offset of a group that is in the log, and which it has not read of. It may send the client away, and must not
// say that there is no offset.
func (w *world) denied(what string, r *replica, group string) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, err := r.fetch(group)
		if err == nil {
			w.t.Errorf("%s: the committed offset is %d", what, got)
			return
		}
		if !errors.Is(err, kerr.NotCoordinator) && !errors.Is(err, kerr.CoordinatorLoadInProgress) && !errors.Is(err, kerr.CoordinatorNotAvailable) {
			w.t.Errorf("%s: %v", what, err)
		}
	}()
	return done
}

// caught waits until the leader's answer is held.
func (w *world) caught(h *kafkatest.Hold) {
	w.t.Helper()
	select {
	case <-h.Caught:
	case <-time.After(patience):
		w.t.Fatal("the leader was not asked")
	}
}

// TestAReplacedLeaderDeniesNothing: a replica that owns nothing of a group's shard and knows of no other leader asks that one where the log ends, before it leaves the
// group to the cluster, which would say "no offset". The old leader's answer is old; the other replicas of the partition know better.
func TestAReplacedLeaderDeniesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeBrokers(kafkatest.V44))
	t.Run("it answers as it would have before", func(t *testing.T) {
		w.t = t
		w.ready()
		first := w.owner(0)
		owner, asks := w.nodes[first.NodeID], w.nodes[nodeOne+nodeTwo-first.NodeID]
		log := w.log()[0]
		end := log[len(log)-1].Offset + 1
		tail := asks.relay.HoldAll(isFetch)
		group := w.group(0)
		var epoch int32
		w.until("join", func() (err error) { epoch, err = owner.beat(group, "m", 0); return err })
		w.until("commit", func() error { return owner.commit(group, "m", epoch, nextOffset) })
		asks.relay.SetAnswer(w.oldEnd(end))
		h := asks.relay.Hold(w.leaderEnd(answered))
		done := w.denied("the leader tells an old end", asks, group)
		w.caught(h)
		asks.relay.Drop(h)
		arrive()
		asks.relay.Drop(tail) // it reads on, and knows
		<-done
		asks.relay.SetAnswer(nil)
	})
	t.Run("it hung, and finds the question when it wakes up", func(t *testing.T) {
		if !*full {
			t.Skip("another leader takes over after six seconds: with -full")
		}
		w.t = t
		w.ready()
		first := w.owner(0)
		owner, asks := w.nodes[first.NodeID], w.nodes[nodeOne+nodeTwo-first.NodeID]
		leader, _ := w.replicas(0)
		old := asks.relay.HoldAll(isMetadata)
		w.cluster.Pause(leader)
		group := w.group(0)
		var epoch int32
		w.until("join", func() (err error) { epoch, err = owner.beat(group, "m", 0); return err })
		w.until("commit", func() error { return owner.commit(group, "m", epoch, nextOffset) })
		if now, _ := w.replicas(0); now == leader {
			t.Fatalf("broker %d still leads: nothing is tested", leader)
		}
		h := asks.relay.Hold(w.leaderEnd(answered))
		done := w.denied("the leader hung", asks, group)
		arrive()
		w.cluster.Resume(leader)
		w.caught(h)
		asks.relay.Drop(h)
		arrive()
		asks.relay.Drop(old)
		<-done
		w.ready()
		w.waitInSync(0)
	})
	w.t = t
	w.refused(w.judge(0))
}
