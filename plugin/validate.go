package plugin

import (
	"fmt"
	"slices"
	"strings"
)

// InvalidDescriptionError says why a description can't be taken. Its text is Kafka's (class
// StreamsGroupTopologyDescriptionConverter), because clients see it with INVALID_REQUEST; Where is for the log.
type InvalidDescriptionError struct {
	Text  string
	Where string // e.g. `subtopology "0", node "KSTREAM-SINK-0000000002"`
}

func (e *InvalidDescriptionError) Error() string { return e.Text }

// Validate checks what Kafka's converter checks, in its order: every node is a source, a processor or a sink, and a
// global store consists of a source and a processor. Nothing else is checked: not names, not successors, not sizes.
// The error is an *InvalidDescriptionError.
func (d *Description) Validate() error {
	for i := range d.Subtopologies {
		s := &d.Subtopologies[i]
		for j := range s.Nodes {
			if n := &s.Nodes[j]; !n.Type.known() {
				return unknownType(n, fmt.Sprintf("subtopology %.60q, node %.60q", s.ID, n.Name))
			}
		}
	}
	for i := range d.GlobalStores {
		g := &d.GlobalStores[i]
		for _, n := range []*Node{&g.Source, &g.Processor} {
			if !n.Type.known() {
				return unknownType(n, fmt.Sprintf("global store %d, node %.60q", i, n.Name))
			}
		}
		if g.Source.Type != NodeSource || g.Processor.Type != NodeProcessor {
			return &InvalidDescriptionError{
				Text:  "Global store must be composed of a source and a processor node.",
				Where: fmt.Sprintf("global store %d is a %s and a %s", i, g.Source.Type, g.Processor.Type),
			}
		}
	}
	return nil
}

func (t NodeType) known() bool { return NodeSource <= t && t <= NodeSink }

func unknownType(n *Node, where string) error {
	return &InvalidDescriptionError{Text: fmt.Sprintf("Unknown topology node type: %d", int8(n.Type)), Where: where}
}

// Normalize returns a copy as Kafka's converter makes it: of each node only the fields of its type remain, a value that
// stands in a list twice is left once, in the first place. Bytes that are no UTF-8 become U+FFFD, as they do when Java
// reads a string. Empty lists are nil.
func (d *Description) Normalize() *Description {
	c := d.Clone()
	if c == nil {
		return nil
	}
	for i := range c.Subtopologies {
		c.Subtopologies[i].ID = validText(c.Subtopologies[i].ID)
	}
	for n := range c.Nodes {
		n.Name = validText(n.Name)
		n.Successors = setOf(n.Successors)
		if n.Type == NodeSource {
			n.SourceTopics = setOf(n.SourceTopics)
		} else {
			n.SourceTopics = nil
		}
		if n.Type == NodeProcessor {
			n.Stores = setOf(n.Stores)
		} else {
			n.Stores = nil
		}
		if n.Type == NodeSink && n.SinkTopic != nil {
			*n.SinkTopic = validText(*n.SinkTopic)
		} else {
			n.SinkTopic = nil
		}
	}
	return c
}

func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// setSmall is up to which length looking through a list is faster than making a map.
const setSmall = 16

// setOf keeps the first of equal values, in place.
func setOf(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	kept := list[:0]
	var seen map[string]bool
	if len(list) > setSmall {
		seen = make(map[string]bool, len(list))
	}
	for _, s := range list {
		s = validText(s)
		if seen != nil {
			if seen[s] {
				continue
			}
			seen[s] = true
		} else if slices.Contains(kept, s) {
			continue
		}
		kept = append(kept, s)
	}
	return kept
}
