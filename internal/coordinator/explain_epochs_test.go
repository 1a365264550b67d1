package coordinator

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client/explain"
	"streamkeeper/plugin"
	"streamkeeper/shard"
)

// historian is a plugin that keeps earlier epochs.
type historian struct {
	*scriptedPlugin
	epochs func(group string) *plugin.Future[[]int32]
}

func (p *historian) Epochs(_ context.Context, group string) *plugin.Future[[]int32] {
	p.call("epochs %s", group)
	return p.epochs(group)
}

func TestEarlierTopologyEpochs(t *testing.T) {
	d := newDescribing(t)
	h := &historian{scriptedPlugin: d.plugin, epochs: func(group string) *plugin.Future[[]int32] {
		switch group {
		case "g1":
			return plugin.Completed([]int32{0, 2})
		case "none1":
			return plugin.Completed[[]int32](nil)
		}
		return plugin.Failed[[]int32](errors.New("down"))
	}}
	traced, err := plugin.NewTraced(h, plugin.Config{})
	if err != nil {
		t.Fatal(err)
	}
	d.descriptions = newDescriptions(&Descriptions{Plugin: traced, Shards: d.shards, Backoff: d.backoff, ReaskLost: true})
	of := func(epoch string) *plugin.Description {
		return &plugin.Description{Subtopologies: []plugin.Subtopology{{ID: epoch}}}
	}
	topology := kmsg.NewStreamsGroupDescribeResponseGroupTopology()
	topology.Epoch = 2
	d.world.shards.explained = map[string]explained{}
	for _, g := range []string{"g1", "none1", "down1"} {
		d.world.shards.explained[g] = explained{shard.Explained{Described: shard.Described{Stored: 2}, Failed: -1, At: d.now}, &topology}
	}
	d.plugin.get = func(group string) *plugin.Future[*plugin.Description] { return plugin.Completed(of("current")) }
	ask := func(include bool, q explain.Question) []kmsg.StreamsGroupDescribeResponseGroup {
		r := kmsg.NewPtrStreamsGroupDescribeRequest()
		r.Version, r.Groups, r.IncludeTopologyDescription = 1, []string{"g1", "none1", "down1"}, include
		q.Put(&r.UnknownTags)
		return d.Describe(t.Context(), Caller{}, r).Groups
	}
	told := func(g *kmsg.StreamsGroupDescribeResponseGroup) *explain.Group {
		e, err := explain.GroupOf(&g.UnknownTags)
		if err != nil || e == nil {
			t.Fatalf("%s: %+v, %v", g.Group, e, err)
		}
		return e
	}
	groups := ask(false, explain.Question{Epochs: true})
	if e := told(&groups[0]); !reflect.DeepEqual(e.Epochs, []int32{0, 2}) || e.EpochsError != "" || e.TopologyEpoch != nil {
		t.Errorf("epochs %+v", e)
	}
	if e := told(&groups[1]); len(e.Epochs) != 0 || e.EpochsError != "" {
		t.Errorf("no epochs: %+v", e)
	}
	if e := told(&groups[2]); len(e.Epochs) != 0 || e.EpochsError != "down" {
		t.Errorf("a failure: %+v", e)
	}
	// One epoch of them: its description in the place of the current one's; what is said of the current one stays.
	epoch := int32(0)
	d.plugin.calls = nil
	groups = ask(true, explain.Question{TopologyEpoch: &epoch})
	e := told(&groups[0])
	if groups[0].TopologyDescriptionStatus != descriptionAvailable || *e.TopologyEpoch != 0 || e.Description.Cause != explain.Stored || e.Description.TopologyEpoch != 2 {
		t.Errorf("status %d, %+v", groups[0].TopologyDescriptionStatus, e)
	}
	asked := map[string]int{}
	for _, c := range d.plugin.calls {
		asked[c]++
	}
	if want := map[string]int{"get g1 0": 1, "get g1 2": 1, "get none1 0": 1, "get none1 2": 1, "get down1 0": 1, "get down1 2": 1}; !reflect.DeepEqual(asked, want) {
		t.Errorf("plugin calls %v", asked)
	}
	// An epoch that is not there is not stored, and nothing is lost.
	d.plugin.get = func(string) *plugin.Future[*plugin.Description] { return plugin.Completed[*plugin.Description](nil) }
	d.world.shards.explained["g1"] = explained{shard.Explained{Described: shard.Described{Stored: -2}, Failed: -1, At: d.now}, &topology}
	d.shards.calls = nil
	r := kmsg.NewPtrStreamsGroupDescribeRequest()
	r.Version, r.Groups, r.IncludeTopologyDescription = 1, []string{"g1"}, true
	explain.Question{TopologyEpoch: &epoch}.Put(&r.UnknownTags)
	if g := d.Describe(t.Context(), Caller{}, r).Groups[0]; g.TopologyDescriptionStatus != descriptionNotStored || g.TopologyDescription != nil || len(d.shards.calls) != 0 {
		t.Errorf("status %d, calls %v", g.TopologyDescriptionStatus, d.shards.calls)
	}
	d.descriptions = nil
	r.UnknownTags = kmsg.Tags{}
	explain.Question{TopologyEpoch: &epoch, Epochs: true}.Put(&r.UnknownTags)
	g := d.Describe(t.Context(), Caller{}, r).Groups[0]
	if e := told(&g); g.TopologyDescriptionStatus != descriptionNotStored || e.EpochsError == "" {
		t.Errorf("without a plugin: status %d, %+v", g.TopologyDescriptionStatus, e)
	}
}
