package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"streamkeeper/plugin"
)

// Name is the plugin's name.
const Name = "memory"

const (
	// BytesMaxDefault bounds all descriptions together, as Description.Bytes counts: some thousand large topologies, and
	// a small part of what a replica has.
	BytesMaxDefault = 64 << 20

	// DescriptionBytesMaxDefault bounds one description: an application with ten thousand nodes takes about 2 MB.
	DescriptionBytesMaxDefault = 8 << 20

	// EpochsMaxDefault is how many epochs of a group are kept, the highest ones: the one before is of interest during an
	// upgrade, an older one hardly.
	EpochsMaxDefault = 4

	// groupBytes is what a group takes beside its id and its descriptions.
	groupBytes = 200
)

// Config bounds what is kept. A zero value means the default.
type Config struct {
	BytesMax, DescriptionBytesMax, EpochsMax int
}

// Plugin keeps descriptions in memory.
type Plugin struct {
	cfg Config

	mu     sync.Mutex
	closed bool
	groups map[string]*group
	bytes  int
}

// group has its descriptions ascending by epoch.
type group struct{ epochs []stored }

type stored struct {
	epoch       int32
	description *plugin.Description // never modified
	bytes       int
}

func byEpoch(s stored, epoch int32) int { return cmp.Compare(s.epoch, epoch) }

// New returns an empty plugin.
func New(cfg Config) *Plugin {
	if cfg.BytesMax <= 0 {
		cfg.BytesMax = BytesMaxDefault
	}
	if cfg.DescriptionBytesMax <= 0 {
		cfg.DescriptionBytesMax = DescriptionBytesMaxDefault
	}
	if cfg.EpochsMax <= 0 {
		cfg.EpochsMax = EpochsMaxDefault
	}
	return &Plugin{cfg: cfg, groups: map[string]*group{}}
}

// Name is "memory".
func (p *Plugin) Name() string { return Name }

// Set keeps a copy of d. A description above DescriptionBytesMax is refused for good; when all is full the failure is
// transient, since other groups may go.
func (p *Plugin) Set(ctx context.Context, id string, epoch int32, d *plugin.Description) *plugin.Future[plugin.Void] {
	size := d.Bytes()
	if size > p.cfg.DescriptionBytesMax {
		return plugin.Failed[plugin.Void](&plugin.TooLargeError{Bytes: size, BytesMax: p.cfg.DescriptionBytesMax, What: "in memory"})
	}
	if err := ctx.Err(); err != nil {
		return plugin.Failed[plugin.Void](err) // nobody would learn of it
	}
	s := stored{epoch: epoch, description: d.Clone(), bytes: size}
	if err := p.put(id, s); err != nil {
		return plugin.Failed[plugin.Void](err)
	}
	return plugin.Completed(plugin.Void{})
}

func (p *Plugin) put(id string, s stored) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return plugin.ErrClosed
	}
	g := p.groups[id]
	var epochs []stored
	added := s.bytes
	if g == nil {
		added += groupBytes + len(id)
	} else {
		epochs = slices.Clone(g.epochs)
	}
	i, there := slices.BinarySearchFunc(epochs, s.epoch, byEpoch)
	if there {
		added -= epochs[i].bytes
		epochs[i] = s
	} else {
		epochs = slices.Insert(epochs, i, s)
	}
	if len(epochs) > p.cfg.EpochsMax {
		added -= epochs[0].bytes
		epochs = slices.Delete(epochs, 0, 1)
	}
	if p.bytes+added > p.cfg.BytesMax && added > 0 {
		return fmt.Errorf("the memory for topology descriptions is full: %d of %d bytes are used, %d more are needed", p.bytes, p.cfg.BytesMax, added)
	}
	p.bytes += added
	if g == nil {
		g = &group{}
		p.groups[id] = g
	}
	g.epochs = epochs
	return nil
}

// Get returns a copy of what was set for the epoch.
func (p *Plugin) Get(_ context.Context, id string, epoch int32) *plugin.Future[*plugin.Description] {
	d, err := p.find(id, epoch)
	if err != nil {
		return plugin.Failed[*plugin.Description](err)
	}
	return plugin.Completed(d.Clone())
}

func (p *Plugin) find(id string, epoch int32) (*plugin.Description, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, plugin.ErrClosed
	}
	if g := p.groups[id]; g != nil {
		if i, there := slices.BinarySearchFunc(g.epochs, epoch, byEpoch); there {
			return g.epochs[i].description, nil
		}
	}
	return nil, nil
}

// Epochs returns the epochs that are kept of the group.
func (p *Plugin) Epochs(_ context.Context, id string) *plugin.Future[[]int32] {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return plugin.Failed[[]int32](plugin.ErrClosed)
	}
	epochs := []int32{}
	if g := p.groups[id]; g != nil {
		for _, s := range g.epochs {
			epochs = append(epochs, s.epoch)
		}
	}
	return plugin.Completed(epochs)
}

// Delete forgets the group.
func (p *Plugin) Delete(_ context.Context, id string) *plugin.Future[plugin.Void] {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return plugin.Failed[plugin.Void](plugin.ErrClosed)
	}
	if g := p.groups[id]; g != nil {
		p.bytes -= groupBytes + len(id)
		for _, s := range g.epochs {
			p.bytes -= s.bytes
		}
		delete(p.groups, id)
	}
	return plugin.Completed(plugin.Void{})
}

// Close forgets everything.
func (p *Plugin) Close(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.groups, p.bytes = true, nil, 0
	return nil
}
