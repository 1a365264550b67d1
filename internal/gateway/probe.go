package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// probeVersion is the Metadata version that the probe asks in: the first with topic ids for named topics. Older
// clusters are asked in theirs.
const probeVersion = 10

// firstProbe asks for the brokers until the cluster answers or StartWait is over. What it returns are settings
// that can't work; a cluster that is down is logged.
func (g *Gateway) firstProbe() error {
	ctx, cancel := context.WithTimeout(g.ctx, g.limits.StartWait)
	defer cancel()
	for {
		err := g.probe(ctx)
		var port *PortError
		var id *NodeIDError
		var loop *LoopError
		if err == nil || errors.As(err, &port) || errors.As(err, &id) || errors.As(err, &loop) {
			return err
		}
		select {
		case <-ctx.Done():
			g.log.Warn("the upstream cluster can't be reached; serving all the same, and asking on", "bootstrap-servers", g.cfg.Upstream, "err", err)
			return nil
		case <-time.After(probeRetry / 4):
		}
	}
}

// follow asks for the brokers from time to time until ctx ends or the gateway closes.
func (g *Gateway) follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	down := g.clusterID.Load() == nil
	for {
		err := g.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil && !down:
			g.log.Warn("the upstream cluster can't be reached, or not served", "err", err)
		case err != nil:
			g.warn("probe", "the upstream cluster still can't be reached, or not served", "err", err)
		case down:
			g.log.Info("the upstream cluster answers")
		}
		down = err != nil
		pause := probeInterval
		if down || g.needsLogID.Load() && !g.own.identified() {
			pause = probeRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-g.done:
			return
		case <-time.After(pause):
		}
	}
}

// probe asks any broker for all brokers, the ids of the cluster and of the own topics, and opens listeners.
func (g *Gateway) probe(ctx context.Context) error {
	c := &conn{g: g, ctx: ctx}
	u, err := c.connect()
	if err != nil {
		return err
	}
	defer u.conn.Close()
	defer context.AfterFunc(ctx, func() { u.conn.SetDeadline(time.Unix(1, 0)) })()
	u.conn.SetReadDeadline(time.Now().Add(dialTimeout)) // a failure shows at the read
	g.needsLogID.Store(u.versions.max(produce) >= produceIDVersion)
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(min(probeVersion, max(1, u.versions.max(metadata))))
	for _, ours := range g.own {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(ours.name)
		req.Topics = append(req.Topics, topic)
	}
	resp, err := u.exchange(req)
	if err != nil {
		return fmt.Errorf("ask %v for the brokers: %w", u.to, err)
	}
	return g.learn(resp.(*kmsg.MetadataResponse))
}

// NodeIDError: --node-id is the id of a broker.
type NodeIDError struct{ ID int32 }

func (e *NodeIDError) Error() string {
	return fmt.Sprintf("the upstream cluster has a node %d, which is this replica's --node-id: choose an id outside the cluster's range (or --bootstrap-servers points at streamkeeper itself)", e.ID)
}

// learn takes in what a Metadata response says of the cluster.
func (g *Gateway) learn(m *kmsg.MetadataResponse) error {
	if m.ClusterID != nil {
		g.clusterID.Store(m.ClusterID)
	}
	for i := range m.Topics {
		t := &m.Topics[i]
		if t.Topic != nil && t.ErrorCode == 0 && t.TopicID != [16]byte{} {
			if ours := g.own.named(*t.Topic); ours != nil {
				ours.id.Store(&t.TopicID)
			}
		}
	}
	list := make([]endpoint, 0, len(m.Brokers))
	for _, b := range m.Brokers {
		if b.NodeID == g.cfg.NodeID {
			return &NodeIDError{ID: b.NodeID}
		}
		list = append(list, endpoint{id: b.NodeID, host: b.Host, port: b.Port})
	}
	return g.learnBrokers(list)
}

func (g *Gateway) learnBrokers(list []endpoint) error {
	err := g.brokers.learn(list, true, time.Now())
	if err != nil {
		g.metrics.refuse(g.ctx, "broker port")
	}
	return err
}
