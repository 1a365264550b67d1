package conformance

import (
	"fmt"
	"strings"
	"testing"

	"streamkeeper/plugin"
)

func source(name string, successors ...string) plugin.Node {
	return plugin.Node{Name: name, Type: plugin.NodeSource, SourceTopics: []string{"t"}, Successors: successors}
}

func processor(name string, successors ...string) plugin.Node {
	return plugin.Node{Name: name, Type: plugin.NodeProcessor, Successors: successors}
}

func one(nodes ...plugin.Node) *plugin.Description {
	return &plugin.Description{Subtopologies: []plugin.Subtopology{{ID: "0", Nodes: nodes}}}
}

// oddShapes are descriptions that Kafka's coordinator lets through, so a plugin must store them.
func oddShapes(t *testing.T, p subject) {
	for name, d := range map[string]*plugin.Description{
		"nothing":                    {},
		"a subtopology without node": {Subtopologies: []plugin.Subtopology{{ID: "0"}}},
		"global stores alone": {GlobalStores: []plugin.GlobalStore{
			{Source: source("s", "p"), Processor: processor("p")}, {Source: source("s", "p"), Processor: processor("p")},
		}},
		"empty texts": {
			Subtopologies: []plugin.Subtopology{{ID: "", Nodes: []plugin.Node{
				{Type: plugin.NodeSource, SourceTopics: []string{""}, Successors: []string{""}},
				{Type: plugin.NodeProcessor, Stores: []string{""}},
				{Type: plugin.NodeSink, SinkTopic: ptr("")}, // not the same as none
				{Type: plugin.NodeSink},
			}}},
		},
		"a node that follows itself":  one(processor("p", "p")),
		"a cycle":                     one(processor("a", "b"), processor("b", "c"), processor("c", "a")),
		"a successor that is missing": one(source("s", "nowhere")),
		"the same name twice":         one(processor("p", "q"), processor("p", "r"), processor("q"), processor("r")),
		"the same id twice":           {Subtopologies: []plugin.Subtopology{{ID: "0", Nodes: []plugin.Node{source("s")}}, {ID: "0", Nodes: []plugin.Node{source("s")}}}},
		"not in order": {Subtopologies: []plugin.Subtopology{
			{ID: "10", Nodes: []plugin.Node{source("z", "y", "x"), source("a")}}, {ID: "x"}, {ID: "2"},
		}},
	} {
		id := group(t, name)
		if err := p.set(id, 0, d); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p.want(t, id, 0, d)
	}
}

// large descriptions are stored, or refused for good with a reason; what was refused leaves nothing behind.
func large(t *testing.T, p subject) {
	chain := &plugin.Description{Subtopologies: []plugin.Subtopology{{ID: "0"}}}
	for i := range 10_000 {
		chain.Subtopologies[0].Nodes = append(chain.Subtopologies[0].Nodes, processor(fmt.Sprintf("KSTREAM-MAPVALUES-%010d", i), fmt.Sprintf("KSTREAM-MAPVALUES-%010d", i+1)))
	}
	many := &plugin.Description{}
	for i := range 2_000 {
		many.Subtopologies = append(many.Subtopologies, plugin.Subtopology{ID: fmt.Sprint(i), Nodes: []plugin.Node{source(fmt.Sprintf("s-%d", i))}})
	}
	star := one(source("hub"))
	for i := range 5_000 {
		star.Subtopologies[0].Nodes[0].Successors = append(star.Subtopologies[0].Nodes[0].Successors, fmt.Sprintf("spoke-%d", i))
	}
	for name, d := range map[string]*plugin.Description{
		"a chain of 10,000": chain, "2,000 subtopologies": many, "5,000 successors": star, "a name of 1 MB": one(source(strings.Repeat("n", 1<<20))),
	} {
		id := group(t, name)
		err := p.set(id, 0, d)
		switch {
		case err == nil:
			p.want(t, id, 0, d)
		case !plugin.IsPermanent(err):
			t.Errorf("%s: refused, but not for good, so that it would be sent again and again: %v", name, err)
		case err.Error() == "" || len(err.Error()) > plugin.MessageBytesMax:
			t.Errorf("%s: refused with a reason of %d bytes", name, len(err.Error()))
		default:
			t.Logf("%s: %v", name, err)
			p.want(t, id, 0, nil)
		}
		p.mustDelete(t, id)
	}
}
