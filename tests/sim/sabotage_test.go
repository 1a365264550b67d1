package sim

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"streamkeeper/eventlog"
	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/history"
	"streamkeeper/shard"
)

// An invariant that can't fail proves nothing. So here the system, or a client, is broken on purpose, and the simulation must
// find it; broken histories for each single check are in broken_test.go.

// Ways to break something.
const (
	hoarder    = "a client that says that it gave tasks up, and works on"
	backslider = "a client that commits less than before"
	liar       = "a log that acknowledges what it did not write"
	deaf       = "a tail that misses a record now and then"
	keeper     = "a catalogue that deletes nothing"
	undying    = "a lease that never ends"
	lawless    = "a broker that fences nobody"
	hasty      = "a read barrier that waits for nothing"
)

// sabotage breaks a process as the options say.
func (w *world) sabotage(r *replica, p *process, m *frozenMembership) {
	var mu sync.Mutex // partitions are written and read side by side
	rng := w.rng(fmt.Sprintf("sabotage of replica %d life %d", r.node, r.life))
	oneIn := func(n int) bool {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n) == 0
	}
	switch w.options.sabotage {
	case liar:
		p.log.lie = func() bool { return oneIn(10) }
	case deaf:
		p.log.drop = func(e eventlog.Entry) bool {
			r, err := eventlog.Decode(eventlog.Raw{Key: e.Key, Value: e.Value})
			return err == nil && r.Key.Type != eventlog.TypeOwnership && oneIn(20)
		}
	case hasty:
		p.log.hasty = true
	case lawless:
		for n := range w.partitions {
			w.log.Unfence(n)
		}
	case undying:
		// A group of its own, in which it is alone and is never cut off: it believes to own everything for ever.
		alone := shard.NewFakeGroup(shard.FakeGroupOptions{Partitions: w.partitions}).Member(r.node, nil)
		ctx, cancel := context.WithCancel(context.Background())
		p.ended.Go(func() { _ = alone.Run(ctx, noListener{}) })
		m.lease, p.cancel = alone.Lease(), cancel
	}
}

// saboteur is the coordinator as the gateway of a process sees it.
func (w *world) saboteur(r *replica, p *process) coordinator.Service {
	return p.service
}

// noListener does not care what it is assigned.
type noListener struct{}

func (noListener) Assigned([]int32) {}
func (noListener) Revoked([]int32)  {}
func (noListener) Lost([]int32)     {}

// TestSabotageIsFound: whatever is broken, a few histories suffice to see it, and the violation is one that it explains.
func TestSabotageIsFound(t *testing.T) {
	const seedsMax = 300 // the rarest is found by one in forty
	for _, c := range []struct {
		how  string
		sole string
		want []string
		// silent: the checker says nothing of what clients were told of offsets, so that the histories of the clients must.
		silent bool
	}{
		{hoarder, "", []string{"works on it", "went back"}, false},
		{backslider, "", []string{"went back"}, false},
		{liar, "", []string{"beyond the assignment's", "the log has it not", "which the log has not", "the log said before", "does not have it", "the log says it is at", "not at rest", "answered as", "can't be applied", "went back"}, false},
		{deaf, "", []string{"empty, with", "has on disk", "hydrating", "described as", "answered as", "the log says", "refused", "not at rest", "Apply", "acknowledged before", "belongs to", "and is no member", "both have task", "is taken from", "went back", "error"}, false},
		{keeper, "", []string{"outlives its group", "and the log says that there is none"}, false},
		{undying, "replica cut off everything but clients", []string{"a replaced owner answered"}, false},
		{lawless, blinded, []string{"the log has it not", "which the log has not", "acknowledged before"}, false},
		{lawless, blinded, []string{history.RuleInLog, history.RuleLinearizable}, true},
	} {
		t.Run(fmt.Sprint(c.how, ", silent ", c.silent), func(t *testing.T) {
			for seed := uint64(1); seed <= seedsMax; seed++ {
				f := play(t, seed, options{sabotage: c.how, sole: c.sole, silent: c.silent})
				if f.violation == "" {
					continue
				}
				t.Logf("found by seed %d: %s", seed, f.violation)
				for _, w := range c.want {
					if strings.Contains(f.violation, w) {
						return
					}
				}
				t.Errorf("seed %d found %q, expected one of %q", seed, f.violation, c.want)
				return
			}
			t.Errorf("not found in %d histories", seedsMax)
		})
	}
}
