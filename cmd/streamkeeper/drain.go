package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/internal/telemetry"
	"streamkeeper/projection"
	"streamkeeper/shard"
)

// readyLook is how often a starting replica looks whether it serves.
const readyLook = 50 * time.Millisecond

// serve runs the parts until ctx ends or one of them can't go on, then hands over and stops. ready is called once.
func (r *replica) serve(ctx context.Context, p *parts, ready func()) error {
	// Everything below lives longer than ctx: after the signal shards serve on until a successor has claimed them.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	var running []runningPart
	start := func(what string, f func(context.Context) error) {
		done := make(chan struct{})
		running = append(running, runningPart{what, done})
		go func() {
			defer close(done)
			if err := f(life); err != nil && life.Err() == nil {
				end(fmt.Errorf("%s: %w", what, err))
			}
		}()
	}
	start("the record log", func(ctx context.Context) error { return p.log.Follow(ctx, p.store) })
	start("progress", func(ctx context.Context) error { p.progress.run(ctx, r.log); return nil })
	start("sensors", func(ctx context.Context) error { p.sensors.Run(ctx); return nil })
	if p.space != nil {
		start("topology descriptions", p.space.Run)
	}
	start("topics", func(ctx context.Context) error { p.topics.Run(ctx); return nil })
	start("ownership of shards", p.host.Run)
	start("cleanup", p.cycle.Run)
	start("offsets of deleted topics", p.deleted.Run)
	start("gateway", p.gateway.Run)
	// What is wrong with this replica alone ends it as a signal does: others get its shards first.
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	start("data directory", func(life context.Context) error { leave(p.storageWatch(r.flags.NodeID).run(life)); return nil })

	look := time.NewTicker(readyLook)
	defer look.Stop()
	for waiting := true; waiting; {
		select {
		case <-ctx.Done():
			waiting = false
		case <-life.Done():
			waiting = false
		case <-look.C:
			if p.ready() == nil {
				ready()
				waiting = false
			}
		}
	}
	select {
	case <-ctx.Done():
		r.drain(p)
	case <-life.Done():
	}
	p.stop.begin()
	failed := context.Cause(life)
	if failed == nil {
		if why := context.Cause(ctx); errors.Is(why, projection.ErrStorage) {
			failed = why
		}
	}
	end(nil)
	if left := unfinished(running, p.stop.left(stopParts)); len(left) > 0 {
		r.log.Error("the stop is not over in time, the process ends all the same", "waitedFor", left)
		p.abandoned = true
		return errors.Join(failed, fmt.Errorf("the stop is not over in time: %s did not end", strings.Join(left, ", ")))
	}
	if errors.Is(failed, context.Canceled) {
		return nil
	}
	return failed
}

// runningPart is something that serve runs; done is closed at its end.
type runningPart struct {
	what string
	done <-chan struct{}
}

// unfinished waits until all have ended, at most so long, and names those that have not.
func unfinished(running []runningPart, most time.Duration) (left []string) {
	late := time.NewTimer(most)
	defer late.Stop()
	for i, part := range running {
		select {
		case <-part.done:
			continue
		case <-late.C:
		}
		for _, part := range running[i:] {
			select {
			case <-part.done:
			default:
				left = append(left, part.what)
			}
		}
		return left
	}
	return nil
}

// exitMargin is what a busy machine may add between the deadline of a stop and the end of the process.
const exitMargin = 5 * time.Second

// stopWithin is how long whatever ends a process by force has to wait.
func stopWithin(shutdownTimeout time.Duration) time.Duration { return shutdownTimeout + exitMargin }

// drain hands the shards over and lets requests under way finish, within the shutdown time-out.
func (r *replica) drain(p *parts) {
	begun := time.Now()
	r.log.Info("stopping", "timeout", r.flags.ShutdownTimeout)
	p.stop.begin()
	p.stopping.Store(true) // /readyz
	p.systemd.Stopping(stopWithin(r.flags.ShutdownTimeout))
	time.Sleep(r.flags.ShutdownDelay) // whoever asks /readyz sends nobody here any more when the listeners close
	handing, done := p.stop.context(stopHandOver)
	defer done()
	p.membership.handOver(handing, done)
	err := p.host.HandOver(handing)
	release, released := p.stop.context(stopRelease)
	defer released()
	p.host.Release(release)
	if err != nil && !errors.Is(err, context.Canceled) {
		r.log.Warn("the ownership group was not left in order; shards move when the session time-out is over", "err", err)
	}
	requests, finished := p.stop.context(stopRequests)
	defer finished()
	if err := p.gateway.Close(requests); err != nil {
		r.log.Warn("connections were cut", "err", err)
	}
	p.readUp(r.log)
	r.log.Info("stopped", "duration", time.Since(begun))
}

// readUpMax bounds how long a stop waits for the projection: what was written last is read in milliseconds, unless the cluster is away.
const readUpMax = 2 * time.Second

// readUp waits until the projection has what the log has: the data directory of a stopped replica may be the last copy of it.
func (p *parts) readUp(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), min(readUpMax, p.stop.left(stopRead)))
	defer cancel()
	var wg sync.WaitGroup
	var behind atomic.Int32
	for q := range p.host.Partitions() {
		wg.Go(func() {
			if p.host.Barrier(ctx, q) != nil || p.store.Err(q) != nil { // what is in memory alone is not in the directory
				behind.Add(1)
			}
		})
	}
	wg.Wait()
	if n := behind.Load(); n > 0 {
		log.Warn("the data directory lacks the last records of some partitions; do not restore from it", "partitions", n)
	}
}

// handover is the membership with one thing more: where no other replica is there, nobody will claim the shards, and a stop
// need not wait for it.
type handover struct {
	*shard.KafkaMembership
	alone bool
	stop  context.CancelFunc
}

// othersShare is the part of the time for handing over in which a stop finds out who else is there; a cluster that is away answers later, or never.
const othersShare = 4

// handOver looks who else is there; stop ends the wait for successors.
func (h *handover) handOver(ctx context.Context, stop context.CancelFunc) {
	look := ctx
	if ends, ok := ctx.Deadline(); ok {
		bounded, cancel := context.WithTimeout(ctx, time.Until(ends)/othersShare)
		defer cancel()
		look = bounded
	}
	members, err := h.Members(look)
	h.alone, h.stop = err == nil && len(members) <= 1, stop
}

// Leave leaves the group.
func (h *handover) Leave(ctx context.Context) error {
	err := h.KafkaMembership.Leave(ctx)
	if h.alone && h.stop != nil {
		h.stop()
	}
	return err
}

// close takes down what was made, within the stop's deadline. It says whether that was done.
func (p *parts) close() bool {
	// A part that has not ended may still use the others; the end of the process closes them.
	return p.abandoned || p.stop.within(stopClose, p.takeDown)
}

// takeDown takes down what was made, the last first.
func (p *parts) takeDown() {
	if p.gateway != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // drained before, or never used
		_ = p.gateway.Close(ctx)
	}
	if p.service != nil {
		p.service.Close()
	} else if p.describing != nil {
		_ = p.describing.plugin.Close(context.Background())
	}
	if p.space != nil {
		p.space.Close()
	}
	if p.log != nil {
		p.log.Close()
	}
	if p.store != nil {
		_ = p.store.Close()
	}
	if p.upstream != nil {
		p.upstream.Close()
	}
}

// checks are what /readyz asks.
func (p *parts) checks() []telemetry.Check {
	return []telemetry.Check{
		{Name: "process", Ready: p.notStopping},
		{Name: "record log", Ready: p.logRead},
		{Name: "topology descriptions", Ready: p.descriptionsRead},
		{Name: "ownership group", Ready: p.joined},
		{Name: "shards", Ready: p.shardsServed},
		{Name: "declined shards", Ready: p.noneDeclined},
	}
}

// alive are what /healthz and the watchdog of systemd ask: what only an end of the process mends.
func (p *parts) alive() []telemetry.Check {
	return []telemetry.Check{{Name: "shards", Ready: p.loopsTurn}}
}

// status is one line for systemctl status.
func (p *parts) status() string {
	if err := p.ready(); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("serving %d of %d shards", p.host.OwnedCount(), p.host.Partitions())
}

func (p *parts) notStopping() error {
	if p.stopping.Load() {
		return fmt.Errorf("stopping, %d shards are still served here", p.host.OwnedCount())
	}
	return nil
}

// loopsTurn is what /healthz asks: a shard whose loop takes no turn serves nobody, and only an end of the process mends that. That the cluster is away is
// no reason to end it.
func (p *parts) loopsTurn() error {
	if hung := p.host.Hung(); len(hung) > 0 {
		return fmt.Errorf("partitions %v take no turn", hung)
	}
	return nil
}

func (p *parts) logRead() error {
	behind := 0
	for q := range p.host.Partitions() {
		switch err := p.store.Err(q); {
		case errors.Is(err, eventlog.ErrRefused): // stays so; the other partitions are served
		case err != nil && !errors.Is(err, projection.ErrLoading):
			return fmt.Errorf("partition %d: %w", q, err)
		case !p.store.AtEnd(q):
			behind++
		}
	}
	if behind > 0 {
		r := p.progress.look()
		return fmt.Errorf("reading, %d of %d partitions are not at their end; %d of %d records, %d per second, %s left; because: %s",
			behind, p.host.Partitions(), r.of-r.left, r.of, int64(r.rate), r.timeLeft(), r.reasons())
	}
	return nil
}

func (p *parts) descriptionsRead() error {
	if p.space == nil {
		return nil
	}
	return p.space.Ready()
}

func (p *parts) joined() error {
	if !p.membership.LeaseValid() {
		return errors.New("not joined")
	}
	return nil
}

func (p *parts) shardsServed() error {
	for q := range p.host.Partitions() {
		if err := p.store.Err(q); errors.Is(err, eventlog.ErrRefused) && p.host.Pending() > 0 {
			return fmt.Errorf("%d assigned shards are not served; shard %d is refused: %w", p.host.Pending(), q, err)
		}
	}
	if n := p.host.Pending(); n > 0 {
		return fmt.Errorf("%d assigned shards are not served yet", n)
	}
	return nil
}

// noneDeclined fails where this replica leaves shards to others for a reason that somebody has to mend here.
func (p *parts) noneDeclined() error {
	return judgeDeclines(p.host.Declines(), p.host.Partitions(), p.host.Held(), p.host.Owns)
}

// judgeDeclines looks at shards that are assigned here, and not served, and at all where there is none that this replica could serve: then it is of no use as it
// is. What it declines of others' shards they may decline as well, and not all replicas are to be unready for one shard. Records of a newer version are no reason:
// they come with an upgrade, and the other replicas serve those shards. Nor is a broker that does not answer here, perhaps nowhere: all else goes on. Nor is a log that is still read: /readyz says so by itself.
func judgeDeclines(declines []shard.Decline, partitions int32, held []int32, owns func(int32) bool) error {
	n, first := 0, shard.Decline{}
	useless := len(declines) == int(partitions)
	for _, d := range declines {
		if d.Why == shard.DeclinedRecord || d.Why == shard.DeclinedBroker || d.Why == shard.DeclinedReading || owns(d.Partition) || !useless && !slices.Contains(held, d.Partition) {
			continue
		}
		if n++; n == 1 {
			first = d
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d shards are left to other replicas, shard %d because of: %s: %w", n, first.Partition, first.Why, first.Err)
}

// ready is nil where every check is.
func (p *parts) ready() error {
	for _, c := range p.checks() {
		if err := c.Ready(); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}
