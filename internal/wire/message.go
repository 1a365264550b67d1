package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DecodeBytesMax bounds the bodies that are decoded. A decoded message can take some thirty times its size in
// memory (an array element of two bytes becomes a struct); 8 MiB hold an offset commit of 200,000 partitions, more
// than any client sends. Frames that are passed on undecoded may be longer.
const DecodeBytesMax = 8 << 20

// message is what kmsg's requests and responses have in common.
type message interface {
	Key() int16
	GetVersion() int16
	AppendTo([]byte) []byte
	ReadFrom([]byte) error
}

// ParseRequest decodes a request body (what follows the header). The result keeps no reference to body, but for
// fields of type []byte. It returns *UnknownKeyError, *VersionError or *BodyError; also for bytes behind the end.
func ParseRequest(key, version int16, body []byte) (kmsg.Request, error) {
	if err := checkVersion(key, version); err != nil {
		return nil, err
	}
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	if err := parse(req, body); err != nil {
		return nil, &BodyError{Key: key, Version: version, Size: len(body), Err: err}
	}
	return req, nil
}

// ParseResponse decodes a response body. Its errors are those of ParseRequest.
func ParseResponse(key, version int16, body []byte) (kmsg.Response, error) {
	if err := checkVersion(key, version); err != nil {
		return nil, err
	}
	resp := kmsg.ResponseForKey(key)
	resp.SetVersion(version)
	if err := parse(resp, body); err != nil {
		return nil, &BodyError{Key: key, Version: version, Response: true, Size: len(body), Err: err}
	}
	return resp, nil
}

func checkVersion(key, version int16) error {
	if !Known(key) {
		return &UnknownKeyError{Key: key, Version: version}
	}
	if version < 0 || version > versionMax[key] {
		return &VersionError{Key: key, Version: version, Max: versionMax[key]}
	}
	return nil
}

func parse(m message, body []byte) error {
	if len(body) > DecodeBytesMax {
		return ErrBodyTooLarge
	}
	if m.ReadFrom(body) != nil {
		// kmsg has one error for everything; in a frame that has arrived whole it means that a length inside points
		// beyond its end.
		return ErrTruncated
	}
	if hasTrailing(m, body) {
		return ErrTrailing
	}
	return nil
}

var scratch = sync.Pool{New: func() any { return new([]byte) }}

// hasTrailing says that m, decoded from body, did not need all of it; kmsg does not tell. If m encodes to the very
// same bytes it did. Otherwise (unusual but legal encodings: a default value written out, a varint with padding)
// it did exactly if one byte less is too few.
func hasTrailing(m message, body []byte) bool {
	if len(body) == 0 {
		return false
	}
	buf := scratch.Get().(*[]byte)
	encoded := m.AppendTo((*buf)[:0])
	same := bytes.Equal(encoded, body)
	if cap(encoded) <= readStep {
		*buf = encoded[:0]
		scratch.Put(buf)
	}
	if same {
		return false
	}
	var again message
	switch m.(type) {
	case kmsg.Request:
		r := kmsg.RequestForKey(m.Key())
		r.SetVersion(m.GetVersion())
		again = r
	default:
		r := kmsg.ResponseForKey(m.Key())
		r.SetVersion(m.GetVersion())
		again = r
	}
	return again.ReadFrom(body[:len(body)-1]) == nil
}

// AppendRequest appends a whole request frame, length prefix included.
func AppendRequest(dst []byte, correlationID int32, clientID *string, req kmsg.Request) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = AppendHeader(dst, Header{Key: req.Key(), Version: req.GetVersion(), CorrelationID: correlationID, ClientID: clientID})
	dst = req.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// AppendResponse appends a whole response frame, length prefix included, in resp's version.
func AppendResponse(dst []byte, correlationID int32, resp kmsg.Response) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = AppendResponseHeader(dst, resp.Key(), resp.GetVersion(), correlationID)
	dst = resp.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// IsTruncated says that err means: the bytes end too early. Of ParseHeader on a part of a frame: more are needed.
func IsTruncated(err error) bool { return errors.Is(err, ErrTruncated) }
