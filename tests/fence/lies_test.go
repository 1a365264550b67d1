package fence

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/history"
	"streamkeeper/internal/kafkatest"
)

// believe has a replica believe for as long as it runs that it is a member of the ownership group, whatever the group thinks: its heartbeats are
// answered by the relay. A deposed coordinator of the cluster could do that.
func (r *replica) believe() {
	r.relay.setAnswer(func(req kmsg.Request) kmsg.Response {
		h, ok := req.(*kmsg.HeartbeatRequest)
		if !ok {
			return nil
		}
		resp := h.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.SetVersion(h.GetVersion())
		return resp
	})
}

// isFetch matches what the tail reads.
func isFetch(f frame) bool {
	_, ok := f.request.(*kmsg.FetchRequest)
	return ok && f.response != nil
}

// split makes two owners of a shard: the first is told that it is one still, and hears nothing of the second where deaf. group has a member
// "m" and a committed offset.
func (w *world) split(deaf bool) (former, next *replica, group string, epoch int32, tail *hold) {
	w.ready()
	first := w.owner(0)
	former, next = w.nodes[first.NodeID], w.nodes[nodeOne+nodeTwo-first.NodeID]
	group = w.group(0)
	w.until("join", func() (err error) { epoch, err = former.beat(group, "m", 0); return err })
	w.until("commit", func() error { return former.commit(group, "m", epoch, 1) })
	if deaf {
		tail = former.relay.holdAll(isFetch)
	}
	former.believe()
	w.waitOwner(0, next.node, first.From)
	w.useNext(next, group, "m2", nextOffset)
	return former, next, group, epoch, tail
}

// TestTwoBelieveThatTheyOwn: a replica whose lease never ends, and which does not hear of its successor, still acknowledges no write and answers no
// fetch of an offset with an old one. What needs no write may be old, for as long as it hears nothing.
func TestTwoBelieveThatTheyOwn(t *testing.T) {
	versions := []string{kafkatest.V44}
	if *full {
		versions = append(versions, kafkatest.V391)
	}
	for _, version := range versions {
		for _, deaf := range []bool{true, false} {
			name := version + ", deaf"
			if !deaf {
				name = version + ", hearing"
			}
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, options(version))
				former, next, group, epoch, tail := w.split(deaf)
				if deaf {
					// Only what it needs not ask the cluster for: the lease is all it has.
					if _, err := former.beat(group, "m", epoch); err != nil {
						w.mayBe("heartbeat", err)
					}
				}
				for i := range 3 {
					if _, err := former.fetch(group); err == nil && deaf {
						t.Error("a deaf owner answers a fetch: it can't know what was committed")
					}
					if err := former.commit(group, "m", epoch, int64(wokenOffset+i)); err == nil {
						t.Error("two owners acknowledge")
					}
					w.useNext(next, group, "m2", nextOffset+int64(i)+1)
				}
				if !deaf {
					if _, err := former.beat(group, "m", epoch); !errors.Is(err, kerr.NotCoordinator) {
						t.Errorf("an owner that has read of its successor answers a heartbeat with %v", err)
					}
				}
				if tail != nil {
					former.relay.drop(tail)
				}
				former.relay.setAnswer(nil)
				w.ready()
				w.useNext(w.nodes[w.owner(0).NodeID], group, "m3", lastOffset)
				stale := time.Duration(0)
				if deaf {
					stale = time.Hour // told above: there is no bound where the group lies
				}
				if void := w.judge(stale).Void(); len(void) > 0 {
					t.Errorf("the cluster took what it should have refused: %v", void)
				}
			})
		}
	}
}

// pretend has the cluster's answers to appends made up: they are acknowledged and go nowhere. It is what a log without a fence is like for
// the owner that was replaced: whatever it writes is acknowledged, and counts for nobody.
func (r *replica) pretend() {
	offset := int64(1 << 40)
	r.relay.setAnswer(func(req kmsg.Request) kmsg.Response {
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

// TestABrokenFenceIsFound: where the cluster acknowledges what a replaced owner writes, and the owner does not hear of its successor, clients are
// told what isn't so, and the checks of these tests say it.
func TestABrokenFenceIsFound(t *testing.T) {
	w := newWorld(t, options(kafkatest.V44))
	former, next, group, epoch, tail := w.split(true)
	former.pretend()
	if err := former.commit(group, "m", epoch, wokenOffset); err != nil {
		t.Fatalf("a pretended append is not believed: %v", err)
	}
	w.until("fetch", func() error { _, err := former.fetch(group); return err })
	w.until("fetch", func() error { _, err := next.fetch(group); return err })
	h := w.rec.History()
	_, inLog := h.CheckLog(w.log())
	found := func(bad []history.Violation, rule string) {
		t.Helper()
		if !slices.ContainsFunc(bad, func(v history.Violation) bool { return v.Rule == rule }) {
			t.Errorf("not found: %s\nfound: %v", rule, bad)
		}
	}
	found(inLog, history.RuleInLog)
	found(h.Check(history.Options{Stale: time.Hour}), history.RuleLinearizable)
	former.relay.drop(tail)
	former.relay.setAnswer(nil)
}
