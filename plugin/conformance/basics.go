package conformance

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"streamkeeper/plugin"
)

func ptr(s string) *string { return &s }

// sample is a small description; mark tells samples apart.
func sample(mark string) *plugin.Description {
	return &plugin.Description{
		Subtopologies: []plugin.Subtopology{
			{ID: "0", Nodes: []plugin.Node{
				{Name: "read-" + mark, Type: plugin.NodeSource, SourceTopics: []string{"orders", "returns"}, Successors: []string{"count", "all"}},
				{Name: "count", Type: plugin.NodeProcessor, Stores: []string{"counts"}, Successors: []string{"write"}},
				{Name: "write", Type: plugin.NodeSink, SinkTopic: ptr("totals")},
				{Name: "all", Type: plugin.NodeSink},
			}},
			{ID: "2", Nodes: []plugin.Node{{Name: "pattern", Type: plugin.NodeSource}}},
		},
		GlobalStores: []plugin.GlobalStore{{
			Source:    plugin.Node{Name: "countries-source", Type: plugin.NodeSource, SourceTopics: []string{"countries"}, Successors: []string{"fill"}},
			Processor: plugin.Node{Name: "fill", Type: plugin.NodeProcessor, Stores: []string{"countries-store"}},
		}},
	}
}

func nameIsFixed(t *testing.T, p subject) {
	name := p.Name()
	if name == "" {
		t.Error("the plugin has no name")
	}
	p.mustSet(t, group(t, "a"), 0, sample("a"))
	if again := p.Name(); again != name {
		t.Errorf("the name was %q and is %q", name, again)
	}
}

func unknownGroup(t *testing.T, p subject) {
	p.want(t, group(t, "never seen"), 0, nil)
	p.want(t, group(t, "never seen"), 2147483647, nil)
	p.mustDelete(t, group(t, "never seen"))
	p.mustDelete(t, group(t, "never seen")) // idempotent
	p.want(t, group(t, "never seen"), 0, nil)
}

func setThenGet(t *testing.T, p subject) {
	a, b := group(t, "a"), group(t, "b")
	p.mustSet(t, a, 0, sample("a"))
	p.mustSet(t, b, 0, sample("b"))
	p.want(t, a, 0, sample("a"))
	p.want(t, b, 0, sample("b"))
	p.want(t, a, 0, sample("a")) // reading takes nothing away
}

func setAgain(t *testing.T, p subject) {
	a := group(t, "a")
	p.mustSet(t, a, 0, sample("first"))
	p.mustSet(t, a, 0, sample("first"))
	p.want(t, a, 0, sample("first"))
	p.mustSet(t, a, 0, sample("second")) // another application under the same id
	p.want(t, a, 0, sample("second"))
	p.mustSet(t, a, 0, &plugin.Description{}) // nothing of the longer one may be left
	p.want(t, a, 0, &plugin.Description{})
}

func deleteThenGet(t *testing.T, p subject) {
	a := group(t, "a")
	p.mustSet(t, a, 0, sample("a"))
	p.mustDelete(t, a)
	p.want(t, a, 0, nil)
	p.mustDelete(t, a)
	p.mustSet(t, a, 0, sample("new"))
	p.want(t, a, 0, sample("new"))
}

// deleteIsOfOneGroup: ids that begin alike, or differ in what file systems and addresses treat as special, are others.
func deleteIsOfOneGroup(t *testing.T, p subject) {
	base := group(t, "orders")
	others := []string{base + "2", base + "/topologies", base + "/", base + "/0", base + "*", base + "%", base + "_", base + " ", group(t, "order"), group(t, "Orders"), group(t, "")}
	p.mustSet(t, base, 0, sample("base"))
	for _, o := range others {
		p.mustSet(t, o, 0, sample(o))
	}
	p.mustDelete(t, base)
	p.want(t, base, 0, nil)
	for _, o := range others {
		p.want(t, o, 0, sample(o))
	}
}

func epochs(t *testing.T, p subject) {
	a := group(t, "a")
	p.mustSet(t, a, 1, sample("one"))
	p.want(t, a, 0, nil)
	p.want(t, a, 2, nil)
	p.mustSet(t, a, 2, sample("two"))
	p.want(t, a, 2, sample("two"))
	// A late push of the lower epoch must not displace the higher one, which the group's record says is stored.
	p.mustSet(t, a, 1, sample("one, late"))
	p.want(t, a, 2, sample("two"))
	if got, err := p.get(a, 1); err != nil {
		t.Error(err)
	} else if got != nil && !got.Equal(sample("one, late")) {
		t.Errorf("epoch 1 is neither gone nor what was set last, but %s", show(got))
	}
	for epoch := int32(3); epoch < 30; epoch++ {
		p.mustSet(t, a, epoch, sample("later"))
	}
	p.mustSet(t, a, 2147483647, sample("last"))
	p.want(t, a, 2147483647, sample("last"))
	p.mustDelete(t, a)
	for epoch := int32(0); epoch < 30; epoch++ {
		p.want(t, a, epoch, nil)
	}
	p.want(t, a, 2147483647, nil)
}

// epochsBeginAgain: a group that is made anew begins with epoch 0.
func epochsBeginAgain(t *testing.T, p subject) {
	a := group(t, "a")
	p.mustSet(t, a, 7, sample("old"))
	p.mustDelete(t, a)
	p.mustSet(t, a, 0, sample("new"))
	p.want(t, a, 0, sample("new"))
	p.want(t, a, 7, nil)
}

// epochsListed: a plugin that tells which epochs it holds tells those that Get finds, the highest among them.
func epochsListed(t *testing.T, p subject) {
	teller, ok := p.Plugin.(plugin.Epochs)
	if !ok {
		return // it need not tell
	}
	list := func(id string) []int32 {
		t.Helper()
		got, err := await(fmt.Sprintf("Epochs(%.80q)", id), func(ctx context.Context) *plugin.Future[[]int32] { return teller.Epochs(ctx, id) })
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	a := group(t, "a")
	if got := list(a); len(got) > 0 {
		t.Errorf("epochs of a group of which nothing is stored: %v", got)
	}
	p.mustSet(t, group(t, "ab"), 9, sample("other"))
	for _, epoch := range []int32{0, 2, 1, 2147483647} {
		p.mustSet(t, a, epoch, sample("a"))
	}
	got := list(a)
	if !slices.IsSorted(got) || !slices.Contains(got, 2147483647) {
		t.Errorf("epochs %v, want them ascending and the highest among them", got)
	}
	for epoch := range int32(10) {
		if d, err := p.get(a, epoch); err != nil || (d != nil) != slices.Contains(got, epoch) {
			t.Errorf("epochs %v, but Get of %d finds something: %v (%v)", got, epoch, d != nil, err)
		}
	}
	p.mustDelete(t, a)
	if got := list(a); len(got) > 0 {
		t.Errorf("epochs after Delete: %v", got)
	}
}

// copies: what the caller does with a value before or afterwards is nobody else's business.
func copies(t *testing.T, p subject) {
	a := group(t, "a")
	mine := sample("a")
	if _, err := await("Set", func(ctx context.Context) *plugin.Future[plugin.Void] { return p.Set(ctx, a, 0, mine) }); err != nil {
		t.Fatal(err)
	}
	scribble(mine)
	got, err := p.get(a, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Equal(sample("a")) {
		t.Fatalf("changing the value after Set was done changed what is stored: %s", show(got))
	}
	scribble(got)
	p.want(t, a, 0, sample("a"))
}

func scribble(d *plugin.Description) {
	for n := range d.Nodes {
		n.Name = "scribble"
		for _, list := range [][]string{n.SourceTopics, n.Stores, n.Successors} {
			for i := range list {
				list[i] = "scribble"
			}
		}
		if n.SinkTopic != nil {
			*n.SinkTopic = "scribble"
		}
	}
	for i := range d.Subtopologies {
		d.Subtopologies[i].ID = "scribble"
	}
}
