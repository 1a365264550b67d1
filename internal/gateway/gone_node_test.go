package gateway

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/wire"
)

// A node that is gone is ours to take out of Metadata if it is a replica, or if the question says that a replica is meant; else it is a broker. The embedded
// cluster of these tests knows no such request, as one without KRaft does not.
func TestNodeThatIsGone(t *testing.T) {
	k := cluster(t)
	svc := newService()
	svc.nodes = []coordinator.Node{{ID: otherNode, Host: "other.example", Port: 9999}}
	g, _ := start(t, svc, k.ListenAddrs())
	plain := func(id int32) *kmsg.UnregisterBrokerRequest {
		r := kmsg.NewPtrUnregisterBrokerRequest()
		r.BrokerID = id
		return r
	}
	for _, addr := range []string{g.Addr().String(), brokerAddr(t, g, 1)} {
		cl := raw(t, addr)
		if !slices.ContainsFunc(ask[*kmsg.ApiVersionsResponse](t, cl, 2, kmsg.NewPtrApiVersionsRequest()).ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == unregisterBroker }) {
			t.Error("it is not offered")
		}
		for _, c := range []struct {
			what  string
			req   *kmsg.UnregisterBrokerRequest
			code  int16
			asked []int32
			mark  bool
		}{
			{"another replica", plain(otherNode), 101, []int32{otherNode}, false},
			{"this replica", plain(testNode), 101, []int32{testNode}, false},
			{"a broker", plain(1), 102, nil, false},
			{"a replica that nobody knows, for certain no broker", wire.ForgetRequest(1), 101, []int32{1}, true},
		} {
			svc.unregistered = nil
			resp := ask[*kmsg.UnregisterBrokerResponse](t, cl, 0, c.req)
			if resp.ErrorCode != c.code || !slices.Equal(svc.unregistered, c.asked) || wire.IsForgetResponse(resp) != c.mark {
				t.Errorf("%s: code %d, asked %v, marked %v", c.what, resp.ErrorCode, svc.unregistered, wire.IsForgetResponse(resp))
			}
		}
	}
}
