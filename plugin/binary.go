package plugin

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
)

// The binary form is for stores with a limit per value, such as a record of a topic:
//
//	┌─────────┬────────┬──────────────────┬────────────┬────────────────────────────┐
//	│ version │ coding │ length of body   │ CRC-32C    │ body, as the coding has it │
//	│ 1 byte  │ 1 byte │ unsigned varint  │ of the body│                            │
//	│ = 1     │ 0 or 1 │ before coding    │ 4 bytes BE │                            │
//	└─────────┴────────┴──────────────────┴────────────┴────────────────────────────┘
//
// Coding 0 is the body as it is, 1 is DEFLATE (RFC 1951); the encoder takes the shorter one. The body stands in
// binary_body.go. A reader refuses another version, so that a description that a newer program wrote is an error and
// not a wrong picture.
const (
	binaryVersion      = 1
	codingPlain        = 0
	codingDeflate      = 1
	binaryHeadBytesMin = 2 + 1 + 4 // shorter is no header: version, coding, one byte of length, checksum
)

// bodyBytesMax bounds a body: Kafka takes no request above 100 MiB (socket.request.max.bytes), so none holds a larger
// description, and a damaged length can't make a reader fill the memory.
const bodyBytesMax = 100 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// TooLargeError says that a description does not fit where it should be stored. It is a permanent failure: the same
// description will not shrink.
type TooLargeError struct {
	Bytes, BytesMax int    // of the form it has in the store
	What            string // e.g. "as JSON", "compressed"
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the topology description has %d bytes %s, more than the %d that are accepted", e.Bytes, e.What, e.BytesMax)
}

// Permanent makes it a permanent failure.
func (e *TooLargeError) Permanent() bool { return true }

// EncodeBinary returns the binary form. It fails with a *TooLargeError where that has more than bytesMax bytes, and
// with an *InvalidDescriptionError where d is not valid. Equal descriptions give equal bytes from the same program;
// another Go release may compress otherwise.
func EncodeBinary(d *Description, bytesMax int) ([]byte, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	body, err := encodeBody(d)
	if err != nil {
		return nil, err
	}
	coding, coded := byte(codingPlain), body
	if packed, err := deflate(body); err != nil {
		return nil, fmt.Errorf("compress a topology description: %w", err)
	} else if len(packed) < len(body) {
		coding, coded = codingDeflate, packed
	}
	out := make([]byte, 0, binaryHeadBytesMin+binary.MaxVarintLen32+len(coded))
	out = append(out, binaryVersion, coding)
	out = binary.AppendUvarint(out, uint64(len(body)))
	out = binary.BigEndian.AppendUint32(out, crc32.Checksum(body, castagnoli))
	out = append(out, coded...)
	if len(out) > bytesMax {
		return nil, &TooLargeError{Bytes: len(out), BytesMax: bytesMax, What: "compressed"}
	}
	return out, nil
}

// DecodeBinary reads the binary form. The error says what is wrong with it; it never panics, and what it allocates is
// bounded by a small multiple of the body's length, which is checked before anything is read.
func DecodeBinary(b []byte) (*Description, error) {
	d, err := decodeBinary(b)
	if err != nil {
		return nil, fmt.Errorf("stored topology description of %d bytes: %w", len(b), err)
	}
	return d, nil
}

func decodeBinary(b []byte) (*Description, error) {
	if len(b) < binaryHeadBytesMin {
		return nil, errors.New("too short for its header")
	}
	if b[0] != binaryVersion {
		return nil, fmt.Errorf("format version %d; this program reads version %d", b[0], binaryVersion)
	}
	coding, rest := b[1], b[2:]
	size, n := binary.Uvarint(rest)
	if n <= 0 || len(rest) < n+4 {
		return nil, errors.New("its header is cut off or damaged")
	}
	if size > bodyBytesMax {
		return nil, fmt.Errorf("its header says %d bytes, more than any description has (%d)", size, bodyBytesMax)
	}
	sum, coded := binary.BigEndian.Uint32(rest[n:]), rest[n+4:]
	var body []byte
	switch coding {
	case codingPlain:
		body = coded
	case codingDeflate:
		var err error
		if body, err = inflate(coded, int(size)); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("unknown coding %d", coding)
	}
	if uint64(len(body)) != size {
		return nil, fmt.Errorf("%d bytes where its header says %d", len(body), size)
	}
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return nil, fmt.Errorf("checksum %08x where its header says %08x", got, sum)
	}
	return decodeBody(body)
}

// writers are kept because a flate.Writer allocates more than half a megabyte.
var writers = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.DefaultCompression)
	if err != nil {
		panic(err) // the level is a constant that exists
	}
	return w
}}

func deflate(body []byte) ([]byte, error) {
	w := writers.Get().(*flate.Writer)
	defer writers.Put(w)
	var out bytes.Buffer
	w.Reset(&out)
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// inflateGrow is how much more than the coded bytes is allocated before the stream has proved that it yields more.
const inflateGrow = 16

func inflate(coded []byte, size int) ([]byte, error) {
	in := bytes.NewReader(coded) // a ByteReader, of which flate takes no byte too many
	var out bytes.Buffer
	out.Grow(min(size, inflateGrow*len(coded)))
	if _, err := io.Copy(&out, io.LimitReader(flate.NewReader(in), int64(size)+1)); err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if out.Len() > size {
		return nil, fmt.Errorf("more bytes than the %d of its header", size)
	}
	if in.Len() > 0 {
		return nil, fmt.Errorf("%d bytes too many behind its body", in.Len())
	}
	return out.Bytes(), nil
}
