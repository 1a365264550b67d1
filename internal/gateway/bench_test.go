package gateway

import (
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// canned is a broker that answers everything but the handshake with the same bytes (behind the correlation id), so
// that what is measured is the way and not the broker.
func canned(b *testing.B, body []byte) string {
	b.Helper()
	up := startScripted(b, "127.0.0.1:0", nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	up.port = int32(ln.Addr().(*net.TCPAddr).Port)
	frame := make([]byte, 8, 8+len(body))
	binary.BigEndian.PutUint32(frame, uint32(4+len(body)))
	frame = append(frame, body...)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				mine := append([]byte(nil), frame...)
				var buf []byte
				for {
					if buf, err = wire.ReadFrame(c, buf, wire.FrameBytesMax); err != nil {
						return
					}
					out := mine
					if key := int16(binary.BigEndian.Uint16(buf)); key == apiVersions || key == metadata {
						h, _ := wire.ParseHeader(buf)
						req, _ := wire.ParseRequest(h.Key, h.Version, buf[h.Size:])
						resp := up.apiVersions(h.Version, 0)
						if key == metadata {
							resp = up.metadata(req)
						}
						out = wire.AppendResponse(nil, h.CorrelationID, resp)
					} else {
						copy(out[4:8], buf[4:8])
					}
					if _, err := c.Write(out); err != nil {
						return
					}
				}
			}()
		}
	}()
	return ln.Addr().String()
}

// roundTrips sends the request over and over on one connection and reads the answers.
func roundTrips(b *testing.B, addr string, req kmsg.Request) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	frame := wire.AppendRequest(nil, 1, kmsg.StringPtr("bench"), req)
	buf := make([]byte, 64<<10)
	read := func() {
		if _, err := io.ReadFull(conn, buf[:4]); err != nil {
			b.Fatal(err)
		}
		for left := int(binary.BigEndian.Uint32(buf)); left > 0; {
			n, err := conn.Read(buf[:min(left, len(buf))])
			if err != nil {
				b.Fatal(err)
			}
			left -= n
		}
	}
	conn.Write(frame)
	read()
	for b.Loop() {
		if _, err := conn.Write(frame); err != nil {
			b.Fatal(err)
		}
		read()
	}
}

// BenchmarkRoundTrip is an answer of 72 bytes on one connection: passed unread, walked, decoded, answered here.
func BenchmarkRoundTrip(b *testing.B) {
	small := kmsg.NewPtrFetchResponse()
	small.SetVersion(18)
	small.Topics = []kmsg.FetchResponseTopic{{Partitions: []kmsg.FetchResponseTopicPartition{{}}}}
	body := append([]byte{0}, small.AppendTo(nil)...)
	addr := canned(b, body)
	g, _ := start(b, newService(), []string{addr})
	fetchReq := kmsg.NewPtrFetchRequest()
	fetchReq.SetVersion(18)
	list := kmsg.NewPtrListOffsetsRequest()
	list.SetVersion(11)
	hb := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	hb.SetVersion(1)
	hb.Group, hb.MemberID = "group", "member"
	b.Run("direct", func(b *testing.B) { roundTrips(b, addr, fetchReq) })
	b.Run("passed", func(b *testing.B) { roundTrips(b, brokerAddr(b, g, 1), list) })
	b.Run("walked", func(b *testing.B) { roundTrips(b, brokerAddr(b, g, 1), fetchReq) })
	b.Run("local", func(b *testing.B) { roundTrips(b, brokerAddr(b, g, 1), hb) })
}

// BenchmarkFetch1MB is the throughput of answers of a megabyte on one connection.
func BenchmarkFetch1MB(b *testing.B) {
	large := kmsg.NewPtrFetchResponse()
	large.SetVersion(18)
	large.Topics = []kmsg.FetchResponseTopic{{Partitions: []kmsg.FetchResponseTopicPartition{{RecordBatches: make([]byte, 1<<20)}}}}
	body := append([]byte{0}, large.AppendTo(nil)...)
	addr := canned(b, body)
	g, _ := start(b, newService(), []string{addr})
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(18)
	for name, to := range map[string]string{"direct": addr, "through": brokerAddr(b, g, 1)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			roundTrips(b, to, req)
		})
	}
}

// BenchmarkFetchManyPartitions is a megabyte in 64 partitions, too small each to be spliced alone.
func BenchmarkFetchManyPartitions(b *testing.B) {
	resp := kmsg.NewPtrFetchResponse()
	resp.SetVersion(18)
	topic := kmsg.FetchResponseTopic{}
	for range 64 {
		topic.Partitions = append(topic.Partitions, kmsg.FetchResponseTopicPartition{RecordBatches: make([]byte, 16<<10)})
	}
	resp.Topics = append(resp.Topics, topic)
	body := append([]byte{0}, resp.AppendTo(nil)...)
	addr := canned(b, body)
	g, _ := start(b, newService(), []string{addr})
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(18)
	for name, to := range map[string]string{"direct": addr, "through": brokerAddr(b, g, 1)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			roundTrips(b, to, req)
		})
	}
}
