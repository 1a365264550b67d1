package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

const (
	// probePause is how long a probe waits after an answer before it asks again. Two hundred of them are to leave the processors to what they measure.
	probePause = 20 * time.Millisecond
	// probeRetry is how long it waits after a failure: what a gap is measured with.
	probeRetry = 5 * time.Millisecond
)

// kind is what a probe asks.
type kind int8

const (
	probeBeat  kind = iota // heartbeats of a group with a member
	probeFetch             // reads a committed offset of a group without
	probeWrite             // commits a higher offset each time and reads it back: what was acknowledged must be there
	probeKinds
)

// probe asks the coordinator of one group again and again, and remembers how long a request took until it was answered, with all
// that was tried anew for it.
type probe struct {
	*caller
	kind  kind
	shard int32
	wrote int64 // the last offset that was acknowledged
	sent  int64 // the last one that was sent

	mu      sync.Mutex
	window  bool          // remember from now on
	longest time.Duration // of one request, from its first sending to its answer
	last    time.Time     // when the last request was sent that was answered
	by      string        // who answered it
}

func (p *probe) once(ctx context.Context) (bool, error) {
	switch p.kind {
	case probeBeat:
		return p.try(ctx, (*group).beat)
	case probeFetch:
		return p.try(ctx, (*group).fetch)
	}
	p.sent++
	if ok, err := p.try(ctx, func(g *group, ctx context.Context, c *wire.Client) error { return g.commitAt(ctx, c, p.sent) }); !ok {
		return ok, err
	}
	p.wrote = p.sent
	return p.read(ctx)
}

// read checks that the offset is one that was acknowledged last, or sent since.
func (p *probe) read(ctx context.Context) (bool, error) {
	var got int64
	ok, err := p.try(ctx, func(g *group, ctx context.Context, c *wire.Client) (err error) {
		got, err = g.fetched(ctx, c)
		return err
	})
	if ok && (got < p.wrote || got > p.sent) {
		return false, errFatal{fmt.Errorf("group %s: OffsetFetch says %d after %d was acknowledged and %d sent", p.g.id, got, p.wrote, p.sent)}
	}
	return ok, err
}

// run asks until ctx ends.
func (p *probe) run(ctx context.Context) error {
	for ctx.Err() == nil {
		began := time.Now()
		for ctx.Err() == nil {
			ok, err := p.once(ctx)
			if err != nil {
				return err
			}
			if ok {
				break
			}
			pause(ctx, probeRetry)
		}
		if ctx.Err() != nil {
			return nil
		}
		p.answered(began, time.Now())
		pause(ctx, probePause)
	}
	return nil
}

func (p *probe) answered(began, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.by = began, p.coordinator
	if p.window {
		p.longest = max(p.longest, now.Sub(began))
	}
}

// open begins a window, and says who the coordinator is.
func (p *probe) open() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.window, p.longest = true, 0
	return p.by
}

// shut ends it: the longest time that a request took, and who the coordinator is.
func (p *probe) shut() (time.Duration, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.window = false
	return p.longest, p.by
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// commitAt commits one offset as the group's member.
func (g *group) commitAt(ctx context.Context, c *wire.Client, offset int64) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.SetVersion(9)
	req.Group, req.MemberID, req.Generation = g.id, g.member, g.epoch
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = topic
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Partition, part.Offset = 0, offset
	t.Partitions = append(t.Partitions, part)
	req.Topics = append(req.Topics, t)
	kresp, err := c.Exchange(ctx, req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(kresp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
}

// chooseProbes takes four groups of each shard: two beat, one commits, and one has no member. What is taken is struck off the list.
func chooseProbes(b bulk, s samples, shards int32, f *fleet, l *lanes) (probes []*probe, taken map[int]bool) {
	taken = map[int]bool{}
	want := []kind{probeBeat, probeBeat, probeWrite}
	number := 0
	take := func(i int, k kind, shard int32) {
		p := &probe{caller: newCaller(b.group(i, s), number, f, l), kind: k, shard: shard, wrote: sampleOffset, sent: sampleOffset}
		probes, taken[i] = append(probes, p), true
		number++
	}
	for shard, groups := range b.byPartition(shards) {
		for n, i := range groups {
			if n < len(want) && i < b.active {
				take(i, want[n], int32(shard))
			}
		}
		if i := groups[len(groups)-1]; i >= b.active {
			take(i, probeFetch, int32(shard))
		}
	}
	return probes, taken
}

// gaps are how long requests took in a window, by what was asked, sorted.
type gaps [probeKinds][]time.Duration

func (g *gaps) all() []time.Duration {
	return sorted(slices.Concat(g[probeBeat], g[probeFetch], g[probeWrite]))
}

func sorted(d []time.Duration) []time.Duration { return slices.Sorted(slices.Values(d)) }

func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

// isFatal says that err is one that an application would be told.
func isFatal(err error) bool {
	var fatal errFatal
	return errors.As(err, &fatal)
}
