package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/wire"
)

// receive reads requests until the connection ends. It returns io.EOF where the client closed it properly.
func (c *conn) receive() error {
	for {
		n, err := c.nextFrame()
		if err == nil {
			err = c.take(n)
		}
		if err == nil {
			continue
		}
		var refused *refusal
		if u := c.up; u != nil && u.wroteTo(err) && !errors.As(err, &refused) { // the cluster's fault, not the client's
			err = refuse("upstream", fmt.Errorf("send to %v: %w", u.to, err))
		}
		return err
	}
}

// nextFrame waits for a frame and returns its length; nothing of it is taken.
func (c *conn) nextFrame() (int, error) {
	c.between.Store(true)
	defer c.between.Store(false)
	for {
		n, err := c.client.peekLength(wire.FrameBytesMin, wire.FrameBytesMax)
		var foreign *wire.ForeignProtocolError
		var length *wire.LengthError
		switch {
		case errors.As(err, &foreign):
			return 0, err
		case errors.As(err, &length):
			return 0, refuse("frame", err)
		case errors.Is(err, os.ErrDeadlineExceeded):
			if c.g.draining.Load() {
				return 0, errDrained
			}
			if c.waiting.Load() > 0 {
				continue // it waits for us, a JoinGroup for minutes
			}
			return 0, errIdle
		}
		return n, err
	}
}

// header reads the header of the frame that begins at the buffer's start, without taking it.
func (c *conn) header(n int) (wire.Header, error) {
	want := min(n, wire.FrameBytesMin)
	for {
		b, err := c.client.r.Peek(4 + want)
		if err != nil {
			return wire.Header{}, unexpected(err)
		}
		if more := min(n, c.client.r.Buffered()-4); more > want {
			want = more
			b, _ = c.client.r.Peek(4 + want)
		}
		h, err := wire.ParseHeader(b[4:])
		if err == nil {
			return h, nil
		}
		if !wire.IsTruncated(err) || want == n {
			return h, refuse("header", err)
		}
		if want++; 4+want > clientReadBytes {
			return h, refuse("header", fmt.Errorf("the header of a request with key %d exceeds %d bytes", h.Key, clientReadBytes-4))
		}
	}
}

// take handles one request, whose frame of n bytes (and length prefix) begins at the buffer's start.
func (c *conn) take(n int) error {
	h, err := c.header(n)
	if err != nil {
		return err
	}
	r := &routes[h.Key]
	switch {
	case h.Key == produce:
		return c.takeProduce(h, n)
	case r.plan != nil:
		return c.takeDecoded(h, n, r)
	}
	return c.takeRaw(h, n, r)
}

// takeRaw passes a request on unread.
func (c *conn) takeRaw(h wire.Header, n int, r *route) error {
	u, err := c.upstreamFor(h)
	if err != nil {
		return err
	}
	if r.mode != respondSplice && h.Version > wire.MaxVersion(h.Key) {
		return refuse("version", &wire.VersionError{Key: h.Key, Version: h.Version, Max: wire.MaxVersion(h.Key)})
	}
	if err := c.client.copyTo(u.stream, int64(n)+4); err != nil {
		return err
	}
	c.g.metrics.request(c.ctx, h.Key, "forwarded")
	return c.enqueue(&slot{header: h, up: u, upVersion: h.Version, mode: r.mode, rewrite: r.rewrite})
}

func (c *conn) takeProduce(h wire.Header, n int) error {
	u, err := c.upstreamFor(h)
	if err != nil {
		return err
	}
	if h.Version > wire.MaxVersion(produce) {
		return refuse("version", &wire.VersionError{Key: h.Key, Version: h.Version, Max: wire.MaxVersion(h.Key)})
	}
	c.g.metrics.request(c.ctx, h.Key, "forwarded")
	var p produced
	err = widely(c.client, u.stream, int64(n)+4, func() error {
		w := &walker{src: c.client, dst: u.stream, left: int64(n) + 4}
		if err := w.pass(4 + int64(h.Size)); err != nil {
			return err
		}
		p, err = walkProduce(w, h.Version, c.g.own)
		return err
	})
	if err != nil {
		if errors.Is(err, errWalk) {
			err = refuse("body", &wire.BodyError{Key: h.Key, Version: h.Version, Size: n - h.Size, Err: err})
		}
		return err
	}
	if p.refused {
		c.g.metrics.refuse(c.ctx, "log topic")
		c.g.warn("log topic", "write to a topic of streamkeeper's own refused", "peer", c.client.conn.RemoteAddr().String(), "api", "Produce")
	}
	if p.acks == 0 {
		c.unanswered(u)
		return nil
	}
	s := &slot{header: h, up: u, upVersion: h.Version, mode: respondProduce}
	if p.refused {
		s.mode, s.rewrite = respondDecoded, refusedProduce
	}
	return c.enqueue(s)
}

// request is a decoded request with its frame, which is valid until the plan is carried out.
type request struct {
	wire.Header
	frame []byte // without length prefix
	msg   kmsg.Request
}

func (rq *request) caller(c *conn) coordinator.Caller {
	who := coordinator.Caller{ClientHost: c.caller}
	if rq.ClientID != nil {
		who.ClientID = *rq.ClientID
	}
	return who
}

func (c *conn) takeDecoded(h wire.Header, n int, r *route) error {
	if h.Version > wire.MaxVersion(h.Key) && h.Key != apiVersions {
		return refuse("version", &wire.VersionError{Key: h.Key, Version: h.Version, Max: wire.MaxVersion(h.Key)})
	}
	if n-h.Size > wire.DecodeBytesMax {
		return refuse("body", &wire.BodyError{Key: h.Key, Version: h.Version, Size: n - h.Size, Err: wire.ErrBodyTooLarge})
	}
	var err error
	if c.frame, err = wire.ReadFrame(c.client.r, c.frame, wire.FrameBytesMax); err != nil {
		return err
	}
	rq := &request{Header: h, frame: c.frame}
	if h.Key != apiVersions || h.Version <= wire.MaxVersion(apiVersions) {
		if rq.msg, err = wire.ParseRequest(h.Key, h.Version, c.frame[h.Size:]); err != nil {
			return refuse("body", err)
		}
	}
	p, err := r.plan(c, rq)
	if err != nil {
		return err
	}
	err = c.carryOut(rq, p)
	c.frame = keep(c.frame)
	return err
}

// carryOut sends upstream what a plan has for the cluster, gives the worker what it has for us, and queues the slot.
func (c *conn) carryOut(rq *request, p plan) error {
	s := &slot{header: rq.Header, ready: p.answer, merge: p.merge}
	if s.ready != nil && rq.Key != apiVersions { // whose answer may be in version 0 on purpose
		s.ready.SetVersion(rq.Version)
	}
	if p.forward || p.up != nil {
		u, err := c.upstreamFor(rq.Header)
		if err != nil {
			return err
		}
		s.up, s.upVersion, s.mode, s.rewrite = u, rq.Version, respondSplice, p.rewrite
		if most := u.versions.max(rq.Key); rq.Version > most && rq.Version <= raised(rq.Key, most) {
			s.upVersion = most // offered by us, unknown there
		}
		switch up := p.up; {
		case up != nil, s.upVersion != rq.Version:
			if up == nil {
				up = rq.msg
			}
			up.SetVersion(s.upVersion)
			s.mode = respondDecoded
			if _, err := u.w.Write(wire.AppendRequest(nil, rq.CorrelationID, rq.ClientID, up)); err != nil {
				return err
			}
		default:
			if p.rewrite != nil || p.merge != nil {
				s.mode = respondDecoded
			}
			if err := writeFrame(u, rq.frame); err != nil {
				return err
			}
		}
		c.g.metrics.request(c.ctx, rq.Key, "forwarded")
	} else {
		c.g.metrics.request(c.ctx, rq.Key, "local")
	}
	if p.local != nil {
		s.job = &job{rq: rq, run: p.local, group: p.group, done: make(chan struct{})}
		c.local.Add(1)
		select {
		case c.jobs <- s.job:
		case <-c.ctx.Done():
			c.local.Done()
			return context.Cause(c.ctx)
		}
	}
	return c.enqueue(s)
}

func writeFrame(u *upstream, frame []byte) error {
	n := len(frame)
	if _, err := u.w.Write([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}); err != nil {
		return err
	}
	_, err := u.w.Write(frame)
	return err
}

// enqueue queues a slot. If the queue is full it waits, and what was written upstream must have left by then.
func (c *conn) enqueue(s *slot) error {
	c.waiting.Add(1)
	if s.up != nil {
		c.upstream.Add(1)
		s.up.lastUse = time.Now()
	}
	select {
	case c.slots <- s:
		return nil
	default:
	}
	if c.up != nil {
		if err := c.up.w.Flush(); err != nil {
			return err
		}
	}
	select {
	case c.slots <- s:
		return nil
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}
