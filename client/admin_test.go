package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client/topology"
)

// group is a described group without members.
func group(id string) kmsg.StreamsGroupDescribeResponseGroup {
	g := kmsg.NewStreamsGroupDescribeResponseGroup()
	g.Group, g.State, g.Epoch, g.AssignmentEpoch = id, "Empty", 5, 4
	g.Topology = &kmsg.StreamsGroupDescribeResponseGroupTopology{Epoch: 0}
	return g
}

// describing answers with a group for each id, as edit changes it.
func describing(edit func(node int32, g *kmsg.StreamsGroupDescribeResponseGroup)) handler {
	return func(node int32, req kmsg.Request) kmsg.Response {
		resp := kmsg.NewPtrStreamsGroupDescribeResponse()
		for _, id := range req.(*kmsg.StreamsGroupDescribeRequest).Groups {
			g := group(id)
			edit(node, &g)
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	}
}

func wireNode(name string, typ int8) kmsg.TopologyDescriptionNode {
	n := kmsg.NewTopologyDescriptionNode()
	n.Name, n.NodeType = name, typ
	return n
}

func pictured(g *kmsg.StreamsGroupDescribeResponseGroup, status int8, nodes ...kmsg.TopologyDescriptionNode) {
	g.TopologyDescriptionStatus = status
	g.TopologyDescription = &kmsg.StreamsGroupDescribeResponseGroupTopologyDescription{
		Subtopologies: []kmsg.TopologyDescriptionSubtopology{{SubtopologyID: "0", Nodes: nodes}},
	}
}

// Each row of the table by which Kafka's admin client reads an answer (DescribeStreamsGroupsHandler), all in one answer: what is wrong with a group
// is the business of that group.
func TestWhatADescribeAnswerMeans(t *testing.T) {
	c := startFake(t, 1)
	a := wireNode("a", 1)
	a.Successors = []string{"b", "elsewhere"}
	b := wireNode("b", 2)
	b.Successors = []string{"b"}
	c.on(89, describing(func(_ int32, g *kmsg.StreamsGroupDescribeResponseGroup) {
		switch g.Group {
		case "available":
			pictured(g, 3, a, b)
		case "not stored":
			pictured(g, 1, a)
		case "error":
			g.TopologyDescriptionStatus = 2
		case "not requested":
		case "no topology":
			g.Topology = nil
		case "status 7":
			g.TopologyDescriptionStatus = 7
		case "available without":
			g.TopologyDescriptionStatus = 3
		case "node type 9":
			pictured(g, 3, wireNode("x", 9))
		case "global store":
			pictured(g, 3)
			g.TopologyDescription.GlobalStores = []kmsg.TopologyDescriptionGlobalStore{{Source: wireNode("s", 1), Processor: wireNode("k", 3)}}
		case "unknown":
			g.ErrorCode, g.ErrorMessage, g.Topology = kerr.GroupIDNotFound.Code, kmsg.StringPtr("Group unknown not found."), nil
		case "forbidden":
			g.ErrorCode, g.Topology = kerr.GroupAuthorizationFailed.Code, nil
		case "topics":
			g.ErrorCode, g.ErrorMessage, g.Topology = kerr.TopicAuthorizationFailed.Code, kmsg.StringPtr("The described group uses topics that the client is not authorized to describe."), nil
		case "code 999":
			g.ErrorCode = 999
		}
	}))
	at := c.node(1)
	rows := []struct {
		group, err string
		is         error
		status     TopologyStatus
	}{
		{group: "available", status: TopologyAvailable},
		{group: "not stored", status: TopologyNotStored},
		{group: "error", status: TopologyFailed},
		{group: "not requested"},
		{group: "no topology", err: fmt.Sprintf(`group "no topology" at %v: topology information is missing`, at)},
		{group: "status 7", err: fmt.Sprintf(`group "status 7" at %v: unknown topology description status 7`, at)},
		{group: "available without", err: fmt.Sprintf(`group "available without" at %v: topology description is missing despite status AVAILABLE`, at)},
		{group: "node type 9", err: fmt.Sprintf(`group "node type 9" at %v: topology description: subtopology "0", node "x": unknown node type 9`, at)},
		{group: "global store", err: fmt.Sprintf(`group "global store" at %v: topology description: global store 0 is a source and a sink, and must be a source and a processor`, at)},
		{group: "unknown", err: "Group unknown not found.", is: kerr.GroupIDNotFound},
		{group: "forbidden", err: kerr.GroupAuthorizationFailed.Error(), is: kerr.GroupAuthorizationFailed},
		{group: "topics", err: "The described group uses topics that the client is not authorized to describe.", is: kerr.TopicAuthorizationFailed},
		{group: "code 999", err: "unknown error code 999", is: kerr.UnknownServerError},
	}
	var ids []string
	for _, r := range rows {
		ids = append(ids, r.group)
	}
	got := NewAdmin(c.client()).DescribeStreamsGroups(t.Context(), append(slices.Clone(ids), ids...), DescribeOptions{IncludeTopologyDescription: true})
	if len(got) != len(rows) {
		t.Fatalf("%d results, want %d", len(got), len(rows))
	}
	for i, r := range rows {
		g := got[i]
		if g.Group != r.group {
			t.Fatalf("result %d is of %q, want %q", i, g.Group, r.group)
		}
		if r.err != "" {
			if g.Err == nil || g.Err.Error() != r.err || r.is != nil && !errors.Is(g.Err, r.is) || g.Description != nil {
				t.Errorf("%s: %v (%v), want %s", r.group, g.Err, g.Description, r.err)
			}
			continue
		}
		if g.Err != nil || g.Description.TopologyStatus != r.status || (g.Description.TopologyDescription != nil) != (r.status == TopologyAvailable) {
			t.Errorf("%s: %+v, %v", r.group, g.Description, g.Err)
		}
	}
	want := []topology.Node{
		{Name: "a", Type: topology.Source, Successors: []string{"b", "elsewhere"}},
		{Name: "b", Type: topology.Processor, Successors: []string{"b"}, Predecessors: []string{"a", "b"}},
	}
	if nodes := got[0].Description.TopologyDescription.Subtopologies[0].Nodes; !reflect.DeepEqual(nodes, want) {
		t.Errorf("nodes %+v, want %+v", nodes, want)
	}
	if n := len(c.requests(89)); n != 1 {
		t.Errorf("%d requests for one batch", n)
	}
}

func TestEverythingOfADescription(t *testing.T) {
	c := startFake(t, 1)
	c.on(89, describing(func(_ int32, g *kmsg.StreamsGroupDescribeResponseGroup) {
		g.AuthorizedOperations = 1<<3 | 1<<6 | 1<<8
		g.AssignorName = kmsg.StringPtr("sticky")
		g.Topology.Epoch = 2
		g.Topology.Subtopologies = []kmsg.StreamsGroupDescribeResponseGroupTopologySubtopology{{
			SubtopologyID: "0", SourceTopics: []string{"in"}, RepartitionSinkTopics: []string{"r"},
			RepartitionSourceTopics: []kmsg.TopicInfo{{Topic: "r", NumPartitions: 3}},
			StateChangelogTopics:    []kmsg.TopicInfo{{Topic: "c", ReplicationFactor: 2, Configs: []kmsg.TopicInfoConfig{{Key: "k", Value: "v"}}}},
		}}
		m := kmsg.NewStreamsGroupDescribeResponseGroupMember()
		m.MemberID, m.MemberEpoch, m.ClientID, m.ClientHost, m.ProcessID, m.TopologyEpoch = "m", 5, "app", "/10.0.0.1", "p", 2
		m.InstanceID, m.RackID = kmsg.StringPtr("i"), kmsg.StringPtr("r")
		m.UserEndpoint = &kmsg.StreamsGroupDescribeResponseGroupMemberUserEndpoint{Host: "h", Port: 80}
		m.ClientTags = []kmsg.StreamsGroupDescribeResponseGroupMemberClientTag{{Key: "zone", Value: "a"}}
		m.TaskOffsets = []kmsg.TaskOffset{{SubtopologyID: "0", Partition: 1, Offset: 7}}
		m.Assignment.ActiveTasks = []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{3, 1}}}
		m.TargetAssignment.StandbyTasks = []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{2}}}
		g.Members = append(g.Members, m)
	}))
	admin := NewAdmin(c.client())
	got := admin.DescribeStreamsGroups(t.Context(), []string{"g"}, DescribeOptions{IncludeAuthorizedOperations: true})
	want := &GroupDescription{
		Group: "g", State: "Empty", Epoch: 5, AssignmentEpoch: 4, TopologyEpoch: 2, Assignor: "sticky", Coordinator: c.node(1),
		AuthorizedOperations: []kmsg.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationDelete, kmsg.ACLOperationDescribe},
		Subtopologies: []Subtopology{{ID: "0", SourceTopics: []string{"in"}, RepartitionSinkTopics: []string{"r"},
			RepartitionSourceTopics: []InternalTopic{{Name: "r", Partitions: 3}},
			ChangelogTopics:         []InternalTopic{{Name: "c", ReplicationFactor: 2, Configs: map[string]string{"k": "v"}}}}},
		Members: []MemberDescription{{ID: "m", Epoch: 5, TopologyEpoch: 2, InstanceID: kmsg.StringPtr("i"), RackID: kmsg.StringPtr("r"), ClientID: "app", Host: "10.0.0.1", ProcessID: "p",
			Endpoint: &Endpoint{"h", 80}, Tags: map[string]string{"zone": "a"}, Offsets: []TaskOffset{{TaskID{"0", 1}, 7}},
			Assignment: Tasks{Active: []TaskID{{"0", 1}, {"0", 3}}}, Target: Tasks{Standby: []TaskID{{"0", 2}}}}},
	}
	if len(got) != 1 || got[0].Err != nil || !reflect.DeepEqual(got[0].Description, want) {
		t.Errorf("%+v, %v\nwant %+v", got[0].Description, got[0].Err, want)
	}
	if r := c.requests(89)[0].(*kmsg.StreamsGroupDescribeRequest); !r.IncludeAuthorizedOperations || r.IncludeTopologyDescription || r.Version != 1 {
		t.Errorf("request %+v", r)
	}
	if got := admin.DescribeStreamsGroups(t.Context(), nil, DescribeOptions{}); len(got) != 0 {
		t.Errorf("describe of nothing: %+v", got)
	}
}

// A node that speaks only version 0 can describe a group, but not its topology: there is no silent fallback.
func TestANodeOfVersion0(t *testing.T) {
	c := startFake(t, 1)
	c.knows(89, 0)
	c.on(89, describing(func(_ int32, g *kmsg.StreamsGroupDescribeResponseGroup) { pictured(g, 3, wireNode("a", 1)) }))
	admin := NewAdmin(c.client())
	got := admin.DescribeStreamsGroups(t.Context(), []string{"g"}, DescribeOptions{IncludeTopologyDescription: true})
	want := fmt.Sprintf("node %v speaks only version 0 of StreamsGroupDescribe, which has no topology descriptions", c.node(1))
	if err := got[0].Err; !errors.Is(err, kerr.UnsupportedVersion) || err.Error() != want || got[0].Description != nil {
		t.Errorf("%v, want %s", err, want)
	}
	got = admin.DescribeStreamsGroups(t.Context(), []string{"g"}, DescribeOptions{})
	if d := got[0].Description; got[0].Err != nil || d.TopologyStatus != TopologyNotRequested || d.TopologyDescription != nil || d.Assignor != "" || d.AuthorizedOperations != nil {
		t.Errorf("%+v, %v", d, got[0].Err)
	}
}

// A node that has no streams groups at all.
func TestANodeWithoutStreamsGroups(t *testing.T) {
	c := startFake(t, 1)
	c.knows(89, -1)
	got := NewAdmin(c.client()).DescribeStreamsGroups(t.Context(), []string{"g"}, DescribeOptions{})
	want := fmt.Sprintf("node %v does not support StreamsGroupDescribe", c.node(1))
	if err := got[0].Err; !errors.Is(err, kerr.UnsupportedVersion) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// Where a coordinator loads, the same is asked again; where it moved or is not there, the new one is looked up.
func TestCoordinatorsThatLoadMoveAndBreak(t *testing.T) {
	c := startFake(t, 3)
	c.place("moves", 2)
	c.place("loads", 2)
	c.place("breaks", 2)
	var moves, loads, breaks, elects atomic.Int32
	c.on(10, func(at int32, req kmsg.Request) kmsg.Response {
		resp := c.findCoordinator(at, req).(*kmsg.FindCoordinatorResponse)
		for i := range resp.Coordinators {
			if k := &resp.Coordinators[i]; k.Key == "elects" && elects.Add(1) <= 2 {
				k.NodeID, k.Host, k.Port, k.ErrorCode = -1, "", -1, kerr.CoordinatorNotAvailable.Code
			}
		}
		return resp
	})
	answer := describing(func(at int32, g *kmsg.StreamsGroupDescribeResponseGroup) {
		switch {
		case g.Group == "moves" && at == 2:
			moves.Add(1)
			c.place("moves", 3)
			g.ErrorCode = kerr.NotCoordinator.Code
		case g.Group == "loads" && loads.Add(1) <= 2:
			g.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		}
	})
	c.on(89, func(at int32, req kmsg.Request) kmsg.Response {
		if slices.Contains(req.(*kmsg.StreamsGroupDescribeRequest).Groups, "breaks") && breaks.Add(1) == 1 {
			c.place("breaks", 1)
			return nil
		}
		return answer(at, req)
	})
	got := NewAdmin(c.client()).DescribeStreamsGroups(t.Context(), []string{"moves", "loads", "breaks", "elects"}, DescribeOptions{})
	for i, want := range []int32{3, 2, 1, 1} {
		if g := got[i]; g.Err != nil || g.Description.Coordinator != c.node(want) {
			t.Errorf("%s: at %+v, %v; want node %d", g.Group, g.Description, g.Err, want)
		}
	}
	if moves.Load() != 1 || loads.Load() != 3 || breaks.Load() < 1 || elects.Load() != 3 {
		t.Errorf("asked the moved %d, the loading %d, the broken %d times, looked the elected up %d times", moves.Load(), loads.Load(), breaks.Load(), elects.Load())
	}
}

// A coordinator that is gone is not waited for once another has taken over.
func TestACoordinatorThatIsReplaced(t *testing.T) {
	c := startFake(t, 2)
	c.place("g", 2)
	c.brokers[1].ln.Close()
	c.on(89, describing(func(int32, *kmsg.StreamsGroupDescribeResponseGroup) {}))
	var lookups atomic.Int32
	c.on(10, func(at int32, req kmsg.Request) kmsg.Response {
		if lookups.Add(1) == 3 {
			c.place("g", 1)
		}
		return c.findCoordinator(at, req)
	})
	start := time.Now()
	got := NewAdmin(c.client()).DescribeStreamsGroups(t.Context(), []string{"g"}, DescribeOptions{})[0]
	if got.Err != nil || got.Description.Coordinator != c.node(1) || lookups.Load() != 3 {
		t.Errorf("%+v, %v after %d lookups", got.Description, got.Err, lookups.Load())
	}
	if took := time.Since(start); took > 10*time.Second { // 0.3 s on an idle machine
		t.Errorf("it took %v", took)
	}
}

// A coordinator that stays away fails its groups at the deadline, with the reason, and delays no other.
func TestACoordinatorThatStaysAway(t *testing.T) {
	c := startFake(t, 2)
	c.place("gone", 2)
	hang := make(chan struct{})
	defer close(hang)
	c.on(89, func(at int32, req kmsg.Request) kmsg.Response {
		if at == 2 {
			<-hang
			return nil
		}
		return describing(func(_ int32, g *kmsg.StreamsGroupDescribeResponseGroup) {
			if g.Group == "loads" {
				g.ErrorCode = kerr.CoordinatorLoadInProgress.Code
			}
		})(at, req)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	got := NewAdmin(c.client()).DescribeStreamsGroups(ctx, []string{"gone", "here", "loads"}, DescribeOptions{})
	if err := got[0].Err; !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), fmt.Sprintf(`describe group "gone": at %v: `, c.node(2))) {
		t.Errorf("gone: %v", err)
	}
	if got[1].Err != nil {
		t.Errorf("here: %v", got[1].Err)
	}
	if err := got[2].Err; !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, kerr.CoordinatorLoadInProgress) {
		t.Errorf("loads: %v", err)
	}
}

func TestABadClusterIsToldAtOnce(t *testing.T) {
	c := startFake(t, 1)
	c.on(10, func(_ int32, req kmsg.Request) kmsg.Response {
		resp := kmsg.NewPtrFindCoordinatorResponse()
		for _, key := range req.(*kmsg.FindCoordinatorRequest).CoordinatorKeys {
			k := kmsg.NewFindCoordinatorResponseCoordinator()
			switch k.Key = key; key {
			case "forbidden":
				k.ErrorCode = kerr.GroupAuthorizationFailed.Code
			case "forgotten":
				continue
			case "nowhere":
				k.NodeID, k.Host, k.Port = 77, "127.0.0.1", 1
			default:
				k.NodeID = 1
				k.Host, k.Port = c.addr(c.brokers[0])
			}
			resp.Coordinators = append(resp.Coordinators, k)
		}
		return resp
	})
	c.on(89, func(int32, kmsg.Request) kmsg.Response {
		resp := kmsg.NewPtrStreamsGroupDescribeResponse()
		resp.Groups = append(resp.Groups, group("not asked for"))
		return resp
	})
	got := NewAdmin(c.client()).DescribeStreamsGroups(t.Context(), []string{"forbidden", "forgotten", "nowhere", "unanswered"}, DescribeOptions{})
	for i, want := range []string{
		kerr.GroupAuthorizationFailed.Error(),
		`describe group "forgotten": find the coordinator: the answer says nothing about it`,
		`describe group "nowhere": at 127.0.0.1:1 (77): unknown broker`,
		fmt.Sprintf(`describe group "unanswered": at %v: the answer says nothing about it`, c.node(1)),
	} {
		if err := got[i].Err; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", got[i].Group, err, want)
		}
	}
}

// Many groups go in batches, each to its coordinator.
func TestManyGroups(t *testing.T) {
	c := startFake(t, 3)
	var groups []string
	for i := range 2500 {
		groups = append(groups, fmt.Sprint("g", i))
		c.place(groups[i], int32(i%3)+1)
	}
	c.on(89, describing(func(at int32, g *kmsg.StreamsGroupDescribeResponseGroup) { g.Epoch = at }))
	got := NewAdmin(c.client()).DescribeStreamsGroups(t.Context(), groups, DescribeOptions{IncludeTopologyDescription: true})
	for i, g := range got {
		if g.Group != groups[i] || g.Err != nil || g.Description.Epoch != int32(i%3)+1 {
			t.Fatalf("group %d: %+v", i, g)
		}
	}
	for _, r := range c.requests(89) {
		if n := len(r.(*kmsg.StreamsGroupDescribeRequest).Groups); n > describePicturesMax {
			t.Fatalf("%d groups in one request", n)
		}
	}
	for _, r := range c.requests(10) {
		if n := len(r.(*kmsg.FindCoordinatorRequest).CoordinatorKeys); n > lookupBatchMax {
			t.Fatalf("%d groups in one lookup", n)
		}
	}
}

func TestDelete(t *testing.T) {
	c := startFake(t, 2)
	c.place("b", 2)
	var loading atomic.Bool
	loading.Store(true)
	c.on(89, describing(func(_ int32, g *kmsg.StreamsGroupDescribeResponseGroup) {
		switch g.Group {
		case "consumers":
			g.ErrorCode, g.ErrorMessage, g.Topology = kerr.GroupIDNotFound.Code, kmsg.StringPtr("Group "+g.Group+" is not a streams group."), nil
		case "b":
			g.ErrorCode, g.Topology = kerr.TopicAuthorizationFailed.Code, nil
		case "forbidden":
			g.ErrorCode, g.Topology = kerr.GroupAuthorizationFailed.Code, nil
		}
	}))
	c.on(42, func(_ int32, req kmsg.Request) kmsg.Response {
		resp := kmsg.NewPtrDeleteGroupsResponse()
		for _, id := range req.(*kmsg.DeleteGroupsRequest).Groups {
			g := kmsg.NewDeleteGroupsResponseGroup()
			switch g.Group = id; {
			case id == "b" && loading.Swap(false):
				g.ErrorCode = kerr.CoordinatorLoadInProgress.Code
			case id == "busy":
				g.ErrorCode = kerr.NonEmptyGroup.Code
			case id == "failed":
				g.ErrorCode, g.ErrorMessage = kerr.GroupDeletionFailed.Code, kmsg.StringPtr("Topology description plugin failed to delete the topology.")
			}
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	})
	got := NewAdmin(c.client()).DeleteStreamsGroups(t.Context(), "a", "busy", "consumers", "b", "forbidden", "failed", "a")
	want := []struct {
		group, text string
		is          error
	}{{"a", "", nil}, {"busy", kerr.NonEmptyGroup.Error(), kerr.NonEmptyGroup}, {"consumers", "Group 'consumers' does not exist or is not a streams group.", kerr.GroupIDNotFound},
		{"b", "", nil}, {"forbidden", kerr.GroupAuthorizationFailed.Error(), kerr.GroupAuthorizationFailed}, {"failed", "Topology description plugin failed to delete the topology.", kerr.GroupDeletionFailed}}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, w := range want {
		if g := got[i]; g.Group != w.group || !errors.Is(g.Err, w.is) || w.is != nil && g.Err.Error() != w.text {
			t.Errorf("%s: %v, want %v", g.Group, g.Err, w.is)
		}
	}
	for _, r := range c.requests(42) { // what is not a streams group is not even asked for
		if groups := r.(*kmsg.DeleteGroupsRequest).Groups; slices.Contains(groups, "consumers") || slices.Contains(groups, "forbidden") {
			t.Errorf("asked to delete %q", groups)
		}
	}
}

func TestList(t *testing.T) {
	c := startFake(t, 3)
	var loading atomic.Bool
	loading.Store(true)
	c.on(16, func(at int32, req kmsg.Request) kmsg.Response {
		resp := kmsg.NewPtrListGroupsResponse()
		add := func(id, protocol, typ, state string) {
			g := kmsg.NewListGroupsResponseGroup()
			g.Group, g.ProtocolType, g.GroupType, g.GroupState = id, protocol, typ, state
			resp.Groups = append(resp.Groups, g)
		}
		switch at {
		case 1:
			add("z", "streams", "streams", "Stable")
			add("other", "consumer", "consumer", "Stable")
		case 2:
			if loading.Swap(false) {
				resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
				return resp
			}
			add("a", "streams", "streams", "NotReady")
			add("z", "streams", "streams", "Stable")
		case 3:
			resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		}
		return resp
	})
	admin := NewAdmin(c.client())
	got, err := admin.ListStreamsGroups(t.Context())
	if !errors.Is(err, kerr.ClusterAuthorizationFailed) || !strings.HasPrefix(err.Error(), fmt.Sprintf("list the groups of node %v: ", c.node(3))) {
		t.Errorf("error %v", err)
	}
	if len(got) != 2 || got[0] != (ListedGroup{"a", "NotReady", c.node(2)}) || got[1].Group != "z" {
		t.Errorf("%+v", got)
	}
	// NotReady is found, though a node's own filter does not.
	if got, _ := admin.ListStreamsGroups(t.Context(), "notready"); len(got) != 1 || got[0].Group != "a" {
		t.Errorf("not ready: %+v", got)
	}
	if got, _ := admin.ListStreamsGroups(t.Context(), "Empty", "Dead"); len(got) != 0 {
		t.Errorf("empty: %+v", got)
	}
	c = startFake(t, 1)
	c.knows(16, 3)
	c.on(16, func(int32, kmsg.Request) kmsg.Response { return kmsg.NewPtrListGroupsResponse() })
	if _, err := NewAdmin(c.client()).ListStreamsGroups(t.Context(), "Empty"); !errors.Is(err, kerr.UnsupportedVersion) {
		t.Errorf("states of a node that knows none: %v", err)
	}
}

func TestOffsets(t *testing.T) {
	c := startFake(t, 2)
	c.place("b", 2)
	c.on(9, func(_ int32, req kmsg.Request) kmsg.Response {
		resp := kmsg.NewPtrOffsetFetchResponse()
		for _, in := range req.(*kmsg.OffsetFetchRequest).Groups {
			g := kmsg.NewOffsetFetchResponseGroup()
			g.Group = in.Group
			add := func(topic string, partition int32, offset int64, code int16) {
				p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
				p.Partition, p.Offset, p.LeaderEpoch, p.ErrorCode, p.Metadata = partition, offset, 9, code, kmsg.StringPtr("m")
				g.Topics = append(g.Topics, kmsg.OffsetFetchResponseGroupTopic{Topic: topic, Partitions: []kmsg.OffsetFetchResponseGroupTopicPartition{p}})
			}
			switch {
			case in.Group == "none":
				g.ErrorCode = kerr.GroupAuthorizationFailed.Code
			case in.Topics == nil:
				add("y", 1, 20, 0)
				add("x", 0, 10, 0)
			default:
				for _, tp := range in.Topics {
					for _, p := range tp.Partitions {
						add(tp.Topic, p, -1, kerr.UnstableOffsetCommit.Code*int16(p))
					}
				}
			}
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	})
	admin := NewAdmin(c.client())
	got := admin.ListStreamsGroupOffsets(t.Context(), map[string][]TopicPartition{"a": nil, "b": {{"t", 1}, {"s", 0}, {"t", 1}}, "none": nil, "nothing": {}}, OffsetsOptions{RequireStable: true})
	if len(got) != 4 || got[0].Err != nil || got[1].Err != nil || got[3].Err != nil || !errors.Is(got[2].Err, kerr.GroupAuthorizationFailed) || len(got[3].Offsets) != 0 {
		t.Fatalf("%+v", got)
	}
	if want := []CommittedOffset{{Topic: "x", Offset: 10, LeaderEpoch: 9, Metadata: "m"}, {Topic: "y", Partition: 1, Offset: 20, LeaderEpoch: 9, Metadata: "m"}}; !reflect.DeepEqual(got[0].Offsets, want) {
		t.Errorf("all: %+v, want %+v", got[0].Offsets, want)
	}
	if o := got[1].Offsets; len(o) != 2 || o[0].Topic != "s" || o[0].Err != nil || o[0].Offset != NoOffset || !errors.Is(o[1].Err, kerr.UnstableOffsetCommit) {
		t.Errorf("some: %+v", o)
	}
	for _, r := range c.requests(9) {
		if r := r.(*kmsg.OffsetFetchRequest); r.Version != 9 || !r.RequireStable {
			t.Errorf("version %d, require stable %v", r.Version, r.RequireStable)
		}
	}
	c.knows(9, 7)
	got = NewAdmin(c.client()).ListStreamsGroupOffsets(t.Context(), map[string][]TopicPartition{"a": nil}, OffsetsOptions{})
	if !errors.Is(got[0].Err, kerr.UnsupportedVersion) {
		t.Errorf("of a node of version 7: %v", got[0].Err)
	}
}

// The texts and statuses of kafka-streams-groups --describe --topology.
func TestWriteTopology(t *testing.T) {
	var b bytes.Buffer
	d := &GroupDescription{Group: "g", TopologyStatus: TopologyAvailable, TopologyDescription: &topology.Description{Subtopologies: []topology.Subtopology{{ID: "0"}}}}
	if err := d.WriteTopology(t.Context(), &b, topology.Text); err != nil || b.String() != "Topologies:\n   Sub-topology: 0\n\n\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	b.Reset()
	if err := d.WriteTopology(t.Context(), &b, topology.Mermaid); err != nil || !strings.HasPrefix(b.String(), "flowchart TD\n") || strings.HasSuffix(b.String(), "\n\n") {
		t.Errorf("%q, %v", b.String(), err)
	}
	b.Reset()
	for status, want := range map[TopologyStatus]string{
		TopologyNotRequested: "No topology description is available for streams group 'g' (status: NOT_REQUESTED).",
		TopologyNotStored:    "No topology description is stored for streams group 'g'.",
		TopologyFailed:       "The broker failed to fetch the topology description for streams group 'g'. See the broker logs for details.",
	} {
		d := &GroupDescription{Group: "g", TopologyStatus: status}
		var none *NoTopologyError
		if err := d.WriteTopology(t.Context(), &b, topology.Text); !errors.As(err, &none) || err.Error() != want || none.Status != status || b.Len() > 0 {
			t.Errorf("%v: %v, want %s", status, err, want)
		}
	}
}
