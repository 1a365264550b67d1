package wire

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrTruncated: the bytes end before the header or message does.
var ErrTruncated = errors.New("the bytes end too early")

// LengthError is a frame length that no Kafka peer sends. The connection can't be used further: where the next
// frame begins is unknown.
type LengthError struct {
	Length   int32 // as it stood on the wire
	Min, Max int   // what is accepted, in bytes
}

func (e *LengthError) Error() string {
	switch {
	case e.Length < 0:
		return fmt.Sprintf("frame length %d is negative", e.Length)
	case int64(e.Length) > int64(e.Max):
		return fmt.Sprintf("frame length %d exceeds the limit of %d bytes (socket.request.max.bytes)", e.Length, e.Max)
	}
	return fmt.Sprintf("frame length %d is below the %d bytes of the smallest header", e.Length, e.Min)
}

// ForeignProtocolError says that the peer does not speak the Kafka protocol in plain text.
type ForeignProtocolError struct {
	Protocol string  // "TLS", "HTTP", "HTTP/2", "SSH", "PROXY protocol"
	First    [4]byte // the bytes that stand where a frame length belongs
}

func (e *ForeignProtocolError) Error() string {
	hint := ""
	switch e.Protocol {
	case "TLS":
		hint = "; set security.protocol=PLAINTEXT at the client, or connect to a TLS listener"
	case "PROXY protocol":
		hint = "; switch it off in the load balancer"
	}
	return fmt.Sprintf("the peer speaks %s (first bytes % x), this port takes the Kafka protocol in plain text%s", e.Protocol, e.First, hint)
}

// UnknownKeyError is a request with an API key that can't be framed: even where its header ends is unknown.
type UnknownKeyError struct {
	Key, Version int16
}

func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("unknown API key %d (version %d)", e.Key, e.Version)
}

// VersionError is a version of a known API that can't be decoded.
type VersionError struct {
	Key, Version, Max int16
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s (key %d) version %d is not supported, only 0 to %d", kmsg.NameForKey(e.Key), e.Key, e.Version, e.Max)
}

// HeaderError is a header that can't be decoded; Err says why.
type HeaderError struct {
	What string // the part of the header
	Err  error
}

func (e *HeaderError) Error() string { return fmt.Sprintf("malformed header: %s: %v", e.What, e.Err) }
func (e *HeaderError) Unwrap() error { return e.Err }

// BodyError is a message that can't be decoded; Err says why.
type BodyError struct {
	Key, Version int16
	Response     bool
	Size         int // of the body, in bytes
	Err          error
}

func (e *BodyError) Error() string {
	kind := "request"
	if e.Response {
		kind = "response"
	}
	return fmt.Sprintf("malformed %s %s version %d (key %d, %d bytes): %v", kmsg.NameForKey(e.Key), kind, e.Version, e.Key, e.Size, e.Err)
}
func (e *BodyError) Unwrap() error { return e.Err }

// ErrTrailing: bytes are left behind the end of a message. Peer and decoder disagree about the schema, and what was
// decoded can't be trusted either.
var ErrTrailing = errors.New("bytes are left after the end of the message")

// ErrBodyTooLarge: the body exceeds DecodeBytesMax.
var ErrBodyTooLarge = fmt.Errorf("the body exceeds the %d bytes that are decoded at most", DecodeBytesMax)

// CorrelationError: a response answers another request than the one whose turn it is.
type CorrelationError struct{ Got, Want int32 }

func (e *CorrelationError) Error() string {
	return fmt.Sprintf("response has correlation id %d, want %d", e.Got, e.Want)
}
