package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client"
	"streamkeeper/internal/kafkatest"
)

// mixture looks, in replicas of two versions side by side, whether what goes from one replica to another does so both ways: each replica is asked,
// for a group of each replica.
type mixture struct {
	t       *testing.T
	r       *fleet
	name    string
	classic *converts
	lasting []string // applications that are there all the time, with their descriptions
	others  []string // groups that are there as well
	made    int
}

// check asks each of the replicas: all of them are owners of some shards, and at least two versions are among them, but for the beginning and the end.
func (m *mixture) check(when string) {
	t := m.t
	t.Helper()
	owners := m.r.owners()
	shards := int32(len(owners))
	// For each replica that is asked a group of each replica that owns it: to be configured, and deleted.
	type errand struct{ asked, owner int32 }
	groups := map[errand]string{}
	for _, asked := range m.r.nodes {
		for _, owner := range m.r.nodes {
			for e := (errand{asked, owner}); groups[e] == ""; m.made++ {
				if group := fmt.Sprintf("%s-%d", m.name, m.made); owners[partitionOf(group, shards)].NodeID == owner {
					groups[e] = group
				}
			}
		}
	}
	all := slices.Sorted(maps.Values(groups))
	var wg sync.WaitGroup
	for _, group := range all {
		wg.Go(func() { m.classic.join(when, group) })
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	want := slices.Concat(all, m.lasting, m.others, m.classic.all)
	slices.Sort(want)
	for e, group := range groups {
		m.r.names(when, e.asked, group, e.owner)
		m.r.configures(when, e.asked, group)
	}
	for _, asked := range m.r.nodes {
		adm := m.admin(asked)
		m.lists(when, adm, asked, want)
		m.describes(when, adm, asked)
		var gone []string
		for e, group := range groups {
			if e.asked == asked {
				gone = append(gone, group)
			}
		}
		for _, d := range adm.DeleteStreamsGroups(t.Context(), gone...) {
			if d.Err != nil {
				t.Errorf("%s: replica %d is asked to delete %s: %v", when, asked, d.Group, d.Err)
			}
		}
		want = slices.DeleteFunc(want, func(g string) bool { return slices.Contains(gone, g) })
	}
	for _, asked := range m.r.nodes {
		m.lists(when, m.admin(asked), asked, want)
	}
	for _, group := range all { // Kafka keeps it when the group goes; so do we
		alterGroup(t, m.r.replicas[m.r.nodes[m.made%len(m.r.nodes)]].Bootstrap(), group, heartbeatConfig, nil)
	}
}

// admin is a client that knows one of the replicas at first.
func (m *mixture) admin(asked int32) *client.Admin {
	m.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(m.r.replicas[asked].Bootstrap()))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(cl.Close)
	return client.NewAdmin(cl)
}

// lists: each group once, whichever replicas have them.
func (m *mixture) lists(when string, adm *client.Admin, asked int32, want []string) {
	m.t.Helper()
	listed, err := adm.ListStreamsGroups(m.t.Context())
	var got []string
	for _, g := range listed {
		got = append(got, g.Group)
	}
	if slices.Sort(got); err != nil || !slices.Equal(got, want) {
		m.t.Errorf("%s: through replica %d the groups %v are listed, want %v; %v", when, asked, got, want, err)
	}
	if own := m.r.listed(m.r.nodes...); !slices.Equal(own, want) { // asked one by one
		m.t.Errorf("%s: the replicas list %v, want each of %v once", when, own, want)
	}
}

// describes: the lasting groups, with the descriptions of their topologies.
func (m *mixture) describes(when string, adm *client.Admin, asked int32) {
	m.t.Helper()
	for _, d := range adm.DescribeStreamsGroups(m.t.Context(), m.lasting, client.DescribeOptions{IncludeTopologyDescription: true}) {
		switch {
		case d.Err != nil:
			m.t.Errorf("%s: through replica %d %s is described with %v", when, asked, d.Group, d.Err)
		case d.Description.TopologyStatus != client.TopologyAvailable || len(d.Description.TopologyDescription.Subtopologies) != 2:
			m.t.Errorf("%s: through replica %d the topology of %s is %s", when, asked, d.Group, d.Description.TopologyStatus)
		case len(d.Description.Members) != 2:
			m.t.Errorf("%s: through replica %d %s has the members %+v", when, asked, d.Group, d.Description.Members)
		}
	}
}

// names: the owner is found through any replica, at the address that it has.
func (r *fleet) names(when string, asked int32, group string, owner int32) {
	r.t.Helper()
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.SetVersion(4)
	find.CoordinatorKeys = []string{group}
	c := exchange(r.t, r.replicas[asked], find).(*kmsg.FindCoordinatorResponse).Coordinators[0]
	if address := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))); c.ErrorCode != 0 || c.NodeID != owner || address != r.replicas[owner].Bootstrap() {
		r.t.Errorf("%s: replica %d names node %d at %s (%v) as the coordinator of %s, want node %d", when, asked, c.NodeID, address, kerr.ErrorForCode(c.ErrorCode), group, owner)
	}
}

const heartbeatConfig = "streams.heartbeat.interval.ms"

// configures: what one replica is told of a group, all of them say at once.
func (r *fleet) configures(when string, asked int32, group string) {
	r.t.Helper()
	value := strconv.Itoa(1000 + partitionSum(group)%1000)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.SetVersion(1)
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value, c.Op = heartbeatConfig, &value, kmsg.IncrementalAlterConfigOpSet
	res.Configs = append(res.Configs, c)
	req.Resources = append(req.Resources, res)
	if got := exchange(r.t, r.replicas[asked], req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; got.ErrorCode != 0 {
		r.t.Errorf("%s: replica %d is told the heartbeat interval of %s: %v", when, asked, group, kerr.ErrorForCode(got.ErrorCode))
		return
	}
	for _, node := range r.nodes {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.SetVersion(4)
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName, res.ConfigNames = kmsg.ConfigResourceTypeGroupConfig, group, []string{heartbeatConfig}
		req.Resources = append(req.Resources, res)
		got := exchange(r.t, r.replicas[node], req).(*kmsg.DescribeConfigsResponse).Resources[0]
		if got.ErrorCode != 0 || len(got.Configs) != 1 || got.Configs[0].Value == nil || *got.Configs[0].Value != value {
			r.t.Errorf("%s: replica %d was told the heartbeat interval %s of %s, and replica %d says %+v", when, asked, value, group, node, got)
		}
	}
}

// partitionSum is some number that two groups rarely share.
func partitionSum(group string) int { return int(partitionOf(group, 1<<30)) }

// goBack has a plain consumer join one of the groups that came over, which makes it a classic group of the cluster again, with its offsets.
func (c *converts) goBack(when string) {
	c.t.Helper()
	group, n := c.all[0], c.first+1
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(c.r.bootstrap(), ",")...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(c.in), kgo.DisableAutoCommit())
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), outcome)
	defer cancel()
	for got := 0; got == 0; { // it is assigned its partitions, and reads
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			c.t.Fatalf("%s: a consumer in %s, which was a streams group, gets nothing: %v, %v", when, group, err, fetches.Err())
		}
		got += fetches.NumRecords()
	}
	got := kafkatest.Committed(c.t, c.r.cluster.Bootstrap(), group, c.in) // the cluster's own answer
	for p := range int32(c.partitions) {
		if want := c.offset(n, p); got[p] != want {
			c.t.Errorf("%s: %s is the cluster's again and has committed %v there, want %d of partition %d", when, group, got, want, p)
		}
	}
	for _, node := range c.r.nodes {
		if err := groupRequests(group, "", -1)[1].outcome(group, exchange(c.t, c.r.replicas[node], groupRequests(group, "", -1)[1].req)); !errors.Is(err, kerr.GroupIDNotFound) && !errors.Is(err, kerr.NotCoordinator) {
			c.t.Errorf("%s: replica %d describes %s, which is a classic group, with %v", when, node, group, err)
		}
	}
	c.all, c.first = c.all[1:], c.first+1
}
