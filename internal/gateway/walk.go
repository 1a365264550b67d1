package gateway

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// errWalk: the lengths inside a frame do not add up to the frame's own.
var errWalk = errors.New("the fields of the frame do not fill it exactly")

// walker passes one frame from a stream to another and reads fields on the way, without holding more than a field
// of it. left is what is not passed yet; nothing is read beyond it, whatever lengths the frame claims inside.
type walker struct {
	src, dst *stream
	left     int64
}

// peek returns the next n bytes (n is small and fits the stream's buffer) without passing them.
func (w *walker) peek(n int) ([]byte, error) {
	if int64(n) > w.left {
		return nil, errWalk
	}
	b, err := w.src.r.Peek(n)
	if err != nil {
		return nil, unexpected(err)
	}
	return b, nil
}

// pass moves n bytes on unseen.
func (w *walker) pass(n int64) error {
	if n < 0 || n > w.left {
		return errWalk
	}
	w.left -= n
	return w.src.copyTo(w.dst, n)
}

// replace sends b in place of the next len(b) bytes.
func (w *walker) replace(b []byte) error {
	if int64(len(b)) > w.left {
		return errWalk
	}
	if err := discard(w.src, len(b)); err != nil {
		return err
	}
	w.left -= int64(len(b))
	_, err := w.dst.w.Write(b)
	return err
}

func discard(s *stream, n int) error {
	_, err := s.r.Discard(n)
	return unexpected(err)
}

func (w *walker) int16() (int16, error) {
	b, err := w.peek(2)
	if err != nil {
		return 0, err
	}
	v := int16(binary.BigEndian.Uint16(b))
	return v, w.pass(2)
}

func (w *walker) int32() (int32, error) {
	b, err := w.peek(4)
	if err != nil {
		return 0, err
	}
	v := int32(binary.BigEndian.Uint32(b))
	return v, w.pass(4)
}

// peekUvarint reads an unsigned varint of at most 32 bits and its size on the wire.
func (w *walker) peekUvarint() (v uint32, size int, err error) {
	for size = 1; size <= 5; size++ {
		b, err := w.peek(size)
		if err != nil {
			return 0, 0, err
		}
		last := b[size-1]
		v |= uint32(last&0x7f) << (7 * (size - 1))
		if last < 0x80 {
			if size == 5 && last > 0x0f {
				break
			}
			return v, size, nil
		}
	}
	return 0, 0, fmt.Errorf("%w: a varint exceeds 32 bits", errWalk)
}

func (w *walker) uvarint() (uint32, error) {
	v, size, err := w.peekUvarint()
	if err != nil {
		return 0, err
	}
	return v, w.pass(int64(size))
}

// length reads the length of an array, of bytes or of a string in its wide form (four bytes) or the compact one
// (a varint, one more than the length). -1 is null.
func (w *walker) length(compact bool) (int64, error) {
	if compact {
		n, err := w.uvarint()
		return int64(n) - 1, err
	}
	n, err := w.int32()
	if err == nil && n < -1 {
		err = fmt.Errorf("%w: length %d", errWalk, n)
	}
	return int64(n), err
}

// stringLength is length for strings, whose plain form has two bytes.
func (w *walker) stringLength(compact bool) (int64, error) {
	if compact {
		return w.length(true)
	}
	n, err := w.int16()
	if err == nil && n < -1 {
		err = fmt.Errorf("%w: string length %d", errWalk, n)
	}
	return int64(n), err
}

// elements reads an array's length and calls each for every element. An element takes at least one byte, so that a
// hostile length ends with the frame.
func (w *walker) elements(compact bool, each func() error) error {
	n, err := w.length(compact)
	if err != nil {
		return err
	}
	if n > w.left {
		return fmt.Errorf("%w: an array of %d elements in %d bytes", errWalk, n, w.left)
	}
	for ; n > 0; n-- {
		if err := each(); err != nil {
			return err
		}
	}
	return nil
}

// passBytes passes nullable bytes or, with a compact length, a nullable string.
func (w *walker) passBytes(compact bool) error {
	n, err := w.length(compact)
	if err != nil || n <= 0 {
		return err
	}
	return w.pass(n)
}

func (w *walker) passString(compact bool) error {
	n, err := w.stringLength(compact)
	if err != nil || n <= 0 {
		return err
	}
	return w.pass(n)
}

// passTags passes a tag section.
func (w *walker) passTags() error {
	n, err := w.uvarint()
	for ; err == nil && n > 0; n-- {
		err = w.passTag()
	}
	return err
}

func (w *walker) passTag() error {
	if _, err := w.uvarint(); err != nil {
		return err
	}
	size, err := w.uvarint()
	if err != nil {
		return err
	}
	return w.pass(int64(size))
}

// end says whether the frame ended where its fields did.
func (w *walker) end() error {
	if w.left != 0 {
		return fmt.Errorf("%w: %d bytes are left", errWalk, w.left)
	}
	return nil
}

// unknownTag is a tag number that no Kafka message uses. A tag that must not reach the client gets it in place of
// its own number: same length, and clients skip tags that they don't know (KIP-482).
const unknownTag = 100

// padUvarint encodes v in exactly size bytes; readers accept the padded form.
func padUvarint(v uint32, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(v&0x7f) | 0x80
		v >>= 7
	}
	b[size-1] &= 0x7f
	return b
}
