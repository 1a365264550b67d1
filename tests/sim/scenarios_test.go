package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"streamkeeper/eventlog"
)

// A claim that another one overtakes while it is still loading: whoever the group wants must own the partition in the end,
// also where nobody writes anything.
func TestClaimOvertakenWhileItLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, options{verbose: testing.Verbose()})
		defer w.stop()
		w.follow()
		r := w.replicas[0]
		r.start()
		wait := func(what string, f func() bool) {
			for range 600 {
				if f() {
					return
				}
				pause(100 * time.Millisecond)
			}
			t.Errorf("not within a minute: %s", what)
		}
		wait("it serves", func() bool { return r.running().host.Owns(0) })
		// It loses its lease, is assigned the partition again, and claims while it reads nothing.
		p := r.running()
		p.member.Cut(true)
		pause(10 * time.Second)
		p.link.setTail(true)
		before := len(w.log.Entries(0))
		p.member.Cut(false)
		wait("it claims", func() bool { return len(w.log.Entries(0)) > before })
		pause(time.Second)
		w.log.Steal(0, eventlog.Ownership{NodeID: 99, Address: "late:1", Instance: "late"})
		p.link.setTail(false)
		wait("it owns the partition by the log", func() bool {
			o, ok := p.host.Owner(0)
			return ok && o.NodeID == r.node && p.host.Owns(0)
		})
	})
}
