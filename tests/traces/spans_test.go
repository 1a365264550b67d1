package traces

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// span is one span as any store of traces has it.
type span struct {
	Trace, ID, Parent string
	Links             []string // ids of spans
	Service, Name     string
	Attributes        map[string]string
	Events            []string
	Failed            bool
	Start             time.Time
	Took              time.Duration
}

func (s span) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", s.Service, s.Name)
	for _, k := range slices.Sorted(maps.Keys(s.Attributes)) {
		fmt.Fprintf(&b, " %s=%s", k, s.Attributes[k])
	}
	for _, e := range s.Events {
		fmt.Fprintf(&b, " +%s", e)
	}
	if s.Failed {
		b.WriteString(" ERROR")
	}
	return b.String()
}

// spans are all spans of a store.
type spans []span

func (all spans) byID(id string) (span, bool) {
	i := slices.IndexFunc(all, func(s span) bool { return s.ID == id })
	if i < 0 {
		return span{}, false
	}
	return all[i], true
}

// named are the spans of a name with these attributes, NAME=VALUE.
func (all spans) named(name string, attributes ...string) spans {
	var found spans
	for _, s := range all {
		fits := s.Name == name
		for _, a := range attributes {
			k, v, _ := strings.Cut(a, "=")
			fits = fits && s.Attributes[k] == v
		}
		if fits {
			found = append(found, s)
		}
	}
	return found
}

// below says that the span, or its parent, or that one's parent …, is a child of the ancestor.
func (all spans) below(s span, ancestor span) bool {
	for s.Parent != "" {
		if s.Parent == ancestor.ID {
			return s.Trace == ancestor.Trace
		}
		next, ok := all.byID(s.Parent)
		if !ok {
			return false
		}
		s = next
	}
	return false
}

func (all spans) String() string {
	var lines []string
	for _, s := range all {
		lines = append(lines, s.String())
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// interesting says that a call of the plugin is below the span.
func (all spans) interesting(root span) bool {
	return slices.ContainsFunc(pluginSpans(all), func(s span) bool { return all.below(s, root) })
}

// tree prints a span and what is below it.
func (all spans) tree(root span, indent string) string {
	text := fmt.Sprintf("%s%s  %s\n", indent, root.Took.Round(10*time.Microsecond), root)
	for _, l := range root.Links {
		if to, ok := all.byID(l); ok {
			text += fmt.Sprintf("%s    ↗ %s\n", indent, to)
		}
	}
	var below spans
	for _, s := range all {
		if s.Parent == root.ID && s.Trace == root.Trace {
			below = append(below, s)
		}
	}
	slices.SortFunc(below, func(a, b span) int { return a.Start.Compare(b.Start) })
	for _, s := range below {
		text += all.tree(s, indent+"  ")
	}
	return text
}
