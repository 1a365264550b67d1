package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"streamkeeper/shard"
)

// fault is something that goes wrong. It returns what ends it, or nil.
type fault struct {
	name   string
	weight int
	begin  func(w *world, rng *rand.Rand) (end func())
}

// Names of faults that are told from the others.
const (
	deposed   = "heartbeats confirmed by a coordinator that was replaced"
	blinded   = "heartbeats confirmed by a coordinator that was replaced, and nothing read"
	behind    = "replica reads nothing"
	cutOff    = "log cut off"
	replaced  = "log deleted, made again"
	forgotten = "producer id forgotten by the cluster"
)

var errRefusedAppend = errors.New("the cluster refused the append (simulated)")

var allFaults = []fault{
	{"acks held", 6, func(w *world, rng *rand.Rand) func() {
		p := w.anyPartition(rng)
		w.log.HoldAcks(p)
		return func() { w.log.ReleaseAcks(p) }
	}},
	{"appends held", 6, func(w *world, rng *rand.Rand) func() {
		p := w.anyPartition(rng)
		w.log.HoldAppends(p)
		return func() { w.log.ReleaseAppends(p) }
	}},
	{"claims held", 3, func(w *world, rng *rand.Rand) func() {
		p := w.anyPartition(rng)
		w.log.HoldClaims(p)
		return func() { w.log.ReleaseClaims(p) }
	}},
	{"ack lost", 6, func(w *world, rng *rand.Rand) func() { w.log.LoseAck(w.anyPartition(rng)); return nil }},
	{"append dropped, to arrive late", 6, func(w *world, rng *rand.Rand) func() {
		p := w.anyPartition(rng)
		w.log.DropAppend(p)
		return func() { w.log.DeliverLate(p) }
	}},
	{"append refused", 4, func(w *world, rng *rand.Rand) func() {
		w.log.FailAppend(w.anyPartition(rng), errRefusedAppend)
		return nil
	}},
	{"claim refused", 2, func(w *world, rng *rand.Rand) func() {
		w.log.FailClaim(w.anyPartition(rng), errRefusedAppend)
		return nil
	}},
	// Once a cluster has forgotten a partition's producer id (or its epochs are used up) the successor's epochs fence nobody. The successor fences
	// the former id by hand; where the cluster does not let it (plan.keepsFormer), the predecessor's appends are accepted behind the successor's claim, readers
	// void them, and who wrote them must not answer them as done.
	{forgotten, 3, func(w *world, rng *rand.Rand) func() {
		w.log.ExpireProducer(w.anyPartition(rng))
		return nil
	}},
	{"claim renewed", 4, func(w *world, rng *rand.Rand) func() {
		if p := w.anyReplica(rng).running(); p != nil {
			p.log.renew(rng)
		}
		return nil
	}},
	{"leader moved", 2, func(w *world, rng *rand.Rand) func() { w.log.MoveLeader(w.anyPartition(rng)); return nil }},
	{"leader moved with an append under way", 3, func(w *world, rng *rand.Rand) func() {
		p := w.anyPartition(rng)
		hold, release := w.log.HoldAppends, w.log.ReleaseAppends // it has not reached the leader
		if rng.IntN(2) == 0 {
			hold, release = w.log.HoldAcks, w.log.ReleaseAcks // it stands in the log, and its answer is lost with the leader: sent again it is a repeat
		}
		hold(p)
		time.AfterFunc(time.Duration(rng.Int64N(int64(2*time.Second))), func() { w.log.MoveLeader(p) })
		return func() { release(p) }
	}},
	{cutOff, 3, func(w *world, rng *rand.Rand) func() { w.cutOff(rng); return nil }},
	{replaced, 1, func(w *world, _ *rand.Rand) func() { w.replaceTopic(); return nil }},
	{"compaction", 5, func(w *world, rng *rand.Rand) func() { w.compact(rng); return nil }},

	{"partition moved", 8, func(w *world, rng *rand.Rand) func() {
		w.ownership.Assign(w.anyPartition(rng), 1+rng.Int32N(int32(len(w.replicas))))
		return nil
	}},
	{"replica cut off the ownership group", 5, func(w *world, rng *rand.Rand) func() {
		p := w.anyReplica(rng).running()
		if p == nil {
			return nil
		}
		p.member.Cut(true)
		return func() { p.member.Cut(false) }
	}},
	{deposed, 4, func(w *world, rng *rand.Rand) func() { return w.depose(w.anyReplica(rng)) }},
	{blinded, 4, func(w *world, rng *rand.Rand) func() {
		r := w.anyReplica(rng)
		p, end := r.running(), w.depose(r)
		if end == nil {
			return nil
		}
		p.link.setTail(true)
		return func() { p.link.setTail(false); end() }
	}},
	{"replica cut off the log", 5, func(w *world, rng *rand.Rand) func() {
		p := w.anyReplica(rng).running()
		if p == nil {
			return nil
		}
		p.link.set(true)
		return func() { p.link.set(false) }
	}},
	{behind, 5, func(w *world, rng *rand.Rand) func() {
		p := w.anyReplica(rng).running()
		if p == nil {
			return nil
		}
		p.link.setTail(true)
		return func() { p.link.setTail(false) }
	}},
	{"replica cut off everything but clients", 4, func(w *world, rng *rand.Rand) func() {
		p := w.anyReplica(rng).running()
		if p == nil {
			return nil
		}
		p.link.set(true)
		p.member.Cut(true)
		return func() { p.link.set(false); p.member.Cut(false) }
	}},
	{"replica cut off clients", 3, func(w *world, rng *rand.Rand) func() {
		r := w.anyReplica(rng)
		r.setClientCut(true)
		return func() { r.setClientCut(false) }
	}},
	{"replica stopped", 8, func(w *world, rng *rand.Rand) func() {
		p := w.anyReplica(rng).running()
		if p == nil {
			return nil
		}
		p.freeze(true)
		return func() { p.freeze(false) }
	}},
	{"wall clock set", 5, func(w *world, rng *rand.Rand) func() {
		r := w.anyReplica(rng)
		d := time.Duration(rng.Int64N(int64(2*w.wrongMax()))) - w.wrongMax()
		r.wall.Store(int64(d))
		w.note("replica %d: its clock is wrong by %v", r.node, d.Round(time.Second))
		return nil
	}},
	{"boot clock jumps ahead", 3, func(w *world, rng *rand.Rand) func() {
		w.anyReplica(rng).boot.jumped.Add(rng.Int64N(int64(20 * time.Second)))
		return nil
	}},
	{"disk full", 4, func(w *world, rng *rand.Rand) func() { return w.fill(w.anyReplica(rng)) }},

	{"partitions added", 3, func(w *world, rng *rand.Rand) func() {
		if t, there := w.cluster.now(source); there && t.Partitions < sourceMost {
			w.cluster.set(source, min(sourceMost, t.Partitions+1+rng.Int32N(2)))
		}
		return nil
	}},
	{"topic deleted, made again", 3, func(w *world, rng *rand.Rand) func() {
		name := []string{source, side}[rng.IntN(2)]
		t, there := w.cluster.now(name)
		if !there {
			return nil
		}
		again := t.Partitions
		if name == source {
			again = 1 + rng.Int32N(6)
		}
		w.cluster.set(name, 0)
		return func() {
			w.cluster.set(name, again)
		}
	}},
	{"group configured", 3, func(w *world, rng *rand.Rand) func() {
		w.active.Go(func() { w.configure(groupName(rng.IntN(w.groups)), drawChanges(rng), rng) })
		return nil
	}},

	{"replica crashes", 5, func(w *world, rng *rand.Rand) func() {
		r := w.anyReplica(rng)
		r.crash()
		return r.start
	}},
	{"replica stops", 3, func(w *world, rng *rand.Rand) func() {
		r := w.anyReplica(rng)
		r.shutdown()
		return r.start
	}},

	{"client starts", 8, func(w *world, rng *rand.Rand) func() {
		if len(w.living()) < 6*w.groups {
			w.launch(groupName(rng.IntN(w.groups)))
		}
		return nil
	}},
	{"client killed", 4, func(w *world, rng *rand.Rand) func() {
		if c := w.anyClient(rng); c != nil {
			w.note("%s: %s is killed", c.group, c.name())
			c.cancel()
		}
		return nil
	}},
	{"client leaves", 4, func(w *world, rng *rand.Rand) func() {
		if c := w.anyClient(rng); c != nil {
			c.leaves.Store(leavesForGood)
		}
		return nil
	}},
	{"application stopped", 3, func(w *world, rng *rand.Rand) func() {
		group := groupName(rng.IntN(w.groups))
		for _, c := range w.living() {
			if c.group == group {
				c.leaves.Store(leavesForGood)
			}
		}
		return func() { w.launch(group) }
	}},
	{"client restarts", 6, func(w *world, rng *rand.Rand) func() {
		c := w.anyClient(rng)
		switch {
		case c == nil:
		case c.instance != nil:
			c.leaves.Store(leavesForAWhile)
		default: // without a static membership it is one that goes and another one that comes
			c.leaves.Store(leavesForGood)
			w.launch(c.group)
		}
		return nil
	}},
	{"client stops for a while", 4, func(w *world, rng *rand.Rand) func() {
		d := rng.Int64N(int64(2 * time.Minute))
		if c := w.anyClient(rng); c != nil {
			c.stalls.Store(d)
		}
		return nil
	}},
	{"client cut off", 5, func(w *world, rng *rand.Rand) func() {
		c := w.anyClient(rng)
		if c == nil {
			return nil
		}
		c.setCut(true)
		return func() { c.setCut(false) }
	}},
}

// depose makes what a replica is told by the ownership group worth nothing, until end is called.
func (w *world) depose(r *replica) (end func()) {
	p := r.running()
	if p == nil {
		return nil
	}
	r.deposed.Add(1)
	p.member.Depose(true)
	return func() {
		p.member.Depose(false)
		// What was confirmed until now ends with the lease.
		time.AfterFunc(shard.SessionTimeoutDefault+requestTimeout, func() { r.deposed.Add(-1) })
	}
}

func (w *world) anyPartition(rng *rand.Rand) int32  { return rng.Int32N(w.partitions) }
func (w *world) anyReplica(rng *rand.Rand) *replica { return w.replicas[rng.IntN(len(w.replicas))] }

func (w *world) living() []*client {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*client
	for _, c := range w.clients {
		c.mu.Lock()
		if c.alive {
			out = append(out, c)
		}
		c.mu.Unlock()
	}
	return out
}

func (w *world) anyClient(rng *rand.Rand) *client {
	n := rng.Int() // drawn in any case
	if all := w.living(); len(all) > 0 {
		return all[n%len(all)]
	}
	return nil
}

// soleEvery is how often the one fault that options.sole names is made, where another one would be made otherwise: it lasts for two
// minutes, and some time without any must follow.
const soleEvery = 40

// faults makes things go wrong until ctx ends, and repairs everything before it returns.
func (w *world) faults(ctx context.Context) {
	rng := w.rng("faults")
	faults, total := slices.Clone(allFaults), 0
	for i := range faults {
		lie := faults[i].name == deposed || faults[i].name == blinded
		if lie && !w.lies || !w.loses && (faults[i].name == cutOff || faults[i].name == replaced) {
			faults[i].weight = 0
		}
		total += faults[i].weight
	}
	type running struct {
		number int
		name   string
		end    func()
		at     time.Time
	}
	var active []running
	for number := 1; ; number++ {
		wait := time.Duration(rng.ExpFloat64() * float64(5*time.Second))
		if !w.sleep(ctx, wait) {
			break
		}
		var still []running
		for _, a := range active {
			if time.Now().Before(a.at) {
				still = append(still, a)
				continue
			}
			w.note("fault %d over: %s", a.number, a.name)
			a.end()
		}
		active = still
		n := rng.IntN(total)
		lasts := time.Duration(rng.ExpFloat64() * float64(10*time.Second))
		if rng.IntN(10) == 0 {
			lasts += time.Duration(rng.Int64N(int64(2 * time.Minute)))
		}
		sole := w.options.sole
		if sole != "" {
			lasts = 2 * time.Minute
		}
		if !w.options.makes(number) || sole != "" && number%soleEvery != 1 {
			continue
		}
		for _, f := range faults {
			if n -= f.weight; sole == "" && n >= 0 || sole != "" && f.name != sole {
				continue
			}
			w.note("fault %d: %s (for %v)", number, f.name, lasts.Round(time.Millisecond))
			w.begun = append(w.begun, number)
			// Each fault draws from a source of its own: without one of them the others stay what they are.
			if end := f.begin(w, w.rng(fmt.Sprint("fault ", number))); end != nil {
				active = append(active, running{number, f.name, end, time.Now().Add(lasts)})
			}
			break
		}
	}
	for _, a := range active {
		w.note("fault %d over: %s", a.number, a.name)
		a.end()
	}
}

// compact runs the cleaner over a part of a partition. Tombstones go once they are older than delete.retention.ms.
func (w *world) compact(rng *rand.Rand) {
	p := w.anyPartition(rng)
	entries := w.log.Entries(p)
	if len(entries) == 0 {
		return
	}
	// Not what the checker has still to read: it must see each record.
	upTo := min(entries[rng.IntN(len(entries))].Offset, w.checker.Resume(p).Offset)
	w.log.CompactBefore(p, upTo, true)
	w.checker.cleaned(p, upTo)
	horizon := time.Now().Add(-w.deleteRetention).UnixMilli()
	old := int64(0)
	for _, e := range entries {
		if e.Timestamp >= horizon {
			break
		}
		old = e.Offset + 1
	}
	w.log.CompactBefore(p, min(old, upTo), false)
	w.note("partition %d compacted up to %d, tombstones up to %d", p, upTo, min(old, upTo))
}
