package eventlog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// A sender carries the batches of all partitions that one broker leads, over one connection, one request at a time. A
// broker serves one request of a connection at a time (it answers acks=all before it reads the next), so fifty requests
// with a batch each cost fifty times the wait for the replicas, and one request with fifty batches costs it once: 2,700
// batches a second against 78,000, measured on one broker.
//
// A partition's batch is closed only when its request is put together: while a request is under way, operations gather.

// parcel is what a sender carries: the next batch of one partition.
type parcel interface {
	partition() int32
	// load returns the batch to send now and the number of its records; nil: there is none any more.
	load() (batch []byte, records int)
	// landed tells how it went: err is nil, an error of kerr, or a connectionError. offset is that of the first record.
	landed(offset int64, err error)
}

const (
	// produceTimeout is how long the broker waits for the replicas before it answers REQUEST_TIMED_OUT for those partitions
	// that still wait. Their batches are repeated, which goes on with the waiting; the others were kept from their answer
	// by them, so it is short.
	produceTimeout = 1500 * time.Millisecond
	// requestBytesMax keeps a request far below socket.request.max.bytes (100 MiB); what is left goes with the next.
	requestBytesMax = 16 << 20
	// lingerMax is how long a request waits for partitions that were in the one before: their owners are being told of
	// its outcome right now, and are about to append again. Longer would be felt in the latency of a single one.
	lingerMax = 200 * time.Microsecond
	// lingerWithin is how soon after an answer that holds: later, nothing is known of who appends next.
	lingerWithin = 2 * time.Millisecond
)

type sender struct {
	k    *Kafka
	node int32
	wake chan struct{}

	mu    sync.Mutex
	ready []parcel // each partition at most once

	// of the goroutine alone
	batches  int       // in the last request
	answered time.Time // when its answer came
}

// sender returns the one for a broker; nil after Close.
func (k *Kafka) sender(node int32) *sender {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.senders[node]
	if s == nil && k.ctx.Err() == nil {
		s = &sender{k: k, node: node, wake: make(chan struct{}, 1)}
		k.senders[node] = s
		k.wg.Go(s.run)
	}
	return s
}

func (s *sender) add(p parcel) {
	s.mu.Lock()
	s.ready = append(s.ready, p)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // it was told already
	}
}

func (s *sender) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ready)
}

func (s *sender) run() {
	ctx := s.k.ctx
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		s.linger(ctx)
		for s.count() > 0 && ctx.Err() == nil {
			loads, records := s.take()
			s.send(ctx, loads, records)
		}
	}
}

// linger waits a moment for the partitions of the last request, if that was just now.
func (s *sender) linger(ctx context.Context) {
	if s.batches < 2 || time.Since(s.answered) > lingerWithin || s.count() >= s.batches {
		return
	}
	t := time.NewTimer(lingerMax)
	defer t.Stop()
	for s.count() < s.batches {
		select {
		case <-s.wake:
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// load is a batch on its way.
type load struct {
	parcel parcel
	batch  []byte
}

// take puts a request's load together; partitions that have nothing to send any more are left out.
func (s *sender) take() (loads []load, records int) {
	s.mu.Lock()
	ready := s.ready
	s.ready = nil
	s.mu.Unlock()
	size := 0
	for i, p := range ready {
		batch, n := p.load()
		if batch == nil {
			continue
		}
		if size += len(batch); size > requestBytesMax && len(loads) > 0 {
			s.mu.Lock()
			s.ready = append(ready[i:len(ready):len(ready)], s.ready...) // it is loaded again, with the same bytes
			s.mu.Unlock()
			break
		}
		loads = append(loads, load{p, batch})
		records += n
	}
	return loads, records
}

// send makes one Produce request and tells each parcel its outcome.
func (s *sender) send(ctx context.Context, loads []load, records int) {
	if len(loads) == 0 {
		return
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks = -1
	req.TimeoutMillis = int32(produceTimeout.Milliseconds())
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = s.k.id.Topic, s.k.id.TopicID
	rt.Partitions = make([]kmsg.ProduceRequestTopicPartition, len(loads))
	size := 0
	for i, l := range loads {
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = l.parcel.partition(), l.batch
		rt.Partitions[i] = rp
		size += len(l.batch)
	}
	req.Topics = append(req.Topics, rt)

	ctx, span := s.k.tracer.Start(ctx, "append", trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("messaging.destination.name", s.k.id.Topic), attribute.Int("broker", int(s.node)),
			attribute.Int("partitions", len(loads)), attribute.Int("records", records), attribute.Int("bytes", size))
	}
	resp, err := request[*kmsg.ProduceResponse](ctx, s.k, s.node, req)
	s.batches, s.answered = len(loads), time.Now()
	if s.k.sent != nil {
		s.k.sent(len(loads))
	}
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		s.k.leaders.refresh()
		for _, l := range loads {
			l.parcel.landed(-1, err)
		}
		return
	}
	answers := make(map[int32]kmsg.ProduceResponseTopicPartition, len(loads))
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			answers[p.Partition] = p
		}
	}
	for _, l := range loads {
		p := l.parcel.partition()
		answer, ok := answers[p]
		err := kerr.ErrorForCode(answer.ErrorCode)
		switch {
		case !ok:
			err = &connectionError{s.node, fmt.Errorf("the answer to Produce leaves out partition %d", p)}
		case err != nil && retriable(err):
			s.k.leaders.refresh()
		}
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		l.parcel.landed(answer.BaseOffset, err)
	}
}
