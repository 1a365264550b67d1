package gateway

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// zeros is an endless record batch.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// Kafka bounds requests and not answers: a client that fetches 120 MiB at once gets them, spliced and walked. What has to be held in memory is bounded all the same.
func TestAnswersAreBoundedOnlyInMemory(t *testing.T) {
	const records = 20<<20 + wire.FrameBytesMax
	for _, c := range []struct {
		what    string
		version int16 // of Fetch
		refused bool
	}{
		{"spliced", fetchEndpointsVersion - 1, false},
		{"walked", fetchEndpointsVersion, false},
		{"decoded", 0, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			up := startScripted(t, "127.0.0.1:0", nil)
			g, log := start(t, newService(), []string{up.addr()})
			req := kmsg.Request(kmsg.NewPtrFetchRequest())
			if c.refused {
				req = kmsg.NewPtrMetadataRequest()
			}
			req.SetVersion(c.version)
			before := frameOf(int32(0), int16(0), int32(0), int32(1), int16(2), "in", int32(1), // up to the partitions
				int32(3), int16(0), int32(0), int32(9), int32(0), int32(9), int32(0), int32(0), int32(0), int32(-1), int32(records))
			after := []byte(nil)
			if c.version >= fetchEndpointsVersion {
				before = frameOf(0, int32(0), int16(0), int32(0), 2, 3, "in", 2,
					int32(3), int16(0), int32(0), int32(9), int32(0), int32(9), int32(0), int32(0), 1, int32(-1))
				before, after = binary.AppendUvarint(before, records+1), []byte{0, 0, 0}
			}
			total := int64(4+len(before)) + records + int64(len(after))
			up.change(func(s *scripted) {
				s.answer = func(h wire.Header, _ kmsg.Request) kmsg.Response {
					if h.ClientID != nil || h.Version != c.version || c.refused != (h.Key == metadata) {
						return nil // of others
					}
					up.mu.Lock()
					conn := up.conns[len(up.conns)-1]
					up.mu.Unlock()
					// The gateway closes on what it refuses; then this fails.
					conn.Write(append(frameOf(int32(total), int32(h.CorrelationID)), before...))
					io.CopyN(conn, zeros{}, records)
					conn.Write(after)
					return nil
				}
			})
			cl, err := net.Dial("tcp", brokerAddr(t, g, 1))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			cl.SetDeadline(time.Now().Add(2 * time.Minute))
			if _, err := cl.Write(wire.AppendRequest(nil, 7, nil, req)); err != nil {
				t.Fatal(err)
			}
			var prefix [8]byte
			_, err = io.ReadFull(cl, prefix[:])
			if c.refused {
				if err == nil {
					t.Fatalf("answered with % x", prefix)
				}
				eventually(t, "a log line", func() bool { return strings.Contains(log.String(), "exceeds the limit") })
				return
			}
			if n := binary.BigEndian.Uint32(prefix[:]); err != nil || int64(n) != total {
				t.Fatalf("length %d, %v; want %d", n, err, total)
			}
			got, err := io.CopyN(io.Discard, cl, total-4)
			if err != nil {
				t.Fatalf("%d bytes, %v", got, err)
			}
			m := kmsg.NewPtrMetadataRequest() // and the connection goes on
			m.SetVersion(9)
			if _, err := cl.Write(wire.AppendRequest(nil, 8, nil, m)); err != nil {
				t.Fatal(err)
			}
			if b, err := wire.ReadFrame(cl, nil, wire.FrameBytesMax); err != nil || len(b) < 4 || binary.BigEndian.Uint32(b) != 8 {
				t.Errorf("then % x, %v", b, err)
			}
		})
	}
}
