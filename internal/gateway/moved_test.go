package gateway

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
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
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := cl.ReceiveRaw(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("after NOT_COORDINATOR: %v, want the end of the connection", err)
	}
}
