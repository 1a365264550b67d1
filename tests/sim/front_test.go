package sim

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/gateway"
	"streamkeeper/internal/wire"
)

// front makes what clients reach of a process: the coordinator, and the gateway before it, with its listeners and its connections to
// brokers. Nothing of either is left out; only the network is in memory.
func (w *world) front(r *replica, p *process, delay func(kind string) time.Duration) (err error) {
	descriptions, err := w.describe(r, p)
	if err != nil {
		return err
	}
	foreign, conversions := coordinator.ForeignGroups(w.brokers), (*coordinator.Conversions)(nil)
	if w.converts {
		v := w.conversionOf(r, p, delay)
		foreign, conversions = v, &coordinator.Conversions{Shards: lookingShards{p.host, v}, Cluster: v}
	}
	p.service = coordinator.New(coordinator.Config{
		Node: coordinator.Node{ID: r.node, Host: fmt.Sprintf("r%d", r.node), Port: replicaPort}, LogTopic: logTopic, Shards: p.host, Replicas: p.store.Replicas,
		Topics: p.topics, RequiredTopics: p.host.RequiredTopics, Foreign: foreign, Conversions: conversions, Peers: memoryPeers{w, r, p, delay}, Descriptions: descriptions,
		Now: func() time.Time { p.gate.pass(); return r.clock() }, Logger: w.logger("coordinator", r.node),
	})
	upstream := make([]string, 0, brokersMax)
	for _, id := range brokerIDs() {
		upstream = append(upstream, brokerAddress(id))
	}
	p.gateway, err = gateway.New(gateway.Config{
		Listen: replicaAddress(r.node), BrokerPortBase: brokerPortBase, NodeID: r.node, Upstream: upstream, Service: w.saboteur(r, p),
		Logger:   w.logger("gateway", r.node),
		ListenOn: func(address string) (net.Listener, error) { return w.network.listen(address, p.sockets, r.isClientCut) },
		Connect: func(ctx context.Context, address string) (net.Conn, error) {
			return w.network.connect(ctx, address, p.sockets, delay, p.link.isCut)
		},
	})
	return err
}

// memoryPeers are the other replicas, over the network that clients have.
type memoryPeers struct {
	w     *world
	r     *replica
	p     *process
	delay func(kind string) time.Duration
}

// Request implements coordinator.Peers.
func (m memoryPeers) Request(ctx context.Context, to coordinator.Node, req kmsg.Request) (kmsg.Response, error) {
	address := net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port)))
	conn, err := m.w.network.connect(ctx, address, m.p.sockets, m.delay, m.r.isClientCut)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	const newest = 1 // of all requests that replicas send each other
	req.SetVersion(newest)
	return wire.NewClient(conn, fmt.Sprintf("streamkeeper-replica/%d", m.r.node)).Exchange(ctx, req)
}

// Close implements coordinator.Peers.
func (m memoryPeers) Close() {}
