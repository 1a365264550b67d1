package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// EnvPrefix begins the environment variables: STREAMKEEPER_NODE_ID stands for --node-id.
const EnvPrefix = "STREAMKEEPER"

// fileBytesMax is the size of the largest file that is read: a log given by mistake must not fill the memory.
const fileBytesMax = 1 << 20

// Load reads a YAML file whose keys are the names of flags without the dashes; lists may be YAML lists, "set" is a
// mapping. It is a kong.ConfigurationLoader. A flag on the command line and an environment variable win over the file.
func Load(r io.Reader) (kong.Resolver, error) {
	name := "the configuration file"
	if f, ok := r.(*os.File); ok {
		name = f.Name()
	}
	b, err := io.ReadAll(io.LimitReader(r, fileBytesMax+1))
	if err != nil {
		return nil, err
	}
	if len(b) > fileBytesMax {
		return nil, fmt.Errorf("%s: is larger than %d bytes", name, fileBytesMax)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f := &file{name: name, values: map[string]any{}, lines: map[string]int{}}
	if len(doc.Content) == 0 {
		return f, nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: want a mapping of flag names to values", name, root.Line)
	}
	var errs []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, node := root.Content[i], root.Content[i+1]
		v, err := plain(node)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %s: %w", name, node.Line, key.Value, err))
			continue
		}
		if _, ok := f.lines[key.Value]; ok {
			errs = append(errs, fmt.Errorf("%s:%d: %s is given twice", name, key.Line, key.Value))
		}
		f.values[key.Value], f.lines[key.Value] = v, key.Line
	}
	return f, errors.Join(errs...)
}

// plain makes a string of a scalar, a comma-separated string of a list, a map of a mapping.
func plain(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return nil, errors.New("has no value")
		}
		return n.Value, nil
	case yaml.SequenceNode:
		var parts []string
		for _, c := range n.Content {
			if c.Kind != yaml.ScalarNode {
				return nil, errors.New("want a list of plain values")
			}
			parts = append(parts, c.Value)
		}
		return strings.Join(parts, ","), nil
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			v, err := plain(n.Content[i+1])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", n.Content[i].Value, err)
			}
			s, ok := v.(string)
			if !ok {
				return nil, fmt.Errorf("%s: want a plain value", n.Content[i].Value)
			}
			m[n.Content[i].Value] = s
		}
		return m, nil
	case yaml.AliasNode:
		return plain(n.Alias)
	}
	return nil, errors.New("want a plain value, a list or a mapping")
}

type file struct {
	name   string
	values map[string]any
	lines  map[string]int
}

// Validate refuses keys that are no flag of any command: a misspelt one would otherwise silently be the default.
func (f *file) Validate(app *kong.Application) error {
	flags := map[string]bool{}
	_ = kong.Visit(app, func(n kong.Visitable, next kong.Next) error {
		if flag, ok := n.(*kong.Flag); ok {
			flags[flag.Name] = true
		}
		return next(nil)
	})
	keys := make([]string, 0, len(f.values))
	for key := range f.values {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int { return f.lines[a] - f.lines[b] })
	var errs []error
	for _, key := range keys {
		if !flags[key] || key == "help" || key == "config" || key == "version" {
			errs = append(errs, fmt.Errorf("%s:%d: there is no setting %q", f.name, f.lines[key], key))
		}
	}
	return errors.Join(errs...)
}

// Resolve gives kong the value of a flag that is not on the command line.
func (f *file) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	v, ok := f.values[flag.Name]
	if !ok {
		return nil, nil
	}
	for _, env := range flag.Envs {
		if _, ok := os.LookupEnv(env); ok {
			return nil, nil
		}
	}
	return v, nil
}
