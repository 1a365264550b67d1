package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// What a client does when a coordinator goes, by the rules of Java's client: an answer NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE, a
// connection that breaks, and a request that is not answered in time all mean: look the coordinator up at any node, then ask that one.
// COORDINATOR_LOAD_IN_PROGRESS means: ask the same again. Every other error is told the application, and here fails the test.

// clientTimeout is how long a client waits for an answer before it takes the node for dead. Java's default is 30 s: long after the shards of a
// node that hangs are served elsewhere, so it would measure itself alone.
const clientTimeout = 500 * time.Millisecond

// lane is a connection that several groups share, one request at a time.
type lane struct {
	timeout time.Duration
	mu      sync.Mutex
	c       *wire.Client
	gone    chan struct{} // closed when the connection broke
	dead    bool
}

// lanes are the connections to all nodes, made when they are first used.
type lanes struct {
	each    int // connections to a node
	timeout time.Duration
	mu      sync.Mutex
	byID    map[string]*lane
}

func newLanes(each int, timeout time.Duration) *lanes {
	return &lanes{each: each, timeout: timeout, byID: map[string]*lane{}}
}

// at returns the connection of number i to a node, a new one where the last broke.
func (l *lanes) at(addr string, i int) *lane {
	key := addr + "/" + strconv.Itoa(i%l.each)
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.byID[key]
	if ln == nil {
		ln = &lane{timeout: l.timeout, gone: make(chan struct{})}
		l.byID[key] = ln
	}
	return ln
}

// drop forgets a broken connection.
func (l *lanes) drop(addr string, i int, ln *lane) {
	key := addr + "/" + strconv.Itoa(i%l.each)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID[key] == ln {
		delete(l.byID, key)
	}
}

func (l *lanes) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ln := range l.byID {
		ln.mu.Lock()
		if ln.c != nil {
			ln.c.Close()
		}
		ln.mu.Unlock()
	}
}

// errBroken: the connection is of no use any more.
var errBroken = errors.New("connection broke")

// use calls f with the connection, and breaks it where f ends with anything but an answer.
func (ln *lane) use(ctx context.Context, addr string, f func(context.Context, *wire.Client) error) error {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.dead {
		return errBroken
	}
	ctx, cancel := context.WithTimeout(ctx, ln.timeout)
	defer cancel()
	var err error
	if ln.c == nil {
		ln.c, err = wire.Dial(ctx, addr, "bench")
	}
	if err == nil {
		err = f(ctx, ln.c)
	}
	var refused *kerr.Error
	if err == nil || errors.As(err, &refused) || errors.Is(err, errNoOffset) {
		return err
	}
	if ln.c != nil {
		ln.c.Close()
	}
	ln.dead = true
	close(ln.gone)
	return fmt.Errorf("%w: %w", errBroken, err)
}

// caller is one group's client.
type caller struct {
	g           *group
	number      int // which of the connections to a node it takes
	f           *fleet
	l           *lanes
	coordinator string // address; "": unknown
	node        int    // where it looks its coordinator up next
	lookups     int
	took        time.Duration  // of the last request, without the wait for the connection
	failures    map[string]int // by what was answered
}

func newCaller(g *group, number int, f *fleet, l *lanes) *caller {
	return &caller{g: g, number: number, f: f, l: l, node: number, failures: map[string]int{}}
}

// errFatal is what an application would be told.
type errFatal struct{ error }

// try sends one request where the coordinator is known or can be found. ok: it was answered with success. err is one that no client would
// try again after.
func (c *caller) try(ctx context.Context, do func(*group, context.Context, *wire.Client) error) (ok bool, err error) {
	if c.coordinator == "" && !c.lookup(ctx) {
		return false, nil
	}
	addr := c.coordinator
	ln := c.l.at(addr, c.number)
	err = ln.use(ctx, addr, func(ctx context.Context, w *wire.Client) error {
		sent := time.Now()
		defer func() { c.took = time.Since(sent) }()
		return do(c.g, ctx, w)
	})
	return c.judge(addr, ln, err)
}

func (c *caller) judge(addr string, ln *lane, err error) (ok bool, fatal error) {
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, errBroken):
		c.l.drop(addr, c.number, ln)
		c.failures["connection"]++
		c.coordinator = ""
	case errors.Is(err, kerr.NotCoordinator), errors.Is(err, kerr.CoordinatorNotAvailable):
		c.failures[err.(*kerr.Error).Message]++
		c.coordinator = ""
	case errors.Is(err, kerr.CoordinatorLoadInProgress):
		c.failures[err.(*kerr.Error).Message]++
	default:
		return false, errFatal{fmt.Errorf("group %s at %s: %w", c.g.id, addr, err)}
	}
	return false, nil
}

// lookup asks the next node for the coordinator.
func (c *caller) lookup(ctx context.Context) bool {
	addr := c.f.addrs[c.node%len(c.f.addrs)]
	c.node++
	c.lookups++
	ln := c.l.at(addr, c.number)
	err := ln.use(ctx, addr, func(ctx context.Context, w *wire.Client) error {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.SetVersion(4)
		req.CoordinatorKeys = []string{c.g.id}
		kresp, err := w.Exchange(ctx, req)
		if err != nil {
			return err
		}
		co := kresp.(*kmsg.FindCoordinatorResponse).Coordinators[0]
		if err := kerr.ErrorForCode(co.ErrorCode); err != nil {
			return err
		}
		c.coordinator = net.JoinHostPort(co.Host, strconv.Itoa(int(co.Port)))
		return nil
	})
	switch {
	case errors.Is(err, errBroken):
		c.l.drop(addr, c.number, ln)
		c.failures["connection"]++
	case err != nil:
		c.failures["lookup: "+err.Error()]++
	}
	return err == nil
}

// backoff is Java's pause after so many failures in a row: 100 ms that double up to a second, a fifth more or less.
func backoff(failures int) time.Duration {
	d := min(100*time.Millisecond<<min(failures-1, 4), time.Second)
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
