package kafkatest

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// WriteAs appends one record to a partition in the name of a producer that is somebody else's, as the first of an epoch, and returns what the leader says.
func WriteAs(tb testing.TB, leader, topic string, partition int32, producer int64, epoch int16, key, value []byte) error {
	tb.Helper()
	r := kmsg.NewRecord()
	r.Key, r.Value = key, value
	r.Length = int32(len(r.AppendTo(nil)) - 1) // what follows the length, which is one byte as long as it is 0
	now := time.Now().UnixMilli()
	b := kmsg.NewRecordBatch()
	b.PartitionLeaderEpoch, b.Magic, b.FirstTimestamp, b.MaxTimestamp = -1, 2, now, now
	b.ProducerID, b.ProducerEpoch, b.NumRecords, b.Records = producer, epoch, 1, r.AppendTo(nil)
	batch := b.AppendTo(nil)
	binary.BigEndian.PutUint32(batch[8:], uint32(len(batch)-12))
	binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)))

	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, -1, int32(adminTimeout.Milliseconds())
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, batch
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	resp, err := Ask(ctx, leader, req)
	if err != nil {
		return fmt.Errorf("write to %s-%d: %w", topic, partition, err)
	}
	return kerr.ErrorForCode(resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
}
