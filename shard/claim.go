package shard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"streamkeeper/eventlog"
)

// releaseMax bounds the writing of a released record at shutdown: a cluster that does not answer must not hold the exit.
const releaseMax = 2 * time.Second

// want says whether the ownership group wants this replica to own the partition.
func (s *Shard) want(wanted bool) {
	s.wanted = wanted
	s.wantedNow.Store(wanted)
	switch {
	case wanted && s.state == idle:
		s.startClaim(0)
	case !wanted && s.state == claiming:
		s.end(ErrNotOwner)
	case !wanted && s.state == active && s.blind():
		// It would not see its successor, and what a revoked owner answers waits for what it reads: clients would hang until the lease is over.
		s.end(ErrNotOwner)
	}
	// Any other serving shard that is revoked serves on until the successor's ownership record or the end of the lease (watchLease).
}

// lose ends the shard at once: the group went on without us.
func (s *Shard) lose() {
	s.wanted = false
	s.wantedNow.Store(false)
	if s.state != idle {
		s.end(ErrNotOwner)
	}
}

// otherOwner is called for each ownership record of another replica or process that the projection applied.
func (s *Shard) otherOwner(o eventlog.Owner) {
	if s.state != active || o.Generation <= s.writer.Claim().Generation || o.Released {
		return
	}
	s.log.Debug("another replica claimed the partition", "owner", o.NodeID, "address", o.Address, "generation", o.Generation)
	s.host.tally.say(slog.LevelInfo, fmt.Sprintf("shards taken over by node %d at %s", o.NodeID, o.Address), s.partition)
	s.end(ErrNotOwner)
	if s.wanted {
		// The group assigned it to us, so the other's claim is the late one. A pause keeps two that disagree from fencing each other in a circle.
		s.startClaim(claimRetryMax)
	}
}

// startClaim claims the partition after a pause, in a goroutine of its own, which reports back to the loop.
func (s *Shard) startClaim(pause time.Duration) {
	s.state = claiming
	s.run++
	s.claimBegun = time.Now().Add(pause)
	run := s.run
	ctx, cancel := context.WithCancel(context.Background())
	s.stopRun = cancel
	s.host.claims.Go(func() {
		w, h, err := s.claim(ctx, pause)
		if !s.post(func(s *Shard) { s.claimed(run, w, h, err) }) && w != nil {
			w.Close()
		}
	})
}

// claim runs off the loop: wait until the projection stands at the end (an owner that still reads would fence one that serves),
// read the groups, claim, wait until the projection has applied the claim's own record, and read the groups that changed meanwhile.
func (s *Shard) claim(ctx context.Context, pause time.Duration) (eventlog.Writer, *hydration, error) {
	if err := s.awaitEnd(ctx, pause); err != nil {
		return nil, nil, err
	}
	h, err := s.beginHydration(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer h.drop()
	w, err := s.writeClaim(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err = h.finish(s); err == nil {
		err = s.overtaken(w)
	}
	if err != nil {
		w.Close()
		return nil, nil, err
	}
	return w, h, nil
}

// awaitEnd waits for the pause, and then until the projection stands at the end of the log.
func (s *Shard) awaitEnd(ctx context.Context, pause time.Duration) error {
	store := s.host.cfg.Store
	const look = 20 * time.Millisecond
	for wait := pause; ; wait = look {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		if err := store.Reads(s.partition); err != nil {
			return err
		}
		counted, err := s.host.counted()
		if err != nil {
			return err
		}
		if counted && store.AtEnd(s.partition) {
			return nil
		}
	}
}

// writeClaim claims, and waits until the projection has applied the claim's own record.
func (s *Shard) writeClaim(ctx context.Context) (eventlog.Writer, error) {
	store, log := s.host.cfg.Store, s.host.cfg.Log
	var previous *eventlog.Owner
	if o, ok := store.Owner(s.partition); ok {
		previous = &o
	}
	self := s.host.cfg.Self
	self.Partitions = s.host.Partitions()
	self.Order = s.host.nextOrder()
	if previous != nil && previous.LogID != "" {
		self.LogID = previous.LogID
	} else {
		self.LogID = rand.Text() // tells a log that was deleted and made again where topics have no ids
	}
	w, err := log.ClaimAfter(ctx, s.partition, self, previous, s.host.cfg.Membership.LeaseDuration())
	if err != nil {
		return nil, err
	}
	written := s.host.cfg.Membership.Lease().Now()
	until := w.Claim().Generation + 1
	if w.Claim().FreshProducer {
		// The cluster could not refuse the predecessor, which had one lease to go on appending behind our claim: void for
		// every reader, but the projection has to have passed it (D4).
		if until, err = log.End(ctx, s.partition); err != nil {
			w.Close()
			return nil, err
		}
	}
	if err := s.awaitWritten(ctx, until, written); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// goneLook is how often a claim that waits for its own record looks whether the log still has it.
const goneLook = time.Second

// awaitWritten waits until the projection has applied everything below until, which stood in the log at written. Where the log was cut off meanwhile, or
// made again, it is not there any more, and nobody else writes: the partition was read to its end since then, and ended before.
func (s *Shard) awaitWritten(ctx context.Context, until int64, written Instant) error {
	for {
		look, cancel := context.WithTimeout(ctx, goneLook)
		err := s.host.cfg.Store.Wait(look, s.partition, until)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if fresh := Instant(s.tail.fresh.Load()); fresh > written && s.host.cfg.Store.Applied(s.partition) < until {
			return fmt.Errorf("%w: the claim ends at offset %d, and the log before it: it was cut off or made again", ErrLoading, until)
		}
	}
}

// overtaken: somebody else claimed after us, or our claim is void for every reader because its producer id had been replaced already. Or the claim
// stands in a part of the log that the projection has read otherwise: it was cut off, or the topic made again, and the tail does not know it yet.
// What the projection holds is then of a log that is no more.
func (s *Shard) overtaken(w eventlog.Writer) error {
	self, claim := s.host.cfg.Self, w.Claim()
	generation := claim.Generation
	o, ok := s.host.cfg.Store.Owner(s.partition)
	if ok && o.Instance == self.Instance && o.NodeID == self.NodeID {
		// In a log that was made again another claim of this process may have stood at the same offset.
		if o.Generation == generation && o.ProducerID == claim.ProducerID && o.ProducerEpoch == claim.ProducerEpoch {
			return nil
		}
		return fmt.Errorf("%w: the claim stands at offset %d, and the projection has read one of this process at %d: it is void, or the log was cut off or made again, which the tail has still to notice",
			ErrLoading, generation, o.Generation)
	}
	return fmt.Errorf("%w: the log names node %d as owner after the claim at offset %d", eventlog.ErrFenced, o.NodeID, w.Claim().Generation)
}

// claimed takes the outcome of a claim.
func (s *Shard) claimed(run int64, w eventlog.Writer, h *hydration, err error) {
	if run != s.run || s.state != claiming {
		if w != nil { // revoked while the claim was under way: nobody serves under it
			s.host.claims.Go(func() { s.releaseWriter(s.host.releases, w) })
		}
		return
	}
	if err == nil {
		err = s.overtaken(w) // once more: claim looked before this event was queued
		if err != nil {
			w.Close()
		}
	}
	if err != nil {
		s.retry = min(max(2*s.retry, claimRetryMin), claimRetryMax)
		if declineReason(err) != "" || errors.Is(err, eventlog.ErrFenceUnproven) {
			s.retry = claimRetryMax // it will not change soon; the log line must not flood
		}
		s.log.Error("claim failed", "err", err, "again", s.retry)
		s.host.decline(s.partition, err)
		s.host.stats.claimsFailed.Add(1)
		s.startClaim(s.retry)
		return
	}
	s.writer = w
	s.seq, s.acked = 0, 0
	s.census.reset()
	s.install(h)
	s.retry = 0
	s.state = active
	s.lapsed = false
	s.beginTenure()
	s.serving.Store(true)
	s.host.claims.Go(s.takeCensus)
	s.host.timings.Load.Record(time.Since(s.claimBegun))
	s.host.stats.claims.Add(1)
	s.host.declines.passed(s.partition, time.Now())
	s.host.tally.say(slog.LevelInfo, "shards serve", s.partition)
	s.log.Debug("shard serves", "generation", w.Claim().Generation, "epoch", w.Claim().ProducerEpoch, "groups", len(s.groups))
}

// failed is called when the writer reported an error that ends it.
func (s *Shard) failed(err error) {
	if s.wanted {
		s.log.Warn("append failed, the partition is claimed anew", "err", err)
	} else { // a successor was sooner than our tail: a planned move
		s.log.Debug("append failed, the partition is another replica's", "err", err)
	}
	s.host.stats.appendsFailed.Add(1)
	s.host.decline(s.partition, err)
	answer := ErrLoading
	if errors.Is(err, eventlog.ErrFenced) {
		answer = ErrNotOwner
	}
	s.end(answer)
	if s.wanted {
		pause := claimRetryMin
		if errors.Is(err, eventlog.ErrFenced) {
			// Somebody else claimed. If the group has us as owner the other is late and will notice; until then do not
			// fight over the partition.
			pause = claimRetryMax
		}
		s.startClaim(pause)
	}
}

// end drops everything the shard knows and answers what waits with err.
func (s *Shard) end(err error) {
	if s.stopRun != nil {
		s.stopRun()
		s.stopRun = nil
	}
	s.run++
	s.serving.Store(false)
	s.endTenure(err)
	s.state = idle
	if s.writer != nil {
		s.writer.Close()
		s.writer = nil
	}
	waiting, unproven, ready := s.inflight, s.unproven, s.ready
	s.inflight, s.unproven, s.ready = nil, nil, nil
	s.proving.Store(false)
	s.breakOff(err)
	for id := range s.groups {
		s.host.known.Delete(id)
	}
	s.groups = map[string]*group{}
	s.census.reset()
	s.overlay = newOverlay()
	s.timers = timers{}
	for i := range waiting {
		for _, w := range waiting[i].waiters {
			w.fail(err)
		}
	}
	for _, u := range unproven {
		u.w.fail(err)
	}
	for _, w := range ready {
		w.fail(err)
	}
}

// endReleasing ends a serving shard and tells the others, in the log, that nobody owns the partition. The channel is closed when that is
// written, or given up.
func (s *Shard) endReleasing(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	w := s.writer
	s.writer = nil // end must not close it under the release
	s.end(ErrNotOwner)
	s.host.claims.Go(func() {
		defer close(done)
		s.releaseWriter(ctx, w)
	})
	return done
}

// releaseWriter writes the released record within ctx and releaseMax, and ends the writer.
func (s *Shard) releaseWriter(ctx context.Context, w eventlog.Writer) {
	ctx, cancel := context.WithTimeout(ctx, releaseMax)
	defer cancel()
	if err := w.Release(ctx); err != nil {
		if !errors.Is(err, eventlog.ErrFenced) { // a successor is there: nothing to release
			s.log.Warn("released record not written", "err", err)
		}
		w.Close()
	}
}

// release writes the released record and ends the shard; called at shutdown, from outside the loop.
func (s *Shard) release(ctx context.Context) {
	released := make(chan (<-chan struct{}), 1)
	if !s.post(func(s *Shard) {
		if s.state == active {
			released <- s.endReleasing(ctx)
		} else {
			close(released)
		}
	}) {
		return
	}
	select {
	case done, ok := <-released:
		if ok {
			<-done // within releaseMax
		}
	case <-ctx.Done():
	}
}
