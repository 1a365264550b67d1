package streams

import (
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/zeebo/xxh3"
)

// topicHashVersion is the first byte that goes into a topic hash (TOPIC_HASH_MAGIC_BYTE of Kafka's Utils).
const topicHashVersion = 0

// MetadataHash is the hash of the topics a group depends on, as type-17 records store it: another value means that
// the assignment has to be computed again. It is 0 for no topics. The topics may come in any order and without
// duplicates; those that do not exist must be left out. The result equals Kafka 4.4's (Utils.computeGroupHash), so
// a log written by either is read by the other without a rebalance.
//
//	XXH3-64, seed 0, over the int64 topic hashes, little endian, in the order of the topic names
func MetadataHash(topics []Topic) int64 {
	if len(topics) == 0 {
		return 0
	}
	sorted := slices.Clone(topics)
	slices.SortFunc(sorted, func(a, b Topic) int { return compareJava(a.Name, b.Name) })
	buf := make([]byte, 0, 8*len(sorted))
	for _, t := range sorted {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(TopicHash(t)))
	}
	return int64(xxh3.Hash(buf))
}

// TopicHash is the share of one topic in MetadataHash (Utils.computeTopicHash of Kafka 4.4). Racks beyond the
// partition count are ignored, missing ones count as partitions without a known rack.
//
//	┌──────┬────────┬────────┬──────────────┬────────────┐ ┌───────────┬───────────────────────────────┐
//	│ 0x00 │ id msb │ id lsb │ name         │ partitions │ │ partition │ per rack, ascending:          │ …
//	│ int8 │ int64  │ int64  │ utf16, int32 │ int32      │ │ int32     │ int32 length, then utf16,int32│
//	└──────┴────────┴────────┴──────────────┴────────────┘ └───────────┴───────────────────────────────┘
//
// All integers are little endian (also the halves of the id, which is big endian elsewhere). Strings are UTF-16
// code units of two bytes each, followed by their number; a rack has that number in front as well.
func TopicHash(t Topic) int64 {
	buf := make([]byte, 0, 1+8+8+2*len(t.Name)+4+4+4*max(0, int(t.Partitions)))
	buf = append(buf, topicHashVersion)
	buf = binary.LittleEndian.AppendUint64(buf, binary.BigEndian.Uint64(t.ID[:8]))
	buf = binary.LittleEndian.AppendUint64(buf, binary.BigEndian.Uint64(t.ID[8:]))
	buf = appendHashString(buf, t.Name)
	buf = binary.LittleEndian.AppendUint32(buf, uint32(t.Partitions))
	for p := range t.Partitions {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(p))
		if int(p) >= len(t.Racks) {
			continue
		}
		racks := slices.Clone(t.Racks[p])
		slices.SortFunc(racks, compareJava)
		for _, rack := range racks {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(utf16Len(rack)))
			buf = appendHashString(buf, rack)
		}
	}
	return int64(xxh3.Hash(buf))
}

// appendHashString appends what Java's putString and putInt feed to the hash: the code units, then their number.
func appendHashString(buf []byte, s string) []byte {
	n := 0
	for _, r := range s {
		if r1, r2 := utf16.EncodeRune(r); r > 0xffff {
			buf = binary.LittleEndian.AppendUint16(buf, uint16(r1))
			buf = binary.LittleEndian.AppendUint16(buf, uint16(r2))
			n += 2
			continue
		}
		buf = binary.LittleEndian.AppendUint16(buf, uint16(r))
		n++
	}
	return binary.LittleEndian.AppendUint32(buf, uint32(n))
}

// utf16Len is Java's String.length().
func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xffff {
			n++
		}
	}
	return n
}

// compareJava orders strings as Java's String.compareTo does: by UTF-16 code units. It differs from Go's byte order
// only between characters beyond U+FFFF (surrogates, 0xD800…0xDFFF) and those from U+E000 to U+FFFF.
func compareJava(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	if i < len(a) && i < len(b) && (a[i]|b[i]) >= 0xee {
		return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
	}
	return strings.Compare(a, b)
}
