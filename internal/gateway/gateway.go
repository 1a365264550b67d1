package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"streamkeeper/internal/coordinator"
)

// Config is what a Gateway needs. Listen, Upstream and Service are required.
type Config struct {
	// Listen is host:port of this replica's own node (--listen), which applications bootstrap to.
	Listen string
	// Advertise is the host, or host:port, that clients are told (--advertise); empty: the listen address, which
	// must not be a wildcard then. A port given here is that of the own node alone.
	Advertise string
	// BrokerPortBase: upstream broker n is reached at this port + n (--broker-port-base). 0: free ports, chosen when
	// a broker is first seen and kept; for tests.
	BrokerPortBase int
	// NodeID is this replica's node id in Metadata (--node-id), outside the cluster's range.
	NodeID int32
	// Upstream are bootstrap servers of the cluster, host:port each (--bootstrap-servers).
	Upstream []string
	// Service answers for the groups of ours.
	Service coordinator.Service

	Logger *slog.Logger // nil: none
	Tracer trace.Tracer // nil: none; a span per request that is answered here
	Meter  metric.Meter // nil: none
	Limits Limits

	// ListenOn and Connect stand for TCP where they are set: tests have a network in memory. A listener's address is a *net.TCPAddr.
	ListenOn func(address string) (net.Listener, error)
	Connect  func(ctx context.Context, address string) (net.Conn, error)
}

// Gateway is the proxy before a cluster: one listener for this replica's own node and one for each broker.
type Gateway struct {
	cfg     Config
	limits  Limits
	service coordinator.Service
	log     *slog.Logger
	tracer  trace.Tracer
	metrics *metrics
	mishaps mishaps

	ln        net.Listener
	self      endpoint // as clients are told
	upstreams []endpoint
	brokers   *brokers
	turn      atomic.Uint32
	clusterID atomic.Pointer[string]
	own       ownTopics
	// needsLogID: the cluster takes writes by topic id, so that until those of the own topics are known they can't be told
	// from others.
	needsLogID atomic.Bool

	ctx      context.Context // ends when connections must
	stop     context.CancelFunc
	draining atomic.Bool
	done     chan struct{} // Close has begun
	closing  sync.Once
	cut      int  // connections that were closed with answers due; written by Close
	stuck    bool // some did not end; likewise

	wg     sync.WaitGroup // everything that runs
	mu     sync.Mutex
	conns  map[*conn]struct{}
	offers sync.Map // listener's node id → *remembered
}

// New opens the own listener and asks the cluster for its brokers, whose listeners it opens as well. It returns an
// error where a setting can't work: an address that can't be listened on, a broker whose port is taken or outside
// the range (*PortError, which names --broker-port-base), a node id that the cluster uses. A cluster that can't be
// reached within Limits.StartWait is not an error: Run goes on asking.
func New(cfg Config) (*Gateway, error) {
	if cfg.ListenOn == nil {
		cfg.ListenOn = func(address string) (net.Listener, error) { return net.Listen("tcp", address) }
	}
	if cfg.Connect == nil {
		cfg.Connect = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	g := &Gateway{cfg: cfg, limits: cfg.Limits.withDefaults(), service: cfg.Service, log: cfg.Logger, tracer: cfg.Tracer,
		done: make(chan struct{}), conns: map[*conn]struct{}{}}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if g.tracer == nil {
		g.tracer = tracenoop.NewTracerProvider().Tracer("")
	}
	meter := cfg.Meter
	if meter == nil {
		meter = metricnoop.NewMeterProvider().Meter("")
	}
	var err error
	if g.metrics, err = newMetrics(meter); err != nil {
		return nil, fmt.Errorf("gateway metrics: %w", err)
	}
	if cfg.Service == nil {
		return nil, errors.New("gateway: no coordinator.Service")
	}
	g.own = newOwnTopics(cfg.Service.LogTopic(), cfg.Service.DescriptionTopic())
	if g.upstreams, err = parseUpstreams(cfg.Upstream); err != nil {
		return nil, err
	}
	if cfg.NodeID < 0 {
		return nil, fmt.Errorf("--node-id %d is negative", cfg.NodeID)
	}
	if cfg.BrokerPortBase < 0 || cfg.BrokerPortBase > 65535 {
		return nil, fmt.Errorf("--broker-port-base %d is outside 1 to 65535", cfg.BrokerPortBase)
	}
	if g.ln, err = cfg.ListenOn(cfg.Listen); err != nil {
		return nil, fmt.Errorf("--listen %s: %w", cfg.Listen, err)
	}
	if err = g.advertise(); err != nil {
		g.ln.Close()
		return nil, err
	}
	for _, e := range g.upstreams { // every connection would make another one
		if e.addr() == g.ln.Addr().String() || e.addr() == g.self.addr() {
			g.ln.Close()
			return nil, fmt.Errorf("--bootstrap-servers: %s is streamkeeper's own address; name brokers of the cluster", e.addr())
		}
	}
	g.ctx, g.stop = context.WithCancel(context.Background())
	g.wg.Add(1)
	go g.accept(g.ln, listener{id: cfg.NodeID})
	if err = g.firstProbe(); err != nil {
		g.Close(context.Background())
		return nil, err
	}
	return g, nil
}

func parseUpstreams(servers []string) ([]endpoint, error) {
	var list []endpoint
	for _, s := range servers {
		host, port, err := net.SplitHostPort(s)
		n, perr := strconv.ParseUint(port, 10, 16)
		if err != nil || perr != nil || host == "" || n == 0 {
			return nil, fmt.Errorf("--bootstrap-servers: %q is not host:port", s)
		}
		list = append(list, endpoint{id: -1, host: host, port: int32(n)})
	}
	if len(list) == 0 {
		return nil, errors.New("--bootstrap-servers is empty: name at least one broker of the cluster")
	}
	return list, nil
}

// advertise fills in self and brokers from the listener and the settings.
func (g *Gateway) advertise() error {
	bound := g.ln.Addr().(*net.TCPAddr)
	listenHost, _, _ := net.SplitHostPort(g.cfg.Listen) // was just listened on
	host, port := listenHost, int32(bound.Port)
	if g.cfg.Advertise == "" {
		if bound.IP.IsUnspecified() {
			return fmt.Errorf("--listen %s takes connections on every address, which is none that clients could be told: set --advertise to the host name or address that they reach", g.cfg.Listen)
		}
	} else {
		host = g.cfg.Advertise
		if h, p, err := net.SplitHostPort(g.cfg.Advertise); err == nil {
			n, err := strconv.ParseUint(p, 10, 16)
			if err != nil || n == 0 || h == "" {
				return fmt.Errorf("--advertise %q is neither a host nor host:port", g.cfg.Advertise)
			}
			host, port = h, int32(n)
		}
	}
	g.self = endpoint{id: g.cfg.NodeID, host: host, port: port}
	g.brokers = &brokers{host: listenHost, listenOn: g.cfg.ListenOn, advertise: host, portBase: g.cfg.BrokerPortBase, serve: g.serveBroker,
		byID: map[int32]*broker{}, failed: map[int32]failedListen{}}
	return nil
}

// Addr is the address of the own node's listener.
func (g *Gateway) Addr() net.Addr { return g.ln.Addr() }

// Advertised is the host and port of the own node as clients are told.
func (g *Gateway) Advertised() (host string, port int32) { return g.self.host, g.self.port }

// BrokerAddr is the address that clients are told for an upstream broker; ok is false while it has no listener.
func (g *Gateway) BrokerAddr(id int32) (addr string, ok bool) {
	e, ok := g.brokers.advertised(id)
	return e.addr(), ok
}

// Run follows the cluster's brokers until ctx ends or Close is called. When ctx ends it closes the gateway and returns
// Close's error. The listeners serve from New on.
func (g *Gateway) Run(ctx context.Context) error {
	g.wg.Add(1)
	g.follow(ctx)
	g.wg.Done()
	select {
	case <-g.done: // whoever closes it hears how that went
		return nil
	default:
		return g.Close(context.WithoutCancel(ctx))
	}
}

// Close stops listening, answers the requests that were accepted within the drain time-out (or until ctx ends), and
// closes all connections. It returns when nothing of the gateway runs any more, or closeMax after it has cut what runs: what waits for a disk that hangs
// ends with the process. The error says how many connections were cut off with answers due. Later calls wait for the first.
func (g *Gateway) Close(ctx context.Context) error {
	g.closing.Do(func() {
		close(g.done)
		g.draining.Store(true)
		g.ln.Close()
		g.brokers.close()
		g.mu.Lock()
		for c := range g.conns {
			c.drain()
		}
		g.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, g.limits.DrainTimeout)
		defer cancel()
		over := make(chan struct{})
		go func() { defer close(over); g.wg.Wait() }()
		select {
		case <-over:
		case <-ctx.Done():
			g.cut = g.connections()
		}
		g.stop()
		select {
		case <-over:
		case <-time.After(closeMax):
			g.stuck = true
		}
	})
	switch {
	case g.stuck:
		return fmt.Errorf("%d connections were closed with answers due, and do not end", g.cut)
	case g.cut > 0:
		return fmt.Errorf("%d connections were closed with answers due", g.cut)
	}
	return nil
}

// listener says for whom a connection was accepted: the own node, or a broker.
type listener struct {
	id     int32   // node id
	broker *broker // nil: the own node
}

func (l listener) own() bool { return l.broker == nil }

func (g *Gateway) serveBroker(ln net.Listener, b *broker) {
	g.log.Info("upstream broker", "broker", b.id, "upstream", b.upstream.addr(), "listen", ln.Addr().String())
	g.metrics.dialFailure.Add(g.ctx, 0, metric.WithAttributes(attribute.Int("node", int(b.id)))) // counted from the beginning
	g.wg.Add(1)
	go g.accept(ln, listener{id: b.id, broker: b})
}

func (g *Gateway) accept(ln net.Listener, l listener) {
	defer g.wg.Done()
	for {
		nc, err := ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of file descriptors, mostly. Accepting again at once would spin.
			g.metrics.refuse(g.ctx, "accept")
			g.warn("accept", "can't accept a connection", "listen", ln.Addr().String(), "err", err)
			select {
			case <-g.done:
				return
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		g.admit(nc, l)
	}
}

// admit starts a connection, or closes it where there are too many.
func (g *Gateway) admit(nc net.Conn, l listener) {
	g.mu.Lock()
	open := len(g.conns)
	if g.draining.Load() || open >= g.limits.ConnectionsMax {
		g.mu.Unlock()
		reset(nc) // see passes
		nc.Close()
		if !g.draining.Load() {
			g.metrics.refuse(g.ctx, "connections")
			g.warn("connections", "connection refused: too many are open", "peer", nc.RemoteAddr().String(), "limit", g.limits.ConnectionsMax)
		}
		return
	}
	c := newConn(g, nc, l)
	g.conns[c] = struct{}{}
	g.wg.Add(1)
	g.mu.Unlock()
	g.metrics.connections.Add(g.ctx, 1)
	go func() {
		defer g.wg.Done()
		c.serve()
		g.mu.Lock()
		delete(g.conns, c)
		g.mu.Unlock()
		g.metrics.connections.Add(context.Background(), -1)
	}()
}

// connections is how many client connections are open.
func (g *Gateway) connections() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.conns)
}
