package backup

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// ErrDamaged: the file is no backup, or not the whole of one. The error says where.
var ErrDamaged = errors.New("not a whole backup")

// Check reads a backup to its end and returns its header. What is wrong is an ErrDamaged that names the byte.
func Check(path string) (Header, error) {
	return Records(path, func(int, int32, []byte, []byte) error { return nil })
}

// Records calls f with every record; f must not keep key and value. Whoever must not act on a part of a backup calls Check before.
func Records(path string, f func(topic int, partition int32, key, value []byte) error) (Header, error) {
	file, err := os.Open(path)
	if err != nil {
		return Header{}, err
	}
	defer file.Close()
	r := &reader{in: bufio.NewReaderSize(file, blockBytes), path: path}
	return r.all(f)
}

type reader struct {
	in   *bufio.Reader
	path string
	at   int64 // of the block that is being read
	next int64
	head [blockHead]byte
	buf  []byte
}

func (r *reader) damaged(format string, args ...any) error {
	return fmt.Errorf("%s: %w: at byte %d: %s", r.path, ErrDamaged, r.at, fmt.Sprintf(format, args...))
}

func (r *reader) all(f func(int, int32, []byte, []byte) error) (Header, error) {
	line := make([]byte, len(magic))
	if _, err := io.ReadFull(r.in, line); err != nil || string(line) != magic {
		return Header{}, r.damaged("it does not begin with %q", magic)
	}
	r.next = int64(len(magic))
	var h Header
	kind, payload, err := r.block()
	if err != nil {
		return h, err
	}
	if kind != kindHeader || json.Unmarshal(payload, &h) != nil || len(h.Topics) == 0 {
		return h, r.damaged("no header")
	}
	read := make([]int64, len(h.Topics))
	for {
		kind, payload, err := r.block()
		if err != nil {
			return h, err
		}
		switch kind {
		case kindRecords:
			if err := r.records(h, payload, read, f); err != nil {
				return h, err
			}
		case kindEnd:
			var e end
			if json.Unmarshal(payload, &e) != nil || !slices.Equal(e.Records, read) {
				return h, r.damaged("the end counts %v records, read were %v", e.Records, read)
			}
			r.at = r.next
			if _, err := r.in.ReadByte(); !errors.Is(err, io.EOF) {
				return h, r.damaged("something comes behind the end")
			}
			return h, nil
		default:
			return h, r.damaged("a block of kind %q", kind)
		}
	}
}

func (r *reader) block() (kind byte, payload []byte, err error) {
	r.at = r.next
	if _, err := io.ReadFull(r.in, r.head[:]); err != nil {
		return 0, nil, r.short(err)
	}
	length := binary.BigEndian.Uint32(r.head[:])
	if length > blockBytesMax+recordHead {
		return 0, nil, r.damaged("a block of %d bytes, at most %d are written", length, blockBytesMax)
	}
	// Grown as it comes: a damaged length must not take half a gigabyte.
	r.buf = r.buf[:0]
	for left := int(length); left > 0; {
		n := min(left, blockBytes)
		begun := len(r.buf)
		r.buf = slices.Grow(r.buf, n)[:begun+n]
		if _, err := io.ReadFull(r.in, r.buf[begun:]); err != nil {
			return 0, nil, r.short(err)
		}
		left -= n
	}
	kind = r.head[8]
	if got, want := sum(kind, r.buf), binary.BigEndian.Uint32(r.head[4:]); got != want {
		return 0, nil, r.damaged("the checksum of the block is %08x, must be %08x", got, want)
	}
	r.next = r.at + blockHead + int64(length)
	return kind, r.buf, nil
}

// short is the error of a read that got too little.
func (r *reader) short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return r.damaged("the file ends within a block, or without its end")
	}
	return fmt.Errorf("%s: %w", r.path, err)
}

func (r *reader) records(h Header, b []byte, read []int64, f func(int, int32, []byte, []byte) error) error {
	field := func() ([]byte, bool) {
		if len(b) < 4 {
			return nil, false
		}
		n := binary.BigEndian.Uint32(b)
		if b = b[4:]; uint64(n) > uint64(len(b)) {
			return nil, false
		}
		v := b[:n]
		b = b[n:]
		return v, true
	}
	for len(b) > 0 {
		if len(b) < 5 {
			return r.damaged("a record is cut off")
		}
		topic, partition := int(b[0]), int32(binary.BigEndian.Uint32(b[1:]))
		b = b[5:]
		key, ok := field()
		value, whole := field()
		if !ok || !whole {
			return r.damaged("a record is cut off")
		}
		if topic >= len(h.Topics) || partition < 0 || partition >= h.Topics[topic].Partitions {
			return r.damaged("a record of topic %d, partition %d, which the header does not have", topic, partition)
		}
		read[topic]++
		if err := f(topic, partition, key, value); err != nil {
			return err
		}
	}
	return nil
}
