package fence

import (
	"time"

	"streamkeeper/internal/kafkatest"
)

// stage is an owner with a commit under way, held back by its relay, and who is to follow it.
type stage struct {
	*world
	former, next *replica
	group        string
	epoch        int32
	behind       int64 // the former's claim
	held         *kafkatest.Hold
	late         chan error
}

// working is the owner of partition 0 with a member that has committed an offset.
func (w *world) working() *stage {
	w.t.Helper()
	w.ready()
	first := w.owner(0)
	s := &stage{world: w, former: w.nodes[first.NodeID], next: w.nodes[nodeOne+nodeTwo-first.NodeID], group: w.group(0), behind: first.From, late: make(chan error, 1)}
	w.until("join", func() (err error) { s.epoch, err = s.former.beat(s.group, "m", 0); return err })
	w.until("commit", func() error { return s.former.commit(s.group, "m", s.epoch, 1) })
	return s
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
