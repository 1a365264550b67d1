package plugin

import (
	"slices"
	"strconv"
)

// Description is the picture of a Streams application's topology (KIP-1331): what Topology#describe() prints, without
// the names of predecessors, which follow from the successors. Order is part of it: Kafka's tools print
// subtopologies and nodes in the order in which the client sent them.
type Description struct {
	Subtopologies []Subtopology
	// GlobalStores have no ids: the client does not send them.
	GlobalStores []GlobalStore
}

// Subtopology is a group of connected nodes that run in the same task.
type Subtopology struct {
	ID    string // a decimal number from Kafka's client; ids may have gaps
	Nodes []Node
}

// NodeType says what a node is; the numbers are those of the wire.
type NodeType int8

// The three node types.
const (
	NodeSource    NodeType = 1
	NodeProcessor NodeType = 2
	NodeSink      NodeType = 3
)

func (t NodeType) String() string {
	switch t {
	case NodeSource:
		return "source"
	case NodeProcessor:
		return "processor"
	case NodeSink:
		return "sink"
	}
	return "NodeType(" + strconv.Itoa(int(t)) + ")"
}

// Node is one processing step. Names need not be unique, and successors need not exist: Kafka checks neither.
type Node struct {
	Name string
	Type NodeType
	// SourceTopics are what a source reads; empty where it subscribes by pattern, which the client does not send.
	SourceTopics []string
	// SinkTopic is where a sink writes; nil where the topic is computed per record.
	SinkTopic *string
	// Stores are the state stores that a processor uses.
	Stores []string
	// Successors are the names of the nodes that get this node's records.
	Successors []string
}

// GlobalStore is a store that every instance fills completely: its source and the processor that fills it.
type GlobalStore struct {
	Source, Processor Node
}

// Clone returns a copy that shares nothing that can be modified. A nil description stays nil.
func (d *Description) Clone() *Description {
	if d == nil {
		return nil
	}
	c := &Description{Subtopologies: slices.Clone(d.Subtopologies), GlobalStores: slices.Clone(d.GlobalStores)}
	for i := range c.Subtopologies {
		s := &c.Subtopologies[i]
		s.Nodes = slices.Clone(s.Nodes)
		for j := range s.Nodes {
			s.Nodes[j] = s.Nodes[j].clone()
		}
	}
	for i := range c.GlobalStores {
		g := &c.GlobalStores[i]
		g.Source, g.Processor = g.Source.clone(), g.Processor.clone()
	}
	return c
}

func (n Node) clone() Node {
	n.SourceTopics, n.Stores, n.Successors = slices.Clone(n.SourceTopics), slices.Clone(n.Stores), slices.Clone(n.Successors)
	if n.SinkTopic != nil {
		topic := *n.SinkTopic
		n.SinkTopic = &topic
	}
	return n
}

// Equal says whether both are the same, in the same order. A list that is nil equals an empty one.
func (d *Description) Equal(o *Description) bool {
	if d == nil || o == nil {
		return d == o
	}
	return slices.EqualFunc(d.Subtopologies, o.Subtopologies, func(a, b Subtopology) bool {
		return a.ID == b.ID && slices.EqualFunc(a.Nodes, b.Nodes, Node.equal)
	}) && slices.EqualFunc(d.GlobalStores, o.GlobalStores, func(a, b GlobalStore) bool {
		return a.Source.equal(b.Source) && a.Processor.equal(b.Processor)
	})
}

func (n Node) equal(o Node) bool {
	sinks := n.SinkTopic == nil && o.SinkTopic == nil ||
		n.SinkTopic != nil && o.SinkTopic != nil && *n.SinkTopic == *o.SinkTopic
	return n.Name == o.Name && n.Type == o.Type && sinks && slices.Equal(n.SourceTopics, o.SourceTopics) &&
		slices.Equal(n.Stores, o.Stores) && slices.Equal(n.Successors, o.Successors)
}

// Nodes yields every node: subtopology by subtopology, then the source and the processor of each global store. It ends
// early when yield returns false.
func (d *Description) Nodes(yield func(*Node) bool) {
	for i := range d.Subtopologies {
		for j := range d.Subtopologies[i].Nodes {
			if !yield(&d.Subtopologies[i].Nodes[j]) {
				return
			}
		}
	}
	for i := range d.GlobalStores {
		if !yield(&d.GlobalStores[i].Source) || !yield(&d.GlobalStores[i].Processor) {
			return
		}
	}
}

// What a value costs beside the bytes of its strings, on a 64-bit machine.
const (
	nodeBytes   = 112 // a Node
	stringBytes = 16  // the header of a string in a list
)

// Bytes estimates the memory that the description takes, for limits; it is at least the length of all its strings.
func (d *Description) Bytes() int {
	n := 0
	for i := range d.Subtopologies {
		n += len(d.Subtopologies[i].ID) + 2*stringBytes
	}
	for node := range d.Nodes {
		n += nodeBytes + len(node.Name)
		for _, list := range [][]string{node.SourceTopics, node.Stores, node.Successors} {
			for _, s := range list {
				n += stringBytes + len(s)
			}
		}
		if node.SinkTopic != nil {
			n += stringBytes + len(*node.SinkTopic)
		}
	}
	return n
}
