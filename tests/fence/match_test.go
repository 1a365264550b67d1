package fence

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/internal/history"
	"streamkeeper/internal/kafkatest"
)

// way is a direction.
type way int

const (
	asked way = iota
	answered
)

func (w way) String() string { return [...]string{"asked", "answered"}[w] }

func (w way) is(f kafkatest.Frame) bool { return (f.Response != nil) == (w == answered) }

// initProducerID matches the first step of a claim, or of a renewal, of a partition.
func initProducerID(w way, topic string, partition int32) func(kafkatest.Frame) bool {
	return func(f kafkatest.Frame) bool {
		r, ok := f.Request.(*kmsg.InitProducerIDRequest)
		return ok && w.is(f) && r.TransactionalID != nil && *r.TransactionalID == fmt.Sprintf("%s-%d", topic, partition)
	}
}

// produce matches an append with a record of which ok says that it is meant.
func produce(w way, partition int32, ok func(eventlog.Record) bool) func(kafkatest.Frame) bool {
	return func(f kafkatest.Frame) bool {
		r, is := f.Request.(*kmsg.ProduceRequest)
		if !is || !w.is(f) {
			return false
		}
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				if p.Partition != partition {
					continue
				}
				for _, rec := range history.RecordsOf(p.Records) {
					if ok(rec) {
						return true
					}
				}
			}
		}
		return false
	}
}

// commitOf matches the record of a committed offset.
func commitOf(group string, offset int64) func(eventlog.Record) bool {
	return func(r eventlog.Record) bool {
		v, ok := r.Value.(*eventlog.OffsetCommit)
		return ok && r.Key.Group == group && v.Offset == offset
	}
}

// memberOf matches the record of a member.
func memberOf(group, member string) func(eventlog.Record) bool {
	return func(r eventlog.Record) bool {
		return r.Key.Type == eventlog.TypeMember && r.Key.Group == group && r.Key.Member == member
	}
}

// claiming matches a claim, repeating matches one that is written again: what a read barrier does.
func claiming(r eventlog.Record) bool {
	o, ok := r.Value.(*eventlog.Ownership)
	return ok && o.Claim < 0
}

func repeating(r eventlog.Record) bool {
	o, ok := r.Value.(*eventlog.Ownership)
	return ok && o.Claim >= 0 && !o.Released
}
