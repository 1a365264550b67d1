package client

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client/explain"
)

// The question travels in a tagged field, and only where it is asked; the answer is in the description.
func TestDescribeAsksWhy(t *testing.T) {
	c := startFake(t, 1)
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	told := &explain.Group{At: at, State: "NotReady", Reasons: []explain.Reason{{Code: explain.MissingSourceTopics, Text: "Source topics in are missing."}},
		Description: explain.Description{Cause: explain.NeverAsked}}
	c.on(89, describing(func(_ int32, g *kmsg.StreamsGroupDescribeResponseGroup) {
		g.Topology = &kmsg.StreamsGroupDescribeResponseGroupTopology{}
		if g.Group == "told" {
			told.Put(&g.UnknownTags)
		}
		if g.Group == "garbled" {
			g.UnknownTags.Set(explain.Tag, []byte("{"))
		}
	}))
	admin := NewAdmin(c.client())
	got := admin.DescribeStreamsGroups(t.Context(), []string{"told", "untold", "garbled"}, DescribeOptions{Explain: true})
	if d := got[0].Description; got[0].Err != nil || !reflect.DeepEqual(d.Explanation, told) || d.Explain() != d.Explanation {
		t.Errorf("%+v, %v", got[0].Description, got[0].Err)
	}
	if d := got[1].Description; got[1].Err != nil || d.Explanation != nil {
		t.Errorf("%+v, %v", got[1].Description, got[1].Err)
	}
	if got[2].Err == nil || !strings.Contains(got[2].Err.Error(), "can't be read") {
		t.Errorf("an explanation that can't be read: %v", got[2].Err)
	}
	req := c.requests(89)[0].(*kmsg.StreamsGroupDescribeRequest)
	if q, ok := explain.QuestionOf(&req.UnknownTags); !ok || q != (explain.Question{Format: explain.Format}) {
		t.Errorf("asked %+v, %v", q, ok)
	}
	admin.DescribeStreamsGroups(t.Context(), []string{"untold"}, DescribeOptions{IncludeTopologyDescription: true})
	if req := c.requests(89)[1].(*kmsg.StreamsGroupDescribeRequest); req.UnknownTags.Len() != 0 {
		t.Error("a question that nobody wanted to ask")
	}
	// A coordinator that does not know the question answers with the current epoch's description: that is no answer.
	epoch := int32(3)
	err := admin.DescribeStreamsGroups(t.Context(), []string{"untold"}, DescribeOptions{IncludeTopologyDescription: true, TopologyEpoch: &epoch})[0].Err
	if !errors.Is(err, kerr.UnsupportedVersion) || !strings.Contains(err.Error(), "only the topology description of the current topology epoch") {
		t.Errorf("another epoch: %v", err)
	}
}

// What follows from a description alone.
func TestExplainWithoutTheCoordinator(t *testing.T) {
	task := func(p int32) []TaskID { return []TaskID{{"0", p}} }
	for _, c := range []struct {
		d     GroupDescription
		codes []explain.Code
		cause explain.Cause
	}{
		{GroupDescription{State: "Empty", TopologyStatus: TopologyNotStored}, []explain.Code{explain.NoMembers}, explain.NotTold},
		{GroupDescription{State: "NotReady", TopologyStatus: TopologyFailed}, []explain.Code{explain.Untold}, explain.Unavailable},
		{GroupDescription{State: "Assigning", TopologyStatus: TopologyAvailable}, []explain.Code{explain.Untold}, explain.Stored},
		{GroupDescription{State: "Stable"}, nil, explain.NotTold},
		{GroupDescription{State: "Reconciling", AssignmentEpoch: 5, Members: []MemberDescription{
			{ID: "there", Epoch: 5, Assignment: Tasks{Active: task(0)}, Target: Tasks{Active: task(0)}},
			{ID: "behind", Epoch: 4, Assignment: Tasks{Active: task(1)}},
			{ID: "waits", Epoch: 5, Target: Tasks{Active: task(1)}},
		}}, []explain.Code{explain.BehindTarget, explain.WaitingForTasks}, explain.NotTold},
	} {
		g := c.d.Explain()
		var codes []explain.Code
		for _, r := range g.Reasons {
			codes = append(codes, r.Code)
			if r.Text == "" {
				t.Errorf("%s: %s without a text", c.d.State, r.Code)
			}
		}
		if !reflect.DeepEqual(codes, c.codes) || g.Description.Cause != c.cause || g.State != c.d.State {
			t.Errorf("%s: %v and %s, want %v and %s", c.d.State, codes, g.Description.Cause, c.codes, c.cause)
		}
	}
}
