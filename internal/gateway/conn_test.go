package gateway

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
