package client

import (
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// fakeCluster is a few listeners that answer as a test says, over the real protocol. Metadata, and FindCoordinator by the
// places of groups, it answers itself.
type fakeCluster struct {
	t       testing.TB
	brokers []*fakeBroker // node ids from 1

	mu       sync.Mutex
	places   map[string]int32 // node ids of coordinators; a group that is not there is at node 1
	handlers map[int16]handler
	versions map[int16]int16 // the highest version of each key
	seen     []kmsg.Request
}

// handler answers a request to a node. Nil ends the connection.
type handler func(node int32, req kmsg.Request) kmsg.Response

type fakeBroker struct {
	id   int32
	addr string

	mu    sync.Mutex
	ln    net.Listener // nil while it is down
	conns map[net.Conn]struct{}
}

// down ends the connections of a broker and takes no others.
func (b *fakeBroker) down() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ln != nil {
		b.ln.Close()
	}
	b.ln = nil
	for conn := range b.conns {
		conn.Close()
	}
}

// up makes a broker serve, at the address that it had.
func (c *fakeCluster) up(b *fakeBroker) {
	c.t.Helper()
	ln, err := net.Listen("tcp", b.addr)
	if err != nil {
		c.t.Fatal(err)
	}
	if addr := ln.Addr().String(); b.addr != addr { // the first time
		b.addr = addr
	}
	b.mu.Lock()
	b.ln = ln
	b.mu.Unlock()
	go c.accept(b, ln)
}

// holds notes a connection that is served; false: the broker is down.
func (b *fakeBroker) holds(conn net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns[conn] = struct{}{}
	return b.ln != nil
}

func (b *fakeBroker) ended(conn net.Conn) {
	conn.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, conn)
}

// startFake starts n brokers, which know the keys below in all versions of kmsg.
func startFake(t testing.TB, n int) *fakeCluster {
	t.Helper()
	c := &fakeCluster{t: t, places: map[string]int32{}, handlers: map[int16]handler{}, versions: map[int16]int16{}}
	for _, key := range []int16{0, 3, 8, 9, 10, 16, 18, 42, 88, 89, 93} {
		c.versions[key] = kmsg.RequestForKey(key).MaxVersion()
	}
	c.handlers[3], c.handlers[10] = c.metadata, c.findCoordinator
	for i := range n {
		b := &fakeBroker{id: int32(i + 1), addr: "127.0.0.1:0", conns: map[net.Conn]struct{}{}}
		c.brokers = append(c.brokers, b)
		c.up(b)
		t.Cleanup(b.down)
	}
	return c
}

func (c *fakeCluster) client(opts ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.brokers[0].addr), kgo.ClientID("test")}, opts...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Close)
	return cl
}

// on makes a handler answer requests of a key.
func (c *fakeCluster) on(key int16, h handler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handlers[key] = h
}

// knows sets the highest version of a key; -1 takes the key away.
func (c *fakeCluster) knows(key, version int16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.versions[key] = version; version < 0 {
		delete(c.versions, key)
	}
}

func (c *fakeCluster) place(group string, node int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.places[group] = node
}

// requests are the requests of a key that came so far.
func (c *fakeCluster) requests(key int16) []kmsg.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []kmsg.Request
	for _, r := range c.seen {
		if r.Key() == key {
			out = append(out, r)
		}
	}
	return out
}

func (c *fakeCluster) accept(b *fakeBroker, ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go c.serve(b, conn)
	}
}

func (c *fakeCluster) serve(b *fakeBroker, conn net.Conn) {
	defer b.ended(conn)
	if !b.holds(conn) {
		return
	}
	var buf []byte
	for {
		var err error
		if buf, err = wire.ReadFrame(conn, buf, wire.FrameBytesMax); err != nil {
			return // the client has gone
		}
		h, err := wire.ParseHeader(buf)
		if err != nil {
			c.t.Errorf("node %d: %v", b.id, err)
			return
		}
		req, err := wire.ParseRequest(h.Key, h.Version, buf[h.Size:])
		if err != nil {
			c.t.Errorf("node %d: %v", b.id, err)
			return
		}
		c.mu.Lock()
		c.seen = append(c.seen, req)
		handle, known := c.handlers[h.Key], h.Key == 18 || h.Version <= c.versions[h.Key]
		c.mu.Unlock()
		var resp kmsg.Response
		switch {
		case h.Key == 18:
			resp = c.apiVersions(req)
		case handle == nil || !known:
			c.t.Errorf("node %d: unexpected %s v%d", b.id, kmsg.NameForKey(h.Key), h.Version)
			return
		default:
			resp = handle(b.id, req)
		}
		if resp == nil {
			return
		}
		resp.SetVersion(h.Version)
		if _, err := conn.Write(wire.AppendResponse(nil, h.CorrelationID, resp)); err != nil && err != io.EOF {
			return
		}
	}
}

func (c *fakeCluster) apiVersions(kmsg.Request) kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, version := range c.versions {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MaxVersion = key, version
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	return resp
}

func (c *fakeCluster) metadata(int32, kmsg.Request) kmsg.Response {
	resp := kmsg.NewPtrMetadataResponse()
	resp.ControllerID = 1
	for _, b := range c.brokers {
		m := kmsg.NewMetadataResponseBroker()
		m.NodeID = b.id
		m.Host, m.Port = c.addr(b)
		resp.Brokers = append(resp.Brokers, m)
	}
	return resp
}

func (c *fakeCluster) addr(b *fakeBroker) (string, int32) {
	host, port, _ := net.SplitHostPort(b.addr)
	n, _ := strconv.Atoi(port)
	return host, int32(n)
}

func (c *fakeCluster) node(id int32) Node {
	host, port := c.addr(c.brokers[id-1])
	return Node{id, host, port}
}

func (c *fakeCluster) findCoordinator(_ int32, kreq kmsg.Request) kmsg.Response {
	req := kreq.(*kmsg.FindCoordinatorRequest)
	resp := kmsg.NewPtrFindCoordinatorResponse()
	c.mu.Lock()
	defer c.mu.Unlock()
	at := func(group string) *fakeBroker {
		if id, ok := c.places[group]; ok {
			return c.brokers[id-1]
		}
		return c.brokers[0]
	}
	if req.Version < 4 {
		b := at(req.CoordinatorKey)
		resp.NodeID = b.id
		resp.Host, resp.Port = c.addr(b)
		return resp
	}
	for _, key := range req.CoordinatorKeys {
		b := at(key)
		k := kmsg.NewFindCoordinatorResponseCoordinator()
		k.Key, k.NodeID = key, b.id
		k.Host, k.Port = c.addr(b)
		resp.Coordinators = append(resp.Coordinators, k)
	}
	return resp
}
