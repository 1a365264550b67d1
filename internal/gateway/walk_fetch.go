package gateway

import (
	"encoding/binary"
	"io"
)

// Broker addresses in Fetch and ShareFetch responses stand behind the records. By the time they come into view the
// frame's length has long been sent, so they are blanked in place and the length stays true. Clients then keep the
// leader's id, which they do get, and look its address up in Metadata.

// fetchEndpointsVersion is the first Fetch version that can carry NodeEndpoints. Kafka sends them from 16 on
// (KIP-951); other clusters may not look at the version, and the tag is readable in every one that has tags.
const fetchEndpointsVersion = 12

// fetchIDVersion is the first Fetch version that names topics by id (KIP-516).
const fetchIDVersion = 13

// walkFetch passes the body of a Fetch response of a version that has tags.
//
//	throttle int32 │ error int16 │ session int32 │ topics │ tags (0: NodeEndpoints)
//	topic:     name (up to v12) or id 16 bytes │ partitions │ tags
//	partition: index int32 │ error int16 │ high watermark, last stable, log start int64 │ aborted transactions │
//	           preferred replica int32 │ records │ tags
func walkFetch(w *walker, version int16) error {
	if err := w.passTags(); err != nil { // response header
		return err
	}
	if err := w.pass(4 + 2 + 4); err != nil {
		return err
	}
	partition := func() error {
		if err := w.pass(4 + 2 + 8 + 8 + 8); err != nil {
			return err
		}
		aborted := func() error {
			if err := w.pass(8 + 8); err != nil {
				return err
			}
			return w.passTags()
		}
		if err := w.elements(true, aborted); err != nil {
			return err
		}
		if err := w.pass(4); err != nil {
			return err
		}
		if err := w.passBytes(true); err != nil {
			return err
		}
		return w.passTags()
	}
	topic := passTopicID
	if version < fetchIDVersion {
		topic = func(w *walker) error { return w.passString(true) }
	}
	if err := walkTopics(w, topic, partition); err != nil {
		return err
	}
	if err := blankTag(w, 0); err != nil {
		return err
	}
	return w.end()
}

func passTopicID(w *walker) error { return w.pass(16) }

// walkTopics passes an array of topics.
func walkTopics(w *walker, topic func(*walker) error, partition func() error) error {
	return w.elements(true, func() error {
		if err := topic(w); err != nil {
			return err
		}
		if err := w.elements(true, partition); err != nil {
			return err
		}
		return w.passTags()
	})
}

// blankTag passes a tag section and gives the tag a number that nobody knows.
func blankTag(w *walker, tag uint32) error {
	n, err := w.uvarint()
	if err != nil {
		return err
	}
	for ; n > 0; n-- {
		number, size, err := w.peekUvarint()
		if err != nil {
			return err
		}
		if number == tag {
			err = w.replace(padUvarint(unknownTag, size))
		} else {
			err = w.pass(int64(size))
		}
		if err != nil {
			return err
		}
		bytes, err := w.uvarint()
		if err != nil {
			return err
		}
		if err := w.pass(int64(bytes)); err != nil {
			return err
		}
	}
	return nil
}

// walkShareFetch passes the body of a ShareFetch response.
//
//	throttle int32 │ error int16 │ message │ lock timeout int32 (v1+) │ topics │ NodeEndpoints │ tags
//	partition: index int32 │ error int16 │ message │ acknowledge error int16 │ message │ leader int32, epoch int32,
//	           tags │ records │ acquired (first int64, last int64, delivery count int16, tags) │ tags
func walkShareFetch(w *walker, version int16) error {
	if err := w.passTags(); err != nil { // response header
		return err
	}
	if err := w.pass(4 + 2); err != nil {
		return err
	}
	if err := w.passString(true); err != nil {
		return err
	}
	if version >= 1 {
		if err := w.pass(4); err != nil {
			return err
		}
	}
	if err := walkTopics(w, passTopicID, func() error { return walkSharePartition(w) }); err != nil {
		return err
	}
	if w.left > endpointBytesMax {
		return errWalk
	}
	rest := make([]byte, w.left)
	if _, err := io.ReadFull(w.src.r, rest); err != nil {
		return unexpected(err)
	}
	w.left = 0
	blanked, err := blankEndpoints(rest)
	if err != nil {
		return err
	}
	_, err = w.dst.w.Write(blanked)
	return err
}

func walkSharePartition(w *walker) error {
	if err := w.pass(4 + 2); err != nil {
		return err
	}
	if err := w.passString(true); err != nil {
		return err
	}
	if err := w.pass(2); err != nil {
		return err
	}
	if err := w.passString(true); err != nil {
		return err
	}
	if err := w.pass(4 + 4); err != nil {
		return err
	}
	if err := w.passTags(); err != nil {
		return err
	}
	if err := w.passBytes(true); err != nil {
		return err
	}
	acquired := func() error {
		if err := w.pass(8 + 8 + 2); err != nil {
			return err
		}
		return w.passTags()
	}
	if err := w.elements(true, acquired); err != nil {
		return err
	}
	return w.passTags()
}

// blankEndpoints takes the end of a ShareFetch response, an array of endpoints and a tag section, and returns as
// many bytes: an empty array, the same tags, and one unknown tag that fills the room.
//
//	before: count+1 │ endpoints …            │ n   │ tags
//	after:  1       │ n+1 │ tags │ 100 │ size │ zeros …
//
// An endpoint takes at least 11 bytes, so there is always room for the tag.
func blankEndpoints(rest []byte) ([]byte, error) {
	count, at := binary.Uvarint(rest)
	if at <= 0 || count > uint64(len(rest)) {
		return nil, errWalk
	}
	if count <= 1 {
		return rest, nil
	}
	for ; count > 1; count-- {
		n, err := endpointSize(rest[at:])
		if err != nil {
			return nil, err
		}
		at += n
	}
	tags, n := binary.Uvarint(rest[at:])
	if n <= 0 || tags > uint64(len(rest)) {
		return nil, errWalk
	}
	out := make([]byte, 0, len(rest))
	out = append(out, 1)
	out = binary.AppendUvarint(out, tags+1)
	out = append(out, rest[at+n:]...)
	out = append(out, unknownTag)
	room := len(rest) - len(out)
	for size := 1; size <= 3; size++ {
		if pad := room - size; pad >= 0 && pad < 1<<(7*size) {
			out = append(out, padUvarint(uint32(pad), size)...)
			return out[:len(rest)], nil // the rest of the capacity is zero
		}
	}
	return nil, errWalk
}

// endpointSize is the size of an endpoint: id int32, host, port int32, rack, tags.
func endpointSize(b []byte) (int, error) {
	at := 4
	text := func() bool {
		if at > len(b) {
			return false
		}
		n, size := binary.Uvarint(b[at:])
		if size <= 0 || n > uint64(len(b)) {
			return false
		}
		at += size + max(0, int(n)-1)
		return at <= len(b)
	}
	if !text() {
		return 0, errWalk
	}
	at += 4
	if !text() {
		return 0, errWalk
	}
	tags, size := binary.Uvarint(b[at:])
	if size <= 0 || tags > uint64(len(b)) {
		return 0, errWalk
	}
	at += size
	for ; tags > 0; tags-- {
		_, size := binary.Uvarint(b[at:])
		if size <= 0 {
			return 0, errWalk
		}
		at += size
		n, size := binary.Uvarint(b[at:])
		if size <= 0 || n > uint64(len(b)-at-size) {
			return 0, errWalk
		}
		at += size + int(n)
	}
	return at, nil
}
