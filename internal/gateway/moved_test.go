package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
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

// Of a group whose owner this replica won't hear of others are asked, though it is known; in one lookup with others that are not of that kind.
func TestALookupOfWhatThisReplicaDoesNotSeeAnyMore(t *testing.T) {
	svc := newService()
	svc.verdicts["seen"], svc.verdicts["unseen"], svc.verdicts["nobody's"] = coordinator.Ours, coordinator.Ours, coordinator.Ours
	svc.blind = []string{"unseen", "nobody's"}
	svc.others = map[string]coordinator.Found{"unseen": {Node: coordinator.Node{ID: 1000007, Host: "other", Port: 9292}, OK: true}, "nobody's": {}}
	g, _ := start(t, svc, cluster(t).ListenAddrs())
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKeys = []string{"seen", "unseen", "nobody's"}
	resp := ask[*kmsg.FindCoordinatorResponse](t, raw(t, brokerAddr(t, g, 0)), 4, req)
	got := map[string]string{}
	for _, c := range resp.Coordinators {
		got[c.Key] = fmt.Sprint(c.NodeID, " ", c.ErrorCode)
	}
	if got["seen"] != fmt.Sprint(svc.Node().ID, " 0") || got["unseen"] != "1000007 0" || got["nobody's"] != "-1 15" {
		t.Errorf("%v", got)
	}
}
