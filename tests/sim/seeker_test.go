package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

const (
	requestTimeout = 10 * time.Second
	// connectTimeout bounds an attempt to connect (socket.connection.setup.timeout.ms of Java's clients).
	connectTimeout = 10 * time.Second
	// nodeBackoff is for how long a node that could not be reached is left alone, where there are others.
	nodeBackoff = time.Second
	// metadataMaxAge is after what time the nodes are asked for again (metadata.max.age.ms).
	metadataMaxAge = 5 * time.Minute
)

// errLost: no answer came.
var errLost = errors.New("no answer")

// node is a node of the cluster as Metadata names it: a broker, or a replica.
type node struct {
	id      int32
	address string
}

func (n node) String() string { return fmt.Sprintf("node %d at %s", n.id, n.address) }

// seeker is what Java's clients know of a cluster, and how: nodes from Metadata, a coordinator from whatever node is asked for it, and one
// connection for each node id, wherever that id was said to be when the connection was made. It belongs to one goroutine.
type seeker struct {
	w        *world
	clientID string
	rng      *rand.Rand
	of       *sockets
	cut      func() bool
	delay    func(kind string) time.Duration

	nodes   []node
	known   time.Time // when they were asked for; zero: they must be asked for
	rest    map[int32]time.Time
	conns   map[int32]*connection
	looked  time.Time // when the last lookup began
	lookups int
}

type connection struct {
	*wire.Client
	socket  *socket
	address string
}

func (w *world) newSeeker(name, clientID string, cut func() bool) *seeker {
	return &seeker{
		w: w, clientID: clientID, rng: w.rng("seeker " + name), of: newSockets(&gate{}), cut: cut, delay: w.delays("seeker " + name),
		rest: map[int32]time.Time{}, conns: map[int32]*connection{},
	}
}

// bootstrap is what it was configured with: all replicas.
func (s *seeker) bootstrap() {
	s.nodes = nil
	for _, r := range s.w.replicas {
		s.nodes = append(s.nodes, node{-r.node, replicaAddress(r.node)})
	}
}

// pick is a node to ask something that any can answer.
func (s *seeker) pick() node {
	now := time.Now()
	rested := slices.DeleteFunc(slices.Clone(s.nodes), func(n node) bool { return now.Before(s.rest[n.id]) })
	if len(rested) == 0 {
		s.bootstrap()
		rested = s.nodes
	}
	return rested[s.rng.IntN(len(rested))]
}

// coordinatorKey is the id under which the connection to a coordinator is kept: a connection of its own, as Java has it.
func coordinatorKey(id int32) int32 { return 1<<30 + id }

// connect returns the connection that is kept under a key; where there is none it is made.
func (s *seeker) connect(ctx context.Context, key int32, address string) (*connection, error) {
	if c := s.conns[key]; c != nil {
		if !c.socket.over() {
			return c, nil
		}
		s.drop(key)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	nc, err := s.w.network.connect(ctx, address, s.of, s.delay, s.cut)
	if err != nil {
		return nil, err
	}
	c := &connection{wire.NewClient(nc, s.clientID), nc.(*socket), address}
	s.conns[key] = c
	return c, nil
}

// drop gives a connection up: what was asked over it is being worked on by now, or never will be.
func (s *seeker) drop(key int32) {
	if c := s.conns[key]; c != nil {
		c.socket.abort()
		delete(s.conns, key)
	}
}

func (s *seeker) close() { s.of.kill(false) }

// ask sends a request over the connection of a key and waits for its answer. by is where that connection leads.
func (s *seeker) ask(ctx context.Context, key int32, address string, req kmsg.Request) (resp kmsg.Response, by string, err error) {
	c, err := s.connect(ctx, key, address)
	if err != nil {
		return nil, "", err
	}
	resp, err = c.Exchange(ctx, req)
	if err != nil {
		s.drop(key)
	}
	return resp, c.address, err
}

// askAny asks some node. A node that does not answer is left alone for a while, and the nodes are asked for anew.
func (s *seeker) askAny(ctx context.Context, req kmsg.Request) (resp kmsg.Response, by string, err error) {
	n := s.pick()
	resp, by, err = s.ask(ctx, n.id, n.address, req)
	if err != nil {
		s.rest[n.id], s.known = time.Now().Add(nodeBackoff), time.Time{}
		return nil, n.address, errLost
	}
	return resp, by, nil
}

// refresh asks for the nodes where they are old.
func (s *seeker) refresh(ctx context.Context) error {
	if time.Since(s.known) < metadataMaxAge {
		return nil
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 12, []kmsg.MetadataRequestTopic{}
	resp, by, err := s.askAny(ctx, req)
	if err != nil {
		return err
	}
	s.nodes, s.known = nil, time.Now()
	self := replicaAt(by)
	for _, b := range resp.(*kmsg.MetadataResponse).Brokers {
		s.nodes = append(s.nodes, node{b.NodeID, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))})
		if isBroker(b.NodeID) && b.Host != "r"+strconv.Itoa(int(self)) {
			s.w.violate("replica %d names broker %d at %s: its clients would go round it", self, b.NodeID, b.Host)
		}
	}
	return nil
}

// find looks a group's coordinator up at any node.
func (s *seeker) find(ctx context.Context, group string) (n node, by string, err error) {
	if err := s.refresh(ctx); err != nil {
		return node{}, "", err
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKeys = 6, []string{group}
	s.looked = time.Now()
	s.lookups++
	resp, by, err := s.askAny(ctx, req)
	if err != nil {
		return node{}, by, err
	}
	n, err = found(resp)
	return n, by, err
}

func found(resp kmsg.Response) (node, error) {
	a := resp.(*kmsg.FindCoordinatorResponse).Coordinators[0]
	if a.ErrorCode != 0 {
		return node{}, problem(a.ErrorCode, a.ErrorMessage)
	}
	return node{a.NodeID, net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port)))}, nil
}

// replicaAt is the node id of the replica that an address leads to, itself or one of its brokers' listeners.
func replicaAt(address string) int32 {
	host, _, _ := net.SplitHostPort(address)
	n, err := strconv.Atoi(strings.TrimPrefix(host, "r"))
	if err != nil {
		panic("no replica is at " + address)
	}
	return int32(n)
}

// problem is an error code of an answer as what the shards called it; nil for none.
func problem(code int16, message *string) error {
	switch code {
	case 0:
		return nil
	case codeLoading:
		return shard.ErrLoading
	case codeUnavailable, codeTimedOut:
		return shard.ErrUnavailable
	case codeNotCoordinator:
		return shard.ErrNotOwner
	}
	e := &streams.Error{Code: code}
	if message != nil {
		e.Message = *message
	}
	return e
}

// reach says that the client's network is there.
func (c *client) reach() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.cut
}

func (c *client) setCut(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
}

// ask sends a request to the coordinator and waits for its answer. Requests and answers take time and get lost; a request that
// arrived is worked on even if its client does not wait any more.
func (c *client) ask(req kmsg.Request) (kmsg.Response, error) {
	give := time.Now().Add(requestTimeout)
	ctx, cancel := context.WithDeadline(context.Background(), give)
	defer cancel()
	if c.coordinator == nil {
		c.found = c.w.view(c.group)
		unread := map[int32]bool{}
		for _, r := range c.w.replicas {
			unread[r.node] = c.w.unread(r.node, c.group)
		}
		n, by, err := c.seek.find(ctx, c.group)
		if err != nil {
			return nil, err
		}
		c.w.ledAway(c.found, unread[replicaAt(by)], c.group, replicaAt(by), n)
		c.coordinator = &n
	}
	c.by = c.w.replicas[replicaAt(c.coordinator.address)-1]
	if req.Key() == kmsg.NewPtrStreamsGroupHeartbeatRequest().Key() {
		c.w.beaten(c.by.node, c.group)
		defer func() { c.w.beaten(c.by.node, c.group) }()
	}
	loses := 0
	if !c.w.isCalm() {
		loses = 50 // one in that many
	}
	dropped := func() bool { return loses > 0 && c.rng.IntN(loses) == 0 }
	dropThere, dropBack := dropped(), dropped()
	key := coordinatorKey(c.coordinator.id)
	if dropThere || dropBack {
		if conn, err := c.seek.connect(ctx, key, c.coordinator.address); err == nil && dropBack {
			_, _ = conn.Send(ctx, req) // the answer is lost, whatever becomes of it
		}
		pause(time.Until(give))
		c.seek.drop(key)
		return nil, errLost
	}
	resp, by, err := c.seek.ask(ctx, key, c.coordinator.address, req)
	if err != nil {
		return nil, errLost
	}
	c.by = c.w.replicas[replicaAt(by)-1]
	return resp, nil
}
