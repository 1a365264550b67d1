package sim

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/history"
	"streamkeeper/projection"
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
	undying    = "a lease that never ends, and a log that says that nothing happens"
	lawless    = "a broker that fences nobody"
	hasty      = "a read barrier that waits for nothing"
	oblivious  = "a shard that goes on although its log was cut off, under a broker that lets it"
	slack      = "a clock of leases that runs at a twentieth of the brokers' speed"
	hurried    = "lookups that do not read up to the log's end"
	sure       = "a replica that calls the cluster's whatever it has not read"
	clinging   = "a hint that never ends"
	forgetful  = "a replica that leaves out another one where it is asked for all"
	careless   = "a conversion that leaves an offset out"
	untidy     = "a conversion that leaves the cluster's copy of a group where it is"
	thawed     = "a conversion that freezes nothing"
	unlocked   = "a classic group that is taken over without being held"
	rash       = "a replica that is behind by seconds and calls a group the cluster's without reading up to the log's end"
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
	case hurried:
		p.log.lag = 100 * time.Millisecond // so that there is something to be read
	case oblivious:
		w.log.Forget()
		p.held = deafStore{p.store}
	case slack:
		r.boot.percent = 5
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
		p.log.soothed = true
	}
}

// deafStore does not tell that a partition was forgotten and is read again.
type deafStore struct{ *projection.Store }

// Restarts implements shard.Store.
func (deafStore) Restarts(int32) uint64 { return 0 }

// saboteur is the coordinator of a process as its gateway sees it.
func (w *world) saboteur(_ *replica, p *process) coordinator.Service {
	switch w.options.sabotage {
	case hurried, sure, clinging, forgetful, rash:
		return &brokenService{Service: p.service, p: p, how: w.options.sabotage, hinted: map[string]bool{}, known: map[string]time.Time{}}
	}
	return p.service
}

// brokenService is a coordinator that does one thing wrong.
type brokenService struct {
	coordinator.Service
	p   *process
	how string

	mu     sync.Mutex
	hinted map[string]bool
	known  map[string]time.Time // since when
}

// CatchUp implements coordinator.Service.
func (b *brokenService) CatchUp(ctx context.Context, groups []string) []string {
	if b.how == hurried {
		return nil
	}
	return b.Service.CatchUp(ctx, groups)
}

// AskOthers implements coordinator.Service.
func (b *brokenService) AskOthers(ctx context.Context, who coordinator.Caller, groups []string) map[string]coordinator.Found {
	if b.how == sure {
		return nil
	}
	return b.Service.AskOthers(ctx, who, groups)
}

// Heartbeat implements coordinator.Service.
func (b *brokenService) Heartbeat(ctx context.Context, c coordinator.Caller, r *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
	resp := b.Service.Heartbeat(ctx, c, r)
	if b.how == clinging && resp.ErrorCode == codeNotCoordinator {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.hinted[r.Group] = true
	}
	return resp
}

// Coordinator implements coordinator.Service.
func (b *brokenService) Coordinator(ctx context.Context, group string) (n coordinator.Node, known, ok bool) {
	n, known, ok = b.Service.Coordinator(ctx, group)
	b.mu.Lock()
	defer b.mu.Unlock()
	if known || !b.hinted[group] {
		return n, known, ok
	}
	o, _ := b.p.host.Owner(b.p.host.Partition(group))
	for _, n := range b.Service.Nodes() {
		if n.ID == o.NodeID {
			return n, true, true
		}
	}
	return n, true, false
}

// Owners implements coordinator.Service.
func (b *brokenService) Owners(ctx context.Context) (owners map[int32]bool, whole bool) {
	owners, whole = b.Service.Owners(ctx)
	if b.how == forgetful {
		for _, id := range sortedKeys(owners) {
			if id != b.Service.Node().ID {
				delete(owners, id)
				break
			}
		}
	}
	return owners, whole
}

// Judge implements coordinator.Service.
func (b *brokenService) Judge(ctx context.Context, group string) coordinator.Verdict {
	if b.how == rash {
		if known, err := b.p.host.Known(group); err == nil && (!known || b.isNew(group)) {
			return coordinator.Foreign
		}
	}
	return b.Service.Judge(ctx, group)
}

// isNew says that a group of another replica is known here for less than slow.
func (b *brokenService) isNew(group string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.known[group]; !ok {
		b.known[group] = time.Now()
	}
	return !b.p.host.Owns(b.p.host.Partition(group)) && time.Since(b.known[group]) < slow
}

// slow is by how much a tail is behind that makes up for a read barrier that is left out.
const slow = 5 * time.Second

// noListener does not care what it is assigned.
type noListener struct{}

func (noListener) Assigned([]int32) {}
func (noListener) Revoked([]int32)  {}
func (noListener) Lost([]int32)     {}

// TestSabotageIsFound: whatever is broken, a few histories suffice to see it, and the violation is one that it explains.
func TestSabotageIsFound(t *testing.T) {
	const seedsMax = 300
	late := map[string]uint64{keeper: 8, undying: 8, slack: 8, unlocked: 50} // the first seeds have no occasion for it
	for _, c := range []struct {
		how  string
		sole string
		want []string
		// silent: the checker says nothing of what clients were told of offsets, so that the histories of the clients must.
		silent   bool
		converts bool // it is about conversions
	}{
		{hoarder, "", []string{"works on it", "went back"}, false, false},
		{backslider, "", []string{"went back"}, false, false},
		{liar, "", []string{"beyond the assignment's", "the log has it not", "which the log has not", "the log said before", "does not have it", "the log says it is at", "not at rest", "answered as", "can't be applied", "went back"}, false, false},
		{deaf, "", []string{"empty, with", "has on disk", "hydrating", "described as", "answered as", "the log says", "refused", "not at rest", "Apply", "acknowledged before", "belongs to", "and is no member", "both have task", "is taken from", "went back", "error"}, false, false},
		{keeper, "", []string{"outlives its group", "and the log says that there is none"}, false, false},
		{undying, "replica cut off everything but clients", []string{"a replaced owner answered"}, false, false},
		{lawless, blinded, []string{"the log has it not", "which the log has not", "acknowledged before"}, false, false},
		{oblivious, cutOff, []string{"which the log has not", "the log has it not", "went back", "acknowledged before", "the log said before", "when it was asked"}, false, false},
		{slack, "replica cut off everything but clients", []string{"a replaced owner answered"}, false, false},
		{hurried, "", []string{"was led to replica", "led to"}, false, false},
		{sure, "", []string{"which has not read the log, led to"}, false, false},
		{clinging, "", []string{"and the log has no such group"}, false, false},
		{forgetful, "", []string{"listed are", "is not among the nodes that it names"}, false, false},
		{rash, "", []string{"was refused with", "when it was asked", "acknowledged before"}, false, false},
		{lawless, blinded, []string{history.RuleInLog, history.RuleLinearizable}, true, false},
		{careless, "", []string{"the conversion to a classic group lost the offset"}, false, true},
		{untidy, "", []string{"the cluster has a copy of its offsets", "there again as a classic group"}, false, true},
		{unlocked, "", []string{"is lost: the cluster has", "from a classic member, and the group is a streams group"}, false, true},
		{thawed, "", []string{"and the group is on its way to a classic one", "lost the offset", "a conversion commits", "and the group is not being converted"}, false, true},
	} {
		t.Run(fmt.Sprint(c.how, ", silent ", c.silent), func(t *testing.T) {
			for seed := max(1, late[c.how]); seed <= seedsMax; seed++ {
				f := play(t, seed, options{sabotage: c.how, sole: c.sole, silent: c.silent, converts: c.converts})
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
