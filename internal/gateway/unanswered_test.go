package gateway

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// A broker tells a producer that wants no answers of an error by closing the connection, and so does the gateway: it neither connects again, where the next records
// would be lost like the last, nor waits for them.
func TestProducerWithoutAnswersLosesItsConnectionWithTheBroker(t *testing.T) {
	for _, c := range []struct {
		what  string
		first bool // an answer before, and so no reset
		after bool // an answer after, for which the two readers of the connection take turns
		want  error
	}{
		{"nothing else asked", false, false, syscall.ECONNRESET},
		{"answers before", true, false, io.EOF},
		{"answers before and after", true, true, io.EOF},
	} {
		t.Run(c.what, func(t *testing.T) {
			up := startScripted(t, "127.0.0.1:0", nil)
			g, log := start(t, newService(), []string{up.addr()})
			cl := raw(t, brokerAddr(t, g, 1))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if c.first {
				ask[kmsg.Response](t, cl, 12, kmsg.NewPtrMetadataRequest())
			}
			const sent = 3
			for i := range sent {
				p := kmsg.NewPtrProduceRequest()
				p.SetVersion(9)
				p.Acks = 0
				if err := cl.SendRaw(ctx, wire.AppendRequest(nil, int32(100+i), nil, p)); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "the broker has the records", func() bool { return len(up.requests(produce)) == sent })
			for range 3 {
				if c.after {
					ask[kmsg.Response](t, cl, 12, kmsg.NewPtrMetadataRequest())
				}
			}
			up.drop()
			if frame, err := cl.ReceiveRaw(ctx); !errors.Is(err, c.want) {
				t.Errorf("received % x, %v; want %v", frame, err, c.want)
			}
			eventually(t, "a log line", func() bool {
				return strings.Contains(log.String(), "broker 1 ") && strings.Contains(log.String(), "closed the connection, "+stickyUnanswered)
			})
		})
	}
}

// One that was not told in time is told at its next request, on whatever system.
func TestConnectionWithUnansweredRecordsIsNotReplaced(t *testing.T) {
	up := startScripted(t, "127.0.0.1:0", nil)
	g, _ := start(t, newService(), []string{up.addr()})
	u, err := g.dial(t.Context(), endpoint{id: 1, host: "127.0.0.1", port: up.port}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer u.conn.Close()
	c := &conn{g: g, up: u}
	u.watched = true // by nobody
	c.unanswered(u)
	up.drop()
	eventually(t, "the end of the connection", u.gone)
	u.lastUse = time.Now().Add(-2 * recheckAfter)
	var refused *refusal
	if _, err := c.upstreamFor(wire.Header{Key: produce}); !errors.As(err, &refused) || !strings.Contains(err.Error(), stickyUnanswered) {
		t.Errorf("%v, want a refusal that says why", err)
	}
}

// A connection that is watched ends with the gateway, and answers still come through it, large ones too.
func TestWatchedConnectionAnswersAndEnds(t *testing.T) {
	up := startScripted(t, "127.0.0.1:0", func(_ wire.Header, req kmsg.Request) kmsg.Response {
		r, ok := req.ResponseKind().(*kmsg.DescribeProducersResponse)
		if !ok {
			return nil
		}
		topic := kmsg.NewDescribeProducersResponseTopic()
		topic.Topic = strings.Repeat("x", 4*spliceBytesMin)
		r.Topics = append(r.Topics, topic)
		return r
	})
	g, _ := start(t, newService(), []string{up.addr()})
	cl := raw(t, brokerAddr(t, g, 1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := kmsg.NewPtrProduceRequest()
	p.SetVersion(9)
	p.Acks = 0
	for range 20 {
		if err := cl.SendRaw(ctx, wire.AppendRequest(nil, 100, nil, p)); err != nil {
			t.Fatal(err)
		}
		if r := ask[*kmsg.DescribeProducersResponse](t, cl, 0, kmsg.NewPtrDescribeProducersRequest()); len(r.Topics) != 1 || len(r.Topics[0].Topic) != 4*spliceBytesMin {
			t.Fatalf("%d topics", len(r.Topics))
		}
	}
	if err := g.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	if _, err := cl.ReceiveRaw(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("after the close: %v", err)
	}
}
