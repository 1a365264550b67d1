package gateway

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// blameBytes is more than the sockets on the way hold.
const blameBytes = 48 << 20

// A broker that breaks off or hangs while a request is passed to it is the cluster's fault, and the client is told to try again; a client that does so while an
// answer is passed to it is no broker's fault. With large frames the kernel copies, and does not say which side failed.
func TestWhoseFaultItIs(t *testing.T) {
	produceFrame := func() []byte {
		p := kmsg.NewPtrProduceRequest()
		p.SetVersion(9)
		p.Acks = -1
		topic, part := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
		topic.Topic, part.Records = "in", make([]byte, blameBytes)
		topic.Partitions = append(topic.Partitions, part)
		p.Topics = append(p.Topics, topic)
		return wire.AppendRequest(nil, 7, nil, p)
	}
	plainFrame := func() []byte { // of a request that is passed on unread
		b := make([]byte, 4+blameBytes)
		binary.BigEndian.PutUint32(b, blameBytes)
		copy(b[4:], frameOf(int16(kmsg.NewPtrDescribeProducersRequest().Key()), int16(0), int32(7), int16(-1), 0))
		return b
	}
	const toBroker, fromBroker, stalled = "send to broker 1 (", "response from broker 1 (", "the peer stopped in the middle of a frame"
	for _, c := range []struct {
		what   string
		frame  func() []byte
		broker string // what it does: "resets", "hangs", "reads", "answers"
		client string
		want   string // in the log; none of the others may be
	}{
		{"a request, the broker resets", plainFrame, "resets", "sends", toBroker},
		{"a Produce, the broker resets", produceFrame, "resets", "sends", toBroker},
		{"a request, the broker hangs", plainFrame, "hangs", "sends", toBroker},
		{"a Produce, the broker hangs", produceFrame, "hangs", "sends", toBroker},
		{"a request, the client stops", plainFrame, "reads", "stops", stalled},
		{"a Produce, the client stops", produceFrame, "reads", "stops", stalled},
		{"an answer, the client hangs", nil, "answers", "hangs", stalled},
		{"an answer, the client resets", nil, "answers", "resets", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			hold := make(chan struct{})
			up := startScripted(t, "127.0.0.1:0", nil)
			t.Cleanup(func() { close(hold) }) // before the broker is stopped
			g, log := start(t, newService(), []string{up.addr()}, func(c *Config) { c.Limits.StallTimeout = time.Second })
			up.change(func(s *scripted) {
				s.answer = func(h wire.Header, _ kmsg.Request) kmsg.Response {
					switch {
					case h.Key == fetch && c.broker == "hangs":
						<-hold
					case h.Key == fetch:
						up.mu.Lock()
						last := up.conns[len(up.conns)-1]
						up.mu.Unlock()
						b := make([]byte, 8+blameBytes)
						binary.BigEndian.PutUint32(b, 4+blameBytes)
						binary.BigEndian.PutUint32(b[4:], uint32(h.CorrelationID))
						last.Write(b) // fails when the gateway has had enough
					}
					return nil
				}
			})
			cl, err := net.Dial("tcp", brokerAddr(t, g, 1))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			send := func(frame []byte) {
				t.Helper()
				cl.SetWriteDeadline(time.Now().Add(time.Minute))
				if _, err := cl.Write(frame); isTimeout(err) {
					t.Fatalf("send: %v", err)
				}
			}
			f := kmsg.NewPtrFetchRequest()
			f.SetVersion(11)
			switch c.broker {
			case "hangs", "answers":
				send(wire.AppendRequest(nil, 6, nil, f))
				eventually(t, "the broker has the Fetch", func() bool { return len(up.requests(fetch)) > 0 })
			default:
				m := kmsg.NewPtrMetadataRequest()
				m.SetVersion(9)
				send(wire.AppendRequest(nil, 6, nil, m))
				if _, err := wire.ReadFrame(cl, nil, wire.FrameBytesMax); err != nil {
					t.Fatal(err)
				}
			}
			if c.broker == "resets" {
				up.change(func(s *scripted) {
					for _, conn := range s.conns {
						reset(conn)
					}
				})
				up.drop()
			}
			switch frame := c.frame; {
			case frame == nil && c.client == "resets":
				cl.SetReadDeadline(time.Now().Add(time.Minute))
				if _, err := cl.Read(make([]byte, 1<<10)); err != nil {
					t.Fatal(err)
				}
				reset(cl)
				cl.Close()
			case frame == nil: // and does not read
			case c.client == "stops":
				send(frame()[:wideBytes]) // what a slow broker has read soon
			default:
				send(frame())
			}
			eventually(t, "the end of the connection", func() bool { return g.connections() == 0 })
			for _, text := range []string{toBroker, fromBroker, stalled} {
				if got := strings.Contains(log.String(), text); got != (text == c.want) {
					t.Errorf("log says %q: %v, want %v", text, got, text == c.want)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = g.Close(ctx)
		})
	}
}
