package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// The canonical JSON form: fields in a fixed order, lists never null, no escapes but those that JSON demands, no white
// space. Equal descriptions give equal bytes. A node has the fields of its type alone:
//
//	{"subtopologies":[{"id":"0","nodes":[
//	    {"type":"source","name":"read","topics":["orders"],"successors":["count"]},
//	    {"type":"processor","name":"count","stores":["counts"],"successors":["write"]},
//	    {"type":"sink","name":"write","topic":"totals","successors":[]}]}],
//	 "globalStores":[{"source":{"type":"source",…},"processor":{"type":"processor",…}}]}
//
// The topic of a sink is null where it is computed per record. Readers ignore fields they don't know.

type jsonDescription struct {
	Subtopologies []jsonSubtopology `json:"subtopologies"`
	GlobalStores  []jsonGlobalStore `json:"globalStores"`
}

type jsonSubtopology struct {
	ID    string     `json:"id"`
	Nodes []jsonNode `json:"nodes"`
}

type jsonGlobalStore struct {
	Source    jsonNode `json:"source"`
	Processor jsonNode `json:"processor"`
}

type jsonNode Node

// MarshalJSON writes the canonical form. It fails for a node of an unknown type.
func (d *Description) MarshalJSON() ([]byte, error) {
	if d == nil {
		return []byte("null"), nil
	}
	out := jsonDescription{Subtopologies: make([]jsonSubtopology, len(d.Subtopologies)), GlobalStores: make([]jsonGlobalStore, len(d.GlobalStores))}
	for i, s := range d.Subtopologies {
		out.Subtopologies[i] = jsonSubtopology{ID: s.ID, Nodes: make([]jsonNode, len(s.Nodes))}
		for j, n := range s.Nodes {
			out.Subtopologies[i].Nodes[j] = jsonNode(n)
		}
	}
	for i, g := range d.GlobalStores {
		out.GlobalStores[i] = jsonGlobalStore{Source: jsonNode(g.Source), Processor: jsonNode(g.Processor)}
	}
	return plainJSON(out)
}

// UnmarshalJSON reads what MarshalJSON wrote, or what another program wrote in the same form. What it returns is valid
// (Validate) and normal (Normalize).
func (d *Description) UnmarshalJSON(b []byte) error {
	var in jsonDescription
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	out := Description{}
	for _, s := range in.Subtopologies {
		nodes := make([]Node, len(s.Nodes))
		for i, n := range s.Nodes {
			nodes[i] = Node(n)
		}
		out.Subtopologies = append(out.Subtopologies, Subtopology{ID: s.ID, Nodes: nodes})
	}
	for _, g := range in.GlobalStores {
		out.GlobalStores = append(out.GlobalStores, GlobalStore{Source: Node(g.Source), Processor: Node(g.Processor)})
	}
	if err := out.Validate(); err != nil {
		if invalid, ok := errors.AsType[*InvalidDescriptionError](err); ok && invalid.Where != "" {
			return fmt.Errorf("%s: %w", invalid.Where, err)
		}
		return err
	}
	*d = *out.Normalize()
	return nil
}

func (n jsonNode) MarshalJSON() ([]byte, error) {
	switch n.Type {
	case NodeSource:
		return plainJSON(struct {
			Type       string   `json:"type"`
			Name       string   `json:"name"`
			Topics     []string `json:"topics"`
			Successors []string `json:"successors"`
		}{n.Type.String(), n.Name, present(n.SourceTopics), present(n.Successors)})
	case NodeProcessor:
		return plainJSON(struct {
			Type       string   `json:"type"`
			Name       string   `json:"name"`
			Stores     []string `json:"stores"`
			Successors []string `json:"successors"`
		}{n.Type.String(), n.Name, present(n.Stores), present(n.Successors)})
	case NodeSink:
		return plainJSON(struct {
			Type       string   `json:"type"`
			Name       string   `json:"name"`
			Topic      *string  `json:"topic"`
			Successors []string `json:"successors"`
		}{n.Type.String(), n.Name, n.SinkTopic, present(n.Successors)})
	}
	return nil, fmt.Errorf("node %.60q: %w", n.Name, unknownType((*Node)(&n), ""))
}

func (n *jsonNode) UnmarshalJSON(b []byte) error {
	var in struct {
		Type       *string  `json:"type"`
		Name       *string  `json:"name"`
		Topics     []string `json:"topics"`
		Stores     []string `json:"stores"`
		Topic      *string  `json:"topic"`
		Successors []string `json:"successors"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	if in.Name == nil {
		return errors.New(`a node has no "name"`)
	}
	if in.Type == nil {
		return fmt.Errorf(`node %.60q has no "type"`, *in.Name)
	}
	n.Name = *in.Name
	switch *in.Type {
	case "source":
		n.Type = NodeSource
	case "processor":
		n.Type = NodeProcessor
	case "sink":
		n.Type = NodeSink
	default:
		return fmt.Errorf("node %.60q: unknown type %.60q (want source, processor or sink)", n.Name, *in.Type)
	}
	n.SourceTopics, n.Stores, n.SinkTopic, n.Successors = in.Topics, in.Stores, in.Topic, in.Successors
	return nil
}

func present(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// plainJSON leaves <, > and & as they are; json.Marshal would escape them.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
