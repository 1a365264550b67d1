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
	for _, nodes := range [][]int32{nodesOf(t, cl, 9), describedNodes(t, cl, 0)} {
		if !slices.Contains(nodes, otherNode) {
			t.Errorf("nodes %d, want %d among them", nodes, otherNode)
		}
	}
}

// nodesOf are the nodes of Metadata, sorted.
func nodesOf(t *testing.T, cl *wire.Client, version int16) (ids []int32) {
	t.Helper()
	for _, b := range ask[*kmsg.MetadataResponse](t, cl, version, kmsg.NewPtrMetadataRequest()).Brokers {
		ids = append(ids, b.NodeID)
	}
	slices.Sort(ids)
	return ids
}

// describedNodes are those of DescribeCluster.
func describedNodes(t *testing.T, cl *wire.Client, version int16) (ids []int32) {
	t.Helper()
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType = endpointTypeBrokers
	for _, b := range ask[*kmsg.DescribeClusterResponse](t, cl, version, req).Brokers {
		ids = append(ids, b.NodeID)
	}
	slices.Sort(ids)
	return ids
}

// A replica without a shard, one that is down for example, is not shown to clients that would wait for its answer, and is shown to all others: by Metadata and by
// DescribeCluster alike, because who has a node from one of them looks for it in the other.
func TestReplicaWithoutShardIsHiddenFromWhoAsksEveryNode(t *testing.T) {
	const idleNode = otherNode + 1
	k := cluster(t)
	svc := newService()
	svc.nodes = []coordinator.Node{{ID: otherNode, Host: "other.example", Port: 9999}, {ID: idleNode, Host: "down.example", Port: 9999}}
	svc.idle = map[int32]bool{idleNode: true}
	g, _ := start(t, svc, k.ListenAddrs())
	for _, addr := range []string{g.Addr().String(), brokerAddr(t, g, 1)} {
		for clientID, hidden := range map[string]bool{
			"adminclient-7": true, "streamkeeper-cli": true, "log-dirs-tool": true, "reassign-partitions-tool": true, "admin-1": true,
			"orders-admin": false, "": false, "admin-": false, "admin-orders": false, "admin-1-orders": false,
		} {
			cl, err := wire.Dial(t.Context(), addr, clientID)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cl.Close() })
			want := []int32{0, 1, 2, testNode, otherNode}
			if !hidden {
				want = append(want, idleNode)
			}
			slices.Sort(want)
			for version := int16(0); version <= wire.MaxVersion(metadata); version++ {
				if got := nodesOf(t, cl, version); !slices.Equal(got, want) {
					t.Fatalf("client %q at %s, v%d: nodes %v, want %v", clientID, addr, version, got, want)
				}
			}
			for version := int16(0); version <= wire.MaxVersion(describeCluster); version++ {
				if got := describedNodes(t, cl, version); !slices.Equal(got, want) {
					t.Fatalf("DescribeCluster, client %q at %s, v%d: nodes %v, want %v", clientID, addr, version, got, want)
				}
			}
		}
	}
}
