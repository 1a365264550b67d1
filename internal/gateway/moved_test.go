package gateway

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

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
	if resp, err := cl.Exchange(ctx, req); !errors.Is(err, io.EOF) {
		t.Errorf("answered %+v, %v, want the end of the connection", resp, err)
	}
}
