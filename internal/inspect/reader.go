package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// fetchBytesMax and fetchPartitionBytesMax bound one fetch: a few batches of the largest size that brokers take by default.
	fetchBytesMax          = 16 << 20
	fetchPartitionBytesMax = 4 << 20
	// fetchWait is how long a leader may hold a fetch for which it has nothing.
	fetchWait = 500 * time.Millisecond
	// readFailuresMax is how many fetches in a row may fail before reading is given up: about half a minute.
	readFailuresMax = 30
	// readPauseMax is the longest pause between two of them: a leader that is elected is noticed that soon.
	readPauseMax = 2 * time.Second
)

// Reader reads one topic. It is for one goroutine at a time.
type Reader struct {
	cl      *kgo.Client
	topic   string
	id      [16]byte
	leaders map[int32]int32
}

// NewReader looks the topic up. cl is used for requests only.
func NewReader(ctx context.Context, cl *kgo.Client, topic string) (*Reader, error) {
	r := &Reader{cl: cl, topic: topic}
	return r, r.refresh(ctx)
}

// Partitions are the partitions of the topic, ascending.
func (r *Reader) Partitions() []int32 { return slices.Sorted(maps.Keys(r.leaders)) }

// refresh asks for the leaders.
func (r *Reader) refresh(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(r.topic)
	req.Topics = []kmsg.MetadataRequestTopic{t}
	resp, err := req.RequestWith(ctx, r.cl)
	if err != nil {
		return fmt.Errorf("metadata of topic %s: %w", r.topic, err)
	}
	if len(resp.Topics) != 1 {
		return fmt.Errorf("metadata of topic %s: the cluster answered about %d topics", r.topic, len(resp.Topics))
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("there is no topic %s on this cluster", r.topic)
	} else if err != nil {
		return fmt.Errorf("metadata of topic %s: %w", r.topic, err)
	}
	r.id = resp.Topics[0].TopicID
	r.leaders = map[int32]int32{}
	for _, p := range resp.Topics[0].Partitions {
		r.leaders[p.Partition] = p.Leader
	}
	return nil
}

// Bounds are the first offset of a partition and the one after the last.
type Bounds struct{ Start, End int64 }

// Bounds asks the leader of each partition.
func (r *Reader) Bounds(ctx context.Context) (map[int32]Bounds, error) {
	out := map[int32]Bounds{}
	for _, what := range []int64{-2, -1} { // the earliest and the latest offset, in the protocol's words
		req := kmsg.NewPtrListOffsetsRequest()
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = r.topic
		for _, p := range r.Partitions() {
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp = p, what
			t.Partitions = append(t.Partitions, rp)
		}
		req.Topics = append(req.Topics, t)
		resp, err := req.RequestWith(ctx, r.cl)
		if err != nil {
			return nil, fmt.Errorf("offsets of topic %s: %w", r.topic, err)
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, fmt.Errorf("offsets of %s-%d: %w", r.topic, p.Partition, err)
				}
				b := out[p.Partition]
				if what == -2 {
					b.Start = p.Offset
				} else {
					b.End = p.Offset
				}
				out[p.Partition] = b
			}
		}
	}
	return out, nil
}

// Read calls f with the batches of one partition from an offset up to end, which is not read any more.
func (r *Reader) Read(ctx context.Context, partition int32, from, end int64, f func(Batch) error) error {
	positions := map[int32]int64{partition: from}
	pause := pauser{}
	for positions[partition] < end {
		before := positions[partition]
		err := r.fetch(ctx, r.leaders[partition], positions, 0, func(_ int32, b Batch) error {
			if b.FirstOffset >= end {
				return nil
			}
			return f(b)
		})
		if err = r.settle(ctx, err, &pause); err != nil {
			return err
		}
		if positions[partition] == before && err == nil {
			// The end lies behind what compaction left, or the leader had nothing: the second is over soon, the first only then.
			if empty, err := r.emptyFrom(ctx, partition, before); err != nil || empty {
				return err
			}
		}
	}
	return nil
}

// emptyFrom says that the partition has no batch at or after an offset.
func (r *Reader) emptyFrom(ctx context.Context, partition int32, offset int64) (bool, error) {
	found := false
	err := r.fetch(ctx, r.leaders[partition], map[int32]int64{partition: offset}, fetchWait, func(int32, Batch) error {
		found = true
		return nil
	})
	var retry *retriable
	if errors.As(err, &retry) {
		return false, nil
	}
	return !found, err
}

// Follow calls f with the batches of the partitions from the positions on until ctx ends or f fails; never two calls at a time.
func (r *Reader) Follow(ctx context.Context, positions map[int32]int64, f func(partition int32, b Batch) error) error {
	pause := pauser{}
	for {
		err := r.followLeaders(ctx, positions, f)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := r.settle(ctx, err, &pause); err != nil {
			return err
		}
	}
}

// followLeaders reads from all leaders at once until one of them fails.
func (r *Reader) followLeaders(ctx context.Context, positions map[int32]int64, f func(int32, Batch) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	byLeader := map[int32]map[int32]int64{}
	for p, offset := range positions {
		l := r.leaders[p]
		if byLeader[l] == nil {
			byLeader[l] = map[int32]int64{}
		}
		byLeader[l][p] = offset
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for leader, own := range byLeader {
		wg.Go(func() {
			for answered := false; ctx.Err() == nil; answered = true {
				err := r.fetch(ctx, leader, own, fetchWait, func(p int32, b Batch) error {
					mu.Lock()
					defer mu.Unlock()
					positions[p] = b.LastOffset + 1
					return f(p, b)
				})
				if err != nil {
					var retry *retriable
					if errors.As(err, &retry) {
						retry.answered = answered
					}
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// retriable wraps an error after which the leaders are asked for again.
type retriable struct {
	err      error
	answered bool // the leader had answered since it was looked up: the failures before are over
}

func (e *retriable) Error() string { return e.err.Error() }
func (e *retriable) Unwrap() error { return e.err }

type pauser struct{ failures int }

// settle waits and looks for the leaders after an error that may pass; it returns the ones that don't.
func (r *Reader) settle(ctx context.Context, err error, p *pauser) error {
	var retry *retriable
	if !errors.As(err, &retry) {
		p.failures = 0
		return err
	}
	if retry.answered {
		p.failures = 0
	}
	if p.failures++; p.failures > readFailuresMax {
		return fmt.Errorf("given up after %d attempts: %w", p.failures, retry.err)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(min(time.Duration(p.failures)*100*time.Millisecond, readPauseMax)):
	}
	_ = r.refresh(ctx) // the old leaders are tried again where it fails
	return nil
}

// fetch sends one Fetch request to a leader and moves the positions behind the batches that f was called with.
func (r *Reader) fetch(ctx context.Context, leader int32, positions map[int32]int64, wait time.Duration, f func(int32, Batch) error) error {
	if leader < 0 {
		return &retriable{err: fmt.Errorf("topic %s: a partition has no leader", r.topic)}
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait.Milliseconds()), 1, fetchBytesMax
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = r.topic, r.id
	for _, p := range slices.Sorted(maps.Keys(positions)) {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p, positions[p], fetchPartitionBytesMax
		t.Partitions = append(t.Partitions, rp)
	}
	req.Topics = append(req.Topics, t)
	kresp, err := r.cl.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &retriable{err: fmt.Errorf("fetch of topic %s from node %d: %w", r.topic, leader, err)}
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return &retriable{err: fmt.Errorf("fetch of topic %s from node %d: %w", r.topic, leader, err)}
	}
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			if err := r.take(&t.Partitions[i], positions, f); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Reader) take(rp *kmsg.FetchResponseTopicPartition, positions map[int32]int64, f func(int32, Batch) error) error {
	p := rp.Partition
	switch err := kerr.ErrorForCode(rp.ErrorCode); {
	case errors.Is(err, kerr.OffsetOutOfRange) && positions[p] < rp.LogStartOffset:
		positions[p] = rp.LogStartOffset // what lay before was deleted while we read
		return nil
	case kerr.IsRetriable(err):
		return &retriable{err: fmt.Errorf("fetch of %s-%d at offset %d: %w", r.topic, p, positions[p], err)}
	case err != nil:
		return fmt.Errorf("fetch of %s-%d at offset %d: %w", r.topic, p, positions[p], err)
	}
	for rest := rp.RecordBatches; len(rest) > 0; {
		b, next, err := splitBatch(rest)
		if errors.Is(err, errShortBatch) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s-%d: %w", r.topic, p, err)
		}
		rest = next
		if b.LastOffset < positions[p] {
			continue
		}
		if err := f(p, b); err != nil {
			return err
		}
		positions[p] = b.LastOffset + 1
	}
	return nil
}
