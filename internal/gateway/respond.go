package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// slot is an answer that is due. What it has says where it comes from: ready is known at once, a job is run by the
// worker, up is read from upstream; with both up and job the two are merged.
type slot struct {
	header wire.Header // of the client's request

	ready kmsg.Response
	job   *job

	up        *upstream
	upVersion int16 // of the request that went upstream
	mode      respondMode
	rewrite   func(*Gateway, kmsg.Response)               // of the cluster's answer, in place
	merge     func(up, local kmsg.Response) kmsg.Response // with ready or the job's answer
}

// respondMode is how an answer of the cluster is passed on.
type respondMode int8

const (
	respondSplice     respondMode = iota // unread
	respondFetch                         // walked, addresses blanked
	respondShareFetch                    // the same
	respondProduce                       // walked in memory, decoded if it has addresses
	respondDecoded                       // decoded
)

// respond writes answers until the queue ends, or an error.
func (c *conn) respond() error {
	for {
		s, err := c.nextSlot()
		if s == nil {
			return err
		}
		if err := c.answer(s); err != nil {
			return err
		}
		c.in, c.out = keep(c.in), keep(c.out)
		if s.up != nil {
			c.upstream.Add(-1)
		}
		c.waiting.Add(-1)
	}
}

// nextSlot returns nil at the end. Before it waits it flushes.
func (c *conn) nextSlot() (*slot, error) {
	select {
	case s := <-c.slots:
		if s != nil {
			return s, nil
		}
	default:
		if err := c.client.w.Flush(); err != nil {
			return nil, err
		}
		if s := <-c.slots; s != nil {
			return s, nil
		}
	}
	return nil, c.client.w.Flush()
}

// keep gives up a buffer that one large message made large: it must not be paid for as long as the connection lives.
func keep(b []byte) []byte {
	if cap(b) > 64<<10 {
		return nil
	}
	return b[:0]
}

func (c *conn) answer(s *slot) error {
	if s.up == nil {
		resp, err := c.localAnswer(s)
		if err != nil {
			return err
		}
		return c.write(s, resp)
	}
	n, err := s.up.peekLength(4, math.MaxInt32) // a client bounds what it asks for
	if err == nil {
		var prefix []byte
		if prefix, err = s.up.r.Peek(8); err == nil {
			if got := int32(binary.BigEndian.Uint32(prefix[4:])); got != s.header.CorrelationID {
				err = &wire.CorrelationError{Got: got, Want: s.header.CorrelationID}
			}
		}
	}
	if err == nil {
		c.answered.Store(true)
		err = c.pass(s, n)
	}
	if err == nil || c.ctx.Err() != nil || c.client.wroteTo(err) { // the client's fault, not the cluster's
		return err
	}
	return refuse("upstream", fmt.Errorf("%s response from %v: %w", kmsg.NameForKey(s.header.Key), s.up.to, unexpected(err)))
}

// pass passes the frame of n bytes that comes next from upstream.
func (c *conn) pass(s *slot, n int) error {
	switch s.mode {
	case respondSplice:
		return s.up.copyTo(c.client, int64(n)+4)
	case respondFetch, respondShareFetch:
		if s.mode == respondFetch && s.upVersion < fetchEndpointsVersion {
			return s.up.copyTo(c.client, int64(n)+4)
		}
		return widely(s.up.stream, c.client, int64(n)+4, func() error { return c.walk(s, n) })
	}
	var err error
	if c.in, err = s.up.readFrame(c.in); err != nil {
		return err
	}
	if s.mode == respondProduce {
		if s.upVersion < produceEndpointsVersion || !produceHasEndpoints(c.in, s.upVersion) {
			return c.writeRaw(c.in)
		}
		s.rewrite = rewriteProduce
	}
	return c.passDecoded(s)
}

func (c *conn) walk(s *slot, n int) error {
	w := &walker{src: s.up.stream, dst: c.client, left: int64(n) + 4}
	if err := w.pass(8); err != nil { // length, correlation id
		return err
	}
	if s.mode == respondFetch {
		return walkFetch(w, s.upVersion)
	}
	return walkShareFetch(w, s.upVersion)
}

// passDecoded decodes the response in c.in, rewrites and merges it, and writes the result.
func (c *conn) passDecoded(s *slot) error {
	_, body, err := wire.ParseResponseHeader(s.header.Key, s.upVersion, c.in)
	if err != nil {
		return err
	}
	resp, err := parseUpstream(s.header.Key, s.upVersion, body)
	if err != nil {
		return err
	}
	resp.SetVersion(s.header.Version)
	if s.rewrite != nil {
		s.rewrite(c.g, resp)
	}
	if asksEveryNode(s.header.ClientID) {
		leaveOutIdle(c.ctx, c.g, resp)
	}
	if s.merge != nil {
		local, err := c.localAnswer(s)
		if err != nil {
			return err
		}
		resp = s.merge(resp, local)
	}
	return c.write(s, resp)
}

// localAnswer waits for the worker where there is a job.
func (c *conn) localAnswer(s *slot) (kmsg.Response, error) {
	if s.job == nil {
		return s.ready, nil
	}
	select {
	case <-s.job.done:
	default:
		if err := c.client.w.Flush(); err != nil {
			return nil, err
		}
		select {
		case <-s.job.done:
		case <-c.ctx.Done():
			return nil, context.Cause(c.ctx)
		}
	}
	if s.job.resp == nil {
		return nil, errors.New("the request was given up")
	}
	return s.job.resp, nil
}

// write encodes an answer. It must not use c.in, which the message may refer to.
func (c *conn) write(s *slot, resp kmsg.Response) error {
	if s.header.Key != apiVersions {
		c.answered.Store(true)
	}
	c.out = wire.AppendResponse(c.out[:0], s.header.CorrelationID, resp)
	_, err := c.client.w.Write(c.out)
	if err == nil && moved(resp) {
		if err = c.client.w.Flush(); err == nil {
			err = errMoved
		}
	}
	return err
}

func (c *conn) writeRaw(frame []byte) error {
	var prefix [4]byte
	binary.BigEndian.PutUint32(prefix[:], uint32(len(frame)))
	if _, err := c.client.w.Write(prefix[:]); err != nil {
		return err
	}
	_, err := c.client.w.Write(frame)
	return err
}
