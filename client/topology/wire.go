package topology

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kafka 4.4 moves a description in two places with the same fields, each struct flexible:
//
//	TopologyDescription             Subtopologies []Subtopology, GlobalStores []GlobalStore
//	TopologyDescriptionSubtopology  SubtopologyId string, Nodes []Node
//	TopologyDescriptionNode         Name string, NodeType int8, SourceTopics []string, SinkTopic string?, Stores []string, Successors []string
//	TopologyDescriptionGlobalStore  Source Node, Processor Node
//
// in StreamsGroupTopologyDescriptionUpdate v0 (key 93, request) and in StreamsGroupDescribe v1 (key 89, response).

// FromWire makes a description of what a describe response holds, with predecessors. The order of subtopologies and nodes is
// kept; lists become sets in the order of their first occurrences; fields that do not belong to a node's type are dropped. It
// fails on a node type that it does not know, and on a global store that is not a source and a processor, as Kafka's admin client does
// (DescribeStreamsGroupsHandler).
func FromWire(subtopologies []kmsg.TopologyDescriptionSubtopology, globalStores []kmsg.TopologyDescriptionGlobalStore) (*Description, error) {
	d := &Description{}
	for i := range subtopologies {
		in := &subtopologies[i]
		out := Subtopology{ID: in.SubtopologyID}
		for j := range in.Nodes {
			n, err := fromWire(&in.Nodes[j])
			if err != nil {
				return nil, fmt.Errorf("subtopology %q, node %q: %w", in.SubtopologyID, in.Nodes[j].Name, err)
			}
			out.Nodes = append(out.Nodes, n)
		}
		d.Subtopologies = append(d.Subtopologies, out)
	}
	for i := range globalStores {
		source, err := fromWire(&globalStores[i].Source)
		if err != nil {
			return nil, fmt.Errorf("global store %d, node %q: %w", i, globalStores[i].Source.Name, err)
		}
		processor, err := fromWire(&globalStores[i].Processor)
		if err != nil {
			return nil, fmt.Errorf("global store %d, node %q: %w", i, globalStores[i].Processor.Name, err)
		}
		if source.Type != Source || processor.Type != Processor {
			return nil, fmt.Errorf("global store %d is a %v and a %v, and must be a source and a processor", i, source.Type, processor.Type)
		}
		d.GlobalStores = append(d.GlobalStores, GlobalStore{source, processor})
	}
	d.Link()
	return d, nil
}

func fromWire(in *kmsg.TopologyDescriptionNode) (Node, error) {
	out := Node{Name: in.Name, Type: NodeType(in.NodeType), Successors: distinct(in.Successors)}
	switch out.Type {
	case Source:
		out.Topics = distinct(in.SourceTopics)
	case Processor:
		out.Stores = distinct(in.Stores)
	case Sink:
		if in.SinkTopic != nil {
			topic := *in.SinkTopic
			out.SinkTopic = &topic
		}
	default:
		return Node{}, fmt.Errorf("unknown node type %d", in.NodeType)
	}
	return out, nil
}

// ToWire makes what a client pushes of a description, in the order that Kafka's client uses (TopologyDescriptionConverter):
// subtopologies by their number, nodes by name, every list sorted and without repetitions, and only the fields that belong to a
// node's type. Global stores keep their order. It fails where the coordinator would refuse the push: a node of an unknown type, a global
// store that is not a source and a processor.
func ToWire(d *Description) (kmsg.TopologyDescription, error) {
	out := kmsg.NewTopologyDescription()
	for i := range d.Subtopologies {
		in := &d.Subtopologies[i]
		s := kmsg.NewTopologyDescriptionSubtopology()
		s.SubtopologyID = in.ID
		for j := range in.Nodes {
			if !in.Nodes[j].Type.known() {
				return out, fmt.Errorf("subtopology %q, node %q: unknown %v", in.ID, in.Nodes[j].Name, in.Nodes[j].Type)
			}
			s.Nodes = append(s.Nodes, toWire(&in.Nodes[j]))
		}
		slices.SortStableFunc(s.Nodes, func(a, b kmsg.TopologyDescriptionNode) int { return compareJava(a.Name, b.Name) })
		out.Subtopologies = append(out.Subtopologies, s)
	}
	slices.SortStableFunc(out.Subtopologies, func(a, b kmsg.TopologyDescriptionSubtopology) int {
		return compareIDs(a.SubtopologyID, b.SubtopologyID)
	})
	for i := range d.GlobalStores {
		in := &d.GlobalStores[i]
		if in.Source.Type != Source || in.Processor.Type != Processor {
			return out, fmt.Errorf("global store %d is a %v and a %v, and must be a source and a processor", i, in.Source.Type, in.Processor.Type)
		}
		s := kmsg.NewTopologyDescriptionGlobalStore()
		s.Source, s.Processor = toWire(&in.Source), toWire(&in.Processor)
		out.GlobalStores = append(out.GlobalStores, s)
	}
	return out, nil
}

func toWire(in *Node) kmsg.TopologyDescriptionNode {
	out := kmsg.NewTopologyDescriptionNode()
	out.Name, out.NodeType, out.Successors = in.Name, int8(in.Type), sortedCopy(in.Successors)
	switch in.Type {
	case Source:
		out.SourceTopics = sortedCopy(in.Topics)
	case Processor:
		out.Stores = sortedCopy(in.Stores)
	case Sink:
		if in.SinkTopic != nil {
			topic := *in.SinkTopic
			out.SinkTopic = &topic
		}
	}
	return out
}
