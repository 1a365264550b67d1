package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzReadFrame: whatever arrives, a frame is exactly what its length says, or there is a typed error.
func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x08abcdefgh"))
	f.Add([]byte("\x16\x03\x01\x02\x00"))
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := bytes.NewReader(stream)
		frame, err := ReadFrame(r, nil, 1<<20)
		if err == nil {
			if n := len(stream) - r.Len() - 4; n != len(frame) || !bytes.Equal(frame, stream[4:4+n]) || n < FrameBytesMin {
				t.Fatalf("%d bytes of %d", len(frame), n)
			}
			return
		}
		var length *LengthError
		var foreign *ForeignProtocolError
		if err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, &length) && !errors.As(err, &foreign) {
			t.Fatalf("untyped error %v", err)
		}
		if err == io.EOF && len(stream) != 0 {
			t.Fatal("io.EOF in the middle")
		}
	})
}

// FuzzRequest: no frame panics, and one that is accepted means the same after encoding it again.
func FuzzRequest(f *testing.F) {
	seen := map[[2]int16]bool{}
	for _, c := range readCaptures(f) {
		if k := [2]int16{c.APIKey, c.APIVersion}; c.Dir == "req" && !seen[k] {
			seen[k] = true
			f.Add(c.frame)
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, err := ParseHeader(frame)
		if err != nil {
			return
		}
		if h.Size > len(frame) {
			t.Fatalf("header of %d bytes in %d", h.Size, len(frame))
		}
		body := frame[h.Size:]
		req, err := ParseRequest(h.Key, h.Version, body)
		if err != nil {
			return
		}
		if _, err := ParseRequest(h.Key, h.Version, append(bytes.Clone(body), 0)); !errors.Is(err, ErrTrailing) {
			t.Fatalf("a byte more: %v", err)
		}
		again := AppendRequest(nil, h.CorrelationID, h.ClientID, req)
		h2, err := ParseHeader(again[4:])
		if err != nil {
			t.Fatal(err)
		}
		req2, err := ParseRequest(h.Key, h.Version, again[4+h2.Size:])
		if err != nil {
			t.Fatalf("encoded again: %v", err)
		}
		if third := AppendRequest(nil, h.CorrelationID, h.ClientID, req2); !bytes.Equal(again, third) {
			t.Fatalf("not stable:\n%x\n%x", again, third)
		}
	})
}

// FuzzResponse: the same for answers.
func FuzzResponse(f *testing.F) {
	seen := map[[2]int16]bool{}
	for _, c := range readCaptures(f) {
		if k := [2]int16{c.APIKey, c.APIVersion}; c.Dir == "resp" && !seen[k] && len(c.frame) < 1000 {
			seen[k] = true
			f.Add(c.APIKey, c.APIVersion, c.frame)
		}
	}
	f.Fuzz(func(t *testing.T, key, version int16, frame []byte) {
		corr, body, err := ParseResponseHeader(key, version, frame)
		if err != nil {
			return
		}
		resp, err := ParseResponse(key, version, body)
		if err != nil {
			return
		}
		again := AppendResponse(nil, corr, resp)
		corr2, body, err := ParseResponseHeader(key, version, again[4:])
		if err != nil || corr2 != corr {
			t.Fatalf("%d became %d: %v", corr, corr2, err)
		}
		resp2, err := ParseResponse(key, version, body)
		if err != nil {
			t.Fatalf("encoded again: %v", err)
		}
		if third := AppendResponse(nil, corr, resp2); !bytes.Equal(again, third) {
			t.Fatalf("not stable:\n%x\n%x", again, third)
		}
	})
}

func BenchmarkParseHeartbeat(b *testing.B) {
	for _, c := range readCaptures(b) {
		if c.Dir != "req" || c.APIKey != 88 {
			continue
		}
		h, err := ParseHeader(c.frame)
		if err != nil {
			b.Fatal(err)
		}
		req, err := ParseRequest(h.Key, h.Version, c.frame[h.Size:])
		if err != nil {
			b.Fatal(err)
		}
		if req.(*kmsg.StreamsGroupHeartbeatRequest).MemberEpoch < 1 {
			continue
		}
		b.ReportAllocs()
		for b.Loop() {
			h, err := ParseHeader(c.frame)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := ParseRequest(h.Key, h.Version, c.frame[h.Size:]); err != nil {
				b.Fatal(err)
			}
		}
		return
	}
	b.Fatal("no heartbeat in the captures")
}
