package embedded

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/inspect"
)

// openTransaction is a transaction that a partition has data of and no marker.
type openTransaction struct {
	topic     string
	partition int32
	producer  int64
	epoch     int16
}

// cure writes an abort marker for each transaction that was open when the process was killed. kfake takes such a
// transaction as aborted but writes no marker, so the next committed transaction of the same producer would be
// invisible to readers of committed data. It returns in how many partitions there were some.
func (c *Cluster) cure(ctx context.Context) (aborted int, err error) {
	cl, err := c.client()
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	all := kmsg.NewPtrMetadataRequest()
	all.Topics = nil
	meta, err := all.RequestWith(ctx, cl)
	if err != nil {
		return 0, err
	}
	for _, t := range meta.Topics {
		if t.ErrorCode != 0 || t.Topic == nil {
			continue
		}
		open, err := openTransactions(ctx, cl, *t.Topic)
		if err != nil {
			return aborted, err
		}
		for _, o := range open {
			if err := abort(ctx, cl, o); err != nil {
				return aborted, err
			}
			aborted++
		}
	}
	return aborted, nil
}

// openTransactions walks over the batch headers of a topic.
func openTransactions(ctx context.Context, cl *kgo.Client, topic string) ([]openTransaction, error) {
	r, err := inspect.NewReader(ctx, cl, topic)
	if err != nil {
		return nil, err
	}
	bounds, err := r.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	var found []openTransaction
	for _, p := range r.Partitions() {
		open := map[int64]int16{}
		if err := r.Read(ctx, p, bounds[p].Start, bounds[p].End, func(b inspect.Batch) error {
			switch {
			case b.Control:
				delete(open, b.ProducerID)
			case b.Transactional:
				open[b.ProducerID] = b.ProducerEpoch
			}
			return nil
		}); err != nil {
			return nil, err
		}
		for producer, epoch := range open {
			found = append(found, openTransaction{topic, p, producer, epoch})
		}
	}
	return found, nil
}

func abort(ctx context.Context, cl *kgo.Client, o openTransaction) error {
	t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	t.Topic, t.Partitions = o.topic, []int32{o.partition}
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed = o.producer, o.epoch, false
	m.Topics = append(m.Topics, t)
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Markers = append(req.Markers, m)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("abort marker for producer %d in %s-%d: %w", o.producer, o.topic, o.partition, err)
	}
	for _, m := range resp.Markers {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return fmt.Errorf("abort marker for producer %d in %s-%d: %w", o.producer, o.topic, o.partition, err)
				}
			}
		}
	}
	return nil
}
