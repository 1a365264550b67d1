package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// network is what lies between clients, replicas and brokers: listeners by address, and connections whose bytes take a while, arrive in
// order, and wait where the way is cut.
type network struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener
	ports     int // given out to those who connect
}

func newNetwork() *network { return &network{listeners: map[string]*memoryListener{}} }

// sockets are the connections and listeners of one process, so that they end with it.
type sockets struct {
	gate *gate

	mu   sync.Mutex
	ends map[*socket]struct{}
	lns  []*memoryListener
	gone bool
}

func newSockets(g *gate) *sockets { return &sockets{gate: g, ends: map[*socket]struct{}{}} }

func (s *sockets) add(e *socket) {
	s.mu.Lock()
	gone := s.gone
	if !gone {
		s.ends[e] = struct{}{}
	}
	s.mu.Unlock()
	if gone {
		e.shut(false)
	}
}

func (s *sockets) remove(e *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ends, e)
}

// kill closes everything at once. Silently: the machine is gone as well, and the peers are not told.
func (s *sockets) kill(silently bool) {
	s.mu.Lock()
	s.gone = true
	ends, lns := s.ends, s.lns
	s.ends = map[*socket]struct{}{}
	s.mu.Unlock()
	for _, ln := range lns {
		ln.Close()
	}
	for e := range ends {
		e.shut(silently)
	}
}

// listen takes connections to an address on behalf of a process. cut says that nothing reaches it.
func (n *network) listen(address string, of *sockets, cut func() bool) (net.Listener, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		return nil, fmt.Errorf("listen %s: %w", address, syscall.EADDRINUSE)
	}
	ln := &memoryListener{
		n: n, address: address, addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: number}, of: of, cut: cut,
		queue: make(chan net.Conn, backlogMax), closed: make(chan struct{}),
	}
	n.listeners[address] = ln
	of.mu.Lock()
	of.lns = append(of.lns, ln)
	of.mu.Unlock()
	return ln, nil
}

// backlogMax is how many connections may wait to be accepted: as many as there are clients, at most.
const backlogMax = 1000

type memoryListener struct {
	n       *network
	address string
	addr    *net.TCPAddr
	of      *sockets
	cut     func() bool
	queue   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		l.of.gate.pass()
		return c, nil
	case <-l.closed:
		return nil, fmt.Errorf("accept at %s: %w", l.address, net.ErrClosed)
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.n.mu.Lock()
		defer l.n.mu.Unlock()
		if l.n.listeners[l.address] == l {
			delete(l.n.listeners, l.address)
		}
	})
	return nil
}

func (l *memoryListener) Addr() net.Addr { return l.addr }

// cutLook is how often a way that is cut is looked at again: TCP sends again after a while, too.
const cutLook = 200 * time.Millisecond

// connect makes a connection to an address on behalf of a process or a client. delay draws how long bytes take, of one kind there and of
// another one back; cut says that nothing gets through on the near side.
func (n *network) connect(ctx context.Context, address string, of *sockets, delay func(kind string) time.Duration, cut func() bool) (net.Conn, error) {
	there := func() time.Duration { return delay("to " + address) }
	back := func() time.Duration { return delay("from " + address) }
	of.gate.pass()
	pause(there())
	for {
		n.mu.Lock()
		ln := n.listeners[address]
		n.ports++
		port := n.ports
		n.mu.Unlock()
		if ln == nil && !cut() {
			return nil, fmt.Errorf("connect to %s: %w", address, syscall.ECONNREFUSED)
		}
		if ln == nil || cut() || ln.cut() {
			t := time.NewTimer(cutLook)
			select {
			case <-t.C:
				continue
			case <-ctx.Done():
				t.Stop()
				return nil, fmt.Errorf("connect to %s: %w", address, ctx.Err())
			}
		}
		way := func() bool { return cut() || ln.cut() }
		from := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1024 + port}
		near := &socket{of: of, local: from, remote: ln.addr, cut: way, delay: there, changed: make(chan struct{})}
		far := &socket{of: ln.of, local: ln.addr, remote: from, cut: way, delay: back, changed: make(chan struct{})}
		near.peer, far.peer = far, near
		of.add(near)
		ln.of.add(far)
		select {
		case ln.queue <- far:
		default:
			panic("too many connections wait at " + address)
		}
		return near, nil
	}
}

// socket is one end of a connection.
type socket struct {
	of            *sockets
	peer          *socket
	local, remote net.Addr
	cut           func() bool
	delay         func() time.Duration

	mu      sync.Mutex
	in      []byte // arrived
	ended   bool   // the peer has closed it, and all it sent is here
	closed  bool   // by this side
	until   time.Time
	changed chan struct{} // closed and replaced at every change

	// What this end has sent and is under way.
	sending sync.Mutex
	queue   []packet
	busy    bool
}

type packet struct {
	at    time.Time
	bytes []byte // nil: the end
}

func (s *socket) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *socket) Read(p []byte) (int, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return 0, net.ErrClosed
		}
		if len(s.in) > 0 {
			s.mu.Unlock()
			s.of.gate.pass() // a process that is stopped has read nothing yet
			s.mu.Lock()
			n := copy(p, s.in)
			s.in = s.in[n:]
			s.mu.Unlock()
			if n == 0 {
				continue // reset meanwhile
			}
			return n, nil
		}
		ended, until, changed := s.ended, s.until, s.changed
		s.mu.Unlock()
		if ended {
			s.of.gate.pass()
			return 0, io.EOF
		}
		if until.IsZero() {
			<-changed
			continue
		}
		t := time.NewTimer(time.Until(until))
		select {
		case <-changed:
			t.Stop()
		case <-t.C:
			s.of.gate.pass()
			s.mu.Lock()
			over := s.until.Equal(until) && len(s.in) == 0
			s.mu.Unlock()
			if over {
				return 0, &net.OpError{Op: "read", Net: "memory", Addr: s.remote, Err: os.ErrDeadlineExceeded}
			}
		}
	}
}

// Write never waits: what is sent is under way then.
func (s *socket) Write(p []byte) (int, error) {
	s.of.gate.pass()
	s.mu.Lock()
	closed, ended := s.closed, s.ended
	s.mu.Unlock()
	switch {
	case closed:
		return 0, net.ErrClosed
	case ended:
		return 0, &net.OpError{Op: "write", Net: "memory", Addr: s.remote, Err: syscall.EPIPE}
	}
	s.send(append([]byte(nil), p...))
	return len(p), nil
}

// send puts bytes on their way, nil for the end, behind what was sent before.
func (s *socket) send(bytes []byte) {
	s.sending.Lock()
	defer s.sending.Unlock()
	at := time.Now().Add(s.delay())
	if n := len(s.queue); n > 0 && !at.After(s.queue[n-1].at) {
		at = s.queue[n-1].at.Add(1)
	}
	s.queue = append(s.queue, packet{at, bytes})
	if !s.busy {
		s.busy = true
		time.AfterFunc(time.Until(at), s.deliver)
	}
}

// deliver brings what has arrived, in order. While the way is cut nothing does.
func (s *socket) deliver() {
	s.sending.Lock()
	defer s.sending.Unlock()
	if s.cut() && !s.peer.isClosed() {
		time.AfterFunc(cutLook, s.deliver)
		return
	}
	for len(s.queue) > 0 && !s.queue[0].at.After(time.Now()) {
		s.peer.arrive(s.queue[0].bytes)
		s.queue = s.queue[1:]
	}
	if s.busy = len(s.queue) > 0; s.busy {
		time.AfterFunc(time.Until(s.queue[0].at), s.deliver)
	}
}

func (s *socket) arrive(bytes []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes == nil {
		s.ended = true
	} else {
		s.in = append(s.in, bytes...)
	}
	s.notify()
}

func (s *socket) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// over says that the other end has closed the connection, as far as this one has heard.
func (s *socket) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended || s.closed
}

// shut closes this end; the other one hears of it behind all that was sent, or never.
func (s *socket) shut(silently bool) {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.notify()
	s.mu.Unlock()
	if !was && !silently {
		s.send(nil)
	}
}

// abort closes this end, and what the other one has not read yet it never will (a reset).
func (s *socket) abort() {
	s.sending.Lock()
	s.queue = slices.DeleteFunc(s.queue, func(p packet) bool { return p.bytes != nil })
	s.sending.Unlock()
	s.shut(false)
	s.of.remove(s)
	s.peer.mu.Lock()
	defer s.peer.mu.Unlock()
	s.peer.in = nil
}

// Close implements net.Conn.
func (s *socket) Close() error {
	s.shut(false)
	s.of.remove(s)
	return nil
}

func (s *socket) LocalAddr() net.Addr  { return s.local }
func (s *socket) RemoteAddr() net.Addr { return s.remote }

func (s *socket) SetDeadline(t time.Time) error { return s.SetReadDeadline(t) }

func (s *socket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	earlier := s.until.IsZero() || t.Before(s.until)
	if s.until = t; earlier && !t.IsZero() {
		s.notify()
	}
	return nil
}

// SetWriteDeadline has nothing to bound.
func (s *socket) SetWriteDeadline(time.Time) error { return nil }

// TestTheNetworkKeepsOrderAndWaits: bytes arrive once, in order and after a while, not while the way is cut; a deadline ends a read, an end
// comes last.
func TestTheNetworkKeepsOrderAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, server, client := newNetwork(), newSockets(&gate{}), newSockets(&gate{})
		var isCut atomic.Bool
		step := time.Millisecond
		ln, err := n.listen("r1:9292", server, isCut.Load)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.listen("r1:9292", server, nil); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("listened on twice: %v", err)
		}
		delay := func(string) time.Duration { step /= 2; return step } // later packets are faster, and still come behind
		a, err := n.connect(t.Context(), "r1:9292", client, delay, func() bool { return false })
		if err != nil {
			t.Fatal(err)
		}
		b, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"one ", "two ", "three"} {
			if _, err := a.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]byte, 13)
		if _, err := io.ReadFull(b, got); err != nil || string(got) != "one two three" {
			t.Errorf("read %q, %v", got, err)
		}
		if err := b.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if _, err := b.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		if err := b.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		isCut.Store(true)
		begin = time.Now()
		if _, err := a.Write([]byte("late")); err != nil {
			t.Fatal(err)
		}
		a.Close()
		time.AfterFunc(time.Minute, func() { isCut.Store(false) })
		if rest, err := io.ReadAll(b); err != nil || string(rest) != "late" || time.Since(begin) < time.Minute {
			t.Errorf("after %v: %q, %v", time.Since(begin), rest, err)
		}
		server.kill(false)
		if _, err := n.connect(t.Context(), "r1:9292", client, delay, func() bool { return false }); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connected to nobody: %v", err)
		}
		client.kill(false)
	})
}
