package gateway

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/wire"
)

// theirs is what the scripted cluster answers wherever a code fits, so that a test sees who answered.
const theirs = 77

// clusterAnswers answers every group request with theirs, and names itself as the coordinator of all.
func clusterAnswers(s *scripted) func(wire.Header, kmsg.Request) kmsg.Response {
	return func(_ wire.Header, req kmsg.Request) kmsg.Response {
		resp := req.ResponseKind()
		switch r := resp.(type) {
		case *kmsg.FindCoordinatorResponse:
			f := req.(*kmsg.FindCoordinatorRequest)
			r.NodeID, r.Host, r.Port = 1, "127.0.0.1", s.port
			for _, key := range f.CoordinatorKeys {
				c := kmsg.NewFindCoordinatorResponseCoordinator()
				c.Key, c.NodeID, c.Host, c.Port = key, 1, "127.0.0.1", s.port
				r.Coordinators = append(r.Coordinators, c)
			}
		case *kmsg.OffsetCommitResponse:
			for _, t := range req.(*kmsg.OffsetCommitRequest).Topics {
				rt := kmsg.NewOffsetCommitResponseTopic()
				rt.Topic, rt.TopicID = t.Topic, t.TopicID
				rt.Partitions = []kmsg.OffsetCommitResponseTopicPartition{{Partition: t.Partitions[0].Partition, ErrorCode: theirs}}
				r.Topics = append(r.Topics, rt)
			}
		case *kmsg.OffsetFetchResponse:
			r.ErrorCode = theirs
			for _, g := range req.(*kmsg.OffsetFetchRequest).Groups {
				rg := kmsg.NewOffsetFetchResponseGroup()
				rg.Group, rg.ErrorCode = g.Group, theirs
				r.Groups = append(r.Groups, rg)
			}
		case *kmsg.DescribeGroupsResponse:
			for _, g := range req.(*kmsg.DescribeGroupsRequest).Groups {
				rg := kmsg.NewDescribeGroupsResponseGroup()
				rg.Group, rg.ErrorCode = g, theirs
				rg.Members = []kmsg.DescribeGroupsResponseGroupMember{{MemberID: "m", ProtocolMetadata: []byte("metadata"), MemberAssignment: []byte("assignment")}}
				r.Groups = append(r.Groups, rg)
			}
		case *kmsg.ConsumerGroupDescribeResponse:
			for _, g := range req.(*kmsg.ConsumerGroupDescribeRequest).Groups {
				rg := kmsg.NewConsumerGroupDescribeResponseGroup()
				rg.Group, rg.ErrorCode = g, theirs
				r.Groups = append(r.Groups, rg)
			}
		case *kmsg.ShareGroupDescribeResponse:
			for _, g := range req.(*kmsg.ShareGroupDescribeRequest).GroupIDs {
				rg := kmsg.NewShareGroupDescribeResponseGroup()
				rg.GroupID, rg.ErrorCode = g, theirs
				r.Groups = append(r.Groups, rg)
			}
		case *kmsg.DeleteGroupsResponse:
			for _, g := range req.(*kmsg.DeleteGroupsRequest).Groups {
				rg := kmsg.NewDeleteGroupsResponseGroup()
				rg.Group, rg.ErrorCode = g, theirs
				r.Groups = append(r.Groups, rg)
			}
		case *kmsg.TxnOffsetCommitResponse:
			for _, t := range req.(*kmsg.TxnOffsetCommitRequest).Topics {
				rt := kmsg.NewTxnOffsetCommitResponseTopic()
				rt.Topic, rt.TopicID = t.Topic, t.TopicID
				rt.Partitions = []kmsg.TxnOffsetCommitResponseTopicPartition{{Partition: t.Partitions[0].Partition, ErrorCode: theirs}}
				r.Topics = append(r.Topics, rt)
			}
		case *kmsg.OffsetDeleteResponse:
			r.ErrorCode = theirs
		case *kmsg.JoinGroupResponse:
			r.ErrorCode = theirs
		case *kmsg.SyncGroupResponse:
			r.ErrorCode = theirs
		case *kmsg.HeartbeatResponse:
			r.ErrorCode = theirs
		case *kmsg.LeaveGroupResponse:
			r.ErrorCode = theirs
		case *kmsg.ConsumerGroupHeartbeatResponse:
			r.ErrorCode = theirs
		case *kmsg.ShareGroupHeartbeatResponse:
			r.ErrorCode = theirs
		case *kmsg.AddOffsetsToTxnResponse:
			r.ErrorCode = theirs
		case *kmsg.ListGroupsResponse:
			r.Groups = []kmsg.ListGroupsResponseGroup{{Group: "theirs", ProtocolType: "consumer", GroupState: "Stable", GroupType: "consumer"}}
		default:
			return nil
		}
		return resp
	}
}

func startWithGroups(t *testing.T) (*Gateway, *scripted, *service) {
	t.Helper()
	up := startScripted(t, "127.0.0.1:0", nil)
	up.change(func(s *scripted) { s.answer = clusterAnswers(s) })
	svc := newService().set("ours", coordinator.Ours).set("away", coordinator.Elsewhere).set("maybe", coordinator.Undecided)
	svc.nodes = []coordinator.Node{{ID: otherNode, Host: "other.example", Port: 9999}}
	g, _ := start(t, svc, []string{up.addr()})
	return g, up, svc
}

// codesOf collects the error codes of an answer, by group or partition; texts of messages follow.
func codesOf(resp kmsg.Response) string {
	var b strings.Builder
	add := func(name string, code int16, text *string) {
		fmt.Fprintf(&b, "%s=%d", name, code)
		if text != nil && *text != "" {
			fmt.Fprintf(&b, "(%s)", *text)
		}
		b.WriteString(" ")
	}
	switch r := resp.(type) {
	case *kmsg.OffsetCommitResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				add(fmt.Sprintf("%s/%d", t.Topic, p.Partition), p.ErrorCode, nil)
			}
		}
	case *kmsg.TxnOffsetCommitResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				add(fmt.Sprintf("%s/%d", t.Topic, p.Partition), p.ErrorCode, nil)
			}
		}
	case *kmsg.OffsetFetchResponse:
		if r.Version < 8 {
			add("all", r.ErrorCode, nil)
			for _, t := range r.Topics {
				for _, p := range t.Partitions {
					add(fmt.Sprintf("%s/%d@%d", t.Topic, p.Partition, p.Offset), p.ErrorCode, nil)
				}
			}
		}
		for _, g := range r.Groups {
			add(g.Group, g.ErrorCode, nil)
		}
	case *kmsg.DescribeGroupsResponse:
		for _, g := range r.Groups {
			add(g.Group+":"+g.State, g.ErrorCode, g.ErrorMessage)
		}
	case *kmsg.ConsumerGroupDescribeResponse:
		for _, g := range r.Groups {
			add(g.Group, g.ErrorCode, g.ErrorMessage)
		}
	case *kmsg.ShareGroupDescribeResponse:
		for _, g := range r.Groups {
			add(g.GroupID, g.ErrorCode, g.ErrorMessage)
		}
	case *kmsg.DeleteGroupsResponse:
		for _, g := range r.Groups {
			add(g.Group, g.ErrorCode, g.ErrorMessage)
		}
	case *kmsg.OffsetDeleteResponse:
		add("all", r.ErrorCode, nil)
	case *kmsg.JoinGroupResponse:
		add(fmt.Sprintf("member %q", r.MemberID), r.ErrorCode, nil)
	case *kmsg.SyncGroupResponse:
		add("all", r.ErrorCode, nil)
	case *kmsg.HeartbeatResponse:
		add("all", r.ErrorCode, nil)
	case *kmsg.LeaveGroupResponse:
		add("all", r.ErrorCode, nil)
	case *kmsg.ConsumerGroupHeartbeatResponse:
		add("all", r.ErrorCode, r.ErrorMessage)
	case *kmsg.ShareGroupHeartbeatResponse:
		add("all", r.ErrorCode, r.ErrorMessage)
	case *kmsg.AddOffsetsToTxnResponse:
		add("all", r.ErrorCode, nil)
	case *kmsg.StreamsGroupTopologyDescriptionUpdateResponse:
		add("all", r.ErrorCode, r.ErrorMessage)
	case *kmsg.SASLHandshakeResponse:
		add(fmt.Sprint(r.SupportedMechanisms), r.ErrorCode, nil)
	}
	return strings.TrimSpace(b.String())
}

// requestFor builds a request about one group.
func requestFor(key int16, group string) kmsg.Request {
	req := kmsg.RequestForKey(key)
	switch r := req.(type) {
	case *kmsg.OffsetCommitRequest:
		r.Group, r.Generation = group, -1
		r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "in", TopicID: [16]byte{5}, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: 2, Offset: 40, Metadata: kmsg.StringPtr("")}}}}
	case *kmsg.TxnOffsetCommitRequest:
		r.Group, r.TransactionalID = group, "t"
		r.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "in", TopicID: [16]byte{5}, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Partition: 2, Offset: 40, Metadata: kmsg.StringPtr("")}}}}
	case *kmsg.OffsetFetchRequest:
		r.Group = group
		r.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "in", Partitions: []int32{2}}}
		r.Groups = []kmsg.OffsetFetchRequestGroup{{Group: group, MemberEpoch: -1}}
	case *kmsg.OffsetDeleteRequest:
		r.Group = group
	case *kmsg.JoinGroupRequest:
		r.Group = group
	case *kmsg.SyncGroupRequest:
		r.Group = group
	case *kmsg.HeartbeatRequest:
		r.Group = group
	case *kmsg.LeaveGroupRequest:
		r.Group = group
	case *kmsg.ConsumerGroupHeartbeatRequest:
		r.Group = group
	case *kmsg.ShareGroupHeartbeatRequest:
		r.GroupID = group
	case *kmsg.AddOffsetsToTxnRequest:
		r.Group, r.TransactionalID = group, "t"
	case *kmsg.DescribeGroupsRequest:
		r.Groups = []string{group}
	case *kmsg.ConsumerGroupDescribeRequest:
		r.Groups = []string{group}
	case *kmsg.ShareGroupDescribeRequest:
		r.GroupIDs = []string{group}
	case *kmsg.DeleteGroupsRequest:
		r.Groups = []string{group}
	}
	return req
}

// Each row: what a request about a group of each kind is answered with. "theirs" groups are the cluster's, whose
// scripted answer is code 77 everywhere.
func TestEachGroupRequestGoesWhereItBelongs(t *testing.T) {
	g, up, _ := startWithGroups(t)
	for _, c := range []struct {
		key, version              int16
		ours, away, maybe, theirs string
	}{
		{offsetCommit, 2, "in/2=0", "in/2=16", "in/2=14", "in/2=77"},
		{offsetCommit, 9, "in/2=0", "in/2=16", "in/2=14", "in/2=77"},
		{offsetCommit, 10, "/2=0", "/2=16", "/2=14", "/2=77"},
		{offsetFetch, 1, "all=0", "all=0 in/2@-1=16", "all=0 in/2@-1=14", "all=0"},
		{offsetFetch, 7, "all=0", "all=16 in/2@-1=16", "all=14 in/2@-1=14", "all=77"},
		{offsetFetch, 8, "ours=0", "away=16", "maybe=14", "theirs=77"},
		{offsetFetch, 10, "ours=0", "away=16", "maybe=14", "theirs=77"},
		{offsetDelete, 0, "all=0", "all=16", "all=14", "all=77"},
		{deleteGroups, 0, "ours=0", "away=16", "maybe=14", "theirs=77"},
		{deleteGroups, 3, "ours=0", "away=16", "maybe=14", "theirs=77"},

		// Other protocols on a streams group: rpcs of Kafka's own coordinator.
		{joinGroup, 5, `member ""=23`, `member ""=16`, `member ""=14`, `member ""=77`},
		{joinGroup, 9, `member ""=23`, `member ""=16`, `member ""=14`, `member ""=77`},
		{syncGroup, 5, "all=25", "all=25", "all=77", "all=77"},
		{heartbeat, 4, "all=25", "all=25", "all=77", "all=77"},
		{leaveGroup, 5, "all=25", "all=25", "all=77", "all=77"},
		{consumerGroupHeartbeat, 1, "all=69(Group ours is not a consumer group.)", "all=69(Group away is not a consumer group.)", "all=14", "all=77"},
		{shareGroupHeartbeat, 1, "all=69(Group ours is not a share group.)", "all=69(Group away is not a share group.)", "all=14", "all=77"},
		{describeGroups, 5, "ours:Dead=0", "away:Dead=0", "maybe:=77", "theirs:=77"},
		{describeGroups, 6, "ours:Dead=69(Group ours is not a classic group.)", "away:Dead=69(Group away is not a classic group.)", "maybe:=77", "theirs:=77"},
		{consumerGroupDescribe, 1, "ours=69(Group ours is not a consumer group.)", "away=69(Group away is not a consumer group.)", "maybe=77", "theirs=77"},
		{shareGroupDescribe, 1, "ours=69(Group ours is not a share group.)", "away=69(Group away is not a share group.)", "maybe=77", "theirs=77"},

		// Exactly once is not served yet.
		{addOffsetsToTxn, 4, "all=35", "all=35", "all=14", "all=77"},
		{txnOffsetCommit, 3, "in/2=35", "in/2=35", "in/2=14", "in/2=77"},
		{txnOffsetCommit, 5, "in/2=35", "in/2=35", "in/2=14", "in/2=77"},
	} {
		for _, addr := range []string{g.Addr().String(), brokerAddr(t, g, 1)} {
			cl := raw(t, addr)
			for group, want := range map[string]string{"ours": c.ours, "away": c.away, "maybe": c.maybe, "theirs": c.theirs} {
				forwarded := len(up.requests(c.key))
				req := requestFor(c.key, group)
				got := codesOf(ask[kmsg.Response](t, cl, c.version, req))
				if got != want {
					t.Errorf("%s v%d, group %q: %s, want %s", kmsg.NameForKey(c.key), c.version, group, got, want)
				}
				if upstream := len(up.requests(c.key)) > forwarded; upstream != strings.Contains(want, "77") && c.version != 1 {
					t.Errorf("%s v%d, group %q: went upstream: %v", kmsg.NameForKey(c.key), c.version, group, upstream)
				}
			}
		}
	}
}

func TestStreamsRequestsAreOursOnEveryListener(t *testing.T) {
	g, up, svc := startWithGroups(t)
	for _, addr := range []string{g.Addr().String(), brokerAddr(t, g, 1)} {
		cl := raw(t, addr)
		hb := kmsg.NewPtrStreamsGroupHeartbeatRequest()
		hb.Group, hb.MemberID, hb.MemberEpoch = "new", "m", 4
		if r := ask[*kmsg.StreamsGroupHeartbeatResponse](t, cl, 1, hb); r.MemberEpoch != 5 {
			t.Errorf("heartbeat: %+v", r)
		}
		d := kmsg.NewPtrStreamsGroupDescribeRequest()
		d.Groups = []string{"a", "b"}
		if r := ask[*kmsg.StreamsGroupDescribeResponse](t, cl, 1, d); len(r.Groups) != 2 {
			t.Errorf("describe: %+v", r)
		}
		if got := codesOf(ask[kmsg.Response](t, cl, 0, kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest())); !strings.HasPrefix(got, "all=35") {
			t.Errorf("topology push: %s", got)
		}
	}
	for _, key := range []int16{streamsGroupHeartbeat, streamsGroupDescribe, streamsTopologyUpdate} {
		if n := len(up.requests(key)); n != 0 {
			t.Errorf("%d requests with key %d went upstream", n, key)
		}
	}
	if want := (coordinator.Caller{ClientID: "raw", ClientHost: "/127.0.0.1"}); svc.callers[0] != want {
		t.Errorf("caller %+v, want %+v", svc.callers[0], want)
	}
}

func TestRequestsAboutSeveralGroupsAreSplitAndMerged(t *testing.T) {
	g, up, svc := startWithGroups(t)
	groups := []string{"x", "ours", "away", "y", "maybe"}
	cl := raw(t, g.Addr().String())
	for _, c := range []struct {
		key, version int16
		build        func() kmsg.Request
		want         []string
		upstream     []string
	}{
		{offsetFetch, 9, func() kmsg.Request {
			r := kmsg.NewPtrOffsetFetchRequest()
			for _, name := range groups {
				g := kmsg.NewOffsetFetchRequestGroup()
				g.Group = name
				r.Groups = append(r.Groups, g)
			}
			return r
		}, []string{"x=77", "y=77", "ours=0", "away=16", "maybe=14"}, []string{"x", "y"}},
		{deleteGroups, 2, func() kmsg.Request {
			r := kmsg.NewPtrDeleteGroupsRequest()
			r.Groups = groups
			return r
		}, []string{"x=77", "y=77", "ours=0", "away=16", "maybe=14"}, []string{"x", "y"}},
		{describeGroups, 5, func() kmsg.Request {
			r := kmsg.NewPtrDescribeGroupsRequest()
			r.Groups = groups
			return r
		}, []string{"x:=77", "y:=77", "maybe:=77", "ours:Dead=0", "away:Dead=0"}, []string{"x", "y", "maybe"}},
		{consumerGroupDescribe, 0, func() kmsg.Request {
			r := kmsg.NewPtrConsumerGroupDescribeRequest()
			r.Groups = groups
			return r
		}, []string{"x=77", "y=77", "maybe=77", "ours=69(Group ours is not a consumer group.)", "away=69(Group away is not a consumer group.)"}, []string{"x", "y", "maybe"}},
		{shareGroupDescribe, 1, func() kmsg.Request {
			r := kmsg.NewPtrShareGroupDescribeRequest()
			r.GroupIDs = groups
			return r
		}, []string{"x=77", "y=77", "maybe=77", "ours=69(Group ours is not a share group.)", "away=69(Group away is not a share group.)"}, []string{"x", "y", "maybe"}},
	} {
		got := codesOf(ask[kmsg.Response](t, cl, c.version, c.build()))
		if want := strings.Join(c.want, " "); got != want {
			t.Errorf("%s: %s, want %s", kmsg.NameForKey(c.key), got, want)
		}
		sent := up.requests(c.key)
		if len(sent) != 1 {
			t.Fatalf("%s: %d requests upstream", kmsg.NameForKey(c.key), len(sent))
		}
		var names []string
		switch r := sent[0].(type) {
		case *kmsg.OffsetFetchRequest:
			for _, g := range r.Groups {
				names = append(names, g.Group)
			}
		case *kmsg.DeleteGroupsRequest:
			names = r.Groups
		case *kmsg.DescribeGroupsRequest:
			names = r.Groups
		case *kmsg.ConsumerGroupDescribeRequest:
			names = r.Groups
		case *kmsg.ShareGroupDescribeRequest:
			names = r.GroupIDs
		}
		slices.Sort(names)
		slices.Sort(c.upstream)
		if !slices.Equal(names, c.upstream) {
			t.Errorf("%s: upstream was asked about %v, want %v", kmsg.NameForKey(c.key), names, c.upstream)
		}
	}
	if !slices.Equal(svc.deleted, []string{"ours"}) {
		t.Errorf("the coordinator deleted %v", svc.deleted)
	}
}

// What a merged answer carries as bytes must survive: it refers to the buffer that the answer was read into.
func TestMergedAnswerKeepsBytes(t *testing.T) {
	g, _, _ := startWithGroups(t)
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{"ours", "x"}
	resp := ask[*kmsg.DescribeGroupsResponse](t, raw(t, g.Addr().String()), 5, req)
	m := resp.Groups[0].Members[0]
	if string(m.ProtocolMetadata) != "metadata" || string(m.MemberAssignment) != "assignment" {
		t.Fatalf("%q %q", m.ProtocolMetadata, m.MemberAssignment)
	}
}

// A cluster of Kafka 3.0 to 3.5 has OffsetCommit and OffsetFetch up to version 8.
func TestForeignGroupsAreConvertedForOlderClusters(t *testing.T) {
	g, up, _ := startWithGroups(t)
	up.change(func(s *scripted) {
		s.versions[offsetCommit], s.versions[offsetFetch] = [2]int16{0, 8}, [2]int16{0, 8}
		s.versions[deleteGroups], s.versions[listGroups] = [2]int16{0, 2}, [2]int16{0, 4}
	})
	cl := raw(t, brokerAddr(t, g, 1))

	if got := codesOf(ask[kmsg.Response](t, cl, 9, requestFor(offsetCommit, "theirs"))); got != "in/2=77" {
		t.Errorf("OffsetCommit: %s", got)
	}
	f := requestFor(offsetFetch, "theirs").(*kmsg.OffsetFetchRequest)
	f.Groups[0].MemberID, f.Groups[0].MemberEpoch = kmsg.StringPtr("m"), 3
	if got := codesOf(ask[kmsg.Response](t, cl, 9, f)); got != "theirs=77" {
		t.Errorf("OffsetFetch: %s", got)
	}
	if got := codesOf(ask[kmsg.Response](t, cl, 3, requestFor(deleteGroups, "theirs"))); got != "theirs=77" {
		t.Errorf("DeleteGroups: %s", got)
	}
	for key, version := range map[int16]int16{offsetCommit: 8, offsetFetch: 8, deleteGroups: 2} {
		sent := up.requests(key)
		if len(sent) != 1 || sent[0].GetVersion() != version {
			t.Errorf("%s went upstream as %v, want one in version %d", kmsg.NameForKey(key), sent, version)
		}
	}
	l := kmsg.NewPtrListGroupsRequest()
	l.TypesFilter = []string{"Streams"}
	if r := ask[*kmsg.ListGroupsResponse](t, cl, 5, l); len(r.Groups) != 0 {
		t.Errorf("a cluster without group types has streams groups: %v", r.Groups)
	}
	l.TypesFilter = []string{"consumer", "Classic"}
	r := ask[*kmsg.ListGroupsResponse](t, cl, 5, l)
	if len(r.Groups) != 1 || r.Groups[0].GroupType != "classic" {
		t.Errorf("%v", r.Groups)
	}
}

func TestEachNodeListsItsOwnGroups(t *testing.T) {
	g, _, _ := startWithGroups(t)
	own := ask[*kmsg.ListGroupsResponse](t, raw(t, g.Addr().String()), 5, kmsg.NewPtrListGroupsRequest())
	if len(own.Groups) != 1 || own.Groups[0].Group != "ours" {
		t.Errorf("own node: %v", own.Groups)
	}
	broker := ask[*kmsg.ListGroupsResponse](t, raw(t, brokerAddr(t, g, 1)), 5, kmsg.NewPtrListGroupsRequest())
	if len(broker.Groups) != 1 || broker.Groups[0].Group != "theirs" {
		t.Errorf("broker: %v", broker.Groups)
	}
}

func TestFindCoordinatorNamesOwnersAndBrokers(t *testing.T) {
	g, up, svc := startWithGroups(t)
	ownHost, ownPort := g.Advertised()
	b, _ := g.brokers.advertised(1)
	node := map[string]kmsg.FindCoordinatorResponseCoordinator{
		"ours":   {Key: "ours", NodeID: testNode, Host: ownHost, Port: ownPort},
		"away":   {Key: "away", NodeID: otherNode, Host: "other.example", Port: 9999},
		"theirs": {Key: "theirs", NodeID: 1, Host: "127.0.0.1", Port: b.port},
		"maybe":  {Key: "maybe", NodeID: 1, Host: "127.0.0.1", Port: b.port},
	}
	cl := raw(t, g.Addr().String())
	t.Cleanup(func() {
		if slices.Sort(svc.caughtUp); !reflect.DeepEqual(slices.Compact(svc.caughtUp), []string{"away", "maybe", "ours", "theirs"}) {
			t.Errorf("the log was read before lookups of %v", svc.caughtUp)
		}
	})
	for version := int16(0); version <= 3; version++ {
		for group, want := range node {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorKey = group
			r := ask[*kmsg.FindCoordinatorResponse](t, cl, version, req)
			if r.NodeID != want.NodeID || r.Host != want.Host || r.Port != want.Port || r.ErrorCode != 0 {
				t.Errorf("v%d %q: %+v, want %+v", version, group, r, want)
			}
		}
	}
	for version := int16(4); version <= 6; version++ {
		for _, keys := range [][]string{{"ours"}, {"theirs"}, {"ours", "away"}, {"theirs", "ours", "maybe", "away"}} {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorKeys = keys
			r := ask[*kmsg.FindCoordinatorResponse](t, cl, version, req)
			var want []kmsg.FindCoordinatorResponseCoordinator
			for _, key := range keys {
				want = append(want, node[key])
			}
			for i := range r.Coordinators {
				r.Coordinators[i].ErrorMessage = nil
			}
			if !reflect.DeepEqual(r.Coordinators, want) {
				t.Errorf("v%d %v: %+v, want %+v", version, keys, r.Coordinators, want)
			}
		}
	}
	// Transactional ids are always the cluster's, even where a group has the name.
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKeys, req.CoordinatorType = []string{"ours"}, 1
	if r := ask[*kmsg.FindCoordinatorResponse](t, cl, 6, req); r.Coordinators[0].NodeID != 1 || r.Coordinators[0].Port != b.port {
		t.Errorf("transactional id: %+v", r.Coordinators)
	}
	// Nobody owns the shard.
	svc.mu.Lock()
	svc.nodes = nil
	svc.mu.Unlock()
	for version := int16(0); version <= 6; version += 6 {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey, req.CoordinatorKeys = "away", []string{"away"}
		r := ask[*kmsg.FindCoordinatorResponse](t, cl, version, req)
		c := kmsg.FindCoordinatorResponseCoordinator{ErrorCode: r.ErrorCode, NodeID: r.NodeID, Host: r.Host, Port: r.Port}
		if version >= 4 {
			c = r.Coordinators[0]
			c.Key, c.ErrorMessage = "", nil
		}
		if want := (kmsg.FindCoordinatorResponseCoordinator{ErrorCode: 15, NodeID: -1, Port: -1}); !reflect.DeepEqual(c, want) {
			t.Errorf("v%d, no owner: %+v, want %+v", version, c, want)
		}
	}
	// A coordinator that nobody has listed yet gets its listener now.
	newcomer := func(_ wire.Header, req kmsg.Request) kmsg.Response {
		f, ok := req.(*kmsg.FindCoordinatorRequest)
		if !ok {
			return nil
		}
		r := f.ResponseKind().(*kmsg.FindCoordinatorResponse)
		r.Coordinators = []kmsg.FindCoordinatorResponseCoordinator{{Key: f.CoordinatorKeys[0], NodeID: 5, Host: "127.0.0.1", Port: up.port}}
		return r
	}
	up.change(func(s *scripted) { s.answer = newcomer })
	late := kmsg.NewPtrFindCoordinatorRequest()
	late.CoordinatorKeys = []string{"theirs"}
	r := ask[*kmsg.FindCoordinatorResponse](t, cl, 6, late)
	five, ok := g.brokers.advertised(5)
	if c := r.Coordinators[0]; !ok || c.NodeID != 5 || c.Port != five.port || c.Port == up.port {
		t.Errorf("a new broker: %+v, listener %+v", c, five)
	}
}

// A join makes a group ours; what comes behind it on the connection must see that, although it runs elsewhere.
func TestJudgingWaitsForTheJoinBefore(t *testing.T) {
	g, up, svc := startWithGroups(t)
	release := make(chan struct{})
	svc.heartbeat = func(_ context.Context, r *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
		<-release
		svc.set("fresh", coordinator.Ours)
		return r.ResponseKind().(*kmsg.StreamsGroupHeartbeatResponse)
	}
	cl := raw(t, brokerAddr(t, g, 1))
	hb := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	hb.SetVersion(1)
	hb.Group = "fresh"
	id1, err := cl.Send(t.Context(), hb)
	if err != nil {
		t.Fatal(err)
	}
	f := requestFor(offsetFetch, "fresh")
	f.SetVersion(9)
	id2, err := cl.Send(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	close(release)
	if _, err := cl.Receive(t.Context(), hb, id1); err != nil {
		t.Fatal(err)
	}
	resp, err := cl.Receive(t.Context(), f, id2)
	if err != nil {
		t.Fatal(err)
	}
	if got := codesOf(resp); got != "fresh=0" || len(up.requests(offsetFetch)) != 0 {
		t.Fatalf("%s; the cluster was asked %d times", got, len(up.requests(offsetFetch)))
	}
}

// A push goes to the service where descriptions are kept, on every listener, and what it says comes back.
func TestTopologyPushesReachTheServiceThatKeepsThem(t *testing.T) {
	g, up, svc := startWithGroups(t)
	svc.describes = true
	for _, addr := range []string{g.Addr().String(), brokerAddr(t, g, 1)} {
		cl := raw(t, addr)
		push := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
		push.Group, push.MemberID, push.TopologyEpoch = "ours", "m", 4
		push.TopologyDescription.Subtopologies = []kmsg.TopologyDescriptionSubtopology{{SubtopologyID: "0"}}
		if got := codesOf(ask[kmsg.Response](t, cl, 0, push)); !strings.HasPrefix(got, "all=135(no room)") {
			t.Errorf("answer %s", got)
		}
	}
	if len(svc.pushes) != 2 || svc.pushes[1].Group != "ours" || svc.pushes[1].TopologyEpoch != 4 || svc.pushes[1].TopologyDescription.Subtopologies[0].SubtopologyID != "0" {
		t.Errorf("pushes %+v", svc.pushes)
	}
	if n := len(up.requests(streamsTopologyUpdate)); n != 0 {
		t.Errorf("%d pushes went upstream", n)
	}
}
