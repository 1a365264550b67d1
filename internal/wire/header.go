package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	apiVersionsKey        = 18
	controlledShutdownKey = 7
	neverFlexible         = int16(1<<15 - 1)
)

// flexibleFrom is the first flexible version by API key: -1 where the key is unknown, neverFlexible where no
// version is.
var flexibleFrom, versionMax = func() (from, highest [kmsg.MaxKey + 1]int16) {
	for key := range int16(len(from)) {
		from[key], highest[key] = -1, -1
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		from[key], highest[key] = neverFlexible, req.MaxVersion()
		for v := range req.MaxVersion() + 1 {
			if req.SetVersion(v); req.IsFlexible() {
				from[key] = v
				break
			}
		}
	}
	return from, highest
}()

// Known says that requests of the key can be framed.
func Known(key int16) bool {
	return key >= 0 && int(key) < len(flexibleFrom) && flexibleFrom[key] >= 0
}

// MaxVersion is the highest version of the key that can be decoded, -1 for an unknown key. It is what this program
// can read, not what it serves.
func MaxVersion(key int16) int16 {
	if !Known(key) {
		return -1
	}
	return versionMax[key]
}

// IsFlexible says that the version of the API uses compact types and tagged fields (KIP-482), and with them request
// header v2 and response header v1. It answers for versions newer than MaxVersion too, as flexibility never ends;
// false for unknown keys.
func IsFlexible(key, version int16) bool {
	return Known(key) && version >= flexibleFrom[key]
}

// Header is a request header.
//
//	┌───────┬─────────┬────────────────┬─────────────────┬──────────────┐
//	│ key   │ version │ correlation id │ client id       │ tags         │
//	│ int16 │ int16   │ int32          │ int16 len, utf8 │ uvarint, …   │
//	└───────┴─────────┴────────────────┴─────────────────┴──────────────┘
//
// v0 (ControlledShutdown v0 alone) ends after the correlation id, v1 after the client id; v2 has tags (flexible
// versions). The client id keeps the old string form in all of them.
type Header struct {
	Key, Version  int16
	CorrelationID int32
	ClientID      *string // nil: null
	Size          int     // of the header, in bytes: where the body begins
}

// ParseHeader reads the header at the beginning of a frame without its length prefix, which may be a prefix of the
// frame if the rest has not arrived. An error that wraps ErrTruncated says that b ends before the header does;
// *UnknownKeyError that the key is unknown, with Key, Version and CorrelationID filled in; *HeaderError the rest.
// The version is not judged: an answer to an unsupported one needs the header.
func ParseHeader(b []byte) (Header, error) {
	var h Header
	if len(b) < FrameBytesMin {
		return h, &HeaderError{What: "key, version and correlation id", Err: fmt.Errorf("%w (%d of %d bytes)", ErrTruncated, len(b), FrameBytesMin)}
	}
	h.Key = int16(binary.BigEndian.Uint16(b))
	h.Version = int16(binary.BigEndian.Uint16(b[2:]))
	h.CorrelationID = int32(binary.BigEndian.Uint32(b[4:]))
	h.Size = FrameBytesMin
	if !Known(h.Key) {
		return h, &UnknownKeyError{Key: h.Key, Version: h.Version}
	}
	if h.Version < 0 {
		return h, &HeaderError{What: "version", Err: fmt.Errorf("%d is negative (key %d)", h.Version, h.Key)}
	}
	if h.Key == controlledShutdownKey && h.Version == 0 {
		return h, nil
	}
	if len(b) < h.Size+2 {
		return h, &HeaderError{What: "length of the client id", Err: ErrTruncated}
	}
	n := int(int16(binary.BigEndian.Uint16(b[h.Size:])))
	h.Size += 2
	if n < -1 {
		return h, &HeaderError{What: "length of the client id", Err: fmt.Errorf("%d is negative", n)}
	}
	if n >= 0 {
		if len(b)-h.Size < n {
			return h, &HeaderError{What: "client id", Err: fmt.Errorf("%w (%d of %d bytes)", ErrTruncated, len(b)-h.Size, n)}
		}
		id := string(b[h.Size : h.Size+n])
		h.ClientID = &id
		h.Size += n
	}
	if !IsFlexible(h.Key, h.Version) {
		return h, nil
	}
	tags, err := skipTags(b[h.Size:])
	if err != nil {
		return h, &HeaderError{What: "tags", Err: err}
	}
	h.Size += tags
	return h, nil
}

// AppendHeader appends h as a request header without tags. h.Size is not used.
func AppendHeader(dst []byte, h Header) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.Key))
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.Version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.CorrelationID))
	if h.Key == controlledShutdownKey && h.Version == 0 {
		return dst
	}
	if h.ClientID == nil {
		dst = append(dst, 0xff, 0xff)
	} else {
		id := (*h.ClientID)[:min(len(*h.ClientID), 1<<15-1)]
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(id)))
		dst = append(dst, id...)
	}
	if IsFlexible(h.Key, h.Version) {
		dst = append(dst, 0)
	}
	return dst
}

// ParseResponseHeader reads the header at the beginning of a response frame without its length prefix: the
// correlation id, and tags in flexible versions of every API but ApiVersions. body is what follows.
func ParseResponseHeader(key, version int16, b []byte) (correlationID int32, body []byte, err error) {
	if len(b) < 4 {
		return 0, nil, &HeaderError{What: "correlation id", Err: ErrTruncated}
	}
	correlationID, body = int32(binary.BigEndian.Uint32(b)), b[4:]
	if responseTags(key, version) {
		n, err := skipTags(body)
		if err != nil {
			return correlationID, nil, &HeaderError{What: "tags", Err: err}
		}
		body = body[n:]
	}
	return correlationID, body, nil
}

// AppendResponseHeader appends a response header without tags.
func AppendResponseHeader(dst []byte, key, version int16, correlationID int32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if responseTags(key, version) {
		dst = append(dst, 0)
	}
	return dst
}

// responseTags: ApiVersions stays at response header v0, because its answer must be readable for a client that does
// not know yet which version the broker speaks (KIP-511).
func responseTags(key, version int16) bool {
	return key != apiVersionsKey && IsFlexible(key, version)
}

// skipTags returns the size of the tag section that b begins with.
func skipTags(b []byte) (int, error) {
	at := 0
	next := func() (uint32, error) {
		v, n := binary.Uvarint(b[at:min(len(b), at+5)])
		switch {
		case n <= 0 && len(b)-at < 5:
			return 0, ErrTruncated
		case n <= 0 || v > 1<<32-1:
			return 0, errors.New("a varint exceeds 32 bits")
		}
		at += n
		return uint32(v), nil
	}
	count, err := next()
	if err != nil {
		return 0, err
	}
	for range count {
		if _, err := next(); err != nil {
			return 0, err
		}
		size, err := next()
		if err != nil {
			return 0, err
		}
		if int64(size) > int64(len(b)-at) {
			return 0, fmt.Errorf("%w (%d of %d bytes of a tag)", ErrTruncated, len(b)-at, size)
		}
		at += int(size)
	}
	return at, nil
}
