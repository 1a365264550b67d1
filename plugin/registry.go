package plugin

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// None is the name that stands for no plugin: members are never asked, a push is refused, a describe says that nothing
// is stored.
const None = "none"

// Factory makes plugins of one kind.
type Factory struct {
	Name     string // lower-case letters, digits and dashes
	Summary  string // one line for --help
	Settings []Setting
	// Open makes a plugin. It reads its settings and returns v.Err() where something is wrong with them; it does not wait for a
	// service that is down: a coordinator must start without it.
	Open func(v *Values) (Plugin, error)
}

// Registry knows plugins by name. It does not change after it was made.
type Registry struct{ factories []Factory }

var pluginName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// NewRegistry returns a registry of these factories, in this order.
func NewRegistry(factories ...Factory) (*Registry, error) {
	seen := map[string]bool{None: true}
	for _, f := range factories {
		switch {
		case !pluginName.MatchString(f.Name):
			return nil, fmt.Errorf("plugin name %q: want lower-case letters, digits and single dashes", f.Name)
		case seen[f.Name]:
			return nil, fmt.Errorf("plugin name %q is taken", f.Name)
		case f.Open == nil:
			return nil, fmt.Errorf("plugin %s can't be opened: it has no Open", f.Name)
		}
		seen[f.Name] = true
	}
	return &Registry{factories: slices.Clone(factories)}, nil
}

// Names returns the names in order, None last.
func (r *Registry) Names() []string {
	names := make([]string, 0, len(r.factories)+1)
	for _, f := range r.factories {
		names = append(names, f.Name)
	}
	return append(names, None)
}

// Factories returns what the registry was made of, for --help.
func (r *Registry) Factories() []Factory { return slices.Clone(r.factories) }

// Open makes the plugin of this name with these settings; None gives nil. An unknown name's error lists the known ones; an error in the
// settings lists all that is wrong with them.
func (r *Registry) Open(name string, settings map[string]string) (Plugin, error) {
	if name == None {
		if len(settings) > 0 {
			return nil, errors.New("there are settings for a topology description plugin, but the plugin is none")
		}
		return nil, nil
	}
	i := slices.IndexFunc(r.factories, func(f Factory) bool { return f.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("unknown topology description plugin %.60q: there are %s", name, strings.Join(r.Names(), ", "))
	}
	v, err := NewValues(name, r.factories[i].Settings, settings)
	if err != nil {
		return nil, err
	}
	p, err := r.factories[i].Open(v)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, fmt.Errorf("plugin %s: its Open returned nothing", name)
	}
	return p, nil
}
