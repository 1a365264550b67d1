package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/cleanup"
	"streamkeeper/eventlog"
	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/gateway"
	"streamkeeper/projection"
	"streamkeeper/shard"
	"streamkeeper/shard/offsets"
)

// replica is the place of one replica: a node id and a disk. Processes come and go there.
type replica struct {
	w    *world
	node int32
	rng  *rand.Rand // of whoever starts and stops it

	// turn is held by whoever starts or stops it; a channel, since in a bubble nobody may wait for a mutex while time is to pass.
	turn chan struct{}

	mu        sync.Mutex
	fs        *vfs.MemFS
	old       *vfs.MemFS // an earlier state of the disk
	life      int
	process   *process // nil: down
	clientCut bool     // no client reaches it
	// deposed counts faults by which its lease may be worth nothing, and what it answers without a write may be old.
	deposed atomic.Int32

	wall   atomic.Int64 // how far its wall clock is ahead, ns
	boot   *bootClock
	full   atomic.Bool  // its disk
	filled atomic.Int32 // how often that made it leave
}

func (r *replica) partition(group string) int32 { return eventlog.Partition(group, r.w.partitions) }

// clock is its wall clock.
func (r *replica) clock() time.Time { return jumped(time.Now(), time.Duration(r.wall.Load())) }

// process is one life of a replica.
type process struct {
	host   *shard.Host
	member *shard.FakeMember
	link   *link
	gate   *gate
	log    *linkedLog
	store  *projection.Store
	held   shard.Store // as the shards see it
	topics *coordinator.Topics
	// service and gateway are what clients reach; sockets are its listeners and connections.
	service *coordinator.Coordinator
	gateway *gateway.Gateway
	sockets *sockets
	cycle   *cleanup.Cycle
	cancel  context.CancelFunc
	ended   sync.WaitGroup
}

// running is the process, or nil.
func (r *replica) running() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process
}

// reachable is the process as clients reach it.
func (r *replica) reachable() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clientCut {
		return nil
	}
	return r.process
}

func (r *replica) isClientCut() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clientCut
}

func (r *replica) setClientCut(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clientCut = cut
}

// start begins a life.
func (r *replica) start() {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	if r.running() != nil {
		return
	}
	r.life++
	w := r.w
	delay := w.delays(fmt.Sprintf("replica %d life %d", r.node, r.life))
	store, err := projection.Open(projection.Config{
		Dir: "data", FS: r.disk(), Identity: w.log.Identity(), DeleteRetention: w.deleteRetention, Now: r.clock,
		Logger: w.logger("projection", r.node),
	})
	if err != nil {
		if r.full.Load() {
			w.note("replica %d can't start: %v", r.node, err)
			return
		}
		w.violate("replica %d: opening its projection: %v", r.node, err)
		return
	}
	p := &process{link: newLink(delay), gate: &gate{}, store: store}
	p.sockets = newSockets(p.gate)
	asker := topicAsker{w, p, delay}
	p.topics = coordinator.NewTopics(coordinator.TopicsConfig{
		Client: asker, Broker: func(int32) kmsg.Requestor { return asker }, Logger: w.logger("topics", r.node),
	})
	p.member = w.ownership.Member(r.node, func() time.Duration {
		p.gate.pass()
		return delay("ownership")
	})
	p.member.SetClock(r.boot)
	p.log = &linkedLog{Fake: w.log, l: p.link, gate: p.gate}
	membership := frozenMembership{Membership: p.member, gate: p.gate}
	p.held = store
	w.sabotage(r, p, &membership)
	p.host = shard.New(shard.Config{
		Log: p.log, Store: p.held, Membership: membership,
		Self: eventlog.Ownership{
			Format: eventlog.OwnershipFormat, NodeID: r.node, Address: replicaAddress(r.node),
			Instance: fmt.Sprintf("%d.%d", r.node, r.life),
		},
		Topics:  p.topics.Snapshot,
		Groups:  w.settings,
		Offsets: offsets.Env{MetadataBytesMax: offsets.MetadataMaxDefault, Retention: offsets.RetentionDefault},
		Now:     func() time.Time { p.gate.pass(); return r.clock() },
		Logger:  w.logger("host", r.node), Descriptions: true,
		Converting: func(group string) { p.service.SettleConversion(group) },
	})
	if err := w.front(r, p, delay); err != nil {
		w.violate("replica %d: %v", r.node, err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	sabotaged := p.cancel
	p.cancel = func() {
		cancel()
		if sabotaged != nil {
			sabotaged()
		}
	}
	p.ended.Go(func() {
		switch err := p.log.Follow(ctx, store); {
		case ctx.Err() != nil:
		case errors.Is(err, eventlog.ErrTopicGone):
			r.gone(p, err)
		default:
			w.violate("replica %d: following the log ended: %v", r.node, err)
		}
	})
	p.ended.Go(func() {
		if err := p.host.Run(ctx); err != nil {
			w.violate("replica %d: Run: %v", r.node, err)
		}
	})
	p.ended.Go(func() { p.topics.Run(ctx) })
	p.ended.Go(func() { _ = p.gateway.Run(ctx) }) // connections are cut where the process is killed
	r.mu.Lock()
	r.process = p
	r.mu.Unlock()
	w.note("replica %d starts, life %d", r.node, r.life)
}

// crash ends the life without a word to anybody. The disk loses a part of what was not synced, or everything; or it
// comes back with an older state.
func (r *replica) crash() {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	p := r.running()
	if p == nil {
		return
	}
	r.mu.Lock()
	r.process = nil
	r.mu.Unlock()
	p.member.Cut(true)
	p.link.set(true)
	p.gate.force() // what a stopped process would have done next reaches nobody any more
	p.sockets.kill(r.rng.IntN(3) == 0)
	clone := r.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: r.rng.IntN(101), RNG: rand.New(rand.NewPCG(r.rng.Uint64(), 0))})
	what := "its disk"
	switch n := r.rng.IntN(10); {
	case n == 0:
		clone, what = vfs.NewCrashableMem(), "an empty disk"
	case n == 1 && r.old != nil:
		clone, what = r.old.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 0))}), "an old disk"
	case n == 2:
		r.old = clone.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 0))})
	}
	p.end(r)
	r.fs = clone
	r.w.note("replica %d crashed, keeps %s", r.node, what)
	// What it had sent is still under way and arrives some time, at a broker that has forgotten the connection.
	late := time.Duration(r.rng.IntN(20000)) * time.Millisecond
	time.AfterFunc(late, func() { p.link.set(false) })
}

// shutdown is a planned stop.
func (r *replica) shutdown() {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	p := r.running()
	if p == nil {
		return
	}
	p.freeze(false)
	r.w.note("replica %d shuts down", r.node)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := p.host.Shutdown(ctx); err != nil {
		r.w.note("replica %d: shutdown: %v", r.node, err)
	}
	if err := p.gateway.Close(ctx); err != nil {
		r.w.note("replica %d: shutdown: %v", r.node, err)
	}
	r.mu.Lock()
	r.process = nil
	r.mu.Unlock()
	p.end(r)
	p.link.set(false)
	r.w.note("replica %d is down", r.node)
}

func (p *process) end(r *replica) {
	p.cancel()
	p.ended.Wait()
	p.sockets.kill(false)
	p.service.Close()
	if err := p.store.Close(); err != nil {
		r.w.note("replica %d: closing its projection: %v", r.node, err)
	}
}
