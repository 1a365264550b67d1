package http

import (
	"context"
	"fmt"
	nethttp "net/http"
	"sync"

	"streamkeeper/plugin"
)

// Name is the plugin's name.
const Name = "http"

// Plugin keeps descriptions in a catalogue.
type Plugin struct {
	cfg       Config
	client    *nethttp.Client
	transport *nethttp.Transport

	life context.Context // ends with Close
	end  context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// New returns a plugin for the catalogue at cfg.URL. It reads the files of cfg, but does not connect.
func New(cfg Config) (*Plugin, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = TimeoutDefault
	}
	if cfg.DescriptionBytesMax <= 0 {
		cfg.DescriptionBytesMax = DescriptionBytesMaxDefault
	}
	if cfg.Connections <= 0 {
		cfg.Connections = ConnectionsDefault
	}
	if cfg.AuthHeader == "" {
		cfg.AuthHeader = "Authorization"
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	transport, err := cfg.transport()
	if err != nil {
		return nil, err
	}
	p := &Plugin{cfg: cfg, transport: transport, client: &nethttp.Client{
		Transport:     transport,
		CheckRedirect: func(*nethttp.Request, []*nethttp.Request) error { return nethttp.ErrUseLastResponse },
	}}
	p.life, p.end = context.WithCancel(context.Background())
	return p, nil
}

// Name is "http".
func (p *Plugin) Name() string { return Name }

// Set is a PUT. A description above DescriptionBytesMax is refused for good without one, and so is a group whose id
// is too long for an address.
func (p *Plugin) Set(ctx context.Context, group string, epoch int32, d *plugin.Description) *plugin.Future[plugin.Void] {
	return start(p, func() (plugin.Void, error) {
		body, err := Document{Group: group, TopologyEpoch: epoch, Description: d}.Encode()
		if err != nil {
			return plugin.Void{}, plugin.Permanentf("the description can't be written as JSON: %s", err)
		}
		if len(body) > p.cfg.DescriptionBytesMax {
			return plugin.Void{}, &plugin.TooLargeError{Bytes: len(body), BytesMax: p.cfg.DescriptionBytesMax, What: "as JSON"}
		}
		if n := len(GroupSegment(group)); n > SegmentBytesMax {
			return plugin.Void{}, plugin.Permanentf("the group's id takes %d bytes in an address, more than the %d that are sent to a topology catalogue", n, SegmentBytesMax)
		}
		a, err := p.do(ctx, nethttp.MethodPut, p.address(group, epoch), body, smallAnswerBytesMax)
		if err == nil && !a.ok() {
			err = a.failure(true)
		}
		return plugin.Void{}, err
	})
}

// Get is a GET.
func (p *Plugin) Get(ctx context.Context, group string, epoch int32) *plugin.Future[*plugin.Description] {
	return start(p, func() (*plugin.Description, error) {
		if len(GroupSegment(group)) > SegmentBytesMax {
			return nil, nil // can't have been stored
		}
		bodyMax := p.cfg.DescriptionBytesMax + documentSlack
		a, err := p.do(ctx, nethttp.MethodGet, p.address(group, epoch), nil, bodyMax)
		switch {
		case err != nil:
			return nil, err
		case a.gone() || a.status == nethttp.StatusNoContent:
			return nil, nil
		case a.status != nethttp.StatusOK:
			return nil, a.failure(false)
		case a.cut:
			return nil, plugin.Transient(fmt.Sprintf("the topology catalogue's answer has more than %d bytes", bodyMax), nil)
		}
		d, err := decodeFor(a.body, group, epoch)
		if err != nil {
			return nil, plugin.Transient("the topology catalogue's answer can't be used", err)
		}
		return d, nil
	})
}

// Delete is a DELETE.
func (p *Plugin) Delete(ctx context.Context, group string) *plugin.Future[plugin.Void] {
	return start(p, func() (plugin.Void, error) {
		if len(GroupSegment(group)) > SegmentBytesMax {
			return plugin.Void{}, nil // can't have been stored
		}
		a, err := p.do(ctx, nethttp.MethodDelete, p.address(group), nil, smallAnswerBytesMax)
		if err == nil && !a.ok() && !a.gone() {
			err = a.failure(false)
		}
		return plugin.Void{}, err
	})
}

// start runs fn on a goroutine of its own that Close waits for.
func start[T any](p *Plugin, fn func() (T, error)) *plugin.Future[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return plugin.Failed[T](plugin.ErrClosed)
	}
	p.running.Add(1)
	return plugin.Go(func() (T, error) {
		defer p.running.Done()
		return fn()
	})
}

// Close breaks off the requests under way, waits for them as long as ctx lasts, and closes the connections.
func (p *Plugin) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end()
	ended := make(chan struct{})
	go func() {
		p.running.Wait()
		close(ended)
	}()
	defer p.transport.CloseIdleConnections()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("requests to the topology catalogue are still under way: %w", context.Cause(ctx))
	}
}
