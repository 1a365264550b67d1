package projection

import (
	"encoding/binary"
	"fmt"

	"streamkeeper/eventlog"
)

// storeFormat is the version of the layout below. A store of another version is thrown away.
const storeFormat = 2

// Keys. All of one partition's stand between two fixed keys, so that forgetting a partition is one range deletion.
// Strings are escaped (0x00 becomes 0x00 0xff, the end is 0x00 0x01), which keeps their order; numbers are big endian.
//
//	key                                                  value
//	00 'M'                                               JSON of storeMeta: format version, topic, topic id, partition count
//	00 'N' node:int32                                    JSON of eventlog.Owner: the newest ownership record of a node id
//	01 p:int32 '@'                                       checkpoint (checkpoint.go): how far the partition is applied
//	01 p:int32 'e'                                       empty: the partition was read to the log's end since it was begun
//	01 p:int32 'w'                                       JSON of eventlog.Owner: the last ownership record
//	01 p:int32 'g' group                                 record of type 17
//	01 p:int32 'm' group member                          record of type 19; their groups are the groups with members
//	01 p:int32 'r' group rank:int8 [member]              record of type 23 (rank 1), 22 (2), 21 (3), 20 (4), 2 (5), 32002 (7)
//	01 p:int32 'c' group                                 record of type 32001
//	01 p:int32 'o' group topic partition:int32           record of type 1; one of type 0 is kept as type 1
//	01 p:int32 't' topic group                           empty: the group's topology names the topic
//	01 p:int32 'x' producer:int64 group topic partition  empty: the producer has a pending offset there
//	01 p:int32 'v' key as it is                          record of an annex (Config.Opaque)
//	01 p:int32 'u' key as it is                          int64 offset: a void record is the newest of this key of an annex
//	01 p:int32 'y' group topic partition producer:int64  record of type 1, pending
//	01 p:int32 'k' type:int16                            empty: records of that type were skipped (skipped.go)
//
// A record is kept as int64 offset in the log, then the value as it was in the log.

const (
	spaceStore     = 0x00
	spacePartition = 0x01
)

const (
	kindMeta       = 'M' // in spaceStore
	kindNode       = 'N'
	kindCheckpoint = '@'
	kindWhole      = 'e'
	kindOwner      = 'w'
	kindGroup      = 'g'
	kindMember     = 'm'
	kindRecord     = 'r'
	kindConfig     = 'c'
	kindOffset     = 'o'
	kindTopic      = 't'
	kindPendingOf  = 'x'
	kindPending    = 'y'
	kindValue      = 'v'
	kindVoid       = 'u'
	kindSkipped    = 'k'
)

// ranks order the records of kindRecord within a group; with those of kindGroup and kindMember put in after rank 1 it is the
// order of hydration: 23, 17, 19, 22, 21, 20, 32002, and 32001 behind them (kindConfig).
var ranks = map[eventlog.Type]byte{
	eventlog.TypeTopology:                1,
	eventlog.TypeCurrentMemberAssignment: 2,
	eventlog.TypeTargetAssignmentMember:  3,
	eventlog.TypeTargetAssignment:        4,
	eventlog.TypeClassicGroup:            5, // kept, and no part of a streams group
	eventlog.TypeDescriptionRefusal:      7,
}

var typeOfRank = func() map[byte]eventlog.Type {
	m := map[byte]eventlog.Type{}
	for t, r := range ranks {
		m[r] = t
	}
	return m
}()

// key is a key under construction, or one that is taken apart: then it is what is left, and bad() once it ended early.
type key []byte

func storeKey(kind byte) key { return key{spaceStore, kind} }

func nodeKey(node int32) key { return storeKey(kindNode).int32(node) }

func partitionKey(p int32, kind byte) key { return append(partitionPrefix(p), kind) }

func partitionPrefix(p int32) key { return key{spacePartition}.int32(p) }

// partitionEnd is the first key after all of p's.
func partitionEnd(p int32) key { return key{spacePartition}.int32(p + 1) }

func (k key) int32(v int32) key {
	return binary.BigEndian.AppendUint32(k, uint32(v)^1<<31) // the sign flipped: negative numbers come first
}

func (k key) int64(v int64) key { return binary.BigEndian.AppendUint64(k, uint64(v)^1<<63) }

const (
	escape    = 0x00
	escaped00 = 0xff
	escapeEnd = 0x01
)

func (k key) str(s string) key {
	for i := range len(s) {
		k = append(k, s[i])
		if s[i] == escape {
			k = append(k, escaped00)
		}
	}
	return append(k, escape, escapeEnd)
}

// after is the first key behind all that begin with k, which must not be all 0xff; none of ours is.
func (k key) after() key {
	end := append(key(nil), k...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] != 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return nil
}

// recordKey is where the record of a key of partition p is kept. Types 0 and 1 share a place.
func recordKey(p int32, k eventlog.Key) key {
	switch k.Type {
	case eventlog.TypeGroup:
		return partitionKey(p, kindGroup).str(k.Group)
	case eventlog.TypeMember:
		return partitionKey(p, kindMember).str(k.Group).str(k.Member)
	case eventlog.TypeGroupConfig:
		return partitionKey(p, kindConfig).str(k.Group)
	case eventlog.TypeLegacyOffsetCommit, eventlog.TypeOffsetCommit:
		return offsetKey(p, kindOffset, k)
	}
	out := append(partitionKey(p, kindRecord).str(k.Group), ranks[k.Type])
	switch k.Type {
	case eventlog.TypeCurrentMemberAssignment, eventlog.TypeTargetAssignmentMember:
		out = out.str(k.Member)
	}
	return out
}

func offsetKey(p int32, kind byte, k eventlog.Key) key {
	return partitionKey(p, kind).str(k.Group).str(k.Topic).int32(k.Partition)
}

func pendingKey(p int32, k eventlog.Key, producerID int64) key {
	return offsetKey(p, kindPending, k).int64(producerID)
}

func pendingOfKey(p int32, k eventlog.Key, producerID int64) key {
	return partitionKey(p, kindPendingOf).int64(producerID).str(k.Group).str(k.Topic).int32(k.Partition)
}

func topicKey(p int32, topic, group string) key {
	return partitionKey(p, kindTopic).str(topic).str(group)
}

// reader takes a key apart.
type keyReader struct {
	rest []byte
	bad  bool
}

// headBytes is the length of partitionKey.
const headBytes = 1 + 4 + 1

func readKey(k []byte) *keyReader {
	if len(k) < headBytes {
		return &keyReader{bad: true}
	}
	return &keyReader{rest: k[headBytes:]}
}

func (r *keyReader) take(n int) []byte {
	if len(r.rest) < n {
		r.bad, r.rest = true, nil
		return make([]byte, n)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *keyReader) byte() byte   { return r.take(1)[0] }
func (r *keyReader) int32() int32 { return int32(binary.BigEndian.Uint32(r.take(4)) ^ 1<<31) }
func (r *keyReader) int64() int64 { return int64(binary.BigEndian.Uint64(r.take(8)) ^ 1<<63) }

func (r *keyReader) str() string {
	var s []byte
	for i := 0; i+1 < len(r.rest); i++ {
		if r.rest[i] != escape {
			s = append(s, r.rest[i])
			continue
		}
		switch r.rest[i+1] {
		case escapeEnd:
			r.rest = r.rest[i+2:]
			return string(s)
		case escaped00:
			s = append(s, escape)
			i++
		default:
			r.bad, r.rest = true, nil
			return ""
		}
	}
	r.bad, r.rest = true, nil
	return ""
}

// end returns the error of a key that isn't what its kind promises; kind names it.
func (r *keyReader) end(kind byte) error {
	if r.bad || len(r.rest) > 0 {
		return fmt.Errorf("%w: key of kind %q", errDamaged, kind)
	}
	return nil
}

// Records as values.

func recordValue(dst []byte, offset int64, value []byte) []byte {
	return append(binary.BigEndian.AppendUint64(dst, uint64(offset)), value...)
}

// splitRecord returns the log offset and the value of a stored record.
func splitRecord(b []byte) (int64, []byte, error) {
	if len(b) < 8 {
		return 0, nil, fmt.Errorf("%w: record of %d bytes", errDamaged, len(b))
	}
	return int64(binary.BigEndian.Uint64(b)), b[8:], nil
}

// stored decodes a stored record.
func stored(k eventlog.Key, b []byte) (Stored, error) {
	offset, value, err := splitRecord(b)
	if err != nil {
		return Stored{}, err
	}
	v, err := eventlog.DecodeValue(k.Type, value)
	if err != nil { // it was decoded when it was applied
		return Stored{}, fmt.Errorf("%w: %v", errDamaged, err)
	}
	return Stored{Offset: offset, Record: eventlog.Record{Key: k, Value: v}}, nil
}
