package wire

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// serve answers each request frame on one connection with what answer returns; nil closes the connection.
func serve(t *testing.T, answer func(Header, kmsg.Request) []byte) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		for {
			frame, err := ReadFrame(r, nil, FrameBytesMax)
			if err != nil {
				return
			}
			h, err := ParseHeader(frame)
			if err != nil {
				t.Error(err)
				return
			}
			req, err := ParseRequest(h.Key, h.Version, frame[h.Size:])
			if err != nil {
				t.Error(err)
				return
			}
			b := answer(h, req)
			if b == nil {
				return
			}
			if _, err := conn.Write(b); err != nil {
				return
			}
		}
	}()
	return l.Addr().String()
}

func findCoordinator(h Header, req kmsg.Request) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	resp.Version = h.Version
	for _, key := range req.(*kmsg.FindCoordinatorRequest).CoordinatorKeys {
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.Host = key, *h.ClientID
		resp.Coordinators = append(resp.Coordinators, c)
	}
	return resp
}

func findRequest(key string) *kmsg.FindCoordinatorRequest {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKeys = 6, []string{key}
	return req
}

func TestClientExchangesAndPipelines(t *testing.T) {
	addr := serve(t, func(h Header, req kmsg.Request) []byte {
		return AppendResponse(nil, h.CorrelationID, findCoordinator(h, req))
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := Dial(ctx, addr, "tester")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	resp, err := c.Exchange(ctx, findRequest("one"))
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.(*kmsg.FindCoordinatorResponse).Coordinators; len(got) != 1 || got[0].Key != "one" || got[0].Host != "tester" {
		t.Errorf("%+v", got)
	}
	var ids []int32
	for _, key := range []string{"a", "b", "c"} {
		id, err := c.Send(ctx, findRequest(key))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	for i, key := range []string{"a", "b", "c"} {
		resp, err := c.Receive(ctx, findRequest(key), ids[i])
		if err != nil || resp.(*kmsg.FindCoordinatorResponse).Coordinators[0].Key != key {
			t.Errorf("%s: %+v, %v", key, resp, err)
		}
	}
}

func TestClientRefusesWhatIsNoAnswer(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(Header, kmsg.Request) []byte
		text   string
	}{
		{"another correlation id", func(h Header, req kmsg.Request) []byte {
			return AppendResponse(nil, h.CorrelationID+1, findCoordinator(h, req))
		}, "response has correlation id 1, want 0"},
		{"closed", func(Header, kmsg.Request) []byte { return nil }, "EOF"},
		{"cut", func(Header, kmsg.Request) []byte { return []byte{0, 0, 0, 5, 0, 0, 0, 0, 0} }, "malformed FindCoordinator response version 6"},
		{"trailing", func(h Header, req kmsg.Request) []byte {
			b := append(AppendResponse(nil, h.CorrelationID, findCoordinator(h, req)), 0)
			b[3]++
			return b
		}, "bytes are left"},
		{"HTTP", func(Header, kmsg.Request) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") }, "the peer speaks HTTP"},
		{"negative length", func(Header, kmsg.Request) []byte { return []byte{0xff, 0xff, 0xff, 0xff} }, "negative"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			client, err := Dial(ctx, serve(t, c.answer), "")
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, err := client.Exchange(ctx, findRequest("g")); err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %v, want one with %q", err, c.text)
			}
		})
	}
}

func TestClientStopsWithItsContext(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := NewClient(ours, "x")
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		ReadFrame(theirs, nil, FrameBytesMax)
		cancel()
	}()
	if _, err := c.Exchange(ctx, findRequest("g")); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := c.ReceiveRaw(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want %v", err, context.DeadlineExceeded)
	}
}
