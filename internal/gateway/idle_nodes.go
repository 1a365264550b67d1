package gateway

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// askingClients begin the client ids of clients that ask every node of the cluster: of admin clients that no application gave a name (Java's, so that of most of Kafka's
// tools; of kafka-broker-api-versions, where a number follows), of the tools of Kafka 3.9 to 4.4 that have a name of their own, and of our own command line.
var (
	askingClients  = []string{"adminclient-", "log-dirs-tool", "reassign-partitions-tool", "streamkeeper-cli"}
	numberedClient = "admin-"
)

// asksEveryNode says that the client with the id is one that asks each node of Metadata or DescribeCluster (for its groups, its log directories, its configurations), and
// gets nothing at all where one node does not answer. The clients of applications have ids of their own: they keep all nodes, because they must find another one when theirs
// goes (D9). Java's admin client turns to its bootstrap servers then.
func asksEveryNode(clientID *string) bool {
	if clientID == nil {
		return false
	}
	if n, ok := strings.CutPrefix(*clientID, numberedClient); ok {
		return n != "" && strings.Trim(n, "0123456789") == ""
	}
	return slices.ContainsFunc(askingClients, func(prefix string) bool { return strings.HasPrefix(*clientID, prefix) })
}

// leaveOutIdle takes the other replicas that own no shard out of Metadata and DescribeCluster: those that are down, stopped or gone for good, and those that have nothing
// to tell yet. Who coordinates a group owns its shard, so no group is missed. It is both or none: an admin client that learned of a node from DescribeCluster waits until Metadata
// has it as well. A replica that can't read the log to its end hides nobody: whom it takes for idle may have all groups by now.
func leaveOutIdle(ctx context.Context, g *Gateway, resp kmsg.Response) {
	switch resp.(type) {
	case *kmsg.MetadataResponse, *kmsg.DescribeClusterResponse:
	default:
		return
	}
	owners, whole := g.service.Owners(ctx)
	if !whole {
		return
	}
	idle := map[int32]bool{}
	for _, n := range g.nodes() {
		idle[n.id] = n.id != g.self.id && !owners[n.id]
	}
	switch r := resp.(type) {
	case *kmsg.MetadataResponse:
		r.Brokers = slices.DeleteFunc(r.Brokers, func(b kmsg.MetadataResponseBroker) bool { return idle[b.NodeID] })
	case *kmsg.DescribeClusterResponse:
		r.Brokers = slices.DeleteFunc(r.Brokers, func(b kmsg.DescribeClusterResponseBroker) bool { return idle[b.NodeID] })
	}
}
