package eventlog

import (
	"encoding/binary"
	"hash/crc32"
)

// A record batch (magic 2), as it goes into a Produce request. Everything is big endian.
//
//	 0  base offset            int64   0: the leader fills it in
//	 8  length of what follows int32
//	12  partition leader epoch int32   -1: the leader fills it in
//	16  magic                  int8    2
//	17  CRC-32C of what follows uint32
//	21  attributes             int16   0: no compression, CreateTime, not transactional, not control
//	23  last offset delta      int32
//	27  first timestamp        int64   ms
//	35  max timestamp          int64   ms
//	43  producer id            int64
//	51  producer epoch         int16
//	53  first sequence         int32
//	57  number of records      int32
//	61  records
//
// A record is: varint length, int8 attributes, varint timestamp delta, varint offset delta, varint key length (-1:
// null), key, varint value length (-1: null, a tombstone), value, varint number of headers. Varints are zigzag.
const batchOverhead = 61

// castagnoli is the polynomial of a batch's checksum.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// operation is the records of one Append with their time.
type operation struct {
	timestamp int64
	recs      []Raw
}

// varintSize is the number of bytes of v as a zigzag varint.
func varintSize(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}

// recordSizeMax is an upper bound of the bytes that r takes in a batch, wherever it stands in it.
func recordSizeMax(r Raw) int {
	const timestampDelta, offsetDelta, attributes, headers = 10, 5, 1, 1
	body := attributes + timestampDelta + offsetDelta + headers +
		varintSize(int64(len(r.Key))) + len(r.Key) + varintSize(int64(len(r.Value))) + len(r.Value)
	return varintSize(int64(body)) + body
}

// recordsSizeMax is an upper bound of the bytes that recs take in a batch, without the batch's own header.
func recordsSizeMax(recs []Raw) int {
	n := 0
	for _, r := range recs {
		n += recordSizeMax(r)
	}
	return n
}

// fitsBatch says that recs fit one batch of at most max bytes.
func fitsBatch(recs []Raw, max int) bool { return batchOverhead+recordsSizeMax(recs) <= max }

// appendBatch appends ops as one idempotent, non-transactional batch.
func appendBatch(dst []byte, producerID int64, producerEpoch int16, sequence int32, ops []operation) []byte {
	start := len(dst)
	count, size := 0, 0
	first, last := ops[0].timestamp, ops[0].timestamp
	for _, op := range ops {
		count += len(op.recs)
		size += recordsSizeMax(op.recs)
		last = max(last, op.timestamp)
	}
	if cap(dst)-len(dst) < batchOverhead+size {
		dst = append(make([]byte, 0, len(dst)+batchOverhead+size), dst...)
	}
	dst = append(dst, make([]byte, batchOverhead)...)
	i := int64(0)
	for _, op := range ops {
		for _, r := range op.recs {
			dst = appendRecord(dst, op.timestamp-first, i, r)
			i++
		}
	}
	b, be := dst[start:], binary.BigEndian
	be.PutUint32(b[8:], uint32(len(b)-12))
	be.PutUint32(b[12:], ^uint32(0))
	b[16] = 2
	be.PutUint32(b[23:], uint32(count-1))
	be.PutUint64(b[27:], uint64(first))
	be.PutUint64(b[35:], uint64(last))
	be.PutUint64(b[43:], uint64(producerID))
	be.PutUint16(b[51:], uint16(producerEpoch))
	be.PutUint32(b[53:], uint32(sequence))
	be.PutUint32(b[57:], uint32(count))
	be.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return dst
}

func appendRecord(dst []byte, timestampDelta, offsetDelta int64, r Raw) []byte {
	body := 1 + varintSize(timestampDelta) + varintSize(offsetDelta) + bytesSize(r.Key) + bytesSize(r.Value) + 1
	dst = binary.AppendVarint(dst, int64(body))
	dst = append(dst, 0)
	dst = binary.AppendVarint(dst, timestampDelta)
	dst = binary.AppendVarint(dst, offsetDelta)
	dst = appendBytes(dst, r.Key)
	dst = appendBytes(dst, r.Value)
	return append(dst, 0)
}

func bytesSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintSize(int64(len(b))) + len(b)
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}

// nextSequence is the sequence after n more records: sequences wrap to 0 after 2³¹-1.
func nextSequence(sequence int32, n int) int32 {
	return int32((int64(sequence) + int64(n)) & (1<<31 - 1))
}
