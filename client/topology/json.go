package topology

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// The JSON of a description. Lists are never null and in the order of the wire; a source has "topics", a processor "stores", a
// sink "topic", which is null where it is computed for each record.
//
//	{"subtopologies": [{"id": "0", "nodes": [
//	    {"name": "in", "type": "source", "topics": ["orders"], "successors": ["out"], "predecessors": []},
//	    {"name": "out", "type": "sink", "topic": null, "successors": [], "predecessors": ["in"]}]}],
//	 "globalStores": [{"source": {…}, "processor": {…}}]}

type jsonDescription struct {
	Subtopologies []jsonSubtopology `json:"subtopologies"`
	GlobalStores  []jsonGlobalStore `json:"globalStores"`
}

type jsonSubtopology struct {
	ID    string            `json:"id"`
	Nodes []json.RawMessage `json:"nodes"`
}

type jsonGlobalStore struct {
	Source    json.RawMessage `json:"source"`
	Processor json.RawMessage `json:"processor"`
}

// The fields of each type of node. A node of an unknown type can't be written.
type (
	jsonSource struct {
		Name         string   `json:"name"`
		Type         string   `json:"type"`
		Topics       []string `json:"topics"`
		Successors   []string `json:"successors"`
		Predecessors []string `json:"predecessors"`
	}
	jsonProcessor struct {
		Name         string   `json:"name"`
		Type         string   `json:"type"`
		Stores       []string `json:"stores"`
		Successors   []string `json:"successors"`
		Predecessors []string `json:"predecessors"`
	}
	jsonSink struct {
		Name         string   `json:"name"`
		Type         string   `json:"type"`
		Topic        *string  `json:"topic"`
		Successors   []string `json:"successors"`
		Predecessors []string `json:"predecessors"`
	}
)

func (n *Node) json(before map[string][]string) (json.RawMessage, error) {
	list := func(s []string) []string {
		if s == nil {
			return []string{}
		}
		return s
	}
	successors, predecessors := list(n.Successors), list(before[n.Name])
	switch n.Type {
	case Source:
		return encode(jsonSource{n.Name, n.Type.String(), list(n.Topics), successors, predecessors})
	case Processor:
		return encode(jsonProcessor{n.Name, n.Type.String(), list(n.Stores), successors, predecessors})
	case Sink:
		return encode(jsonSink{n.Name, n.Type.String(), n.SinkTopic, successors, predecessors})
	}
	return nil, fmt.Errorf("node %q: unknown %v", n.Name, n.Type)
}

// encode is json.Marshal without the escapes for HTML, which make "-->" unreadable.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// writeJSON writes a line per node: readable, and streamed, so that a million nodes need no memory.
func (d *Description) writeJSON(ctx context.Context, w *bufio.Writer) error {
	t := texter{Writer: w, pulse: pulse{ctx: ctx}}
	node := func(n *Node, before map[string][]string) {
		if t.err != nil {
			return
		}
		raw, err := n.json(before)
		if err != nil {
			t.err = err
			return
		}
		_, t.err = t.Write(raw)
	}
	t.put("{\n  \"subtopologies\": [")
	for i := range d.Subtopologies {
		s := &d.Subtopologies[i]
		id, err := encode(s.ID)
		if err != nil {
			return err
		}
		t.put(comma(i), "\n    {\"id\": ", string(id), ", \"nodes\": [")
		before := predecessors(s.Nodes)
		for j := range s.Nodes {
			t.put(comma(j), "\n      ")
			node(&s.Nodes[j], before)
		}
		t.put("]}")
	}
	t.put("],\n  \"globalStores\": [")
	for i := range d.GlobalStores {
		s := &d.GlobalStores[i]
		before := predecessors(s.nodes())
		t.put(comma(i), "\n    {\"source\": ")
		node(&s.Source, before)
		t.put(",\n     \"processor\": ")
		node(&s.Processor, before)
		t.put("}")
	}
	t.put("]\n}\n")
	return t.err
}

func comma(i int) string {
	if i > 0 {
		return ","
	}
	return ""
}

// MarshalJSON writes the same as Write with format JSON, within the same limit.
func (d *Description) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	err := d.Write(context.Background(), &b, JSON)
	return b.Bytes(), err
}

// UnmarshalJSON reads what MarshalJSON writes. Predecessors are made of the successors, whatever the JSON says.
func (d *Description) UnmarshalJSON(b []byte) error {
	var in jsonDescription
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	var out Description
	for _, s := range in.Subtopologies {
		o := Subtopology{ID: s.ID}
		for j, raw := range s.Nodes {
			n, err := nodeOf(raw)
			if err != nil {
				return fmt.Errorf("subtopology %q, node %d: %w", s.ID, j, err)
			}
			o.Nodes = append(o.Nodes, n)
		}
		out.Subtopologies = append(out.Subtopologies, o)
	}
	for i, s := range in.GlobalStores {
		source, err := nodeOf(s.Source)
		if err != nil {
			return fmt.Errorf("source of global store %d: %w", i, err)
		}
		processor, err := nodeOf(s.Processor)
		if err != nil {
			return fmt.Errorf("processor of global store %d: %w", i, err)
		}
		out.GlobalStores = append(out.GlobalStores, GlobalStore{source, processor})
	}
	out.Link()
	*d = out
	return nil
}

func nodeOf(raw json.RawMessage) (Node, error) {
	if len(raw) == 0 {
		return Node{}, errors.New("missing")
	}
	var in struct {
		Name       string
		Type       string
		Topics     []string
		Stores     []string
		Topic      *string
		Successors []string
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return Node{}, err
	}
	none := func(s []string) []string {
		if len(s) == 0 {
			return nil
		}
		return s
	}
	out := Node{Name: in.Name, Successors: none(in.Successors)}
	switch in.Type {
	case Source.String():
		out.Type, out.Topics = Source, none(in.Topics)
	case Processor.String():
		out.Type, out.Stores = Processor, none(in.Stores)
	case Sink.String():
		out.Type, out.SinkTopic = Sink, in.Topic
	default:
		return Node{}, fmt.Errorf("node %q: unknown node type %q", in.Name, in.Type)
	}
	return out, nil
}
