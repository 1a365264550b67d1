package gateway

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
)

// produceEndpointsVersion is the first Produce version that can carry NodeEndpoints. Kafka sends them from 10 on
// (KIP-951); other clusters may not look at the version, and the tag is readable in every one that has tags.
const produceEndpointsVersion = 9

// nodes are the replicas as clients are told. This replica's own address is the gateway's own business.
func (g *Gateway) nodes() []endpoint {
	list := []endpoint{g.self}
	for _, n := range g.service.Nodes() {
		if n.ID != g.self.id {
			list = append(list, endpoint{id: n.ID, host: n.Host, port: n.Port})
		}
	}
	slices.SortFunc(list, func(a, b endpoint) int { return int(a.id) - int(b.id) })
	return list
}

// clientAddr is where clients reach the broker with the id; ok is false where they can't.
func (g *Gateway) clientAddr(id int32) (endpoint, bool) {
	if id == g.self.id {
		return g.self, true
	}
	return g.brokers.advertised(id)
}

// rewriteMetadata gives every broker its address here, adds the replicas, and shows the log topic as internal. A
// broker without a listener is left out: clients then wait for its partitions as for those of a dead broker, and
// don't connect to whoever holds its port.
func rewriteMetadata(g *Gateway, resp kmsg.Response) {
	m := resp.(*kmsg.MetadataResponse)
	if err := g.learn(m); err != nil {
		g.warn("broker port", "a broker of the cluster can't be served", "err", err)
	}
	m.Brokers = slices.DeleteFunc(m.Brokers, func(b kmsg.MetadataResponseBroker) bool { return b.NodeID == g.self.id })
	kept := m.Brokers[:0]
	for _, b := range m.Brokers {
		if e, ok := g.clientAddr(b.NodeID); ok {
			b.Host, b.Port = e.host, e.port
			kept = append(kept, b)
		}
	}
	m.Brokers = kept
	for _, n := range g.nodes() {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = n.id, n.host, n.port
		m.Brokers = append(m.Brokers, b)
	}
	for i := range m.Topics {
		if t := &m.Topics[i]; t.Topic != nil && g.own.named(*t.Topic) != nil {
			t.IsInternal = true
		}
	}
}

// endpointTypeBrokers is DescribeCluster's EndpointType for brokers; the other one is controllers (KIP-919).
const endpointTypeBrokers = 1

// rewriteDescribeCluster does the same for DescribeCluster. Controllers are not reachable through the gateway.
func rewriteDescribeCluster(g *Gateway, resp kmsg.Response) {
	d := resp.(*kmsg.DescribeClusterResponse)
	if d.ErrorCode != 0 {
		return
	}
	if d.Version >= 1 && d.EndpointType != endpointTypeBrokers {
		d.Brokers = nil
		return
	}
	var list []endpoint
	for _, b := range d.Brokers {
		if b.NodeID != g.self.id && !b.IsFenced {
			list = append(list, endpoint{id: b.NodeID, host: b.Host, port: b.Port})
		}
	}
	if err := g.brokers.learn(list, false, time.Now()); err != nil {
		g.warn("broker port", "a broker of the cluster can't be served", "err", err)
	}
	kept := d.Brokers[:0]
	for _, b := range d.Brokers {
		e, ok := g.brokers.advertised(b.NodeID)
		switch {
		case ok:
			b.Host, b.Port = e.host, e.port
		case b.IsFenced: // is listed for its state, not to be reached
			b.Host, b.Port = "", -1
		default:
			continue
		}
		kept = append(kept, b)
	}
	d.Brokers = kept
	for _, n := range g.nodes() {
		b := kmsg.NewDescribeClusterResponseBroker()
		b.NodeID, b.Host, b.Port = n.id, n.host, n.port
		d.Brokers = append(d.Brokers, b)
	}
}

// rewriteDescribeQuorum blanks the listeners of the quorum's nodes: they are controllers.
func rewriteDescribeQuorum(_ *Gateway, resp kmsg.Response) {
	q := resp.(*kmsg.DescribeQuorumResponse)
	for i := range q.Nodes {
		q.Nodes[i].Listeners = nil
	}
}

func rewriteDescribeTopicPartitions(g *Gateway, resp kmsg.Response) {
	d := resp.(*kmsg.DescribeTopicPartitionsResponse)
	for i := range d.Topics {
		if t := &d.Topics[i]; t.Topic != nil && g.own.named(*t.Topic) != nil {
			t.IsInternal = true
		}
	}
}

func rewriteShareAcknowledge(g *Gateway, resp kmsg.Response) {
	a := resp.(*kmsg.ShareAcknowledgeResponse)
	kept := a.NodeEndpoints[:0]
	for _, n := range a.NodeEndpoints {
		if e, ok := g.clientAddr(n.NodeID); ok {
			n.Host, n.Port = e.host, e.port
			kept = append(kept, n)
		}
	}
	a.NodeEndpoints = kept
}

// rewriteProduce gives the new leaders that a Produce response names their addresses here.
func rewriteProduce(g *Gateway, resp kmsg.Response) {
	p := resp.(*kmsg.ProduceResponse)
	kept := p.Brokers[:0]
	for _, b := range p.Brokers {
		if e, ok := g.clientAddr(b.NodeID); ok {
			b.Host, b.Port = e.host, e.port
			kept = append(kept, b)
		}
	}
	p.Brokers = kept
}

// refusedProduce turns the refusal of a blanked topic into the refusal of the one of ours that it stands for.
func refusedProduce(g *Gateway, resp kmsg.Response) {
	p := resp.(*kmsg.ProduceResponse)
	rewriteProduce(g, p)
	for i := range p.Topics {
		t := &p.Topics[i]
		for _, ours := range g.own {
			switch {
			case t.TopicID == ours.blankID:
				t.TopicID = ours.topicID()
			case p.Version < produceIDVersion && t.Topic == string(ours.blankName):
				t.Topic = ours.name
			default:
				continue
			}
			for j := range t.Partitions {
				t.Partitions[j].ErrorCode = topicDenied.Code
				t.Partitions[j].ErrorMessage = kmsg.StringPtr(ours.text)
			}
		}
	}
}

// produceHasEndpoints looks for broker addresses in a Produce response that has tags. They come only with
// a NOT_LEADER_OR_FOLLOWER, so most responses need not be decoded.
//
//	tags │ topics │ throttle int32 │ tags (0: NodeEndpoints)
//	topic:     name or id │ partitions │ tags
//	partition: index int32 │ error int16 │ base offset, append time, log start int64 │ record errors │ message │ tags
func produceHasEndpoints(frame []byte, version int16) bool {
	r := reader{b: frame[4:]}
	r.tags()
	r.array(func() {
		if version >= produceIDVersion {
			r.skip(16)
		} else {
			r.bytes()
		}
		r.array(func() {
			r.skip(4 + 2 + 8 + 8 + 8)
			r.array(func() {
				r.skip(4)
				r.bytes()
				r.tags()
			})
			r.bytes()
			r.tags()
		})
		r.tags()
	})
	r.skip(4)
	// No tags are one byte, and then nothing is left. Anything else is decoded, where what is wrong shows.
	return r.failed || len(r.b) != 1 || r.b[0] != 0
}

// planFindCoordinator answers for groups of ours and passes the rest on, in one answer in the order of the request.
func planFindCoordinator(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.FindCoordinatorRequest)
	if req.CoordinatorType != coordinatorTypeGroup {
		return plan{forward: true, rewrite: rewriteFindCoordinator}, nil
	}
	keys := req.CoordinatorKeys
	if rq.Version < 4 {
		keys = []string{req.CoordinatorKey}
	}
	blind := map[string]bool{}
	for _, group := range c.g.service.CatchUp(c.ctx, keys) {
		blind[group] = true
	}
	answers := map[string]kmsg.FindCoordinatorResponseCoordinator{}
	answer := func(group string, n coordinator.Node, ok bool) {
		a := kmsg.NewFindCoordinatorResponseCoordinator()
		a.Key = group
		if n.ID == c.g.self.id {
			n.Host, n.Port = c.g.self.host, c.g.self.port
		}
		if a.NodeID, a.Host, a.Port = n.ID, n.Host, n.Port; !ok {
			noCoordinator(&a)
		}
		answers[group] = a
	}
	var unknown, foreign []string
	for _, group := range keys {
		if n, known, ok := c.g.service.Coordinator(c.ctx, group); known && !blind[group] {
			answer(group, n, ok)
		} else {
			unknown = append(unknown, group)
		}
	}
	if len(unknown) > 0 {
		others := c.g.service.AskOthers(c.ctx, rq.caller(c), unknown)
		for _, group := range unknown {
			if f, asked := others[group]; asked && !f.Cluster {
				answer(group, f.Node, f.OK)
			} else {
				foreign = append(foreign, group)
			}
		}
	}
	if len(answers) == 0 {
		return plan{forward: true, rewrite: rewriteFindCoordinator}, nil
	}
	own := rq.msg.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if rq.Version < 4 {
		a := answers[keys[0]]
		own.ErrorCode, own.ErrorMessage, own.NodeID, own.Host, own.Port = a.ErrorCode, a.ErrorMessage, a.NodeID, a.Host, a.Port
		return answerWith(own), nil
	}
	merge := func(up, _ kmsg.Response) kmsg.Response {
		if up != nil {
			for _, a := range up.(*kmsg.FindCoordinatorResponse).Coordinators {
				answers[a.Key] = a
			}
			own.ThrottleMillis = up.(*kmsg.FindCoordinatorResponse).ThrottleMillis
		}
		for _, key := range keys {
			if a, ok := answers[key]; ok {
				own.Coordinators = append(own.Coordinators, a)
			}
		}
		return own
	}
	if len(foreign) == 0 {
		return answerWith(merge(nil, nil)), nil
	}
	up := *req
	up.CoordinatorKeys = foreign
	return plan{answer: own, up: &up, rewrite: rewriteFindCoordinator, merge: merge}, nil
}

const coordinatorTypeGroup = 0 // FindCoordinator's KeyType; 1 is a transactional id, 2 a share partition

func noCoordinator(a *kmsg.FindCoordinatorResponseCoordinator) {
	a.ErrorCode = coordinatorUnavailable.Code
	a.ErrorMessage = kmsg.StringPtr(coordinatorUnavailable.Description)
	a.NodeID, a.Host, a.Port = -1, "", -1
}

// rewriteFindCoordinator gives the coordinators that the cluster names their addresses here.
func rewriteFindCoordinator(g *Gateway, resp kmsg.Response) {
	f := resp.(*kmsg.FindCoordinatorResponse)
	if f.Version < 4 {
		a := kmsg.FindCoordinatorResponseCoordinator{NodeID: f.NodeID, Host: f.Host, Port: f.Port, ErrorCode: f.ErrorCode, ErrorMessage: f.ErrorMessage}
		rewriteCoordinator(g, &a)
		f.NodeID, f.Host, f.Port, f.ErrorCode, f.ErrorMessage = a.NodeID, a.Host, a.Port, a.ErrorCode, a.ErrorMessage
		return
	}
	for i := range f.Coordinators {
		rewriteCoordinator(g, &f.Coordinators[i])
	}
}

func rewriteCoordinator(g *Gateway, a *kmsg.FindCoordinatorResponseCoordinator) {
	if a.ErrorCode != 0 || a.NodeID == -1 {
		return
	}
	e, ok := g.brokers.advertised(a.NodeID)
	if !ok { // may be new: take it in
		err := g.brokers.learn([]endpoint{{id: a.NodeID, host: a.Host, port: a.Port}}, false, time.Now())
		if e, ok = g.brokers.advertised(a.NodeID); !ok {
			g.warn("broker port", "a broker of the cluster can't be served", "err", err)
			noCoordinator(a)
			return
		}
	}
	a.Host, a.Port = e.host, e.port
}
