package gateway

import (
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
)

// Of groups that this replica can't tell, lookups say what other replicas say, or that the client has to ask again.
func TestFindCoordinatorWhereOthersAreAsked(t *testing.T) {
	g, _, svc := startWithGroups(t)
	ownHost, ownPort := g.Advertised()
	b, _ := g.brokers.advertised(1)
	svc.mu.Lock()
	svc.others = map[string]coordinator.Found{
		"said":   {Node: coordinator.Node{ID: otherNode, Host: "other.example", Port: 9999}, OK: true},
		"self":   {Node: svc.Node(), OK: true},
		"theirs": {Cluster: true},
		"unread": {},
	}
	svc.mu.Unlock()
	node := map[string]kmsg.FindCoordinatorResponseCoordinator{
		"ours":   {Key: "ours", NodeID: testNode, Host: ownHost, Port: ownPort},
		"said":   {Key: "said", NodeID: otherNode, Host: "other.example", Port: 9999},
		"self":   {Key: "self", NodeID: testNode, Host: ownHost, Port: ownPort},
		"theirs": {Key: "theirs", NodeID: 1, Host: "127.0.0.1", Port: b.port},
		"maybe":  {Key: "maybe", NodeID: 1, Host: "127.0.0.1", Port: b.port},
		"unread": {Key: "unread", NodeID: -1, Port: -1, ErrorCode: coordinatorUnavailable.Code},
	}
	cl := raw(t, g.Addr().String())
	for version := int16(0); version <= 6; version++ {
		for _, keys := range []string{"said", "self", "theirs", "unread", "maybe", "theirs unread ours said maybe", "unread said"} {
			keys := strings.Fields(keys)
			if version < 4 && len(keys) > 1 {
				continue
			}
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorKey, req.CoordinatorKeys = keys[0], keys
			r := ask[*kmsg.FindCoordinatorResponse](t, cl, version, req)
			if version < 4 {
				r.Coordinators = []kmsg.FindCoordinatorResponseCoordinator{{Key: keys[0], NodeID: r.NodeID, Host: r.Host, Port: r.Port, ErrorCode: r.ErrorCode}}
			}
			var want []kmsg.FindCoordinatorResponseCoordinator
			for _, key := range keys {
				want = append(want, node[key])
			}
			for i := range r.Coordinators {
				r.Coordinators[i].ErrorMessage = nil
			}
			if !reflect.DeepEqual(r.Coordinators, want) {
				t.Errorf("v%d %v: %+v, want %+v", version, keys, r.Coordinators, want)
			}
		}
	}
	svc.mu.Lock()
	defer svc.mu.Unlock()
	if len(svc.callers) == 0 || svc.callers[0].ClientID == "" {
		t.Errorf("who asked is not told: %v", svc.callers)
	}
}
