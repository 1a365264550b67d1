package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// conn is a client's connection. Three goroutines serve it:
//
//	receiver   reads requests, decides where each goes, writes upstream what is the cluster's
//	worker     runs the requests that are ours, one after the other in the order they came
//	responder  writes the answers in the order of the requests, from the worker or from upstream
//
// Between receiver and responder goes a queue of slots, one for each answer that is due. A broker runs the requests
// of a connection one after the other; here what is ours and what is the cluster's run side by side. They touch
// different things, with one exception: whose a group is. So that question waits for the jobs before it (groups.go).
type conn struct {
	g        *Gateway
	listener listener
	client   *stream
	caller   string // host of the peer in Java's form, "/10.0.0.1"

	ctx    context.Context
	cancel context.CancelCauseFunc

	// Of the receiver alone.
	up       *upstream                // nil: not connected yet
	software *kmsg.ApiVersionsRequest // the client's, if it sent one
	frame    []byte

	// Of the responder alone.
	in, out []byte

	slots    chan *slot
	jobs     chan *job
	local    sync.WaitGroup // jobs that are not done
	watches  sync.WaitGroup // of upstream connections; they end with these
	waiting  atomic.Int64   // slots that are not answered
	upstream atomic.Int64   // of those, the ones that wait for the cluster
	between  atomic.Bool    // the receiver waits for the next request and has nothing of it
	answered atomic.Bool    // the client has had an answer, ApiVersions apart

	mu    sync.Mutex
	socks [2]net.Conn // client and upstream, to close when ctx ends
}

// errDrained ends a receiver because the gateway is closing; what it accepted is still answered.
var errDrained = errors.New("the gateway is closing")

// errIdle ends a connection that asked nothing for the idle time-out.
var errIdle = errors.New("idle for too long")

func newConn(g *Gateway, nc net.Conn, l listener) *conn {
	c := &conn{g: g, listener: l, slots: make(chan *slot, slotsMax), jobs: make(chan *job, slotsMax), socks: [2]net.Conn{nc}}
	c.ctx, c.cancel = context.WithCancelCause(g.ctx)
	c.client = newStream(nc, clientReadBytes, clientWriteBytes, g.limits.StallTimeout)
	c.client.beforeRead = c.beforeClientRead
	host, _, err := net.SplitHostPort(nc.RemoteAddr().String())
	if err != nil {
		host = nc.RemoteAddr().String()
	}
	c.caller = "/" + host
	return c
}

// serve runs the connection until it ends.
func (c *conn) serve() {
	stop := context.AfterFunc(c.ctx, c.closeSockets)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.respond(); err != nil {
			c.cancel(err)
		}
	})
	wg.Go(c.work)
	err := c.receive()
	if !errors.Is(err, errDrained) {
		c.cancel(err)
	}
	close(c.jobs)
	close(c.slots)
	wg.Wait()
	c.logEnd(context.Cause(c.ctx))
	c.cancel(nil)
	c.closeSockets()
	c.watches.Wait()
}

// logEnd says why the connection ended, where that is worth a line.
func (c *conn) logEnd(err error) {
	peer := c.client.conn.RemoteAddr().String()
	var foreign *wire.ForeignProtocolError
	var refused *refusal
	if errors.Is(err, os.ErrDeadlineExceeded) && !errors.As(err, &refused) {
		err = refuse("stalled", fmt.Errorf("the peer stopped in the middle of a frame: %w", err))
	}
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, errIdle), errors.Is(err, errMoved), errors.Is(err, context.Canceled):
		return
	case errors.As(err, &foreign):
		c.g.metrics.refuse(c.g.ctx, "protocol")
		c.g.warn("protocol "+foreign.Protocol, "connection refused", "peer", peer, "node", c.listener.id, "err", err)
	case errors.As(err, &refused):
		c.g.metrics.refuse(c.g.ctx, refused.kind)
		c.g.warn(refused.kind, "connection closed", "peer", peer, "node", c.listener.id, "err", err)
	default:
		c.g.log.Debug("connection ended", "peer", peer, "node", c.listener.id, "err", err)
	}
}

// refusal is an end of a connection that its peer, or the cluster, caused by something we can't take; kind is what
// log lines and the counter call it.
type refusal struct {
	kind string
	err  error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(kind string, err error) error { return &refusal{kind: kind, err: err} }

func (c *conn) closeSockets() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range c.socks {
		if s != nil {
			if i == 0 && c.passes(context.Cause(c.ctx)) {
				reset(s)
			}
			s.Close()
			c.socks[i] = nil
		}
	}
}

// reset has the next Close of a connection reset it.
func reset(nc net.Conn) {
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // where that fails it is closed
	}
}

// passes says that the client must be told that it may try again, here or elsewhere, by a connection that is reset instead of closed. One that is closed before its first answer
// looks to some clients (kgo) like a port that wants TLS or SASL, which they don't try again: they give up the records they had to send. A broker that is down refuses connections;
// its port here takes them. With a reset what was written and not received is lost, so never after an answer.
func (c *conn) passes(why error) bool {
	if c.answered.Load() {
		return false
	}
	var refused *refusal
	return c.g.draining.Load() || errors.As(why, &refused) && (refused.kind == "upstream" || refused.kind == "upstream down")
}

// drain makes the receiver stop where it waits for a new request.
func (c *conn) drain() {
	if c.between.Load() {
		c.client.conn.SetReadDeadline(time.Unix(1, 0)) // a closed connection is drained already
	}
}

// beforeClientRead runs before each read of the client's socket that may block. In the order of these steps drain
// is never missed: it sets the flag before the deadline.
func (c *conn) beforeClientRead() error {
	if c.up != nil {
		if err := c.up.w.Flush(); err != nil {
			return err
		}
	}
	wait := c.g.limits.StallTimeout
	if c.between.Load() {
		wait = c.g.limits.IdleTimeout
	}
	if err := c.client.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	if c.between.Load() && c.g.draining.Load() {
		return errDrained
	}
	return nil
}
