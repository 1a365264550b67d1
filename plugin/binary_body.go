package plugin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// The body of the binary form. Every string stands once, in a table, because the name of a node comes again in its
// predecessors, and a topic in its readers; everything else refers to it by number. All numbers are unsigned varints.
//
//	body          count of strings, then each: length, bytes
//	              count of subtopologies, then each: string (its id), count of nodes, nodes
//	              count of global stores, then each: node, node
//	node          type (1 byte), string (its name), list of successors, then by type:
//	  1 source      list of topics
//	  2 processor   list of stores
//	  3 sink        0, or 1 + string (its topic)
//	list          count, strings

func encodeBody(d *Description) ([]byte, error) {
	e := bodyEncoder{numbers: map[string]uint64{}}
	e.count(len(d.Subtopologies))
	for i := range d.Subtopologies {
		s := &d.Subtopologies[i]
		e.text(s.ID)
		e.count(len(s.Nodes))
		for j := range s.Nodes {
			e.node(&s.Nodes[j])
		}
	}
	e.count(len(d.GlobalStores))
	for i := range d.GlobalStores {
		e.node(&d.GlobalStores[i].Source)
		e.node(&d.GlobalStores[i].Processor)
	}
	table := binary.AppendUvarint(nil, uint64(len(e.strings)))
	for _, s := range e.strings {
		table = binary.AppendUvarint(table, uint64(len(s)))
		table = append(table, s...)
	}
	if n := len(table) + len(e.out); n > bodyBytesMax {
		return nil, &TooLargeError{Bytes: n, BytesMax: bodyBytesMax, What: "before compression"}
	}
	return append(table, e.out...), nil
}

type bodyEncoder struct {
	numbers map[string]uint64
	strings []string
	out     []byte
}

func (e *bodyEncoder) count(n int) { e.out = binary.AppendUvarint(e.out, uint64(n)) }

func (e *bodyEncoder) number(s string) uint64 {
	n, ok := e.numbers[s]
	if !ok {
		n = uint64(len(e.strings))
		e.numbers[s] = n
		e.strings = append(e.strings, s)
	}
	return n
}

func (e *bodyEncoder) text(s string) { e.out = binary.AppendUvarint(e.out, e.number(s)) }

func (e *bodyEncoder) list(l []string) {
	e.count(len(l))
	for _, s := range l {
		e.text(s)
	}
}

func (e *bodyEncoder) node(n *Node) {
	e.out = append(e.out, byte(n.Type))
	e.text(n.Name)
	e.list(n.Successors)
	switch n.Type {
	case NodeSource:
		e.list(n.SourceTopics)
	case NodeProcessor:
		e.list(n.Stores)
	case NodeSink:
		if n.SinkTopic == nil {
			e.out = append(e.out, 0)
		} else {
			e.out = binary.AppendUvarint(e.out, e.number(*n.SinkTopic)+1)
		}
	}
}

var errBodyEnds = errors.New("its body ends too early")

func decodeBody(b []byte) (*Description, error) {
	d := bodyDecoder{in: b}
	out, err := d.description()
	if err != nil {
		return nil, err
	}
	if len(d.in) > 0 {
		return nil, fmt.Errorf("%d bytes too many in its body", len(d.in))
	}
	return out, out.Validate()
}

type bodyDecoder struct {
	in      []byte
	strings []string
}

// elementsAhead is how many elements are allocated on the word of a count alone; more come as they are read, since a
// damaged count may say anything.
const elementsAhead = 1024

// repeat reads a count and calls one as often. A count larger than what is left is an error: no element is empty.
func repeat[T any](d *bodyDecoder, one func() (T, error)) ([]T, error) {
	n, err := d.varint()
	if err != nil {
		return nil, err
	}
	if n > uint64(len(d.in)) {
		return nil, errBodyEnds
	}
	if n == 0 {
		return nil, nil
	}
	out := make([]T, 0, min(n, elementsAhead))
	for range n {
		v, err := one()
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return slices.Clip(out), nil
}

func (d *bodyDecoder) varint() (uint64, error) {
	v, n := binary.Uvarint(d.in)
	if n <= 0 {
		return 0, errBodyEnds
	}
	d.in = d.in[n:]
	return v, nil
}

func (d *bodyDecoder) bytes() (string, error) {
	n, err := d.varint()
	if err != nil {
		return "", err
	}
	if n > uint64(len(d.in)) {
		return "", errBodyEnds
	}
	s := string(d.in[:n])
	d.in = d.in[n:]
	return s, nil
}

func (d *bodyDecoder) lookUp(number uint64) (string, error) {
	if number >= uint64(len(d.strings)) {
		return "", fmt.Errorf("string %d of %d in its body", number, len(d.strings))
	}
	return d.strings[number], nil
}

func (d *bodyDecoder) text() (string, error) {
	n, err := d.varint()
	if err != nil {
		return "", err
	}
	return d.lookUp(n)
}

func (d *bodyDecoder) description() (*Description, error) {
	var err error
	if d.strings, err = repeat(d, d.bytes); err != nil {
		return nil, err
	}
	out := &Description{}
	if out.Subtopologies, err = repeat(d, d.subtopology); err != nil {
		return nil, err
	}
	out.GlobalStores, err = repeat(d, d.globalStore)
	return out, err
}

func (d *bodyDecoder) subtopology() (s Subtopology, err error) {
	if s.ID, err = d.text(); err != nil {
		return s, err
	}
	s.Nodes, err = repeat(d, d.node)
	return s, err
}

func (d *bodyDecoder) globalStore() (g GlobalStore, err error) {
	if g.Source, err = d.node(); err != nil {
		return g, err
	}
	g.Processor, err = d.node()
	return g, err
}

func (d *bodyDecoder) node() (n Node, err error) {
	if len(d.in) == 0 {
		return n, errBodyEnds
	}
	n.Type = NodeType(d.in[0])
	d.in = d.in[1:]
	if n.Name, err = d.text(); err != nil {
		return n, err
	}
	if n.Successors, err = repeat(d, d.text); err != nil {
		return n, err
	}
	switch n.Type {
	case NodeSource:
		n.SourceTopics, err = repeat(d, d.text)
	case NodeProcessor:
		n.Stores, err = repeat(d, d.text)
	case NodeSink:
		n.SinkTopic, err = d.sinkTopic()
	default:
		err = unknownType(&n, "")
	}
	return n, err
}

func (d *bodyDecoder) sinkTopic() (*string, error) {
	n, err := d.varint()
	if err != nil || n == 0 {
		return nil, err
	}
	s, err := d.lookUp(n - 1)
	return &s, err
}
