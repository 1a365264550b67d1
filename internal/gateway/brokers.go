package gateway

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// endpoint is where a node is reached.
type endpoint struct {
	id   int32
	host string
	port int32
}

func (e endpoint) addr() string { return net.JoinHostPort(e.host, strconv.Itoa(int(e.port))) }

// brokers knows the cluster's brokers: where each is reached upstream, and the listener that stands for it here.
// A broker's port never changes and is never given to another id: clients keep addresses for minutes, and one that
// arrived at another broker would be told REBOOTSTRAP_REQUIRED at best.
type brokers struct {
	host      string // to listen on
	listenOn  func(address string) (net.Listener, error)
	advertise string // host that clients are told
	portBase  int    // 0: free ports
	serve     func(net.Listener, *broker)

	mu     sync.Mutex
	byID   map[int32]*broker
	live   []int32 // ids of the newest complete list, ascending
	failed map[int32]failedListen
	closed bool
}

// broker is an upstream broker with its listener. The upstream address may change, nothing else does.
type broker struct {
	id   int32
	port int32 // that clients are told
	ln   net.Listener

	mu       sync.Mutex
	upstream endpoint
}

type failedListen struct {
	err error
	at  time.Time
}

func (b *broker) address() endpoint {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.upstream
}

// learn takes in brokers that a Metadata or DescribeCluster response listed; complete says that it listed all. It
// opens the listeners of new ones and returns the errors of those that it could not open.
func (bs *brokers) learn(list []endpoint, complete bool, now time.Time) error {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if bs.closed {
		return nil
	}
	var errs []error
	for _, e := range list {
		b, err := bs.open(e, now)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if e.host == bs.advertise && e.port == b.port {
			// Forwarding there would come back here, over and over.
			errs = append(errs, &LoopError{Broker: e.id, Addr: e.addr()})
			continue
		}
		b.mu.Lock()
		b.upstream = e
		b.mu.Unlock()
	}
	if complete && len(list) > 0 {
		bs.live = bs.live[:0]
		for _, e := range list {
			bs.live = append(bs.live, e.id)
		}
		slices.Sort(bs.live)
	}
	return errors.Join(errs...)
}

// open returns the broker's entry, with a listener. The error is returned once per attempt, not per call.
func (bs *brokers) open(e endpoint, now time.Time) (*broker, error) {
	if b := bs.byID[e.id]; b != nil {
		return b, nil
	}
	if f, ok := bs.failed[e.id]; ok && now.Sub(f.at) < relistenInterval {
		return nil, f.err
	}
	ln, err := bs.listen(e.id)
	if err != nil {
		bs.failed[e.id] = failedListen{err: err, at: now}
		return nil, err
	}
	delete(bs.failed, e.id)
	b := &broker{id: e.id, ln: ln, port: int32(ln.Addr().(*net.TCPAddr).Port), upstream: e}
	bs.byID[e.id] = b
	bs.serve(ln, b)
	return b, nil
}

// PortError says that the port that would stand for an upstream broker can't be used.
type PortError struct {
	Broker int32 // the broker's node id
	Base   int   // --broker-port-base
	Port   int   // Base + Broker
	Err    error // what the system said; nil where the port is no port number
}

func (e *PortError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("upstream broker %d would be reached at port %d (--broker-port-base %d + its id), which is outside 1 to 65535: choose another --broker-port-base; or, if a replica of streamkeeper has this node id, --bootstrap-servers names streamkeeper and not the cluster", e.Broker, e.Port, e.Base)
	}
	return fmt.Sprintf("upstream broker %d would be reached at port %d (--broker-port-base %d + its id): %v: choose another --broker-port-base", e.Broker, e.Port, e.Base, e.Err)
}
func (e *PortError) Unwrap() error { return e.Err }

// LoopError says that the cluster advertises the gateway's port for a broker as the broker's own.
type LoopError struct {
	Broker int32
	Addr   string
}

func (e *LoopError) Error() string {
	return fmt.Sprintf("the cluster says that broker %d is at %s, which is streamkeeper's port for it: the broker's advertised.listeners must name the broker itself", e.Broker, e.Addr)
}

func (bs *brokers) listen(id int32) (net.Listener, error) {
	port := 0
	if bs.portBase != 0 {
		if port = bs.portBase + int(id); port < 1 || port > 65535 {
			return nil, &PortError{Broker: id, Base: bs.portBase, Port: port}
		}
	}
	ln, err := bs.listenOn(net.JoinHostPort(bs.host, strconv.Itoa(port)))
	if err != nil {
		return nil, &PortError{Broker: id, Base: bs.portBase, Port: port, Err: err}
	}
	return ln, nil
}

// advertised is where clients reach the broker; ok is false where it has no listener.
func (bs *brokers) advertised(id int32) (e endpoint, ok bool) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	b := bs.byID[id]
	if b == nil {
		return endpoint{id: id}, false
	}
	return endpoint{id: id, host: bs.advertise, port: b.port}, true
}

// candidates lists where some broker may be reached, the start moved by turn so that connections spread.
func (bs *brokers) candidates(turn uint32) []endpoint {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	list := make([]endpoint, 0, len(bs.live))
	for i := range bs.live {
		id := bs.live[(i+int(turn%uint32(len(bs.live))))%len(bs.live)]
		if b := bs.byID[id]; b != nil {
			list = append(list, b.address())
		}
	}
	return list
}

func (bs *brokers) close() {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	bs.closed = true
	for _, b := range bs.byID {
		_ = b.ln.Close() // ends its accept loop; nothing else can be done
	}
}
