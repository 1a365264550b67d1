package fence

import (
	"fmt"
	"testing"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/internal/history"
	"streamkeeper/internal/kafkatest"
)

// step is where the owner is stopped.
type step struct {
	name string
	// does is what a client asks the owner for meanwhile; nil: the owner is stopped first, and asked then.
	does func(r *replica, group string, epoch int32) error
	// at is the frame at which it stops.
	at func(w *world, group string, p int32) func(frame) bool
	// claims: the owner is to claim the shard at that moment, because the other one has stopped.
	claims bool
}

const (
	lateOffset  = 100 // what the stopped owner was to write
	nextOffset  = 200 // what its successor wrote
	wokenOffset = 300 // what the woken one is asked to write
	lastOffset  = 400
	lateMember  = "late"
)

func commitLate(r *replica, group string, epoch int32) error {
	return r.commit(group, "m", epoch, lateOffset)
}
func joinLate(r *replica, group string, _ int32) error {
	_, err := r.beat(group, lateMember, 0)
	return err
}
func fetchLate(r *replica, group string, _ int32) error {
	_, err := r.fetch(group)
	return err
}

func appendOf(w way, what func(group string) func(eventlog.Record) bool) func(*world, string, int32) func(frame) bool {
	return func(_ *world, group string, p int32) func(frame) bool { return produce(w, p, what(group)) }
}

func theCommit(group string) func(eventlog.Record) bool { return commitOf(group, lateOffset) }
func theMember(group string) func(eventlog.Record) bool { return memberOf(group, lateMember) }
func aRepeat(string) func(eventlog.Record) bool         { return repeating }
func aClaim(string) func(eventlog.Record) bool          { return claiming }

func claimOf(w way) func(*world, string, int32) func(frame) bool {
	return func(wd *world, _ string, p int32) func(frame) bool { return initProducerID(w, wd.topic, p) }
}

var steps = []step{
	{name: "before it reads the request"},
	{name: "a commit is on its way", does: commitLate, at: appendOf(asked, theCommit)},
	{name: "a commit is acknowledged", does: commitLate, at: appendOf(answered, theCommit)},
	{name: "a join is on its way", does: joinLate, at: appendOf(asked, theMember)},
	{name: "a join is acknowledged", does: joinLate, at: appendOf(answered, theMember)},
	{name: "a read barrier is on its way", does: fetchLate, at: appendOf(asked, aRepeat)},
	{name: "a read barrier is acknowledged", does: fetchLate, at: appendOf(answered, aRepeat)},
	{name: "a claim asks for its epoch", claims: true, at: claimOf(asked)},
	{name: "a claim gets its epoch", claims: true, at: claimOf(answered)},
	{name: "a claim is on its way", claims: true, at: appendOf(asked, aClaim)},
	{name: "a claim is acknowledged", claims: true, at: appendOf(answered, aClaim)},
}

// TestStoppedAtEachStep: an owner that was stopped anywhere adds nothing once another one has taken over.
func TestStoppedAtEachStep(t *testing.T) {
	for _, version := range []string{kafkatest.V44, kafkatest.V391} {
		t.Run(version, func(t *testing.T) {
			w := newWorld(t, options(version))
			for i, s := range steps {
				if !*full && version == kafkatest.V391 && i%3 != 1 {
					continue // one of each kind: commit, read barrier, claim
				}
				t.Run(s.name, func(t *testing.T) {
					w.t = t
					w.play(s)
				})
			}
			w.t = t
			j := w.judge(0)
			if void := j.Void(); len(void) > 0 {
				t.Errorf("the cluster took what it should have refused: %v", void)
			}
		})
	}
}

// play stops the owner of a shard at a step, and does everything that could go wrong then.
func (w *world) play(s step) {
	w.ready()
	p := int32(0)
	first := w.owner(p)
	owner := w.nodes[first.NodeID]
	other := w.nodes[nodeOne+nodeTwo-first.NodeID]
	group := w.group(p)
	var epoch int32
	w.until("join", func() (err error) { epoch, err = owner.beat(group, "m", 0); return err })
	w.until("commit", func() error { return owner.commit(group, "m", epoch, 1) })
	w.until("fetch", func() error { _, err := owner.fetch(group); return err })

	stopped, next := owner, other
	if s.claims {
		stopped, next = other, owner
	}
	var h *hold
	late := make(chan error, 1)
	switch {
	case s.at == nil:
		stopped.Pause()
		go func() { late <- commitLate(stopped, group, epoch) }()
	default:
		h = stopped.relay.hold(s.at(w, group, p))
		go func() {
			if s.does == nil {
				late <- nil
				return
			}
			late <- s.does(stopped, group, epoch)
		}()
		if s.claims {
			next.Stop()
		}
		select {
		case <-h.caught:
		case <-time.After(patience):
			w.t.Fatalf("%s: nothing was caught", s.name)
		}
		stopped.Pause()
		if s.claims {
			next.Start()
		}
	}
	behind := w.owner(p).From
	w.waitOwner(p, next.node, behind)
	w.useNext(next, group, "m2", nextOffset)

	if h != nil { // what was on its way arrives, the process still sleeps
		stopped.relay.drop(h)
		w.useNext(next, group, "m3", nextOffset+1)
	}
	stopped.Resume()
	w.askWoken(stopped, group)
	if err := <-late; err != nil {
		w.mayBe("late", err)
	}
	w.askWoken(stopped, group)
	w.useNext(next, group, "m4", lastOffset)
	w.ready()
	for _, r := range w.nodes { // whoever owns it in the end says the same
		w.until("fetch in the end", func() error {
			got, err := r.fetch(group)
			if err == nil && got != lastOffset {
				w.t.Errorf("node %d says that offset %d is committed, want %d", r.node, got, lastOffset)
			}
			if err != nil && r.node != w.owner(p).NodeID {
				return nil
			}
			return err
		})
	}
}

// useNext uses the group at the replica that owns it now.
func (w *world) useNext(next *replica, group, member string, offset int64) {
	w.t.Helper()
	var epoch int32
	w.until("join at the successor", func() (err error) { epoch, err = next.beat(group, member, 0); return err })
	w.until("commit at the successor", func() error { return next.commit(group, member, epoch, offset) })
	w.until("fetch at the successor", func() error {
		got, err := next.fetch(group)
		if err == nil && got != offset {
			w.t.Errorf("the successor says that offset %d is committed, want %d", got, offset)
		}
		return err
	})
	w.until("describe at the successor", func() error { return next.describe(group) })
}

// askWoken asks the replica that was stopped, which must not say what isn't true any more.
func (w *world) askWoken(r *replica, group string) {
	w.t.Helper()
	epochs := map[string]int32{}
	for _, o := range w.rec.History().Ops {
		if o.Group == group && o.Kind == history.Heartbeat && o.Outcome == history.Done {
			epochs[o.Member] = max(epochs[o.Member], o.Epoch)
		}
	}
	_, err := r.fetch(group)
	w.mayBe("fetch", err)
	for member, epoch := range epochs {
		_, err := r.beat(group, member, epoch)
		w.mayBe(fmt.Sprintf("heartbeat of %s at epoch %d", member, epoch), err)
	}
	w.mayBe("describe", r.describe(group))
	w.mayBe("commit", r.commit(group, "m2", epochs["m2"], wokenOffset))
}
