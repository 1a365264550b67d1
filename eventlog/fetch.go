package eventlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// fetchBytesMax and fetchPartitionBytesMax bound what one fetch brings into memory. A batch that is larger comes alone.
	fetchBytesMax          = 16 << 20
	fetchPartitionBytesMax = 1 << 20
)

// errBatch: the bytes of a fetch are no sound record batches.
var errBatch = errors.New("damaged or unknown record batch")

// wanted is what is to be fetched of a partition.
type wanted struct {
	partition   int32
	offset      int64
	leaderEpoch int32 // the current one, as we know it: a leader of another one refuses
}

// fetch sends one Fetch request for all of wants to a broker: uncommitted reading, no fetch session. It returns when
// something can be read, at the latest after wait. The answers are those of wants, in its order.
func (k *Kafka) fetch(ctx context.Context, node int32, wants []wanted, wait time.Duration) ([]kmsg.FetchResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.SessionEpoch = -1, -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait.Milliseconds()), 1, fetchBytesMax
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = k.id.Topic, k.id.TopicID
	rt.Partitions = make([]kmsg.FetchRequestTopicPartition, len(wants))
	for i, w := range wants {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.CurrentLeaderEpoch, rp.PartitionMaxBytes = w.partition, w.offset, w.leaderEpoch, fetchPartitionBytesMax
		rt.Partitions[i] = rp
	}
	req.Topics = append(req.Topics, rt)
	resp, err := request[*kmsg.FetchResponse](ctx, k, node, req)
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, fmt.Errorf("fetch from broker %d: %w", node, err)
	}
	at := make(map[int32]int, len(wants))
	for i, w := range wants {
		at[w.partition] = i
	}
	answers := make([]kmsg.FetchResponseTopicPartition, len(wants))
	for i := range answers {
		// a partition that the answer leaves out is as good as one without a leader
		answers[i].Partition, answers[i].ErrorCode = wants[i].partition, kerr.LeaderNotAvailable.Code
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if i, ok := at[p.Partition]; ok {
				answers[i] = p
			}
		}
	}
	return answers, nil
}

// scan reads partition p from offset from up to, and without, offset to, and calls f with each entry until it fails.
func (k *Kafka) scan(ctx context.Context, p int32, from, to int64, f func(Entry) error) error {
	for from < to {
		var got chunk
		err := k.atLeader(ctx, p, func(ctx context.Context, l leadership) error {
			answers, err := k.fetch(ctx, l.node, []wanted{{p, from, l.epoch}}, k.cfg.ReadWait)
			if err != nil {
				return err
			}
			if err := kerr.ErrorForCode(answers[0].ErrorCode); err != nil {
				return err
			}
			got, err = decodeBatches(answers[0].RecordBatches, from, decompressor)
			return err
		})
		if err != nil {
			return fmt.Errorf("reading %s-%d from offset %d: %w", k.id.Topic, p, from, err)
		}
		for _, e := range got.entries {
			if e.Offset < to {
				if err := f(e); err != nil {
					return err
				}
			}
		}
		from = got.next
	}
	return nil
}

// chunk is what one fetch brought of a partition.
type chunk struct {
	entries []Entry
	next    int64 // the offset after the last whole batch, also where compaction has emptied it
	epoch   int32 // leader epoch of that batch
	batches int   // that were read
}

// decodeBatches reads the record batches in b. Entries before offset from (the first batch may begin before it) are left
// out; a last batch that is cut short is not read. Keys and values are parts of b. Where an error comes after sound
// batches, these are returned without it: the next read begins at the error.
func decodeBatches(b []byte, from int64, d kgo.Decompressor) (chunk, error) {
	c := chunk{next: from, epoch: EpochNone}
	for len(b) >= batchOverhead {
		size := int64(int32(binary.BigEndian.Uint32(b[8:]))) + 12
		if b[16] != 2 {
			return c.unless(fmt.Errorf("%w: offset %d: magic %d, want 2", errBatch, int64(binary.BigEndian.Uint64(b)), b[16]))
		}
		if size < batchOverhead {
			return c.unless(fmt.Errorf("%w: offset %d: %d bytes are too few", errBatch, int64(binary.BigEndian.Uint64(b)), size))
		}
		if size > int64(len(b)) {
			break
		}
		if err := c.decodeBatch(b[:size], from, d); err != nil {
			return c.unless(err)
		}
		b = b[size:]
	}
	return c, nil
}

// unless is the error, unless something was read before it.
func (c chunk) unless(err error) (chunk, error) {
	if c.batches > 0 {
		return c, nil
	}
	return c, err
}

// Attributes of a batch.
const (
	attributeCompression   = 0x07
	attributeTransactional = 0x10
	attributeControl       = 0x20
)

func (c *chunk) decodeBatch(b []byte, from int64, d kgo.Decompressor) error {
	be := binary.BigEndian
	first := int64(be.Uint64(b))
	last := first + int64(int32(be.Uint32(b[23:])))
	if last < from {
		return nil
	}
	if sum := crc32.Checksum(b[21:], castagnoli); sum != be.Uint32(b[17:]) {
		return fmt.Errorf("%w: offset %d: checksum %08x, want %08x", errBatch, first, sum, be.Uint32(b[17:]))
	}
	attributes := be.Uint16(b[21:])
	base := Entry{
		Timestamp:     int64(be.Uint64(b[27:])),
		ProducerID:    int64(be.Uint64(b[43:])),
		ProducerEpoch: int16(be.Uint16(b[51:])),
		Transactional: attributes&attributeTransactional != 0,
	}
	records := b[batchOverhead:]
	if codec := attributes & attributeCompression; codec != 0 {
		var err error
		if records, err = d.Decompress(records, kgo.CompressionCodecType(codec)); err != nil {
			return fmt.Errorf("%w: offset %d: compression %d: %w", errBatch, first, codec, err)
		}
	}
	entries := c.entries
	for i := range int32(be.Uint32(b[57:])) {
		e := base
		var err error
		if records, err = decodeRecord(records, first, &e); err != nil {
			return fmt.Errorf("%w: offset %d, record %d: %w", errBatch, first, i, err)
		}
		if attributes&attributeControl != 0 {
			e.Control = controlType(e.Key)
		}
		if e.Offset >= from {
			entries = append(entries, e)
		}
	}
	if len(records) > 0 {
		return fmt.Errorf("%w: offset %d: %d bytes after the last record", errBatch, first, len(records))
	}
	c.batches++
	c.entries, c.next, c.epoch = entries, last+1, int32(be.Uint32(b[12:]))
	return nil
}

// controlType reads the key of a control record: int16 version, int16 type (0 abort, 1 commit).
func controlType(key []byte) ControlType {
	if len(key) < 4 {
		return ControlOther
	}
	switch binary.BigEndian.Uint16(key[2:]) {
	case 0:
		return ControlAbort
	case 1:
		return ControlCommit
	}
	return ControlOther
}

var errShort = errors.New("the record is cut short")

// decodeRecord reads one record into e, whose Timestamp is the batch's first, and returns what follows it.
func decodeRecord(b []byte, first int64, e *Entry) ([]byte, error) {
	size, n := binary.Varint(b)
	if n <= 0 || size < 0 || size > int64(len(b)-n) {
		return nil, errShort
	}
	rest := b[n+int(size):]
	r := recordReader{b: b[n : n+int(size)]}
	r.skip(1) // attributes
	e.Timestamp += r.varint()
	e.Offset = first + r.varint()
	e.Key = r.bytes()
	e.Value = r.bytes()
	headers := r.varint()
	if headers < 0 || headers > int64(len(r.b)) { // a header takes two bytes at least
		return nil, errShort
	}
	for range headers {
		key := r.bytes()
		e.Headers = append(e.Headers, Header{Key: string(key), Value: r.bytes()})
	}
	if r.short || len(r.b) > 0 {
		return nil, errShort
	}
	return rest, nil
}

// recordReader reads the fields of a record; short says that they ended too soon.
type recordReader struct {
	b     []byte
	short bool
}

func (r *recordReader) skip(n int) {
	if len(r.b) < n {
		r.short = true
		return
	}
	r.b = r.b[n:]
}

func (r *recordReader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.short, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// bytes reads a length and as many bytes; nil where the length is -1.
func (r *recordReader) bytes() []byte {
	n := r.varint()
	if n == -1 {
		return nil
	}
	if n < 0 || n > int64(len(r.b)) {
		r.short, r.b = true, nil
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}
