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
			if u.sticky == "" {
				u.sticky = holdsState(h.Key)
			}
			return u, nil
		}
		if u.sticky != "" {
			return nil, closedBy(u.to, u.sticky)
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

// What it means that a broker closed a connection that is sticky.
const (
	stickyShare      = "and with it this client's share sessions"
	stickyUnanswered = "which is all that it says to a producer that wants no answers (acks=0)"
)

// holdsState says what the request makes the broker keep for as long as the connection lasts: share sessions, or nothing.
func holdsState(key int16) string {
	if key == shareFetch || key == shareAcknowledge {
		return stickyShare
	}
	return ""
}

func closedBy(e endpoint, sticky string) error {
	return refuse("upstream", fmt.Errorf("%v closed the connection, %s", e, sticky))
}

// unanswered takes note of a Produce that no answer will come to. Where it fails (the broker leads the partition no more) the broker closes the connection:
// that is how the producer learns of it, and so must reach it at once, and not be mended here.
func (c *conn) unanswered(u *upstream) {
	u.lastUse = time.Now()
	if u.sticky == "" {
		u.sticky = stickyUnanswered
	}
	if !u.watched {
		u.watched = true
		c.watches.Go(func() { c.watch(u) })
	}
}

// watch ends the connection when the broker closes u, and else ends with it.
func (c *conn) watch(u *upstream) {
	for u.awaitRead() {
		// An answer that is due is the responder's, and so is an end before it.
		if c.upstream.Load() == 0 && u.closed() {
			c.cancel(closedBy(u.to, stickyUnanswered))
			return
		}
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(watchAgain):
		}
	}
}

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
