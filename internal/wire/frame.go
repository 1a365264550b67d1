package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

const (
	// FrameBytesMax is Kafka's socket.request.max.bytes: a longer frame is refused and its connection closed,
	// because a peer that sends one is broken or hostile.
	FrameBytesMax = 100 << 20

	// FrameBytesMin is the smallest request header (key, version, correlation id).
	FrameBytesMin = 8

	// readStep is how much is allocated for a frame before any of it has arrived; then the buffer at most doubles
	// with each part that did. It keeps a thousand connections that announce 100 MiB and send nothing at 64 MiB.
	readStep = 64 << 10
)

// CheckLength judges a frame's length prefix, the first four bytes of a frame. It returns the length of what
// follows, or a *ForeignProtocolError or *LengthError. A frame must be at least bytesMin and at most bytesMax long.
func CheckLength(prefix [4]byte, bytesMin, bytesMax int) (int, error) {
	n := int32(binary.BigEndian.Uint32(prefix[:]))
	if int(n) >= bytesMin && int(n) <= bytesMax {
		return int(n), nil
	}
	if p := foreignProtocol(prefix); p != "" {
		return 0, &ForeignProtocolError{Protocol: p, First: prefix}
	}
	return 0, &LengthError{Length: n, Min: bytesMin, Max: bytesMax}
}

// ReadLength reads and judges the length prefix of a request frame. It returns io.EOF where the peer closed the
// connection between two frames.
func ReadLength(r io.Reader, bytesMax int) (int, error) {
	var prefix [4]byte
	if n, err := io.ReadFull(r, prefix[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("connection closed after %d of 4 bytes of a frame length: %w", n, io.ErrUnexpectedEOF)
		}
		return 0, err
	}
	return CheckLength(prefix, FrameBytesMin, bytesMax)
}

// ReadFrame reads one frame without its length prefix, at most bytesMax bytes, into buf (which may be nil and is
// grown as needed; the result shares its memory). It returns io.EOF where the peer closed between two frames, and
// an error that wraps io.ErrUnexpectedEOF where it closed within one.
func ReadFrame(r io.Reader, buf []byte, bytesMax int) ([]byte, error) {
	n, err := ReadLength(r, bytesMax)
	if err != nil {
		return buf[:0], err
	}
	return readBody(r, buf, n)
}

func readBody(r io.Reader, buf []byte, n int) ([]byte, error) {
	buf = buf[:0]
	for len(buf) < n {
		have := len(buf)
		if have == cap(buf) {
			buf = slices.Grow(buf, min(n-have, max(have, readStep)))
		}
		buf = buf[:min(n, cap(buf))]
		got, err := io.ReadFull(r, buf[have:])
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("connection closed after %d of the %d bytes of a frame: %w", have+got, n, io.ErrUnexpectedEOF)
			}
			return buf[:0], err
		}
	}
	return buf, nil
}

// foreignProtocol recognises by the first four bytes what people send to a Kafka port by mistake. Read as a frame
// length, each of them exceeds FrameBytesMax, so no Kafka frame is ever taken for one. "" is: not recognised.
func foreignProtocol(first [4]byte) string {
	// A TLS record begins with its type (22 handshake, 21 alert) and version 3.0 to 3.4.
	if (first[0] == 22 || first[0] == 21) && first[1] == 3 && first[2] <= 4 {
		return "TLS"
	}
	switch string(first[:]) {
	case "GET ", "POST", "PUT ", "HEAD", "DELE", "OPTI", "PATC", "CONN", "TRAC", "HTTP":
		return "HTTP"
	case "PRI ":
		return "HTTP/2"
	case "SSH-":
		return "SSH"
	case "PROX", "\r\n\r\n":
		return "PROXY protocol"
	}
	return ""
}
