package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
)

// Batch is one record batch as the leader sent it, with the fields of its header.
type Batch struct {
	FirstOffset   int64
	LastOffset    int64
	LeaderEpoch   int32
	MaxTimestamp  int64 // ms since 1970
	ProducerID    int64 // -1: none
	ProducerEpoch int16
	FirstSequence int32
	Records       int32
	Transactional bool
	Control       bool
	// Bytes are the whole batch, header included; valid until the function that got the batch returns.
	Bytes []byte
}

// The header of a batch (magic 2), big endian: base offset int64, length of what follows int32, leader epoch int32, magic int8,
// CRC-32C uint32, attributes int16, last offset delta int32, first and max timestamp int64, producer id int64, producer
// epoch int16, first sequence int32, number of records int32.
const (
	batchHeader      = 61
	batchLengthAt    = 8
	batchLengthEnd   = 12
	batchMagicAt     = 16
	attrTransaction  = 1 << 4
	attrControl      = 1 << 5
	batchMagicWanted = 2
)

// errShortBatch says that a fetch ended within a batch, which is normal at its end.
var errShortBatch = errors.New("the rest of the batch was not sent")

// splitBatch takes the first batch off b.
func splitBatch(b []byte) (batch Batch, rest []byte, err error) {
	if len(b) < batchLengthEnd {
		return Batch{}, nil, errShortBatch
	}
	be := binary.BigEndian
	size := int64(int32(be.Uint32(b[batchLengthAt:]))) + batchLengthEnd
	if size < batchHeader {
		return Batch{}, nil, fmt.Errorf("batch at offset %d: a length of %d bytes is too small", int64(be.Uint64(b)), size)
	}
	if int64(len(b)) < size {
		return Batch{}, nil, errShortBatch
	}
	if m := b[batchMagicAt]; m != batchMagicWanted {
		return Batch{}, nil, fmt.Errorf("batch at offset %d: message format %d, want %d", int64(be.Uint64(b)), m, batchMagicWanted)
	}
	attributes := be.Uint16(b[21:])
	first := int64(be.Uint64(b))
	return Batch{
		FirstOffset:   first,
		LastOffset:    first + int64(int32(be.Uint32(b[23:]))),
		LeaderEpoch:   int32(be.Uint32(b[12:])),
		MaxTimestamp:  int64(be.Uint64(b[35:])),
		ProducerID:    int64(be.Uint64(b[43:])),
		ProducerEpoch: int16(be.Uint16(b[51:])),
		FirstSequence: int32(be.Uint32(b[53:])),
		Records:       int32(be.Uint32(b[57:])),
		Transactional: attributes&attrTransaction != 0,
		Control:       attributes&attrControl != 0,
		Bytes:         b[:size:size],
	}, b[size:], nil
}

// Entries decompresses and decodes the records of the batch from an offset on.
func (b Batch) Entries(partition int32, from int64) ([]eventlog.Entry, error) {
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.Partition = partition
	rp.HighWatermark = b.LastOffset + 1
	rp.RecordBatches = b.Bytes
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		KeepControlRecords: true, Offset: from, Partition: partition,
	}, &rp, kgo.DefaultDecompressor(), nil)
	if fp.Err != nil {
		return nil, fmt.Errorf("partition %d, batch at offset %d: %w", partition, b.FirstOffset, fp.Err)
	}
	entries := make([]eventlog.Entry, 0, len(fp.Records))
	for _, r := range fp.Records {
		e := eventlog.Entry{
			Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), ProducerID: b.ProducerID, ProducerEpoch: b.ProducerEpoch,
			Transactional: b.Transactional, Key: r.Key, Value: r.Value,
		}
		for _, h := range r.Headers {
			e.Headers = append(e.Headers, eventlog.Header{Key: h.Key, Value: h.Value})
		}
		if b.Control {
			e.Control = controlType(r.Key)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// controlType reads the key of a control record: int16 version, int16 type (0 abort, 1 commit).
func controlType(key []byte) eventlog.ControlType {
	const abort, commit = 0, 1
	if len(key) < 4 {
		return eventlog.ControlOther
	}
	switch binary.BigEndian.Uint16(key[2:]) {
	case abort:
		return eventlog.ControlAbort
	case commit:
		return eventlog.ControlCommit
	}
	return eventlog.ControlOther
}
