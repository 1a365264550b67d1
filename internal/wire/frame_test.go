package wire

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestCheckLength(t *testing.T) {
	for _, c := range []struct {
		name   string
		prefix string
		want   int
		text   string // part of the error; "": none
	}{
		{"smallest", "\x00\x00\x00\x08", 8, ""},
		{"largest", "\x06\x40\x00\x00", FrameBytesMax, ""},
		{"one too many", "\x06\x40\x00\x01", 0, "exceeds the limit of 104857600 bytes (socket.request.max.bytes)"},
		{"huge", "\x7f\xff\xff\xff", 0, "2147483647 exceeds"},
		{"zero", "\x00\x00\x00\x00", 0, "frame length 0 is below the 8 bytes"},
		{"seven", "\x00\x00\x00\x07", 0, "below"},
		{"minus one", "\xff\xff\xff\xff", 0, "frame length -1 is negative"},
		{"most negative", "\x80\x00\x00\x00", 0, "-2147483648 is negative"},
		{"TLS 1.0 record", "\x16\x03\x01\x02", 0, "the peer speaks TLS (first bytes 16 03 01 02)"},
		{"TLS 1.2 record", "\x16\x03\x03\x00", 0, "security.protocol=PLAINTEXT"},
		{"TLS alert", "\x15\x03\x03\x00", 0, "TLS"},
		{"HTTP GET", "GET ", 0, "HTTP"},
		{"HTTP POST", "POST", 0, "HTTP"},
		{"HTTP OPTIONS", "OPTI", 0, "HTTP"},
		{"HTTP response", "HTTP", 0, "HTTP"},
		{"HTTP/2 preface", "PRI ", 0, "HTTP/2"},
		{"SSH", "SSH-", 0, "SSH"},
		{"PROXY protocol 1", "PROX", 0, "switch it off in the load balancer"},
		{"PROXY protocol 2", "\r\n\r\n", 0, "PROXY protocol"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := CheckLength([4]byte([]byte(c.prefix)), FrameBytesMin, FrameBytesMax)
			if c.text == "" {
				if err != nil || got != c.want {
					t.Fatalf("%d, %v; want %d", got, err, c.want)
				}
				return
			}
			if err == nil || got != 0 || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("%d, error %v; want one with %q", got, err, c.text)
			}
			var length *LengthError
			var foreign *ForeignProtocolError
			if !errors.As(err, &length) && !errors.As(err, &foreign) {
				t.Errorf("untyped error %T", err)
			}
		})
	}
}

// What real TLS and HTTP clients send is recognised, not only what this test believes they send.
func TestRealForeignClientsAreRecognised(t *testing.T) {
	for want, dial := range map[string]func(net.Conn){
		"TLS":  func(c net.Conn) { tls.Client(c, &tls.Config{ServerName: "x"}).Handshake() },
		"HTTP": func(c net.Conn) { req, _ := http.NewRequest("DELETE", "http://x/y", nil); req.Write(c) },
	} {
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() { defer close(done); dial(theirs) }()
		_, err := ReadFrame(ours, nil, FrameBytesMax)
		ours.Close()
		<-done
		var foreign *ForeignProtocolError
		if !errors.As(err, &foreign) || foreign.Protocol != want {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestReadFrame(t *testing.T) {
	frame := bytes.Repeat([]byte{7}, 200_000)
	var stream []byte
	stream = append(stream, 0, 3, 13, 64)
	stream = append(stream, frame...)
	stream = append(stream, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8)
	for name, r := range map[string]io.Reader{
		"whole":        bytes.NewReader(stream),
		"byte by byte": iotest.OneByteReader(bytes.NewReader(stream)),
		"halves":       iotest.HalfReader(bytes.NewReader(stream)),
		"EOF with it":  iotest.DataErrReader(bytes.NewReader(stream)),
	} {
		var buf []byte
		buf, err := ReadFrame(r, buf, FrameBytesMax)
		if err != nil || !bytes.Equal(buf, frame) {
			t.Fatalf("%s: %d bytes, %v", name, len(buf), err)
		}
		was := &buf[0]
		buf, err = ReadFrame(r, buf, FrameBytesMax)
		if err != nil || !bytes.Equal(buf, []byte{1, 2, 3, 4, 5, 6, 7, 8}) || &buf[0] != was {
			t.Fatalf("%s: second frame %x, %v", name, buf, err)
		}
		if _, err = ReadFrame(r, buf, FrameBytesMax); err != io.EOF {
			t.Fatalf("%s: at the end %v, want io.EOF", name, err)
		}
	}
}

func TestReadFrameSaysWhereTheConnectionEnded(t *testing.T) {
	for stream, want := range map[string]string{
		"\x00\x00":                 "connection closed after 2 of 4 bytes of a frame length",
		"\x00\x00\x00\x09\x01\x02": "connection closed after 2 of the 9 bytes of a frame",
		"\x00\x00\x00\x09":         "connection closed after 0 of the 9 bytes of a frame",
		"\x00\x02\x00\x00" + strings.Repeat("x", 70_000): "connection closed after 70000 of the 131072 bytes of a frame",
	} {
		_, err := ReadFrame(strings.NewReader(stream), nil, FrameBytesMax)
		if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.8q: %v, want %q", stream, err, want)
		}
	}
	broken := errors.New("cable")
	if _, err := ReadFrame(iotest.ErrReader(broken), nil, FrameBytesMax); err != broken {
		t.Errorf("%v", err)
	}
	if _, err := ReadFrame(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("\x00\x00\x00\x09"))), nil, FrameBytesMax); !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("%v", err)
	}
}

// A peer that announces much and sends little costs little.
func TestAnAnnouncedLengthAllocatesNothing(t *testing.T) {
	announce := append([]byte{6, 64, 0, 0}, make([]byte, 1000)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const n = 100
	for range n {
		if _, err := ReadFrame(bytes.NewReader(announce), nil, FrameBytesMax); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > 4*readStep {
		t.Errorf("%d bytes allocated for a frame of which 1,000 arrived", each)
	}
}

func TestASlowPeerIsReadToTheEnd(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		defer theirs.Close()
		for _, part := range []string{"\x00", "\x00\x00", "\x0a0123", "456", "789"} {
			theirs.Write([]byte(part))
		}
	}()
	ours.SetDeadline(time.Now().Add(time.Minute))
	if got, err := ReadFrame(ours, nil, FrameBytesMax); err != nil || string(got) != "0123456789" {
		t.Errorf("%q, %v", got, err)
	}
}
