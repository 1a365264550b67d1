package gateway

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// dials remembers where clients connected to.
type dials struct {
	mu    sync.Mutex
	addrs map[string]int
}

func recordDials() *dials { return &dials{addrs: map[string]int{}} }

func (d *dials) opt() kgo.Opt {
	return kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		d.mu.Lock()
		d.addrs[addr]++
		d.mu.Unlock()
		var nd net.Dialer
		return nd.DialContext(ctx, network, addr)
	})
}

// only fails the test if a client connected to any other address than those allowed.
func (d *dials) only(tb testing.TB, allowed []string) {
	tb.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for addr, n := range d.addrs {
		if !slices.Contains(allowed, addr) {
			tb.Errorf("clients connected to %s %d times, past the gateway", addr, n)
		}
	}
}
