package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

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
	g, _ := start(t, svc, []string{up.addr()}, func(c *Config) { c.Limits.DrainTimeout = time.Minute })
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
	case <-time.After(time.Minute):
		t.Fatal("Close hangs")
	}
}

// What does not even end when it is cut, because it waits for a disk that hangs, does not hold a stop.
func TestCloseDoesNotWaitForADisk(t *testing.T) {
	up := startScripted(t, "127.0.0.1:0", nil)
	svc := newService()
	disk, entered := make(chan struct{}), make(chan struct{})
	svc.heartbeat = func(_ context.Context, r *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
		close(entered)
		<-disk
		return r.ResponseKind().(*kmsg.StreamsGroupHeartbeatResponse)
	}
	g, _ := start(t, svc, []string{up.addr()}, func(c *Config) { c.Limits.DrainTimeout = 50 * time.Millisecond })
	cl := raw(t, brokerAddr(t, g, 1))
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.SetVersion(1)
	if _, err := cl.Send(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	<-entered
	begun := time.Now()
	for range 2 {
		if err := g.Close(context.Background()); err == nil || err.Error() != "1 connections were closed with answers due, and do not end" {
			t.Errorf("Close: %v", err)
		}
	}
	if took := time.Since(begun); took > 20*closeMax { // two of them, and a slow machine
		t.Errorf("Close took %v", took)
	}
	close(disk)
	g.wg.Wait() // it ends with the disk's answer
}
