package topology

import (
	"bufio"
	"context"
	"strconv"
)

// writeText writes what Kafka 4.4's tool prints (TopologyDescriptionFormatter), byte for byte:
//
//	Topologies:
//	   Sub-topology: <id>
//	    Source: <name> (topics: [a, b])
//	      --> <successors>
//	    Processor: <name> (stores: [s1, s2])
//	      --> <successors>
//	      <-- <predecessors>
//	    Sink: <name> (topic: <topic or null>)
//	      <-- <predecessors>
//	                                           an empty line after each block
//	   Sub-topology: <n> for global store (will not generate tasks)
//	    <its source> <its processor>
//
// Subtopologies and nodes come in the order of the wire, lists sorted; no names are "none". The number of a global store
// is invented as Kafka invents it, the number of subtopologies plus its index, and may be that of a subtopology.
// Names are written as they are, whatever they contain.
func (d *Description) writeText(ctx context.Context, w *bufio.Writer) error {
	t := texter{Writer: w, pulse: pulse{ctx: ctx}}
	t.put("Topologies:\n")
	for i := range d.Subtopologies {
		s := &d.Subtopologies[i]
		t.put("   Sub-topology: ", s.ID, "\n")
		t.nodes(s.Nodes)
	}
	for i := range d.GlobalStores {
		t.put("   Sub-topology: ", strconv.Itoa(len(d.Subtopologies)+i), " for global store (will not generate tasks)\n")
		t.nodes(d.GlobalStores[i].nodes())
	}
	return t.err
}

type texter struct {
	*bufio.Writer
	pulse pulse
	err   error
}

func (t *texter) put(parts ...string) {
	if t.err == nil {
		t.err = t.pulse.err()
	}
	for _, p := range parts {
		if t.err != nil {
			return
		}
		_, t.err = t.WriteString(p)
	}
}

func (t *texter) nodes(nodes []Node) {
	before := predecessors(nodes)
	for i := range nodes {
		n := &nodes[i]
		switch n.Type {
		case Source:
			t.put("    Source: ", n.Name, " (topics: [")
			t.list(sortedCopy(n.Topics), "")
			t.put("])\n")
			t.names("      --> ", sortedCopy(n.Successors))
		case Sink:
			t.put("    Sink: ", n.Name, " (topic: ")
			if n.SinkTopic != nil {
				t.put(*n.SinkTopic, ")\n")
			} else {
				t.put("null)\n")
			}
			t.names("      <-- ", before[n.Name])
		default:
			t.put("    Processor: ", n.Name, " (stores: [")
			t.list(sortedCopy(n.Stores), "")
			t.put("])\n")
			t.names("      --> ", sortedCopy(n.Successors))
			t.names("      <-- ", before[n.Name])
		}
		if t.err != nil {
			return
		}
	}
	t.put("\n")
}

func (t *texter) names(arrow string, names []string) {
	t.put(arrow)
	t.list(names, "none")
	t.put("\n")
}

func (t *texter) list(names []string, none string) {
	if len(names) == 0 {
		t.put(none)
	}
	for i, n := range names {
		if i > 0 {
			t.put(", ")
		}
		t.put(n)
	}
}
