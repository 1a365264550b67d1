package coordinator

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// peersMax bounds the replicas to which clients are kept: there are a few. The one unused for longest makes room.
	peersMax = 16
	// peerDialTimeout bounds the attempt to reach another replica: the caller's time is better spent on its successor.
	peerDialTimeout = 2 * time.Second
	// peerIdle closes connections to replicas that nothing was sent to for so long.
	peerIdle = 30 * time.Second
	// peerRequestsMax bounds what is under way to all other replicas: each waits for an append there.
	peerRequestsMax = 64
)

// Peers sends requests to other replicas.
type Peers interface {
	// Request sends one request to one replica and returns its answer. It does not try again.
	Request(ctx context.Context, to Node, r kmsg.Request) (kmsg.Response, error)
	Close()
}

// KafkaPeers are the other replicas at the addresses that clients use, over Kafka's protocol. Its methods are safe for concurrent use.
type KafkaPeers struct {
	clientID string
	slots    chan struct{}
	mu       sync.Mutex
	clients  map[string]*peer // by address
	closed   bool
}

type peer struct {
	client *kgo.Client
	used   time.Time
	using  int
}

// NewKafkaPeers makes the Peers of the replica with that node id.
func NewKafkaPeers(self int32) *KafkaPeers {
	return &KafkaPeers{clientID: peerClientID + strconv.Itoa(int(self)), slots: make(chan struct{}, peerRequestsMax), clients: map[string]*peer{}}
}

// Request implements Peers.
func (p *KafkaPeers) Request(ctx context.Context, to Node, r kmsg.Request) (kmsg.Response, error) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	peer, err := p.peer(net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
	if err != nil {
		return nil, err
	}
	defer p.release(peer)
	resp, err := peer.client.SeedBrokers()[0].Request(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("%s to replica %d at %s:%d: %w", kmsg.NameForKey(r.Key()), to.ID, to.Host, to.Port, err)
	}
	return resp, nil
}

func (p *KafkaPeers) peer(address string) (*peer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, net.ErrClosed
	}
	c := p.clients[address]
	if c == nil {
		client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ClientID(p.clientID), kgo.RequestRetries(0), kgo.ConnIdleTimeout(peerIdle),
			kgo.Dialer((&net.Dialer{Timeout: peerDialTimeout}).DialContext))
		if err != nil {
			return nil, err
		}
		p.makeRoom()
		c = &peer{client: client}
		p.clients[address] = c
	}
	c.using++
	c.used = time.Now()
	return c, nil
}

func (p *KafkaPeers) release(c *peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.using--
}

// makeRoom closes the client that was unused for longest. Those in use stay, of which there are at most peerRequestsMax.
func (p *KafkaPeers) makeRoom() {
	if len(p.clients) < peersMax {
		return
	}
	var oldest string
	for address, c := range p.clients {
		if c.using == 0 && (oldest == "" || c.used.Before(p.clients[oldest].used)) {
			oldest = address
		}
	}
	if oldest != "" {
		p.clients[oldest].client.Close()
		delete(p.clients, oldest)
	}
}

// Close implements Peers.
func (p *KafkaPeers) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.clients {
		c.client.Close()
	}
}
