package coordinator

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/plugin"
	"streamkeeper/shard/streams"
)

// descriptionOf reads what a member pushed, as Kafka's StreamsGroupTopologyDescriptionConverter does. The error is the refusal that the
// member gets.
func descriptionOf(w *kmsg.TopologyDescription) (*plugin.Description, error) {
	d := &plugin.Description{
		Subtopologies: make([]plugin.Subtopology, len(w.Subtopologies)), GlobalStores: make([]plugin.GlobalStore, len(w.GlobalStores)),
	}
	for i := range w.Subtopologies {
		s := &w.Subtopologies[i]
		d.Subtopologies[i] = plugin.Subtopology{ID: s.SubtopologyID, Nodes: make([]plugin.Node, len(s.Nodes))}
		for j := range s.Nodes {
			d.Subtopologies[i].Nodes[j] = nodeOf(&s.Nodes[j])
		}
	}
	for i := range w.GlobalStores {
		g := &w.GlobalStores[i]
		d.GlobalStores[i] = plugin.GlobalStore{Source: nodeOf(&g.Source), Processor: nodeOf(&g.Processor)}
	}
	if err := d.Validate(); err != nil {
		text := err.Error()
		if e, ok := errors.AsType[*plugin.InvalidDescriptionError](err); ok {
			text = e.Text
		}
		return nil, &streams.Error{Code: codeInvalidRequest, Message: text}
	}
	return d.Normalize(), nil
}

func nodeOf(n *kmsg.TopologyDescriptionNode) plugin.Node {
	return plugin.Node{
		Name: n.Name, Type: plugin.NodeType(n.NodeType), SourceTopics: n.SourceTopics, SinkTopic: n.SinkTopic, Stores: n.Stores, Successors: n.Successors,
	}
}

// wireDescription is d as a describe answer has it; unused lists are empty, not null.
func wireDescription(d *plugin.Description) *kmsg.StreamsGroupDescribeResponseGroupTopologyDescription {
	w := kmsg.NewStreamsGroupDescribeResponseGroupTopologyDescription()
	w.Subtopologies = make([]kmsg.TopologyDescriptionSubtopology, len(d.Subtopologies))
	w.GlobalStores = make([]kmsg.TopologyDescriptionGlobalStore, len(d.GlobalStores))
	for i := range d.Subtopologies {
		s := &d.Subtopologies[i]
		w.Subtopologies[i] = kmsg.TopologyDescriptionSubtopology{SubtopologyID: s.ID, Nodes: make([]kmsg.TopologyDescriptionNode, len(s.Nodes))}
		for j := range s.Nodes {
			w.Subtopologies[i].Nodes[j] = wireNode(&s.Nodes[j])
		}
	}
	for i := range d.GlobalStores {
		g := &d.GlobalStores[i]
		w.GlobalStores[i] = kmsg.TopologyDescriptionGlobalStore{Source: wireNode(&g.Source), Processor: wireNode(&g.Processor)}
	}
	return &w
}

func wireNode(n *plugin.Node) kmsg.TopologyDescriptionNode {
	list := func(values []string) []string {
		if values == nil {
			return []string{}
		}
		return values
	}
	return kmsg.TopologyDescriptionNode{
		Name: n.Name, NodeType: int8(n.Type), SourceTopics: list(n.SourceTopics), SinkTopic: n.SinkTopic, Stores: list(n.Stores), Successors: list(n.Successors),
	}
}
