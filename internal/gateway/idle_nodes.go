package gateway

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// listingClients begin the client ids of admin clients that no application gave a name: Java's, so that of all of Kafka's tools, and our own command line.
var listingClients = []string{"adminclient-", "streamkeeper-cli"}

// asksEveryNode says that the client with the id is one that lists groups, by asking each node of Metadata, and gets no list at all where one
// node does not answer. The clients of applications have ids of their own: they keep all nodes, because they must find another one when theirs
// goes (D9). Java's admin client turns to its bootstrap servers then.
func asksEveryNode(clientID *string) bool {
	return clientID != nil && slices.ContainsFunc(listingClients, func(prefix string) bool { return strings.HasPrefix(*clientID, prefix) })
}

// leaveOutIdle takes the other replicas that own no shard out of Metadata: those that are down, stopped or gone for good, and those that have nothing
// to list yet. Who coordinates a group owns its shard, so no group is missed. A replica that can't read the log to its end hides nobody: whom it takes
// for idle may have all groups by now.
func leaveOutIdle(ctx context.Context, g *Gateway, m *kmsg.MetadataResponse) {
	owners, whole := g.service.Owners(ctx)
	if !whole {
		return
	}
	idle := map[int32]bool{}
	for _, n := range g.nodes() {
		idle[n.id] = n.id != g.self.id && !owners[n.id]
	}
	m.Brokers = slices.DeleteFunc(m.Brokers, func(b kmsg.MetadataResponseBroker) bool { return idle[b.NodeID] })
}
