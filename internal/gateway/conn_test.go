package gateway

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	apitrace "go.opentelemetry.io/otel/trace"

	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/wire"
)

// slowly makes heartbeats take a moment, so that answers that overtook them would be seen.
func slowly(d time.Duration) func(context.Context, *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
	return func(_ context.Context, r *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
		time.Sleep(d) // stands for the append that a heartbeat waits for
		resp := r.ResponseKind().(*kmsg.StreamsGroupHeartbeatResponse)
		resp.MemberEpoch = r.MemberEpoch + 1
		return resp
	}
}

// Whatever mix of local, forwarded, split and refused requests a client sends without waiting, the answers come in
// the order of the requests.
func TestPipelinedAnswersKeepTheirOrder(t *testing.T) {
	up := startScripted(t, "127.0.0.1:0", nil)
	answers := clusterAnswers(up)
	script := func(h wire.Header, req kmsg.Request) kmsg.Response {
		if r, ok := req.ResponseKind().(*kmsg.FetchResponse); ok {
			r.SessionID = req.(*kmsg.FetchRequest).SessionID
			r.Topics = []kmsg.FetchResponseTopic{{Partitions: []kmsg.FetchResponseTopicPartition{{RecordBatches: make([]byte, rand.IntN(200_000))}}}}
			return r
		}
		if r, ok := req.ResponseKind().(*kmsg.ProduceResponse); ok {
			if req.(*kmsg.ProduceRequest).Acks == 0 {
				return nil
			}
			return r
		}
		return answers(h, req)
	}
	up.change(func(s *scripted) { s.answer = script })
	svc := newService().set("ours", coordinator.Ours)
	svc.heartbeat = slowly(time.Millisecond)
	g, _ := start(t, svc, []string{up.addr()})
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 5))
		conn, err := net.Dial("tcp", brokerAddr(t, g, 1))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		type sent struct {
			id  int32
			req kmsg.Request
		}
		queue := make(chan sent, 1000)
		failed := make(chan error, 1)
		go func() {
			defer close(queue)
			for id := range int32(400) {
				var req kmsg.Request
				acks0 := false
				switch r.IntN(6) {
				case 0:
					hb := kmsg.NewPtrStreamsGroupHeartbeatRequest()
					hb.Group, hb.MemberEpoch = "ours", r.Int32N(1000)
					hb.SetVersion(1)
					req = hb
				case 1:
					f := kmsg.NewPtrFetchRequest()
					f.SetVersion(int16(11 + r.IntN(8)))
					f.SessionID = r.Int32N(1000)
					req = f
				case 2:
					f := kmsg.NewPtrOffsetFetchRequest()
					f.SetVersion(9)
					for _, name := range []string{"ours", "x"}[r.IntN(2):] {
						g := kmsg.NewOffsetFetchRequestGroup()
						g.Group = name
						f.Groups = append(f.Groups, g)
					}
					req = f
				case 3:
					m := kmsg.NewPtrMetadataRequest()
					m.SetVersion(12)
					req = m
				case 4:
					p := produceRequest(int16(3+r.IntN(11)), "in")
					p.Acks = 0
					req, acks0 = p, true
				case 5:
					req = produceRequest(int16(3+r.IntN(11)), "in", "out")
				}
				if _, err := conn.Write(wire.AppendRequest(nil, id, kmsg.StringPtr("c"), req)); err != nil {
					failed <- err
					return
				}
				if !acks0 {
					queue <- sent{id, req}
				}
			}
			failed <- nil
		}()
		for s := range queue {
			name := kmsg.NameForKey(s.req.Key())
			frame, err := readAnswer(conn)
			if err != nil {
				t.Fatalf("seed %d: %s: %v", seed, name, err)
			}
			id, body, err := wire.ParseResponseHeader(s.req.Key(), s.req.GetVersion(), frame)
			if err != nil || id != s.id {
				t.Fatalf("seed %d: %s: answer %d, want %d: %v", seed, name, id, s.id, err)
			}
			resp, err := wire.ParseResponse(s.req.Key(), s.req.GetVersion(), body)
			if err != nil {
				t.Fatalf("seed %d: %s: %v", seed, name, err)
			}
			switch req := s.req.(type) {
			case *kmsg.StreamsGroupHeartbeatRequest:
				if got := resp.(*kmsg.StreamsGroupHeartbeatResponse).MemberEpoch; got != req.MemberEpoch+1 {
					t.Fatalf("seed %d: an answer to another heartbeat", seed)
				}
			case *kmsg.FetchRequest:
				if got := resp.(*kmsg.FetchResponse).SessionID; got != req.SessionID {
					t.Fatalf("seed %d: an answer to another fetch", seed)
				}
			}
		}
		if err := <-failed; err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// readAnswer reads a frame without its length.
func readAnswer(r io.Reader) ([]byte, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(prefix[:]))
	_, err := io.ReadFull(r, frame)
	return frame, err
}

// An answer that is there must not wait in a buffer for the next one.
func TestAnswersLeaveBeforeTheNextIsWaitedFor(t *testing.T) {
	release := make(chan struct{})
	up := startScripted(t, "127.0.0.1:0", func(_ wire.Header, req kmsg.Request) kmsg.Response {
		if r, ok := req.ResponseKind().(*kmsg.FetchResponse); ok {
			if req.(*kmsg.FetchRequest).SessionID == 2 {
				<-release
			}
			return r
		}
		return nil
	})
	svc := newService()
	block := make(chan struct{})
	svc.heartbeat = func(_ context.Context, r *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
		<-block
		return r.ResponseKind().(*kmsg.StreamsGroupHeartbeatResponse)
	}
	g, _ := start(t, svc, []string{up.addr()})
	cl := raw(t, brokerAddr(t, g, 1))
	fetchOf := func(session int32) *kmsg.FetchRequest {
		f := kmsg.NewPtrFetchRequest()
		f.SetVersion(18)
		f.SessionID = session
		return f
	}
	hb := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	hb.SetVersion(1)
	var ids []int32
	for _, req := range []kmsg.Request{fetchOf(1), fetchOf(2), fetchOf(1), hb} {
		id, err := cl.Send(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := cl.Receive(ctx, fetchOf(1), ids[0]); err != nil { // while the second fetch is held back
		t.Fatal(err)
	}
	close(release)
	for i := range 2 { // while the heartbeat is held back
		if _, err := cl.Receive(ctx, fetchOf(1), ids[1+i]); err != nil {
			t.Fatal(err)
		}
	}
	close(block)
	if _, err := cl.Receive(ctx, hb, ids[3]); err != nil {
		t.Fatal(err)
	}
}

// Large bodies go from socket to socket in both directions and arrive as they were sent.
func TestLargeBodiesArriveUnchanged(t *testing.T) {
	body := make([]byte, 3<<20)
	for i := range body {
		body[i] = byte(i * 7 >> 3)
	}
	var got atomic.Pointer[[]byte]
	up := startScripted(t, "127.0.0.1:0", func(_ wire.Header, req kmsg.Request) kmsg.Response {
		switch r := req.ResponseKind().(type) {
		case *kmsg.FetchResponse:
			r.Topics = []kmsg.FetchResponseTopic{{Partitions: []kmsg.FetchResponseTopicPartition{{Partition: 1, RecordBatches: body}, {Partition: 2, RecordBatches: body[:100_000]}}}}
			r.Brokers = []kmsg.FetchResponseBroker{{NodeID: 1, Host: "secret.example", Port: 9}}
			return r
		case *kmsg.ProduceResponse:
			b := bytes.Clone(req.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records)
			got.Store(&b)
			return r
		}
		return nil
	})
	g, _ := start(t, newService(), []string{up.addr()})
	cl := raw(t, brokerAddr(t, g, 1))
	for _, version := range []int16{4, 11, 12, 15, 16, 18} {
		r := ask[*kmsg.FetchResponse](t, cl, version, kmsg.NewPtrFetchRequest())
		ps := r.Topics[0].Partitions
		if !bytes.Equal(ps[0].RecordBatches, body) || !bytes.Equal(ps[1].RecordBatches, body[:100_000]) || len(r.Brokers) != 0 {
			t.Fatalf("Fetch v%d: the records changed, or addresses came through: %v", version, r.Brokers)
		}
	}
	for _, version := range []int16{3, 8, 9, 12, 13} {
		req := produceRequest(version, "in")
		req.Topics[0].Partitions[0].Records = body
		ask[*kmsg.ProduceResponse](t, cl, version, req)
		if !bytes.Equal(*got.Load(), body) {
			t.Fatalf("Produce v%d: the records changed", version)
		}
	}
}

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
			conn.SetReadDeadline(time.Now().Add(10 * time.Second))
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
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := cl.ReceiveRaw(ctx); !errors.Is(err, io.EOF) {
			t.Fatalf("%v, want the connection closed", err)
		}
	})
	t.Run("waiting is not idle", func(t *testing.T) {
		svc := newService()
		svc.heartbeat = slowly(300 * time.Millisecond)
		g, _ := start(t, svc, k.ListenAddrs(), func(c *Config) { c.Limits.IdleTimeout = 50 * time.Millisecond })
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

// A client that does not read is held up, and given up in the end: what the gateway keeps for it is bounded.
func TestClientThatDoesNotReadIsGivenUp(t *testing.T) {
	up := startScripted(t, "127.0.0.1:0", func(_ wire.Header, req kmsg.Request) kmsg.Response {
		if r, ok := req.ResponseKind().(*kmsg.FetchResponse); ok {
			r.Topics = []kmsg.FetchResponseTopic{{Partitions: []kmsg.FetchResponseTopicPartition{{RecordBatches: make([]byte, 1<<20)}}}}
			return r
		}
		return nil
	})
	g, log := start(t, newService(), []string{up.addr()}, func(c *Config) { c.Limits.StallTimeout = 200 * time.Millisecond })
	cl := raw(t, brokerAddr(t, g, 1))
	f := kmsg.NewPtrFetchRequest()
	f.SetVersion(18)
	for range 64 {
		if _, err := cl.Send(t.Context(), f); err != nil {
			break
		}
	}
	eventually(t, "the connection given up", func() bool { return g.connections() == 0 })
	eventually(t, "a log line", func() bool { return strings.Contains(log.String(), "stopped in the middle of a frame") })
}

// The answers that are due when the gateway closes are given; then the connections end.
func TestCloseAnswersWhatWasAccepted(t *testing.T) {
	release := make(chan struct{})
	entered := make(chan struct{}, 2)
	up := startScripted(t, "127.0.0.1:0", func(_ wire.Header, req kmsg.Request) kmsg.Response {
		if r, ok := req.ResponseKind().(*kmsg.FetchResponse); ok {
			entered <- struct{}{}
			<-release
			return r
		}
		return nil
	})
	svc := newService()
	svc.heartbeat = func(_ context.Context, r *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
		entered <- struct{}{}
		<-release
		return r.ResponseKind().(*kmsg.StreamsGroupHeartbeatResponse)
	}
	g, _ := start(t, svc, []string{up.addr()}, func(c *Config) { c.Limits.DrainTimeout = 10 * time.Second })
	cl := raw(t, brokerAddr(t, g, 1))
	idle := raw(t, g.Addr().String())
	ask[kmsg.Response](t, idle, 12, kmsg.NewPtrMetadataRequest())
	f, hb := kmsg.NewPtrFetchRequest(), kmsg.NewPtrStreamsGroupHeartbeatRequest()
	f.SetVersion(18)
	hb.SetVersion(1)
	id1, err := cl.Send(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	id2, err := cl.Send(t.Context(), hb)
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	<-entered
	closed := make(chan error, 1)
	go func() { closed <- g.Close(context.Background()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := idle.ReceiveRaw(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("idle connection: %v", err)
	}
	close(release)
	if _, err := cl.Receive(ctx, f, id1); err != nil {
		t.Errorf("fetch: %v", err)
	}
	if _, err := cl.Receive(ctx, hb, id2); err != nil {
		t.Errorf("heartbeat: %v", err)
	}
	if _, err := cl.ReceiveRaw(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("afterwards: %v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := net.Dial("tcp", g.Addr().String()); err == nil {
		t.Error("the gateway still listens")
	}
}

// What takes longer than the drain time-out is cut off.
func TestCloseDoesNotWaitForEver(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	entered := make(chan struct{})
	up := startScripted(t, "127.0.0.1:0", func(_ wire.Header, req kmsg.Request) kmsg.Response {
		if _, ok := req.(*kmsg.FetchRequest); ok {
			close(entered)
			<-hold
		}
		return nil
	})
	svc := newService()
	svc.heartbeat = func(ctx context.Context, r *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
		<-ctx.Done()
		return r.ResponseKind().(*kmsg.StreamsGroupHeartbeatResponse)
	}
	g, _ := start(t, svc, []string{up.addr()}, func(c *Config) { c.Limits.DrainTimeout = 50 * time.Millisecond })
	cl := raw(t, brokerAddr(t, g, 1))
	for _, req := range []kmsg.Request{kmsg.NewPtrStreamsGroupHeartbeatRequest(), kmsg.NewPtrFetchRequest()} {
		req.SetVersion(1)
		if _, err := cl.Send(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	<-entered
	done := make(chan error, 1)
	go func() { done <- g.Close(context.Background()) }()
	select {
	case err := <-done:
		if err == nil || err.Error() != "1 connections were closed with answers due" {
			t.Errorf("Close: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Close hangs")
	}
}

func TestUpstreamDownAtStartAndLater(t *testing.T) {
	up := startScripted(t, "127.0.0.1:0", nil)
	addr := up.addr()
	up.stop()
	svc := newService()
	g, log := start(t, svc, []string{addr}, func(c *Config) { c.Limits.StartWait = 50 * time.Millisecond })
	if !strings.Contains(log.String(), "can't be reached; serving all the same") {
		t.Errorf("log: %v", log)
	}
	refusedNow := func() {
		t.Helper()
		cl := raw(t, g.Addr().String())
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		req := kmsg.NewPtrApiVersionsRequest()
		if _, err := cl.Exchange(ctx, req); err == nil || ctx.Err() != nil {
			t.Fatalf("ApiVersions while the cluster is down: %v", err)
		}
	}
	refusedNow()
	eventually(t, "a log line", func() bool { return strings.Contains(log.String(), "no upstream for a client") })
	before := strings.Count(log.String(), "no upstream for a client")
	for range 20 {
		refusedNow()
	}
	if after := strings.Count(log.String(), "no upstream for a client"); after != before {
		t.Errorf("%d lines about the same in a moment", after)
	}
	// What is ours needs no cluster.
	own := raw(t, g.Addr().String())
	ask[kmsg.Response](t, own, 1, kmsg.NewPtrStreamsGroupHeartbeatRequest())

	up = startScripted(t, addr, nil)
	eventually(t, "the broker's listener", func() bool { _, ok := g.BrokerAddr(1); return ok })
	ask[kmsg.Response](t, own, 12, kmsg.NewPtrMetadataRequest()) // the same connection
	ask[kmsg.Response](t, raw(t, brokerAddr(t, g, 1)), 12, kmsg.NewPtrMetadataRequest())

	// A broker that went away: a client is told of its APIs as they were, and then that it is gone. One that is told nothing takes
	// the port for one that speaks TLS, and fails what it had to send.
	up.stop()
	cl := raw(t, brokerAddr(t, g, 1))
	if _, err := cl.Exchange(t.Context(), kmsg.NewPtrApiVersionsRequest()); err != nil {
		t.Fatalf("ApiVersions while a broker is away that was here before: %v", err)
	}
	if _, err := cl.Exchange(t.Context(), kmsg.NewPtrMetadataRequest()); err == nil {
		t.Fatal("answered without a broker")
	}
	up = startScripted(t, addr, nil)
	ask[kmsg.Response](t, raw(t, brokerAddr(t, g, 1)), 12, kmsg.NewPtrMetadataRequest())
}

// A broker closes what is idle, and a connection that only talks to us is idle for it. The client must not notice.
func TestClosedUpstreamIsReplacedUnnoticed(t *testing.T) {
	up := startScripted(t, "127.0.0.1:0", func(_ wire.Header, req kmsg.Request) kmsg.Response {
		if r, ok := req.ResponseKind().(*kmsg.ShareFetchResponse); ok {
			return r
		}
		return nil
	})
	g, _ := start(t, newService(), []string{up.addr()})
	age := func() { // so that the twin is checked as after a while
		eventually(t, "a connection that waits", func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			for c := range g.conns {
				if !c.between.Load() || c.waiting.Load() > 0 {
					return false
				}
			}
			return len(g.conns) > 0
		})
	}
	for _, addr := range []string{g.Addr().String(), brokerAddr(t, g, 1)} {
		cl := raw(t, addr)
		ask[kmsg.Response](t, cl, 12, kmsg.NewPtrMetadataRequest())
		age()
		time.Sleep(recheckAfter + 50*time.Millisecond) // the twin is not checked earlier
		up.drop()
		ask[kmsg.Response](t, cl, 1, kmsg.NewPtrStreamsGroupHeartbeatRequest())
		ask[kmsg.Response](t, cl, 12, kmsg.NewPtrMetadataRequest())
		cl.Close()
	}
	// A share session is lost with the connection: the client must be told.
	cl := raw(t, brokerAddr(t, g, 1))
	ask[kmsg.Response](t, cl, 1, kmsg.NewPtrShareFetchRequest())
	time.Sleep(recheckAfter + 50*time.Millisecond) // see above
	up.drop()
	m := kmsg.NewPtrMetadataRequest()
	m.SetVersion(12)
	if _, err := cl.Exchange(t.Context(), m); err == nil {
		t.Fatal("the lost share session was hidden")
	}
}

// A broker that dies while a client waits for it, or that answers nonsense, ends that client's connection alone.
func TestUpstreamThatFailsEndsItsConnectionAlone(t *testing.T) {
	for name, answer := range map[string]func(id int32) []byte{
		"closed":                func(int32) []byte { return nil },
		"another correlation":   func(id int32) []byte { return framed(frameOf(id+1, 0, int32(0))) },
		"a negative length":     func(int32) []byte { return frameOf(int32(-1), int32(0)) },
		"a truncated response":  func(id int32) []byte { return frameOf(int32(100), id, 0, int32(0)) },
		"an undecodable answer": func(id int32) []byte { return framed(frameOf(id, 0, int32(0), int16(0), int32(0), 200)) },
	} {
		t.Run(name, func(t *testing.T) {
			up := startScripted(t, "127.0.0.1:0", nil)
			g, log := start(t, newService(), []string{up.addr()})
			script := func(h wire.Header, _ kmsg.Request) kmsg.Response {
				if h.Key == fetch {
					up.mu.Lock()
					defer up.mu.Unlock()
					last := up.conns[len(up.conns)-1]
					last.Write(answer(h.CorrelationID))
					last.Close()
				}
				return nil
			}
			up.change(func(s *scripted) { s.answer = script })
			other := raw(t, g.Addr().String())
			ask[kmsg.Response](t, other, 12, kmsg.NewPtrMetadataRequest())
			cl := raw(t, brokerAddr(t, g, 1))
			f := kmsg.NewPtrFetchRequest()
			f.SetVersion(18)
			if _, err := cl.Exchange(t.Context(), f); err == nil {
				t.Fatal("answered")
			}
			ask[kmsg.Response](t, other, 12, kmsg.NewPtrMetadataRequest())
			eventually(t, "a log line", func() bool { return strings.Contains(log.String(), "Fetch response from broker 1") })
		})
	}
}

func TestLocalRequestsHaveASpan(t *testing.T) {
	k := cluster(t)
	rec := tracetest.NewSpanRecorder()
	tp := trace.NewTracerProvider(trace.WithSpanProcessor(rec))
	svc := newService()
	var inner apitrace.SpanContext
	svc.heartbeat = func(ctx context.Context, r *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
		inner = apitrace.SpanContextFromContext(ctx)
		resp := r.ResponseKind().(*kmsg.StreamsGroupHeartbeatResponse)
		resp.ErrorCode = 110
		return resp
	}
	g, _ := start(t, svc, k.ListenAddrs(), func(c *Config) { c.Tracer = tp.Tracer("test") })
	cl := raw(t, g.Addr().String())
	hb := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	hb.Group = "orders"
	ask[kmsg.Response](t, cl, 1, hb)
	ask[kmsg.Response](t, cl, 12, kmsg.NewPtrMetadataRequest()) // no span: forwarded
	eventually(t, "a span", func() bool { return len(rec.Ended()) == 1 })
	span := rec.Ended()[0]
	got := map[string]string{}
	for _, a := range span.Attributes() {
		got[string(a.Key)] = a.Value.Emit()
	}
	want := map[string]string{"kafka.api.version": "1", "kafka.correlation_id": "0", "kafka.client_id": "raw", "kafka.client_host": "/127.0.0.1",
		"kafka.node": fmt.Sprint(testNode), "kafka.group": "orders", "kafka.error_code": "110"}
	if span.Name() != "StreamsGroupHeartbeat" || fmt.Sprint(got) != fmt.Sprint(want) || span.Status().Description != "FENCED_MEMBER_EPOCH" {
		t.Errorf("span %q %v %v", span.Name(), got, span.Status())
	}
	if inner.SpanID() != span.SpanContext().SpanID() {
		t.Error("the coordinator runs in another span")
	}
}
