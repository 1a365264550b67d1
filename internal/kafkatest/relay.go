package kafkatest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
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

// Frame is one request on its way to the cluster, or one answer on its way back.
type Frame struct {
	Request  kmsg.Request
	Response kmsg.Response // nil: it is the request
}

// Relay is how one replica reaches the cluster: a port for each broker. Addresses in answers are replaced, so that the replica knows no other way.
// What passes can be held back, altered, or answered in the cluster's place. All methods may be called from any goroutine.
type Relay struct {
	tb   testing.TB
	name string
	host string // where it listens
	from string // the address from which it reaches brokers; "" for whichever the system takes

	mu      sync.Mutex
	brokers map[string]net.Listener // by the broker's own address
	conns   map[net.Conn]bool
	holds   []*Hold
	// answer makes up the answer to a request, which then does not reach the cluster; nil answers nothing.
	answer func(kmsg.Request) kmsg.Response
	// change alters a request before it is sent on.
	change func(kmsg.Request) bool
	closed bool
}

// Hold keeps back frames from the first that matches on, in its direction of its connection.
type Hold struct {
	// Caught is closed when one is held.
	Caught chan struct{}
	match  func(Frame) bool
	free   chan struct{} // closed to let it go
	once   sync.Once
	taken  bool
	all    bool // every frame that matches, not the first alone
}

// Release lets go what is held; what matches later is held no more.
func (h *Hold) Release() { h.once.Do(func() { close(h.free) }) }

// NewRelay makes one that listens at a host's free ports. name is for messages. It ends with the test.
func NewRelay(tb testing.TB, host, name string) *Relay {
	r := &Relay{tb: tb, name: name, host: host, brokers: map[string]net.Listener{}, conns: map[net.Conn]bool{}}
	tb.Cleanup(r.close)
	return r
}

func (r *Relay) close() {
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
		h.Release()
	}
}

// Through is the address at which the replica reaches a broker.
func (r *Relay) Through(broker string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.brokers[broker]; l != nil {
		return l.Addr().String()
	}
	l, err := net.Listen("tcp", net.JoinHostPort(r.host, "0"))
	if err != nil {
		r.tb.Errorf("relay %s: %v", r.name, err)
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

// From has it reach brokers from another address of this machine, from the next connection on: they take what comes for another host's.
func (r *Relay) From(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.from = host
}

// Hold has the next frame that matches held back.
func (r *Relay) Hold(match func(Frame) bool) *Hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &Hold{match: match, Caught: make(chan struct{}), free: make(chan struct{})}
	r.holds = append(r.holds, h)
	return h
}

// HoldAll has all frames that match held back from now on.
func (r *Relay) HoldAll(match func(Frame) bool) *Hold {
	h := r.Hold(match)
	r.mu.Lock()
	defer r.mu.Unlock()
	h.all = true
	return h
}

// Drop ends a hold.
func (r *Relay) Drop(h *Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.holds {
		if r.holds[i] == h {
			r.holds = append(r.holds[:i:i], r.holds[i+1:]...)
			break
		}
	}
	h.Release()
}

// SetAnswer has answers made up by f: a request that it answers does not reach the cluster; nil answers nothing.
func (r *Relay) SetAnswer(f func(kmsg.Request) kmsg.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// SetChange has f alter requests, and say which it has altered; nil alters nothing.
func (r *Relay) SetChange(f func(kmsg.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.change = f
}

// pass waits for as long as the frame is held.
func (r *Relay) pass(f Frame) {
	r.mu.Lock()
	var held []*Hold
	for _, h := range r.holds {
		if (h.all || !h.taken) && h.match(f) {
			if !h.taken {
				h.taken = true
				close(h.Caught)
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

func (r *Relay) serve(client net.Conn, address string) {
	var dialer net.Dialer
	r.mu.Lock()
	if r.from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(r.from)}
	}
	r.mu.Unlock()
	broker, err := dialer.Dial("tcp", address)
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
var looksAt = map[int16]bool{0: true, 1: true, 2: true, 3: true, 10: true, 11: true, 12: true, 13: true, 14: true, 22: true, 60: true}

func (r *Relay) requests(client, broker net.Conn, due chan<- pending) {
	for {
		b, err := readFrame(client)
		if err != nil {
			return
		}
		h, err := wire.ParseHeader(b)
		var unknown *wire.UnknownKeyError
		if err != nil && !errors.As(err, &unknown) {
			r.tb.Errorf("relay %s: %v", r.name, err)
			return
		}
		p := pending{header: h}
		out := withLength(b)
		if err == nil && looksAt[h.Key] {
			if p.request, err = wire.ParseRequest(h.Key, h.Version, b[h.Size:]); err != nil {
				r.tb.Errorf("relay %s: %v", r.name, err)
				return
			}
			r.pass(Frame{Request: p.request})
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

func (r *Relay) answers(client, broker net.Conn, due <-chan pending) {
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
				r.tb.Errorf("relay %s: %v", r.name, err)
				return
			}
			if r.rewrite(resp) {
				out = wire.AppendResponse(nil, p.header.CorrelationID, resp)
			}
		}
		if p.request != nil {
			r.pass(Frame{Request: p.request, Response: resp})
		}
		if _, err := client.Write(out); err != nil {
			return
		}
	}
}

// rewrite puts the relay's ports in place of the brokers'.
func (r *Relay) rewrite(resp kmsg.Response) bool {
	way := func(host *string, port *int32) {
		if *host == "" {
			return
		}
		h, p, err := net.SplitHostPort(r.Through(net.JoinHostPort(*host, fmt.Sprint(*port))))
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

// ProduceAnswer makes up the answer to a Produce request, in its version; tell fills in what is said of each partition.
func ProduceAnswer(q *kmsg.ProduceRequest, tell func(kmsg.ProduceRequestTopicPartition, *kmsg.ProduceResponseTopicPartition)) kmsg.Response {
	resp := q.ResponseKind().(*kmsg.ProduceResponse)
	resp.SetVersion(q.GetVersion())
	for _, t := range q.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition = p.Partition
			tell(p, &rp)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// WithoutProducer takes producer id, epoch and sequence out of a batch, in place. Where they are (message format 2):
//
//	17 int32 CRC-32C of what follows it
//	43 int64 producer id
//	51 int16 producer epoch
//	53 int32 sequence of the first record
func WithoutProducer(batch []byte) {
	for i := range batch[43:57] {
		batch[43+i] = 0xff
	}
	binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)))
}
