package topology

import (
	"fmt"
	"slices"
)

// NodeType says what a node does. The numbers are those of the wire (NodeType in API keys 89 and 93).
type NodeType int8

// The types of nodes.
const (
	Source    NodeType = 1 // reads topics
	Processor NodeType = 2 // has predecessors and successors, and may have stores
	Sink      NodeType = 3 // writes one topic
)

func (t NodeType) String() string {
	switch t {
	case Source:
		return "source"
	case Processor:
		return "processor"
	case Sink:
		return "sink"
	}
	return fmt.Sprintf("node type %d", int8(t))
}

// known says that the type is one of Kafka 4.4's.
func (t NodeType) known() bool { return t >= Source && t <= Sink }

// Node is a node of an application. Which fields count depends on its type, the others are ignored.
type Node struct {
	Name string
	Type NodeType
	// Topics are what a source reads. Empty for one that subscribes to a pattern: the pattern is not transmitted.
	Topics []string
	// SinkTopic is what a sink writes to, nil where the topic is computed for each record.
	SinkTopic *string
	// Stores are the names of the state stores that a processor uses.
	Stores []string
	// Successors are the names of the nodes that get this node's output.
	Successors []string
	// Predecessors is the other end of Successors. It is not transmitted: FromWire and Link fill it in, and nothing that
	// draws or converts a description reads it.
	Predecessors []string
}

// Subtopology is a connected part of an application; its tasks are what is assigned to members.
type Subtopology struct {
	ID    string // a decimal number in Kafka Streams; ids may have gaps
	Nodes []Node
}

// GlobalStore is a store that every instance fills from all partitions of one topic: a source and its processor. It has
// no tasks, and no id of its own on the wire.
type GlobalStore struct {
	Source    Node
	Processor Node
}

// Description is a whole application.
type Description struct {
	Subtopologies []Subtopology
	GlobalStores  []GlobalStore
}

// Link fills in every node's Predecessors from the Successors of its neighbours, each sorted as Java sorts strings, and
// nil where there are none. The nodes of a subtopology are one scope, the pair of a global store another; a successor that is not a
// node of its scope is passed over. Nodes of the same name have the same predecessors, in the same slice.
func (d *Description) Link() {
	for i := range d.Subtopologies {
		nodes := d.Subtopologies[i].Nodes
		before := predecessors(nodes)
		for j := range nodes {
			nodes[j].Predecessors = before[nodes[j].Name]
		}
	}
	for i := range d.GlobalStores {
		s := &d.GlobalStores[i]
		before := predecessors(s.nodes())
		s.Source.Predecessors = before[s.Source.Name]
		s.Processor.Predecessors = before[s.Processor.Name]
	}
}

// nodes are the two nodes as a scope.
func (s *GlobalStore) nodes() []Node { return []Node{s.Source, s.Processor} }

// predecessors are the names of the nodes before each name, sorted as Java sorts strings.
func predecessors(nodes []Node) map[string][]string {
	before := make(map[string][]string, len(nodes))
	for i := range nodes {
		before[nodes[i].Name] = nil // only names of the scope: there is no use for the others
	}
	for i := range nodes {
		for _, s := range nodes[i].Successors {
			if list, ok := before[s]; ok {
				before[s] = append(list, nodes[i].Name)
			}
		}
	}
	for name, list := range before {
		before[name] = sortedSet(list)
	}
	return before
}

// Clone is a deep copy.
func (d *Description) Clone() *Description {
	if d == nil {
		return nil
	}
	out := &Description{Subtopologies: slices.Clone(d.Subtopologies), GlobalStores: slices.Clone(d.GlobalStores)}
	for i := range out.Subtopologies {
		s := &out.Subtopologies[i]
		s.Nodes = slices.Clone(s.Nodes)
		for j := range s.Nodes {
			s.Nodes[j] = s.Nodes[j].clone()
		}
	}
	for i := range out.GlobalStores {
		s := &out.GlobalStores[i]
		s.Source, s.Processor = s.Source.clone(), s.Processor.clone()
	}
	return out
}

func (n Node) clone() Node {
	n.Topics, n.Stores = slices.Clone(n.Topics), slices.Clone(n.Stores)
	n.Successors, n.Predecessors = slices.Clone(n.Successors), slices.Clone(n.Predecessors)
	if n.SinkTopic != nil {
		topic := *n.SinkTopic
		n.SinkTopic = &topic
	}
	return n
}
