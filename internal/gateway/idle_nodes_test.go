package gateway

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/wire"
)

// A replica that can't read the log to its end can't tell who owns no shard: it hides nobody.
func TestWhoIsBehindHidesNobody(t *testing.T) {
	k := cluster(t)
	svc := newService()
	svc.nodes = []coordinator.Node{{ID: otherNode, Host: "other.example", Port: 9999}}
	svc.idle, svc.behind = map[int32]bool{otherNode: true}, true
	g, _ := start(t, svc, k.ListenAddrs())
	cl, err := wire.Dial(t.Context(), g.Addr().String(), "adminclient-1")
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	nodes := ask[*kmsg.MetadataResponse](t, cl, 9, kmsg.NewPtrMetadataRequest()).Brokers
	if !slices.ContainsFunc(nodes, func(b kmsg.MetadataResponseBroker) bool { return b.NodeID == otherNode }) {
		t.Errorf("nodes %+v, want %d among them", nodes, otherNode)
	}
}

// A replica without a shard, one that is down for example, is not shown to clients that would wait for its list of groups, and is shown to all others.
func TestReplicaWithoutShardIsHiddenFromWhoListsGroups(t *testing.T) {
	const idleNode = otherNode + 1
	k := cluster(t)
	svc := newService()
	svc.nodes = []coordinator.Node{{ID: otherNode, Host: "other.example", Port: 9999}, {ID: idleNode, Host: "down.example", Port: 9999}}
	svc.idle = map[int32]bool{idleNode: true}
	g, _ := start(t, svc, k.ListenAddrs())
	for _, addr := range []string{g.Addr().String(), brokerAddr(t, g, 1)} {
		for clientID, hidden := range map[string]bool{"adminclient-7": true, "streamkeeper-cli": true, "orders-admin": false, "": false} {
			cl, err := wire.Dial(t.Context(), addr, clientID)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cl.Close() })
			for version := int16(0); version <= wire.MaxVersion(metadata); version++ {
				var got []int32
				for _, b := range ask[*kmsg.MetadataResponse](t, cl, version, kmsg.NewPtrMetadataRequest()).Brokers {
					got = append(got, b.NodeID)
				}
				slices.Sort(got)
				want := []int32{0, 1, 2, testNode, otherNode}
				if !hidden {
					want = append(want, idleNode)
				}
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Fatalf("client %q at %s, v%d: nodes %v, want %v", clientID, addr, version, got, want)
				}
			}
		}
	}
}
