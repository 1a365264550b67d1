package sim

import (
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"streamkeeper/projection"
	"streamkeeper/shard"
)

// What a machine does to its replica: its clock for leases runs at a rate of its own and jumps, and its disk fills up.

// driftMost is how much faster or slower than the brokers' a boot clock may run, in percent. The lease's margin, a sixth of the session, is for
// this; clocks of real machines differ by a thousandth of it.
const driftMost = 10

// bootClock is the clock that a replica's leases are counted by. It goes on while the process is stopped, and never back.
type bootClock struct {
	start   time.Time
	percent int64        // of the speed of the brokers' clocks
	jumped  atomic.Int64 // ns
}

// Now implements shard.Clock.
func (b *bootClock) Now() shard.Instant {
	return shard.Instant(time.Hour + time.Since(b.start)/100*time.Duration(b.percent) + time.Duration(b.jumped.Load()))
}

// disk is the file system of a replica as its process sees it.
func (r *replica) disk() vfs.FS {
	return errorfs.Wrap(r.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if r.full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpRemove && op.Kind != errorfs.OpRemoveAll {
			return syscall.ENOSPC
		}
		return nil
	}))
}

// storagePatience is after what time with a full disk a replica leaves its shards to the others, as serve does.
const storagePatience = 30 * time.Second

// fill fills a replica's disk until end is called. Where others are there it gives up after a while; it can't start before there is space.
func (w *world) fill(r *replica) (end func()) {
	p := r.running()
	if p == nil || !r.full.CompareAndSwap(false, true) {
		return nil
	}
	over := make(chan struct{})
	w.active.Go(func() {
		var since time.Time
		for tick := time.NewTicker(time.Second); r.running() == p; {
			select {
			case <-over:
				tick.Stop()
				return
			case <-w.ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			unusable := false
			for part := range w.partitions {
				unusable = unusable || errors.Is(p.store.Err(part), projection.ErrStorage)
			}
			switch {
			case !unusable || p.gate.isShut():
				since = time.Time{}
			case since.IsZero():
				since = time.Now()
			case time.Since(since) > storagePatience && w.members() > 1:
				w.note("replica %d: its disk is full, it leaves its shards to the others", r.node)
				r.filled.Add(1)
				tick.Stop()
				r.shutdown()
				return
			}
		}
	})
	return func() {
		close(over)
		r.full.Store(false)
		r.start()
	}
}

// members is how many replicas run.
func (w *world) members() (n int) {
	for _, r := range w.replicas {
		if r.running() != nil {
			n++
		}
	}
	return n
}
