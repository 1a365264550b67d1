package eventlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The tail reads every partition. Each partition has a goroutine of its own (partitionTail), which asks the follower
// where to begin, checks that position against the log, and hands what was read to the follower; one fetcher per broker
// asks for all partitions that this broker leads in one request. So a follower that is slow, or fails, in one partition
// delays no other.

const (
	// applyPauseMin and applyPauseMax space the repeats of a batch that the follower could not apply (a full disk).
	applyPauseMin = 50 * time.Millisecond
	applyPauseMax = 5 * time.Second
)

// Follow implements Log.
func (k *Kafka) Follow(ctx context.Context, f Follower) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(k.ctx, func() { cancel(ErrClosed) })
	defer stop()
	t := &tail{k: k, follower: f, ctx: ctx, fetchers: map[int32]*fetcher{}}
	for p := range k.id.Partitions {
		t.wg.Go((&partitionTail{t: t, p: p, results: make(chan fetched, 1)}).run)
	}
	for ctx.Err() == nil {
		_, changed, err := k.leaders.all()
		if err != nil {
			cancel(err)
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	t.wg.Wait()
	return context.Cause(ctx)
}

// tail is one Follow call.
type tail struct {
	k        *Kafka
	follower Follower
	ctx      context.Context
	wg       sync.WaitGroup

	mu       sync.Mutex
	fetchers map[int32]*fetcher
}

// fetcher returns the one for a broker.
func (t *tail) fetcher(node int32) *fetcher {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.fetchers[node]
	if f == nil {
		f = newFetcher(t, node)
		t.fetchers[node] = f
		t.wg.Go(f.run)
	}
	return f
}

// partitionTail reads one partition.
type partitionTail struct {
	t       *tail
	p       int32
	results chan fetched // from the fetcher; at most one fetch is under way

	pos     Position
	begun   bool       // something was read before pos
	leader  leadership // who was asked last
	checked leadership // pos was compared with the log of this leader epoch
	fetcher *fetcher   // that counts on us

	// for the fetcher, which answers by itself as long as there is nothing to tell
	toldEnd  int64     // the high watermark that the follower was told of, standing there; -1: none
	toldTime time.Time // when
}

// errNewLeader: the partition has another leader than the one whose log the position was compared with.
var errNewLeader = errors.New("the partition has a new leader")

// fetched is a fetcher's answer.
type fetched struct {
	answer kmsg.FetchResponseTopicPartition
	err    error
}

func (pt *partitionTail) run() {
	defer pt.leave()
	if !pt.resume() {
		return
	}
	attempt := 0
	for pt.t.ctx.Err() == nil {
		err := pt.step()
		if pt.t.ctx.Err() != nil {
			return
		}
		pt.t.k.denials.note(pt.p, err)
		pt.t.k.unreached.note(pt.p, pt.leader, err, time.Now())
		if n, longest := pt.t.k.trouble.note(pt.p, err, time.Now()); n > 0 {
			pt.t.k.log.Warn("partitions can't be read, they are tried again and again", "topic", pt.t.k.id.Topic, "partitions", n, "for", longest.Round(time.Second), "err", err)
		}
		switch {
		case err == nil:
			attempt = 0
			continue
		case errors.Is(err, ErrRefused):
			pt.t.k.log.Error("partition of the log is not read any further", "topic", pt.t.k.id.Topic, "partition", pt.p, "offset", pt.pos.Offset, "err", err)
			return
		case pt.t.ctx.Err() != nil:
			return
		}
		pt.t.k.log.Debug("reading a partition of the log", "topic", pt.t.k.id.Topic, "partition", pt.p, "offset", pt.pos.Offset, "err", err)
		pt.leave() // nobody is to wait for us meanwhile
		pt.t.k.leaders.refresh()
		sleep(pt.t.ctx, retryPause(attempt))
		attempt++
	}
}

// resume asks the follower where to begin; false: ctx ended.
func (pt *partitionTail) resume() bool {
	pt.pos = pt.t.follower.Resume(pt.p)
	pt.begun = pt.pos.Offset > 0
	if !pt.begun {
		pt.pos.LeaderEpoch = EpochNone
	}
	pt.checked = leadership{-1, -1}
	pt.toldEnd, pt.toldTime = -1, time.Time{}
	return pt.t.ctx.Err() == nil
}

// step does one fetch and what follows from it. An error is retried after a pause, but for ErrRefused.
func (pt *partitionTail) step() error {
	l := pt.t.k.leaders.get(pt.p)
	pt.leader = l
	if l.node < 0 {
		return errNoLeader
	}
	if l != pt.checked {
		if again, err := pt.compare(l); err != nil || again {
			return err
		}
	}
	pt.join(pt.t.fetcher(l.node))
	var got fetched
	select {
	case got = <-pt.results:
	case <-pt.t.ctx.Done():
		return pt.t.ctx.Err()
	}
	switch {
	case got.err == errNewLeader:
		return nil
	case got.err != nil:
		return got.err
	}
	switch err := kerr.ErrorForCode(got.answer.ErrorCode); {
	case errors.Is(err, kerr.OffsetOutOfRange):
		return pt.outOfRange()
	case err != nil:
		return err
	}
	return pt.take(got.answer)
}

// take hands what was fetched to the follower.
func (pt *partitionTail) take(answer kmsg.FetchResponseTopicPartition) error {
	got, err := decodeBatches(answer.RecordBatches, pt.pos.Offset, decompressor)
	if err != nil {
		pt.t.k.log.Error("a partition of the log can't be read", "topic", pt.t.k.id.Topic, "partition", pt.p, "offset", pt.pos.Offset, "err", err)
		return err
	}
	b := Batch{Entries: got.entries, Next: got.next, LeaderEpoch: got.epoch, HighWatermark: answer.HighWatermark, LogStart: answer.LogStartOffset}
	if got.batches == 0 {
		b.LeaderEpoch = pt.pos.LeaderEpoch
		switch {
		case len(answer.RecordBatches) > 0:
			return fmt.Errorf("%w: %d bytes at offset %d hold no whole batch", errBatch, len(answer.RecordBatches), b.Next)
		case b.HighWatermark != b.Next:
			// Either the answer had no room for this partition, or a new leader doesn't know the true high watermark yet.
			return nil
		}
	}
	return pt.apply(b)
}

// apply has the follower take b, again until it does.
func (pt *partitionTail) apply(b Batch) error {
	for pause := applyPauseMin; ; pause = min(2*pause, applyPauseMax) {
		err := pt.t.follower.Batch(pt.p, b)
		switch {
		case err == nil:
			pt.pos = Position{b.Next, b.LeaderEpoch}
			pt.begun = pt.begun || b.Next > 0
			if b.AtEnd() {
				pt.toldEnd, pt.toldTime = b.HighWatermark, time.Now()
			}
			return nil
		case errors.Is(err, ErrRefused):
			return err
		case errors.Is(err, ErrRebuild):
			return pt.reset(err.Error())
		}
		pt.t.k.log.Warn("records of the log not applied, tried again", "topic", pt.t.k.id.Topic, "partition", pt.p, "offset", pt.pos.Offset, "err", err, "pause", pause)
		pt.leave()
		sleep(pt.t.ctx, pause)
		if err := pt.t.ctx.Err(); err != nil {
			return err
		}
	}
}

// reset has the follower forget the partition, and begins again.
func (pt *partitionTail) reset(why string) error {
	pt.t.k.log.Warn("partition of the log is read again", "topic", pt.t.k.id.Topic, "partition", pt.p, "offset", pt.pos.Offset, "why", why)
	pt.leave()
	for pause := applyPauseMin; ; pause = min(2*pause, applyPauseMax) {
		err := pt.t.follower.Reset(pt.p, why)
		if err == nil {
			pt.resume()
			return nil
		}
		if errors.Is(err, ErrRefused) {
			return err
		}
		pt.t.k.log.Warn("partition not forgotten, tried again", "topic", pt.t.k.id.Topic, "partition", pt.p, "err", err, "pause", pause)
		sleep(pt.t.ctx, pause)
		if err := pt.t.ctx.Err(); err != nil {
			return err
		}
	}
}

// compare asks a leader that is new to us where the epoch of our last record ends in its log: before our position, if
// what we read was cut off. again: the follower was reset, so everything begins anew.
func (pt *partitionTail) compare(l leadership) (again bool, err error) {
	if pt.pos.LeaderEpoch < 0 || l.epoch < 0 {
		pt.checked = l
		return false, nil
	}
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = pt.t.k.id.Topic
	rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = pt.p, l.epoch, pt.pos.LeaderEpoch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := request[*kmsg.OffsetForLeaderEpochResponse](pt.t.ctx, pt.t.k, l.node, req)
	if err != nil {
		return false, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return false, fmt.Errorf("broker %d answers OffsetForLeaderEpoch without partition %d", l.node, pt.p)
	}
	got := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return false, err
	}
	if why := cutOff(pt.pos, l, got.LeaderEpoch, got.EndOffset); why != "" {
		return true, pt.reset(why)
	}
	pt.checked = l
	return false, nil
}

// cutOff says why pos can't be read on from, where the leader says that epoch, the largest that it has up to pos's,
// ends at end; "" if it can. A leader that knows neither (-1) has lost our epoch if that is newer than its own; if it
// is older, some logs (kfake's among them) can't tell, as long as nothing was written since.
func cutOff(pos Position, l leadership, epoch int32, end int64) string {
	switch {
	case (epoch < 0 || end < 0) && pos.LeaderEpoch > l.epoch:
		return fmt.Sprintf("the log was cut off: it was read up to offset %d in leader epoch %d, and the leader is in epoch %d", pos.Offset, pos.LeaderEpoch, l.epoch)
	case epoch < 0 || end < 0:
		return ""
	case end < pos.Offset:
		return fmt.Sprintf("the log was cut off: leader epoch %d ends at offset %d, and %d was read up to %d", epoch, end, pos.LeaderEpoch, pos.Offset)
	case epoch < pos.LeaderEpoch:
		return fmt.Sprintf("the log was cut off: it was read up to offset %d in leader epoch %d, which the leader doesn't have (%d is the one before)", pos.Offset, pos.LeaderEpoch, epoch)
	}
	return ""
}

// outOfRange finds out on which side of the log our position is.
func (pt *partitionTail) outOfRange() error {
	ctx, cancel := context.WithTimeout(pt.t.ctx, 2*requestOverhead)
	defer cancel()
	start, end, err := pt.t.k.bounds(ctx, pt.p)
	switch {
	case err != nil:
		return err
	case pt.pos.Offset < start && !pt.begun:
		pt.pos.Offset = start // nothing was read yet, so there is nothing to forget
		return nil
	case pt.pos.Offset < start:
		return pt.reset(fmt.Sprintf("the log starts at offset %d, after %d, up to which it was read", start, pt.pos.Offset))
	case pt.pos.Offset > end:
		return pt.reset(fmt.Sprintf("the log was cut off: it ends at offset %d, before %d, up to which it was read", end, pt.pos.Offset))
	}
	return kerr.OffsetOutOfRange // it was so a moment ago
}

// join waits in f for the next fetch.
func (pt *partitionTail) join(f *fetcher) {
	if pt.fetcher != f {
		pt.leave()
		pt.fetcher = f
	}
	f.add(pt)
}

// leave tells the fetcher not to count on us.
func (pt *partitionTail) leave() {
	if pt.fetcher != nil {
		pt.fetcher.drop(pt)
		pt.fetcher = nil
	}
}
