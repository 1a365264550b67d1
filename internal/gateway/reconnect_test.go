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
	begun := time.Now()
	refusedNow()
	eventually(t, "a log line", func() bool { return strings.Contains(log.String(), "no upstream for a client") })
	before := strings.Count(log.String(), "no upstream for a client")
	for range 20 {
		refusedNow()
	}
	if after := strings.Count(log.String(), "no upstream for a client"); after > before+int(time.Since(begun)/logInterval) {
		t.Errorf("%d lines about the same in %v", after, time.Since(begun))
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
	if _, err := cl.Exchange(t.Context(), kmsg.NewPtrMetadataRequest()); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("without a broker: %v", err)
	}
	up = startScripted(t, addr, nil)
	ask[kmsg.Response](t, raw(t, brokerAddr(t, g, 1)), 12, kmsg.NewPtrMetadataRequest())
}

// How a connection ends that has asked something: before its first answer some clients take a closed one for a port that wants TLS, and try no more.
func TestConnectionsEndSoThatClientsTryAgain(t *testing.T) {
	closed := func(g *Gateway, _ *scripted) {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = g.Close(ctx) // which says that the request was cut off
	}
	for _, c := range []struct {
		what  string
		first bool // an answer before
		fail  func(g *Gateway, up *scripted)
		want  error
	}{
		{"the broker is away", false, func(_ *Gateway, up *scripted) { up.stop() }, syscall.ECONNRESET},
		{"the broker went away", true, func(_ *Gateway, up *scripted) { up.stop() }, io.EOF},
		{"closing", false, closed, syscall.ECONNRESET},
		{"closing after an answer", true, closed, io.EOF},
	} {
		t.Run(c.what, func(t *testing.T) {
			up := startScripted(t, "127.0.0.1:0", nil) // no Fetch is answered
			g, _ := start(t, newService(), []string{up.addr()})
			cl := raw(t, brokerAddr(t, g, 1))
			if _, err := cl.Exchange(t.Context(), kmsg.NewPtrApiVersionsRequest()); err != nil {
				t.Fatal(err)
			}
			if c.first {
				ask[kmsg.Response](t, cl, 12, kmsg.NewPtrMetadataRequest())
			}
			failed := make(chan error, 1)
			go func() {
				req := kmsg.NewPtrFetchRequest()
				req.SetVersion(12)
				_, err := cl.Exchange(t.Context(), req)
				failed <- err
			}()
			eventually(t, "a request that waits", func() bool {
				g.mu.Lock()
				defer g.mu.Unlock()
				for c := range g.conns {
					if c.upstream.Load() > 0 {
						return true
					}
				}
				return false
			})
			c.fail(g, up)
			if err := <-failed; !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
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
