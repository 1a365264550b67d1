package gateway

import (
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
	"streamkeeper/shard"
)

func TestConnectionEndsAfterTheAnswerThatSendsTheClientAway(t *testing.T) {
	svc := newService()
	code := int16(0)
	svc.heartbeat = func(_ context.Context, r *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
		resp := r.ResponseKind().(*kmsg.StreamsGroupHeartbeatResponse)
		resp.ErrorCode = code
		return resp
	}
	c := cluster(t)
	g, _ := start(t, svc, c.ListenAddrs())
	cl := raw(t, brokerAddr(t, g, 0))
	for _, code = range []int16{0, coordinatorLoading.Code, notCoordinator.Code} {
		hb := kmsg.NewPtrStreamsGroupHeartbeatRequest()
		hb.Group, hb.MemberID = "g", "m"
		if resp := ask[*kmsg.StreamsGroupHeartbeatResponse](t, cl, 1, hb); resp.ErrorCode != code {
			t.Fatalf("code %d, want %d", resp.ErrorCode, code)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := cl.ReceiveRaw(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("after NOT_COORDINATOR: %v, want the end of the connection", err)
	}
}

// A lookup at a replica that may not read the log has no answer: the client asks another node.
func TestALookupAtABlindReplicaEndsTheConnection(t *testing.T) {
	svc := newService()
	svc.blind = shard.ErrBlind
	c := cluster(t)
	g, _ := start(t, svc, c.ListenAddrs())
	cl := raw(t, brokerAddr(t, g, 0))
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKeys = 4, []string{"g"}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if resp, err := cl.Exchange(ctx, req); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("answered %+v, %v, want the end of the connection", resp, err)
	}
}

// What was asked before such a lookup, without waiting, is answered before the connection ends: here and by the cluster.
func TestALookupThatIsSentAwayLeavesTheAnswersBeforeIt(t *testing.T) {
	release := make(chan struct{})
	up := startScripted(t, "127.0.0.1:0", nil)
	answers := clusterAnswers(up)
	up.change(func(s *scripted) {
		s.answer = func(h wire.Header, req kmsg.Request) kmsg.Response {
			if r, ok := req.ResponseKind().(*kmsg.FetchResponse); ok {
				<-release
				return r
			}
			return answers(h, req)
		}
	})
	svc := newService()
	svc.heartbeat = func(_ context.Context, r *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
		<-release
		return r.ResponseKind().(*kmsg.StreamsGroupHeartbeatResponse)
	}
	svc.blind = shard.ErrBlind
	g, _ := start(t, svc, []string{up.addr()})
	cl := raw(t, brokerAddr(t, g, 1))
	hb := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	hb.SetVersion(1)
	hb.Group, hb.MemberID = "g", "m"
	fetch := kmsg.NewPtrFetchRequest()
	fetch.SetVersion(13)
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.SetVersion(4)
	find.CoordinatorKeys = []string{"g"}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, req := range []kmsg.Request{hb, fetch, find} {
		if _, err := cl.Send(ctx, req); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the lookup", func() bool { svc.mu.Lock(); defer svc.mu.Unlock(); return len(svc.caughtUp) > 0 })
	close(release)
	for _, name := range []string{"heartbeat", "fetch"} {
		if _, err := cl.ReceiveRaw(ctx); err != nil {
			t.Fatalf("the answer to the %s that was asked before: %v", name, err)
		}
	}
	if _, err := cl.ReceiveRaw(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("after them: %v, want the end of the connection", err)
	}
}
