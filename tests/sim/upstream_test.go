package sim

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// brokers are the cluster as gateways see it: a coordinator of its own that knows nothing of streams groups, and says "no offset" of a group
// that it does not know, as Kafka does.
type brokers struct {
	w *world
	// groups are the cluster's own: classic ones.
	mu     sync.Mutex
	groups map[string]*classicGroup
	ids    int // of members that were given out
}

const (
	brokersMax     = 2
	brokerPortBase = 10000 // of the replicas' listeners that stand for brokers
	replicaPort    = 9292
	logTopic       = "log"
)

func brokerAddress(id int32) string { return fmt.Sprintf("broker-%d:9092", id) }
func replicaAddress(n int32) string { return fmt.Sprintf("r%d:%d", n, replicaPort) }
func never() bool                   { return false }
func isBroker(node int32) bool      { return node >= brokerIDBase && node < brokerIDBase+brokersMax }
func brokerIDs() (ids []int32) {
	for i := range int32(brokersMax) {
		ids = append(ids, brokerIDBase+i)
	}
	return ids
}

// brokerIDBase keeps the ids of brokers apart from those of replicas.
const brokerIDBase = 100

func (b *brokers) listen(of *sockets) error {
	for _, id := range brokerIDs() {
		ln, err := b.w.network.listen(brokerAddress(id), of, never)
		if err != nil {
			return err
		}
		b.w.serving.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				b.w.serving.Go(func() { b.serve(c) })
			}
		})
	}
	return nil
}

// serve answers the requests of a connection, one after the other.
func (b *brokers) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	var buf []byte
	for {
		frame, err := wire.ReadFrame(r, buf, wire.FrameBytesMax)
		if err != nil {
			return
		}
		h, err := wire.ParseHeader(frame)
		if err != nil {
			b.w.violate("a broker got a header that is none: %v", err)
			return
		}
		req, err := wire.ParseRequest(h.Key, h.Version, frame[h.Size:])
		if err != nil {
			b.w.violate("a broker got a request that is none: %v", err)
			return
		}
		resp := b.answer(req)
		resp.SetVersion(h.Version)
		if _, err := c.Write(wire.AppendResponse(nil, h.CorrelationID, resp)); err != nil {
			return
		}
		buf = frame
	}
}

// brokerAPIs are the requests that the brokers take, with the newest version of each.
var brokerAPIs = map[int16]int16{3: 12, 8: 10, 9: 10, 10: 6, 11: 9, 12: 4, 13: 5, 15: 6, 16: 5, 18: 4, 32: 4, 42: 3, 44: 1, 60: 1, 74: 1}

func (b *brokers) answer(req kmsg.Request) kmsg.Response {
	switch r := req.(type) {
	case *kmsg.ApiVersionsRequest:
		resp := r.ResponseKind().(*kmsg.ApiVersionsResponse)
		for _, key := range sortedKeys(brokerAPIs) {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MaxVersion = key, brokerAPIs[key]
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
		return resp
	case *kmsg.MetadataRequest:
		return b.w.cluster.metadata(r)
	case *kmsg.FindCoordinatorRequest:
		resp := r.ResponseKind().(*kmsg.FindCoordinatorResponse)
		for _, key := range r.CoordinatorKeys {
			a := kmsg.NewFindCoordinatorResponseCoordinator()
			a.Key, a.NodeID = key, brokerIDBase+int32(len(key))%brokersMax
			a.Host, a.Port = fmt.Sprintf("broker-%d", a.NodeID), 9092
			resp.Coordinators = append(resp.Coordinators, a)
		}
		return resp
	case *kmsg.ListGroupsRequest:
		resp := r.ResponseKind().(*kmsg.ListGroupsResponse)
		for _, name := range b.names() {
			g := kmsg.NewListGroupsResponseGroup()
			g.Group, g.GroupState, g.GroupType, g.ProtocolType = name, "Empty", "classic", "consumer"
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	case *kmsg.OffsetFetchRequest:
		return b.fetch(r)
	case *kmsg.OffsetCommitRequest:
		return b.commit(r, nil)
	case *kmsg.JoinGroupRequest:
		return b.join(r)
	case *kmsg.HeartbeatRequest:
		return b.beat(r)
	case *kmsg.LeaveGroupRequest:
		return b.leave(r)
	case *kmsg.DeleteGroupsRequest:
		resp := r.ResponseKind().(*kmsg.DeleteGroupsResponse)
		for _, name := range r.Groups {
			g := kmsg.NewDeleteGroupsResponseGroup()
			g.Group, g.ErrorCode = name, b.remove(name, nil)
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	default:
		b.w.violate("a broker was asked for %s, which is none of its business", kmsg.NameForKey(req.Key()))
		return req.ResponseKind()
	}
}

// Find implements coordinator.ForeignGroups.
func (b *brokers) Find(ctx context.Context, group string) (kind string, members bool, err error) {
	kind, members = b.find(group)
	return kind, members, nil
}

// metadata answers a Metadata request.
func (c *cluster) metadata(r *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	resp := r.ResponseKind().(*kmsg.MetadataResponse)
	resp.ClusterID = kmsg.StringPtr("simulated")
	for _, id := range brokerIDs() {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = id, fmt.Sprintf("broker-%d", id), 9092
		resp.Brokers = append(resp.Brokers, b)
	}
	known := c.topics.Load()
	for _, asked := range r.Topics {
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.TopicID = asked.Topic, asked.TopicID
		for name, is := range known.byName {
			if asked.Topic != nil && *asked.Topic == name || asked.Topic == nil && is.ID == asked.TopicID {
				t.Topic, t.TopicID = kmsg.StringPtr(name), is.ID
				for p := range is.Partitions {
					rp := kmsg.NewMetadataResponseTopicPartition()
					rp.Partition, rp.Leader, rp.Replicas = p, brokerIDBase, []int32{brokerIDBase}
					t.Partitions = append(t.Partitions, rp)
				}
			}
		}
		if len(t.Partitions) == 0 {
			if t.ErrorCode = codeUnknownTopic; asked.Topic == nil {
				t.ErrorCode = codeUnknownTopicID
			}
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// topicAsker asks the cluster about topics on behalf of a replica.
type topicAsker struct {
	w     *world
	p     *process
	delay func(kind string) time.Duration
}

// Request implements kmsg.Requestor.
func (a topicAsker) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	a.p.gate.pass()
	if err := a.p.link.wait(ctx); err != nil {
		return nil, err
	}
	pause(a.delay("topics"))
	r := req.(*kmsg.MetadataRequest)
	r.Version = 12
	resp := a.w.cluster.metadata(r)
	pause(a.delay("topics"))
	if err := a.p.link.wait(ctx); err != nil {
		return nil, err
	}
	a.p.gate.pass()
	return resp, nil
}
