package history

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/eventlog"
)

// Log is the record log as it stands: the entries of each partition in their order. It must be whole, for what compaction took can't be judged.
type Log map[int32][]eventlog.Entry

// ReadLog reads all of a topic up to where its partitions end now. opts name the cluster. It tries until ctx ends: leaders come and go in tests.
func ReadLog(ctx context.Context, topic string, opts ...kgo.Opt) (Log, error) {
	cl, err := kgo.NewClient(append(slices.Clone(opts), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ends, err := endOffsets(ctx, cl, topic)
	if err != nil {
		return nil, fmt.Errorf("end of %s: %w", topic, err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	log := Log{}
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("reading %s: %w: partitions %v are not at their end", topic, err, slices.Sorted(maps.Keys(left)))
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			for _, r := range p.Records {
				if r.Offset < ends[topic][r.Partition].Offset {
					log[r.Partition] = append(log[r.Partition], entryOf(r))
				}
				if r.Offset+1 >= left[r.Partition] {
					delete(left, r.Partition)
				}
			}
		})
	}
	return log, nil
}

// endsPause is between two attempts to learn where partitions end: a leader may be dead, and one that was elected just now can't tell for a moment.
const endsPause = 50 * time.Millisecond

func endOffsets(ctx context.Context, cl *kgo.Client, topic string) (kadm.ListedOffsets, error) {
	for {
		ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		if err == nil {
			return ends, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(endsPause):
		}
	}
}

func entryOf(r *kgo.Record) eventlog.Entry {
	e := eventlog.Entry{
		Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), ProducerID: r.ProducerID, ProducerEpoch: r.ProducerEpoch,
		Transactional: r.Attrs.IsTransactional(), Key: r.Key, Value: r.Value,
	}
	if r.Attrs.IsControl() {
		e.Control = eventlog.ControlOther
	}
	for _, h := range r.Headers {
		e.Headers = append(e.Headers, eventlog.Header{Key: h.Key, Value: h.Value})
	}
	return e
}

// Tenure is the part of a partition that one claim covers.
type Tenure struct {
	NodeID        int32
	Address       string
	ProducerID    int64
	ProducerEpoch int16
	From, To      int64 // offsets; To is the first that is not covered
}

// Stood is a record with the tenure in which it stands.
type Stood struct {
	Partition int32
	eventlog.Entry
	Record eventlog.Record
	Tenure *Tenure
	// Void says that its writer was not the owner at that place.
	Void bool
}

func (s Stood) String() string {
	void := ""
	if s.Void {
		void = ", VOID"
	}
	t := "in no tenure"
	if s.Tenure != nil {
		t = fmt.Sprintf("in the tenure of node %d (%d/%d, from %d)", s.Tenure.NodeID, s.Tenure.ProducerID, s.Tenure.ProducerEpoch, s.Tenure.From)
	}
	what := "removed"
	switch v := s.Record.Value.(type) {
	case nil:
	case *eventlog.OffsetCommit:
		what = fmt.Sprintf("offset %d", v.Offset)
	case *eventlog.CurrentMemberAssignment:
		what = fmt.Sprintf("member epoch %d", v.MemberEpoch)
	case *eventlog.Group:
		what = fmt.Sprintf("group epoch %d", v.Epoch)
	default:
		what = fmt.Sprintf("type %d", v.Type())
	}
	return fmt.Sprintf("log %d@%d by %d/%d %s: %+v: %s%s", s.Partition, s.Offset, s.ProducerID, s.ProducerEpoch, t, s.Record.Key, what, void)
}

// Judged is a log of which every record was judged.
type Judged struct {
	Records map[int32][]Stood // by partition, in order, without ownership records
	Tenures map[int32][]*Tenure
}

// Void are the records that do not count.
func (j Judged) Void() []Stood {
	var out []Stood
	for _, p := range slices.Sorted(maps.Keys(j.Records)) {
		for _, s := range j.Records[p] {
			if s.Void {
				out = append(out, s)
			}
		}
	}
	return out
}

// Judge applies the rules of design D4 in their plainest form, which holds for a log from which nothing was compacted: after a claim only its
// own producer id and epoch count.
func (l Log) Judge() (Judged, []Violation) {
	r := &report{}
	j := Judged{Records: map[int32][]Stood{}, Tenures: map[int32][]*Tenure{}}
	for _, p := range slices.Sorted(maps.Keys(l)) {
		var now *Tenure
		former := map[int64]bool{}
		last := int64(-1)
		for _, e := range l[p] {
			if e.Offset <= last {
				r.add(RuleLog, fmt.Sprintf("partition %d: offset %d comes after %d", p, e.Offset, last), nil)
			}
			last = e.Offset
			if e.Control != eventlog.ControlNone {
				continue
			}
			rec, err := eventlog.Decode(eventlog.Raw{Key: e.Key, Value: e.Value})
			if err != nil {
				r.add(RuleLog, fmt.Sprintf("partition %d, offset %d: %v", p, e.Offset, err), nil)
				continue
			}
			o, claim := rec.Value.(*eventlog.Ownership)
			if !claim {
				j.Records[p] = append(j.Records[p], Stood{Partition: p, Entry: e, Record: rec, Tenure: now,
					Void: now == nil || e.ProducerID != now.ProducerID || e.ProducerEpoch != now.ProducerEpoch})
				if now == nil {
					r.add(RuleLog, fmt.Sprintf("partition %d, offset %d: a record before any claim", p, e.Offset), nil)
				}
				continue
			}
			if e.ProducerID < 0 || o.ProducerID != e.ProducerID || o.ProducerEpoch != e.ProducerEpoch || former[e.ProducerID] {
				continue // no owner wrote it, or one that was replaced
			}
			if o.Claim >= 0 {
				continue // a claim written again changes nothing: the current one's stands, a former one's has ended
			}
			if now != nil {
				now.To = e.Offset
				if now.ProducerID != e.ProducerID {
					former[now.ProducerID] = true
				}
			}
			now = &Tenure{NodeID: o.NodeID, Address: o.Address, ProducerID: e.ProducerID, ProducerEpoch: e.ProducerEpoch, From: e.Offset}
			j.Tenures[p] = append(j.Tenures[p], now)
		}
		if now != nil {
			now.To = last + 1
		}
	}
	return j, r.all
}
