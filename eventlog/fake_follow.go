package eventlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// fakePause is how long a follower's error is waited out before the batch is repeated.
const fakePause = 100 * time.Millisecond

// Follow implements Log.
func (f *Fake) Follow(ctx context.Context, follower Follower) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for p := range f.options.Partitions {
		wg.Go(func() {
			if err := f.follow(ctx, p, follower); err != nil {
				cancel(err)
			}
		})
	}
	<-ctx.Done()
	wg.Wait()
	return context.Cause(ctx)
}

// fakeReader reads one partition for one follower.
type fakeReader struct {
	f        *Fake
	part     *fakePartition
	follower Follower
	pos      Position
	restarts int
	told     int64 // the end that the follower was told of; -1: none
	toldAt   time.Time
	poke     uint64
	topics   int // of the log when it was opened
}

// follow reads p until ctx ends (nil), or until nothing can be followed any more (its reason).
func (f *Fake) follow(ctx context.Context, p int32, follower Follower) error {
	f.mu.Lock()
	r := &fakeReader{f: f, part: f.parts[p], follower: follower, topics: f.topics}
	f.mu.Unlock()
	r.resume()
	for ctx.Err() == nil {
		b, reset, changed, err := r.next()
		switch {
		case err != nil:
			return err
		case reset != "":
			err = r.reset(reset)
		case changed != nil:
			r.wait(ctx, changed)
			continue
		default:
			err = follower.Batch(p, b)
			if err == nil {
				r.read(b)
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, ErrRefused):
			return nil
		case errors.Is(err, ErrRebuild):
			if err := r.reset(err.Error()); err != nil && errors.Is(err, ErrRefused) {
				return nil
			}
		default:
			sleep(ctx, fakePause)
		}
	}
	return nil
}

func (r *fakeReader) resume() {
	r.pos = r.follower.Resume(r.part.p)
	r.told = -1
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	r.restarts = -1
	if r.pos == (Position{0, EpochNone}) || r.pos == (Position{}) {
		// nothing was read yet: there is nothing to forget where the log starts later
		r.pos = Position{r.part.logStart, EpochNone}
	}
}

func (r *fakeReader) reset(why string) error {
	if err := r.follower.Reset(r.part.p, why); err != nil {
		return err
	}
	r.resume()
	return nil
}

// read remembers that the follower took b.
func (r *fakeReader) read(b Batch) {
	r.pos = Position{b.Next, b.LeaderEpoch}
	if b.AtEnd() {
		r.told, r.toldAt = b.Next, time.Now()
	}
}

// next says what to do: apply a batch, reset for a reason, or wait for a change.
func (r *fakeReader) next() (b Batch, reset string, changed chan struct{}, err error) {
	f, part := r.f, r.part
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.gone != nil:
		return b, "", nil, f.gone
	case f.closed:
		return b, "", nil, ErrClosed
	case r.topics != f.topics:
		return b, "", nil, fmt.Errorf("%w: log topic %s was deleted and made again", ErrTopicGone, f.id.Topic)
	}
	if part.faults.holdTail || part.faults.denied != nil {
		return b, "", f.changed, nil
	}
	if r.restarts != part.faults.restarts {
		if why := part.check(r.pos); why != "" {
			return b, why, nil, nil
		}
		r.restarts = part.faults.restarts
	}
	b = Batch{Next: r.pos.Offset, LeaderEpoch: r.pos.LeaderEpoch, HighWatermark: part.end, LogStart: part.logStart}
	for _, fb := range part.batches {
		if fb.last < b.Next {
			continue
		}
		if n := f.options.EntriesPerRead; n > 0 && len(b.Entries) > 0 && len(b.Entries)+len(fb.entries) > n {
			break
		}
		for _, e := range fb.entries {
			if e.Offset >= r.pos.Offset {
				b.Entries = append(b.Entries, e)
			}
		}
		b.Next, b.LeaderEpoch = fb.last+1, fb.epoch
	}
	if b.Next == r.pos.Offset && r.told == b.Next && r.poke == part.faults.poke {
		return b, "", f.changed, nil
	}
	r.poke = part.faults.poke
	return b, "", nil, nil
}

// check says why pos can't be read on from; "" if it can.
func (part *fakePartition) check(pos Position) string {
	if pos.Offset < part.logStart {
		return "the log starts after the position"
	}
	if pos.Offset > part.end {
		return "the log was cut off below the position"
	}
	if pos.LeaderEpoch == EpochNone {
		return ""
	}
	end := part.end // of the newest epoch that is not after pos's
	for i, e := range part.epochs {
		if e.epoch <= pos.LeaderEpoch && i+1 < len(part.epochs) {
			end = part.epochs[i+1].start
		} else if e.epoch <= pos.LeaderEpoch {
			end = part.end
		}
	}
	if end < pos.Offset {
		return "the log was cut off below the position"
	}
	return ""
}

// wait returns at a change, and with a nudge to tell the end again after the idle interval.
func (r *fakeReader) wait(ctx context.Context, changed chan struct{}) {
	if r.f.options.IdleInterval < 0 {
		select {
		case <-changed:
		case <-ctx.Done():
		}
		return
	}
	t := time.NewTimer(r.f.options.IdleInterval - time.Since(r.toldAt)) // changes are of other partitions, too
	defer t.Stop()
	select {
	case <-changed:
	case <-ctx.Done():
	case <-t.C:
		r.told, r.toldAt = -1, time.Now()
	}
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
