package fence

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/internal/history"
	"streamkeeper/internal/kafkatest"
)

// step is where the owner is stopped.
type step struct {
	name string
	// does is what a client asks the owner for; nil for a step that comes by itself.
	does func(r *replica, group string, epoch int32) error
	// at is the frame at which it stops; nil: the owner is stopped first, and asked then.
	at func(w *world, group string, p int32) func(kafkatest.Frame) bool
	// behind is what a client asks the owner for when that frame is held.
	behind func(r *replica, group string, epoch int32) error
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

func appendOf(w way, what func(group string) func(eventlog.Record) bool) func(*world, string, int32) func(kafkatest.Frame) bool {
	return func(_ *world, group string, p int32) func(kafkatest.Frame) bool { return produce(w, p, what(group)) }
}

func theCommit(group string) func(eventlog.Record) bool { return commitOf(group, lateOffset) }
func theMember(group string) func(eventlog.Record) bool { return memberOf(group, lateMember) }
func aRepeat(string) func(eventlog.Record) bool         { return repeating }
func aClaim(string) func(eventlog.Record) bool          { return claiming }

func claimOf(w way) func(*world, string, int32) func(kafkatest.Frame) bool {
	return func(wd *world, _ string, p int32) func(kafkatest.Frame) bool { return initProducerID(w, wd.topic, p) }
}

// renewalOf matches the first step of a renewal, which names the epoch in force.
func renewalOf(w way) func(*world, string, int32) func(kafkatest.Frame) bool {
	return func(wd *world, _ string, p int32) func(kafkatest.Frame) bool {
		is := initProducerID(w, wd.topic, p)
		return func(f kafkatest.Frame) bool { return is(f) && f.Request.(*kmsg.InitProducerIDRequest).ProducerID >= 0 }
	}
}

var steps = []step{
	{name: "before it reads a commit", does: commitLate},
	{name: "a commit is on its way", does: commitLate, at: appendOf(asked, theCommit)},
	{name: "a commit is acknowledged", does: commitLate, at: appendOf(answered, theCommit)},
	{name: "before it reads a fetch", does: fetchLate},
	{name: "a join is on its way", does: joinLate, at: appendOf(asked, theMember)},
	{name: "a join is acknowledged", does: joinLate, at: appendOf(answered, theMember)},
	{name: "a read barrier is on its way", does: fetchLate, at: appendOf(asked, aRepeat)},
	{name: "a read barrier is acknowledged", does: fetchLate, at: appendOf(answered, aRepeat)},
	{name: "a claim asks for its epoch", claims: true, at: claimOf(asked)},
	{name: "a claim gets its epoch", claims: true, at: claimOf(answered)},
	{name: "a claim is on its way", claims: true, at: appendOf(asked, aClaim)},
	{name: "a claim is acknowledged", claims: true, at: appendOf(answered, aClaim)},
}

// renewals are the steps by which an owner takes its next epoch, with a commit that waits for them.
var renewals = []step{
	{name: "a renewal asks for its epoch", at: renewalOf(asked), behind: commitLate},
	{name: "a renewal gets its epoch", at: renewalOf(answered), behind: commitLate},
	{name: "a renewal is on its way", at: appendOf(asked, aClaim), behind: commitLate},
	{name: "a renewal is acknowledged", at: appendOf(answered, aClaim), behind: commitLate},
}

// stepsPerWorld is how many steps are played one after the other. Worlds run side by side.
const stepsPerWorld = 4

// TestStoppedAtEachStep: an owner that was stopped anywhere adds nothing once another one has taken over.
func TestStoppedAtEachStep(t *testing.T) {
	t.Parallel()
	for _, version := range []string{kafkatest.V44, kafkatest.V391} {
		stopAt(t, version, options(version), steps, func(i int) bool {
			return version == kafkatest.V44 || i%3 == 1 // one of each kind: commit, read barrier, claim
		})
	}
}

// TestStoppedInARenewal: the same for the steps of a renewal, before brokers for which a claim has to be renewed every few seconds.
func TestStoppedInARenewal(t *testing.T) {
	t.Parallel()
	for _, version := range []string{kafkatest.V44, kafkatest.V391} {
		stopAt(t, version, expiring(version), renewals, func(i int) bool { return version == kafkatest.V44 && (i == 1 || i == 2) })
	}
}

// stopAt plays steps: of those, without -full, the ones that are wanted in every run.
func stopAt(t *testing.T, version string, o kafkatest.Options, steps []step, always func(i int) bool) {
	var play []step
	for i, s := range steps {
		if *full || always(i) {
			play = append(play, s)
		}
	}
	for i := 0; i < len(play); i += stepsPerWorld {
		t.Run(fmt.Sprintf("%s %d", version, i/stepsPerWorld+1), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, o)
			for _, s := range play[i:min(i+stepsPerWorld, len(play))] {
				t.Run(s.name, func(t *testing.T) {
					w.t = t
					w.play(s)
				})
			}
			w.t = t
			w.refused(w.judge(0))
		})
	}
}

// play stops the owner of a shard at a step, and does everything that could go wrong then.
func (w *world) play(s step) {
	w.ready()
	p := int32(0)
	group := w.group(p)
	first, epoch := w.inUse(p, group)
	owner := w.nodes[first.NodeID]
	other := w.nodes[nodeOne+nodeTwo-first.NodeID]

	stopped, next := owner, other
	if s.claims {
		stopped, next = other, owner
	}
	behind := first.From
	var h *kafkatest.Hold
	late := make(chan error, 1)
	switch {
	case s.at == nil:
		stopped.Pause()
		go func() { late <- s.does(stopped, group, epoch) }()
	default:
		h = stopped.relay.Hold(s.at(w, group, p))
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
		case <-h.Caught:
		case <-time.After(patience):
			w.t.Fatalf("%s: nothing was caught", s.name)
		}
		if s.behind != nil {
			<-late // of does, which is nil
			go func() { late <- s.behind(stopped, group, epoch) }()
			arrive()
		}
		stopped.Pause()
		if s.claims {
			behind = w.owner(p).From // next had claims before
			next.Start()
		}
	}
	w.waitOwner(p, next.node, behind)
	w.useNext(next, group, "m2", nextOffset)

	if h != nil { // what was on its way arrives, the process still sleeps
		stopped.relay.Drop(h)
		w.useNext(next, group, "m3", nextOffset+1)
	}
	asleep := w.askAsleep(stopped, group, epoch)
	stopped.Resume()
	w.askWoken(stopped, group)
	asleep()
	if err := <-late; err != nil {
		w.mayBe("late", err)
	}
	w.askWoken(stopped, group)
	w.useOwner(p, group, "m4", lastOffset)
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

// useNext uses the group at the replica that took its shard over.
func (w *world) useNext(next *replica, group, member string, offset int64) {
	w.t.Helper()
	w.use(func() *replica { return next }, group, member, offset)
}

// useOwner uses the group at the replica that owns its shard: where both are in the ownership group again, a shard goes to the one that was stopped.
func (w *world) useOwner(p int32, group, member string, offset int64) {
	w.t.Helper()
	w.use(func() *replica { return w.nodes[w.owner(p).NodeID] }, group, member, offset)
}

func (w *world) use(owner func() *replica, group, member string, offset int64) {
	w.t.Helper()
	var epoch int32
	w.until("join at the successor", func() (err error) { epoch, err = owner().beat(group, member, 0); return err })
	w.until("commit at the successor", func() error { return owner().commit(group, member, epoch, offset) })
	w.until("fetch at the successor", func() error {
		got, err := owner().fetch(group)
		if err == nil && got != offset {
			w.t.Errorf("the successor says that offset %d is committed, want %d", got, offset)
		}
		return err
	})
	w.until("describe at the successor", func() error { return owner().describe(group) })
}

// arrive waits until what was just sent is with the process. Nothing tells when; what comes later is tested less sharply.
func arrive() {
	time.Sleep(50 * time.Millisecond) // see above
}

// askAsleep asks a replica that sleeps: it finds the requests in its sockets when it wakes, before it hears anything of what has happened. What it
// answers must be as new as if it had been asked awake. The function that is returned waits for the answers.
func (w *world) askAsleep(r *replica, group string, epoch int32) (wait func()) {
	type outcome struct {
		what string
		err  error
	}
	asked := []func() outcome{
		func() outcome { _, err := r.fetch(group); return outcome{"fetch asked asleep", err} },
		func() outcome { _, err := r.beat(group, "m", epoch); return outcome{"heartbeat asked asleep", err} },
		func() outcome { return outcome{"describe asked asleep", r.describe(group)} },
	}
	got := make(chan outcome, len(asked))
	for _, f := range asked {
		go func() { got <- f() }()
	}
	arrive()
	return func() {
		for range asked {
			o := <-got
			if o.err != nil {
				w.mayBe(o.what, o.err)
			}
		}
	}
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
