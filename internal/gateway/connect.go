package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"streamkeeper/internal/wire"
)

// upstreamFor returns the connection's upstream twin, connecting it if there is none. A connection to a broker's
// listener goes to that broker; one to the own node goes to any, and stays there.
//
// A broker closes connections that are idle, and one whose client talks only to us is. So a twin that waits for
// nothing and was closed is replaced without the client noticing, except where the broker held state for it.
func (c *conn) upstreamFor(h wire.Header) (*upstream, error) {
	if u := c.up; u != nil {
		unused := c.upstream.Load() == 0 && time.Since(u.lastUse) > recheckAfter && u.w.Buffered() == 0
		if !unused || !u.gone() {
			u.sticky = u.sticky || holdsState(h.Key)
			return u, nil
		}
		if u.sticky {
			return nil, refuse("upstream", fmt.Errorf("%v closed the connection, and with it this client's share sessions", u.to))
		}
	}
	u, err := c.connect()
	if err != nil {
		if c.ctx.Err() != nil {
			return nil, context.Cause(c.ctx)
		}
		c.g.metrics.dialFailed(c.ctx, c.listener.id)
		return nil, refuse("upstream down", fmt.Errorf("no upstream for a client: %w", err))
	}
	c.g.remember(c.listener.id, u)
	u.sticky = holdsState(h.Key)
	u.beforeRead = func() error { return c.client.w.Flush() } // reading is the responder's from now on
	c.up = u
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		u.conn.Close()
		return nil, context.Cause(c.ctx)
	}
	if old := c.socks[1]; old != nil {
		old.Close()
	}
	c.socks[1] = u.conn
	return u, nil
}

// holdsState says that the request makes the broker keep something for as long as the connection lasts: share
// sessions.
func holdsState(key int16) bool { return key == shareFetch || key == shareAcknowledge }

func (c *conn) connect() (*upstream, error) {
	g := c.g
	if b := c.listener.broker; b != nil {
		return g.dial(c.ctx, b.address(), c.software)
	}
	turn := g.turn.Add(1)
	list := g.brokers.candidates(turn)
	if c.up != nil {
		list = append([]endpoint{c.up.to}, list...)
	}
	for i := range g.upstreams {
		list = append(list, g.upstreams[(i+int(turn%uint32(len(g.upstreams))))%len(g.upstreams)])
	}
	var errs []error
	tried := map[string]bool{}
	for _, e := range list {
		if tried[e.addr()] || len(tried) == dialAttemptsMax {
			continue
		}
		tried[e.addr()] = true
		u, err := g.dial(c.ctx, e, c.software)
		if err == nil {
			return u, nil
		}
		errs = append(errs, err)
		if c.ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}
