package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func frameOf(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch v := p.(type) {
		case string:
			b = append(b, v...)
		case int16:
			b = binary.BigEndian.AppendUint16(b, uint16(v))
		case int32:
			b = binary.BigEndian.AppendUint32(b, uint32(v))
		case int:
			b = append(b, byte(v))
		}
	}
	return b
}

// framed puts the length before.
func framed(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// What no Kafka client sends is refused: the connection is closed and the log says what came and from whom.
func TestBadInputIsRefusedWithAReason(t *testing.T) {
	k := cluster(t)
	for _, c := range []struct {
		name  string
		bytes []byte
		want  string
	}{
		{"TLS", []byte{22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3}, "the peer speaks TLS"},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "the peer speaks HTTP"},
		{"HTTP/2", []byte("PRI * HTTP/2.0\r\n\r\n"), "the peer speaks HTTP/2"},
		{"SSH", []byte("SSH-2.0-OpenSSH_9.9\r\n"), "the peer speaks SSH"},
		{"a negative length", frameOf(int32(-5), int32(0)), "frame length -5 is negative"},
		{"an absurd length", frameOf(int32(200<<20), int32(0)), "exceeds the limit"},
		{"a length below a header", frameOf(int32(3), "abc"), "frame length 3 is below"},
		{"an unknown key", framed(frameOf(int16(999), int16(0), int32(1), int16(-1))), "unknown API key 999"},
		{"a negative key", framed(frameOf(int16(-3), int16(0), int32(1), int16(-1))), "unknown API key -3"},
		{"a negative version", framed(frameOf(int16(3), int16(-2), int32(1), int16(-1))), "version: -2 is negative"},
		{"a client id beyond the frame", framed(frameOf(int16(3), int16(1), int32(1), int16(500), "x")), "client id"},
		{"a negative client id length", framed(frameOf(int16(3), int16(1), int32(1), int16(-7))), "client id: -7 is negative"},
		{"a header that does not end", framed(frameOf(int16(3), int16(1), int32(1), int16(30000), strings.Repeat("x", 30000))), "exceeds 8188 bytes"},
		{"header tags beyond the frame", framed(frameOf(int16(3), int16(12), int32(1), int16(-1), 1, 0, 99)), "tags"},
		{"a version of ours that does not exist", framed(frameOf(int16(88), int16(7), int32(1), int16(-1), 0)), "StreamsGroupHeartbeat (key 88) version 7 is not supported, only 0 to 1"},
		{"a version that we can't rewrite", framed(frameOf(int16(3), int16(99), int32(1), int16(-1), 0, 0)), "Metadata (key 3) version 99 is not supported"},
		{"a Produce version that we can't walk", framed(frameOf(int16(0), int16(99), int32(1), int16(-1), 0, 0)), "Produce (key 0) version 99 is not supported"},
		{"a truncated heartbeat", framed(frameOf(int16(88), int16(1), int32(1), int16(-1), 0, 9, "abc")), "malformed StreamsGroupHeartbeat request"},
		{"bytes behind a request", framed(frameOf(int16(12), int16(0), int32(1), int16(-1), int16(1), "g", int32(1), int16(1), "m", "trailing")), "bytes are left after the end of the message"},
		{"a Produce that lies", framed(frameOf(int16(0), int16(3), int32(1), int16(-1), int16(-1), int16(1), int32(1), int32(1000))), "malformed Produce request"},
		{"a Produce with bytes behind", framed(frameOf(int16(0), int16(3), int32(1), int16(-1), int16(-1), int16(1), int32(1), int32(0), "more")), "malformed Produce request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, log := start(t, newService(), k.ListenAddrs()[:1])
			conn, err := net.Dial("tcp", g.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write(c.bytes); err != nil {
				t.Fatal(err)
			}
			conn.SetReadDeadline(time.Now().Add(time.Minute))
			if b, err := io.ReadAll(conn); len(b) > 0 || isTimeout(err) {
				t.Fatalf("answered % x, %v", b, err)
			}
			eventually(t, "a log line that says "+c.want+" and names the peer", func() bool {
				return strings.Contains(log.String(), c.want) && strings.Contains(log.String(), "peer="+conn.LocalAddr().String())
			})
		})
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func TestSaslIsRefusedAsNotEnabled(t *testing.T) {
	k := cluster(t)
	g, _ := start(t, newService(), k.ListenAddrs())
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Mechanism = "PLAIN"
	if got := codesOf(ask[kmsg.Response](t, raw(t, g.Addr().String()), 1, req)); got != "[]=33" {
		t.Fatal(got)
	}
}

func TestLimits(t *testing.T) {
	k := cluster(t)
	t.Run("connections", func(t *testing.T) {
		g, log := start(t, newService(), k.ListenAddrs(), func(c *Config) { c.Limits.ConnectionsMax = 2 })
		a, b := raw(t, g.Addr().String()), raw(t, brokerAddr(t, g, 0))
		ask[kmsg.Response](t, a, 12, kmsg.NewPtrMetadataRequest())
		ask[kmsg.Response](t, b, 12, kmsg.NewPtrMetadataRequest())
		third := raw(t, g.Addr().String())
		if _, err := third.ReceiveRaw(t.Context()); err == nil {
			t.Fatal("a third connection was served")
		}
		eventually(t, "a log line", func() bool { return strings.Contains(log.String(), "too many are open") })
		a.Close()
		eventually(t, "room for another", func() bool { return g.connections() == 1 })
		ask[kmsg.Response](t, raw(t, g.Addr().String()), 12, kmsg.NewPtrMetadataRequest())
	})
	t.Run("idle", func(t *testing.T) {
		g, _ := start(t, newService(), k.ListenAddrs(), func(c *Config) { c.Limits.IdleTimeout = 50 * time.Millisecond })
		cl := raw(t, g.Addr().String())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := cl.ReceiveRaw(ctx); !errors.Is(err, io.EOF) {
			t.Fatalf("%v, want the connection closed", err)
		}
	})
	t.Run("waiting is not idle", func(t *testing.T) {
		svc := newService()
		const idle = 2 * time.Second // a slow machine may need it from one to the other
		svc.heartbeat = slowly(idle * 3 / 2)
		g, _ := start(t, svc, k.ListenAddrs(), func(c *Config) { c.Limits.IdleTimeout = idle })
		ask[kmsg.Response](t, raw(t, g.Addr().String()), 1, kmsg.NewPtrStreamsGroupHeartbeatRequest())
	})
	t.Run("a frame that stops halfway", func(t *testing.T) {
		g, log := start(t, newService(), k.ListenAddrs(), func(c *Config) { c.Limits.StallTimeout = 50 * time.Millisecond })
		cl := raw(t, g.Addr().String())
		if err := cl.SendRaw(t.Context(), []byte{0, 0, 0, 99, 0, 3, 0, 1, 0, 0}); err != nil {
			t.Fatal(err)
		}
		if _, err := cl.ReceiveRaw(t.Context()); err == nil {
			t.Fatal("answered")
		}
		eventually(t, "a log line", func() bool { return strings.Contains(log.String(), "stopped in the middle of a frame") })
	})
}
