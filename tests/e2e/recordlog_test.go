package e2e

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/internal/kafkatest"
)

// ownershipType is the record type of ownership records: the first two bytes of the key.
const ownershipType = 32000

// ownership is the value of an ownership record, read here without streamkeeper's own code.
type ownership struct {
	Format        int    `json:"format"`
	NodeID        int32  `json:"nodeId"`
	Address       string `json:"address"`
	ProducerID    int64  `json:"producerId"`
	ProducerEpoch int16  `json:"producerEpoch"`
	Released      bool   `json:"released"`
}

// logRecord is one record of the record log.
type logRecord struct {
	partition int32
	offset    int64
	pid       int64
	epoch     int16
	typ       int16
	owner     *ownership // of an ownership record
}

// readLog reads the whole record log from the cluster.
func readLog(t *testing.T, bootstrap, topic string) map[int32][]logRecord {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ends := kafkatest.EndOffsets(t, bootstrap, topic)
	records := map[int32][]logRecord{}
	for !reached(records, ends) {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("the record log %s was not read to its end %v", topic, ends)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			l := logRecord{partition: r.Partition, offset: r.Offset, pid: r.ProducerID, epoch: r.ProducerEpoch, typ: int16(binary.BigEndian.Uint16(r.Key))}
			if l.typ == ownershipType {
				l.owner = new(ownership)
				if err := json.Unmarshal(r.Value, l.owner); err != nil {
					t.Errorf("ownership record %s-%d@%d: %v: %q", topic, r.Partition, r.Offset, err, r.Value)
				}
			}
			records[r.Partition] = append(records[r.Partition], l)
		})
	}
	return records
}

func reached(records map[int32][]logRecord, ends map[int32]int64) bool {
	for p, end := range ends {
		if rs := records[p]; end > 0 && (len(rs) == 0 || rs[len(rs)-1].offset < end-1) {
			return false
		}
	}
	return true
}

// owners are the last ownership records by partition, without those that were released.
func owners(records map[int32][]logRecord) map[int32]*ownership {
	last := map[int32]*ownership{}
	for p, rs := range records {
		for _, r := range slices.Backward(rs) {
			if r.owner != nil {
				if !r.owner.Released {
					last[p] = r.owner
				}
				break
			}
		}
	}
	return last
}

// claims counts how often each partition was claimed or released.
func claims(records map[int32][]logRecord) map[int32]int {
	n := map[int32]int{}
	for p, rs := range records {
		last := ownership{}
		for _, r := range rs {
			if r.owner != nil && *r.owner != last {
				n[p]++
				last = *r.owner
			}
		}
	}
	return n
}

// shares counts the partitions of each node.
func shares(owners map[int32]*ownership) map[int32]int {
	n := map[int32]int{}
	for _, o := range owners {
		n[o.NodeID]++
	}
	return n
}

// checkFence: after an ownership record, each record up to the next one is its owner's (design decision D4). Records
// of another producer there would be a former owner's, written after it was replaced.
func checkFence(t *testing.T, topic string, records map[int32][]logRecord) {
	t.Helper()
	for p, rs := range records {
		var owner *ownership
		for _, r := range rs {
			if r.owner != nil {
				owner = r.owner
				if r.pid != owner.ProducerID || r.epoch != owner.ProducerEpoch {
					t.Errorf("%s-%d@%d: ownership record of producer %d epoch %d, written by %d epoch %d", topic, p, r.offset, owner.ProducerID, owner.ProducerEpoch, r.pid, r.epoch)
				}
				continue
			}
			switch {
			case owner == nil:
				t.Errorf("%s-%d@%d: a record of type %d before the first ownership record", topic, p, r.offset, r.typ)
			case r.pid != owner.ProducerID || r.epoch != owner.ProducerEpoch:
				t.Errorf("%s-%d@%d: a record of type %d by producer %d epoch %d, while node %d owns the partition with %d epoch %d",
					topic, p, r.offset, r.typ, r.pid, r.epoch, owner.NodeID, owner.ProducerID, owner.ProducerEpoch)
			}
		}
	}
}
