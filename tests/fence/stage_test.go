package fence

import (
	"fmt"
	"time"

	"streamkeeper/internal/history"
	"streamkeeper/internal/kafkatest"
)

// stage is an owner with a commit under way, held back by its relay, and who is to follow it.
type stage struct {
	*world
	former, next *replica
	group        string
	epoch        int32
	first        *history.Tenure // the former's claim
	behind       int64           // where it is
	held         *kafkatest.Hold
	late         chan error
}

// working is the owner of partition 0 with a member that has committed an offset.
func (w *world) working() *stage {
	w.t.Helper()
	w.ready()
	group := w.group(0)
	first, epoch := w.inUse(0, group)
	return &stage{world: w, former: w.nodes[first.NodeID], next: w.nodes[nodeOne+nodeTwo-first.NodeID], group: group, epoch: epoch, first: first, behind: first.From, late: make(chan error, 1)}
}

// inUse has a member of a group join and commit an offset at the owner of the group's shard, and says who that is and at which epoch. It is looked up again at each
// attempt: where the machine stood still for longer than a session, the two shards have changed hands.
func (w *world) inUse(p int32, group string) (first *history.Tenure, epoch int32) {
	w.t.Helper()
	w.until("join, commit and fetch", func() (err error) {
		if first = w.owner(p); first == nil {
			return fmt.Errorf("nobody owns shard %d", p)
		}
		owner := w.nodes[first.NodeID]
		if epoch, err = owner.beat(group, "m", 0); err != nil {
			return err
		}
		if err = owner.commit(group, "m", epoch, 1); err != nil {
			return err
		}
		_, err = owner.fetch(group)
		return err
	})
	return first, epoch
}

// send has the owner send another commit, which its relay holds.
func (s *stage) send() {
	s.t.Helper()
	s.held = s.former.relay.Hold(produce(asked, 0, commitOf(s.group, lateOffset)))
	go func() { s.late <- s.former.commit(s.group, "m", s.epoch, lateOffset) }()
	select {
	case <-s.held.Caught:
	case <-time.After(patience):
		s.t.Fatal("the commit was not sent")
	}
}

// commitUnderWay is both.
func (w *world) commitUnderWay() *stage {
	w.t.Helper()
	s := w.working()
	s.send()
	return s
}

// wake has the former owner go on, whose commit does not count though the cluster took it. It must not acknowledge it.
func (s *stage) wake() {
	s.t.Helper()
	s.former.Resume()
	s.askWoken(s.former, s.group)
	if err := <-s.late; err == nil {
		s.t.Error("the former owner acknowledges what does not count")
	}
	s.askWoken(s.former, s.group)
	s.useOwner(0, s.group, "m4", lastOffset)
	s.ready()
}
