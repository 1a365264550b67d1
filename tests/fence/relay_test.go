package fence

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// frameMax bounds a frame of a test.
const frameMax = 64 << 20

// frame is one request on its way to the cluster, or one answer on its way back.
type frame struct {
	request  kmsg.Request
	response kmsg.Response // nil: it is the request
}

// relay is how one replica reaches the cluster: a port for each broker. Addresses in answers are replaced, so that the replica knows no other way.
type relay struct {
	t    *testing.T
	name string

	mu      sync.Mutex
	brokers map[string]net.Listener // by the broker's own address
	conns   map[net.Conn]bool
	holds   []*hold
	// answer makes up the answer to a request, which then does not reach the cluster; nil answers nothing.
	answer func(kmsg.Request) kmsg.Response
	// change alters a request before it is sent on.
	change func(kmsg.Request) bool
	closed bool
}

// hold keeps back frames from the first that matches on, in its direction of its connection.
type hold struct {
	match  func(frame) bool
	caught chan struct{} // closed when one is held
	free   chan struct{} // closed to let it go
	once   sync.Once
	taken  bool
	all    bool // every frame that matches, not the first alone
}

func (h *hold) release() { h.once.Do(func() { close(h.free) }) }

func newRelay(t *testing.T, name string) *relay {
	r := &relay{t: t, name: name, brokers: map[string]net.Listener{}, conns: map[net.Conn]bool{}}
	t.Cleanup(r.close)
	return r
}

func (r *relay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, l := range r.brokers {
		l.Close()
	}
	for c := range r.conns {
		c.Close()
	}
	for _, h := range r.holds {
		h.release()
	}
}

// through is the address at which the replica reaches a broker.
func (r *relay) through(broker string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.brokers[broker]; l != nil {
		return l.Addr().String()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Errorf("relay %s: %v", r.name, err)
		return broker
	}
	r.brokers[broker] = l
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(c, broker)
		}
	}()
	return l.Addr().String()
}

// hold has the next frame that matches held back.
func (r *relay) hold(match func(frame) bool) *hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &hold{match: match, caught: make(chan struct{}), free: make(chan struct{})}
	r.holds = append(r.holds, h)
	return h
}

// holdAll has all frames that match held back from now on.
func (r *relay) holdAll(match func(frame) bool) *hold {
	h := r.hold(match)
	r.mu.Lock()
	defer r.mu.Unlock()
	h.all = true
	return h
}

func (r *relay) drop(h *hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.holds {
		if r.holds[i] == h {
			r.holds = append(r.holds[:i:i], r.holds[i+1:]...)
			break
		}
	}
	h.release()
}

func (r *relay) setAnswer(f func(kmsg.Request) kmsg.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

func (r *relay) setChange(f func(kmsg.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.change = f
}

// pass waits for as long as the frame is held.
func (r *relay) pass(f frame) {
	r.mu.Lock()
	var held []*hold
	for _, h := range r.holds {
		if (h.all || !h.taken) && h.match(f) {
			if !h.taken {
				h.taken = true
				close(h.caught)
			}
			held = append(held, h)
		}
	}
	r.mu.Unlock()
	for _, h := range held {
		<-h.free
	}
}

// pending is a request whose answer is due, or one that is answered here.
type pending struct {
	request kmsg.Request // nil where the relay need not know it
	header  wire.Header
	made    kmsg.Response
}

// pendingMax bounds what a replica has under way on one connection: kgo has a few, the gateway some more.
const pendingMax = 4096

func (r *relay) serve(client net.Conn, address string) {
	broker, err := net.Dial("tcp", address)
	if err != nil {
		client.Close()
		return
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		client.Close()
		broker.Close()
		return
	}
	r.conns[client], r.conns[broker] = true, true
	r.mu.Unlock()
	due := make(chan pending, pendingMax)
	var done sync.WaitGroup
	done.Add(2)
	end := func() {
		client.Close()
		broker.Close()
		done.Done()
	}
	go func() { defer end(); defer close(due); r.requests(client, broker, due) }()
	go func() { defer end(); r.answers(client, broker, due) }()
	done.Wait()
	r.mu.Lock()
	delete(r.conns, client)
	delete(r.conns, broker)
	r.mu.Unlock()
}

// looksAt are the requests that are decoded: those that matter to a shard, and those that tell addresses.
var looksAt = map[int16]bool{0: true, 1: true, 3: true, 10: true, 11: true, 12: true, 13: true, 14: true, 22: true, 60: true}

func (r *relay) requests(client, broker net.Conn, due chan<- pending) {
	for {
		b, err := readFrame(client)
		if err != nil {
			return
		}
		h, err := wire.ParseHeader(b)
		var unknown *wire.UnknownKeyError
		if err != nil && !errors.As(err, &unknown) {
			r.t.Errorf("relay %s: %v", r.name, err)
			return
		}
		p := pending{header: h}
		out := withLength(b)
		if err == nil && looksAt[h.Key] {
			if p.request, err = wire.ParseRequest(h.Key, h.Version, b[h.Size:]); err != nil {
				r.t.Errorf("relay %s: %v", r.name, err)
				return
			}
			r.pass(frame{request: p.request})
			r.mu.Lock()
			answer, change := r.answer, r.change
			r.mu.Unlock()
			if answer != nil {
				p.made = answer(p.request)
			}
			if change != nil && change(p.request) {
				out = wire.AppendRequest(nil, h.CorrelationID, h.ClientID, p.request)
			}
		}
		if acks, ok := p.request.(*kmsg.ProduceRequest); !ok || acks.Acks != 0 {
			due <- p
		}
		if p.made != nil {
			continue
		}
		if _, err := broker.Write(out); err != nil {
			return
		}
	}
}

func (r *relay) answers(client, broker net.Conn, due <-chan pending) {
	for p := range due {
		var out []byte
		resp := p.made
		switch {
		case resp != nil:
			out = wire.AppendResponse(nil, p.header.CorrelationID, resp)
		default:
			b, err := readFrame(broker)
			if err != nil {
				return
			}
			out = withLength(b)
			if p.request == nil {
				break
			}
			_, body, err := wire.ParseResponseHeader(p.header.Key, p.header.Version, b)
			if err == nil {
				resp, err = wire.ParseResponse(p.header.Key, p.header.Version, body)
			}
			if err != nil {
				r.t.Errorf("relay %s: %v", r.name, err)
				return
			}
			if r.rewrite(resp) {
				out = wire.AppendResponse(nil, p.header.CorrelationID, resp)
			}
		}
		if p.request != nil {
			r.pass(frame{request: p.request, response: resp})
		}
		if _, err := client.Write(out); err != nil {
			return
		}
	}
}

// rewrite puts the relay's ports in place of the brokers'.
func (r *relay) rewrite(resp kmsg.Response) bool {
	way := func(host *string, port *int32) {
		if *host == "" {
			return
		}
		h, p, err := net.SplitHostPort(r.through(net.JoinHostPort(*host, fmt.Sprint(*port))))
		if err != nil {
			panic(err)
		}
		n, err := strconv.Atoi(p)
		if err != nil {
			panic(err)
		}
		*host, *port = h, int32(n)
	}
	switch v := resp.(type) {
	case *kmsg.MetadataResponse:
		for i := range v.Brokers {
			way(&v.Brokers[i].Host, &v.Brokers[i].Port)
		}
	case *kmsg.DescribeClusterResponse:
		for i := range v.Brokers {
			way(&v.Brokers[i].Host, &v.Brokers[i].Port)
		}
	case *kmsg.FindCoordinatorResponse:
		if v.ErrorCode == 0 && v.Port > 0 {
			way(&v.Host, &v.Port)
		}
		for i := range v.Coordinators {
			if v.Coordinators[i].ErrorCode == 0 {
				way(&v.Coordinators[i].Host, &v.Coordinators[i].Port)
			}
		}
	default:
		return false
	}
	return true
}

func readFrame(c net.Conn) ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(c, n[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(n[:])
	if size > frameMax {
		return nil, fmt.Errorf("a frame of %d bytes", size)
	}
	b := make([]byte, size)
	_, err := io.ReadFull(c, b)
	return b, err
}

func withLength(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, len(b)+4), uint32(len(b))), b...)
}
