package sim

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"streamkeeper/shard"
)

// gate stops a process wherever it happens to be, as SIGSTOP does, or the machine that sleeps: everything that the process does
// next passes a gate (reading a clock, taking a request or a batch, sending something, handing an answer out), and waits
// there while it is shut. What it sent before is under way; its timers are late when it wakes.
type gate struct {
	mu     sync.Mutex
	shut   chan struct{} // nil: open
	forced bool          // open for ever: the process was killed
}

// pass waits while the gate is shut. It must not be called with a lock held that somebody outside the process waits for.
func (g *gate) pass() {
	for {
		g.mu.Lock()
		shut := g.shut
		g.mu.Unlock()
		if shut == nil {
			return
		}
		<-shut
	}
}

// set shuts the gate or opens it.
func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.forced {
		return
	}
	switch {
	case shut && g.shut == nil:
		g.shut = make(chan struct{})
	case !shut && g.shut != nil:
		close(g.shut)
		g.shut = nil
	}
}

// force opens the gate for ever.
func (g *gate) force() {
	g.set(false)
	g.mu.Lock()
	g.forced = true
	g.mu.Unlock()
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut != nil
}

// freeze stops a process, or lets it go on. What comes back to it from the log waits, in order.
func (p *process) freeze(frozen bool) {
	if frozen {
		p.gate.set(true)
		p.link.setFrozen(true)
		return
	}
	p.link.setFrozen(false)
	p.gate.set(false)
}

// frozenMembership is a membership whose lease can't be read while the process is stopped.
type frozenMembership struct {
	shard.Membership
	gate  *gate
	lease *shard.Lease // sabotage: another one; nil: its own
}

// Lease implements shard.Membership.
func (m frozenMembership) Lease() *shard.Lease {
	m.gate.pass()
	if m.lease != nil {
		return m.lease
	}
	return m.Membership.Lease()
}

// TestGateStopsAndLetsGo: who comes to a shut gate waits in virtual time, and all go on when it opens; one that was forced stays open.
func TestGateStopsAndLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		g.pass()
		g.set(true)
		var passed sync.WaitGroup
		begin := time.Now()
		for range 3 {
			passed.Go(g.pass)
		}
		time.AfterFunc(time.Minute, func() { g.set(false) })
		passed.Wait()
		if d := time.Since(begin); d != time.Minute {
			t.Errorf("passed after %v", d)
		}
		g.force()
		g.set(true)
		g.pass()
	})
}

// TestJumpedClock: the calendar moves and durations do not.
func TestJumpedClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := jumped(time.Now(), 0)
		time.Sleep(time.Minute + time.Millisecond)
		for _, d := range []time.Duration{time.Hour, -time.Hour, -8 * time.Second, 0, 1500 * time.Millisecond} {
			now := time.Now()
			set := jumped(now, d)
			for _, after := range []time.Duration{0, time.Second, -time.Minute} {
				if got := set.Add(after).UnixMilli() - now.UnixMilli(); got != (d + after).Milliseconds() {
					t.Errorf("set by %v, %v later the calendar moved by %d ms", d, after, got)
				}
				if got := set.Add(after).Sub(begin); got != time.Minute+time.Millisecond+after {
					t.Errorf("set by %v, a minute took %v", d, got-after)
				}
			}
			if !set.After(begin) || set.Round(0).Sub(begin.Round(0)) != time.Minute+time.Millisecond+d {
				t.Errorf("set by %v: %v and %v", d, begin, set)
			}
		}
	})
}
