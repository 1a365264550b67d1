package fence

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// believe has a replica believe for as long as it runs that it is a member of the ownership group, whatever the group thinks: its heartbeats are
// answered by the relay. A deposed coordinator of the cluster could do that.
func (r *replica) believe() {
	r.relay.SetAnswer(func(req kmsg.Request) kmsg.Response {
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
func isFetch(f kafkatest.Frame) bool {
	_, ok := f.Request.(*kmsg.FetchRequest)
	return ok && f.Response != nil
}

// split makes two owners of a shard: the first is lied to, so that it takes itself for one still. group has a member "m" and a committed offset.
func (w *world) split(lie func(former *replica)) (former, next *replica, group string, epoch int32) {
	w.ready()
	group = w.group(0)
	first, epoch := w.inUse(0, group)
	former, next = w.nodes[first.NodeID], w.nodes[nodeOne+nodeTwo-first.NodeID]
	lie(former)
	w.waitOwner(0, next.node, first.From)
	w.useNext(next, group, "m2", nextOffset)
	return former, next, group, epoch
}

// silence is for how long an owner that reads nothing goes on telling what needs no write: five sessions (D3).
const silence = 5 * session

// TestTwoBelieveThatTheyOwn: a replica whose lease never ends, and which does not hear of its successor, still acknowledges no write and answers no
// fetch of an offset with an old one. What needs no write may be old while it hears nothing, and not for long.
func TestTwoBelieveThatTheyOwn(t *testing.T) {
	t.Parallel()
	for _, version := range versions() {
		for _, deaf := range []bool{true, false} {
			name := version + ", deaf"
			if !deaf {
				name = version + ", hearing"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, options(version))
				var tail *kafkatest.Hold
				former, next, group, epoch := w.split(func(former *replica) {
					if deaf {
						tail = former.relay.HoldAll(isFetch)
					}
					former.believe()
				})
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
					former.relay.Drop(tail)
				}
				former.relay.SetAnswer(nil)
				w.ready()
				w.useNext(w.nodes[w.owner(0).NodeID], group, "m3", lastOffset)
				stale := time.Duration(0)
				if deaf {
					stale = silence
				}
				w.refused(w.judge(stale))
			})
		}
	}
}

// TestADeafOwnerFallsSilent: a replica whose heartbeats are confirmed, whatever the group thinks, and which reads nothing, stops telling also what needs no write.
func TestADeafOwnerFallsSilent(t *testing.T) {
	if !*full {
		t.Skip("it takes five sessions: with -full. TestALeaseNeedsATailThatReads of package shard plays it in virtual time")
	}
	t.Parallel()
	w := newWorld(t, options(kafkatest.V44))
	var tail *kafkatest.Hold
	former, _, group, _ := w.split(func(former *replica) {
		tail = former.relay.HoldAll(isFetch)
		former.believe()
	})
	began, answered := time.Now(), 0
	kafkatest.Eventually(t, patience, func() error {
		if err := former.describe(group); err == nil {
			answered++
			return errors.New("it still answers")
		}
		return nil
	})
	t.Logf("%d answers, and none after %v", answered, time.Since(began))
	former.relay.Drop(tail)
	former.relay.SetAnswer(nil)
	w.ready()
	w.refused(w.judge(silence))
}

// TestNobodyAnswersBeyondItsLease: a replica that is cut from the cluster, not from clients, goes on answering what needs no write for as long as nobody
// else can own the shard, and no longer: nothing that it says is old. What needs the log it doesn't answer at all.
func TestNobodyAnswersBeyondItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options(kafkatest.V44))
	group := w.group(0)
	first, epoch := w.inUse(0, group)
	cut, next := w.nodes[first.NodeID], w.nodes[nodeOne+nodeTwo-first.NodeID]
	everything := cut.relay.HoldAll(func(kafkatest.Frame) bool { return true })
	stop := make(chan struct{})
	type seen struct{ answered, refused int }
	ended := make(chan seen)
	go func() {
		var n seen
		for {
			for _, err := range []error{cut.describe(group), func() error { _, err := cut.beat(group, "m", epoch); return err }()} {
				if err == nil {
					n.answered++
				} else {
					n.refused++
				}
			}
			select {
			case <-stop:
				ended <- n
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	fetched := make(chan error, 1)
	go func() { _, err := cut.fetch(group); fetched <- err }()
	w.waitOwner(0, next.node, first.From)
	w.useNext(next, group, "m2", nextOffset)
	if err := cut.describe(group); err == nil {
		t.Error("a replica that is cut from the cluster answers while another one owns the shard")
	}
	close(stop)
	n := <-ended
	t.Logf("%d answers, then %d refusals", n.answered, n.refused)
	if n.answered == 0 || n.refused == 0 {
		t.Errorf("%d answers and %d refusals: of both there must be some, or nothing was tested", n.answered, n.refused)
	}
	cut.relay.Drop(everything)
	if err := <-fetched; err == nil {
		t.Log("the fetch was answered when the cluster was back")
	}
	w.askWoken(cut, group)
	w.ready()
	w.refused(w.judge(0))
}
