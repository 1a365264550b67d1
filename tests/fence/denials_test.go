package fence

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// again are the refusals after which a client asks again, here or elsewhere.
var again = []error{kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable}

// denial is a request whose answer could be that there is nothing.
type denial struct {
	what string
	req  kmsg.Request
}

// denials are all of them. stranger is a group that nobody has.
func denials(group, stranger string, epoch int32) []denial {
	m := memberIn(group, "m", epoch)
	all := []denial{
		{"Heartbeat", m.Heartbeat()},
		{"OffsetCommit", m.Commit(0, lateOffset)},
		{"Describe", kafkatest.DescribeStreams(group)},
	}
	for version := int16(1); version <= 9; version++ {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group, req.Topics = group, []kmsg.OffsetFetchRequestTopic{{Topic: inTopic, Partitions: []int32{0}}}
		if version >= 8 { // several groups; that of nobody must not make the other one nobody's
			req = m.Fetch(0)
			nobodys := kmsg.NewOffsetFetchRequestGroup()
			nobodys.Group = stranger
			req.Groups = append([]kmsg.OffsetFetchRequestGroup{nobodys}, req.Groups...)
		}
		req.Version = version
		all = append(all, denial{fmt.Sprintf("OffsetFetch v%d", version), req})
	}
	for version := int16(0); version <= 2; version++ {
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Version, req.Groups = version, []string{stranger, group}
		all = append(all, denial{fmt.Sprintf("DeleteGroups v%d", version), req})
	}
	offsets := kmsg.NewPtrOffsetDeleteRequest()
	offsets.Group, offsets.Topics = group, []kmsg.OffsetDeleteRequestTopic{{Topic: inTopic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}
	all = append(all, denial{"OffsetDelete", offsets})

	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 5, group, "consumer", 10_000, 10_000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "range"
	join.Protocols = append(join.Protocols, p)
	all = append(all, denial{"JoinGroup", join})

	configs := kmsg.NewPtrDescribeConfigsRequest()
	configs.Version = 4
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName, res.ConfigNames = kmsg.ConfigResourceTypeGroupConfig, group, []string{configured}
	configs.Resources = append(configs.Resources, res)
	return append(all, denial{"DescribeConfigs", configs})
}

// configured is a setting of the group that the replica has not read of, and its value.
const (
	configured      = "streams.session.timeout.ms"
	configuredValue = "47000"
)

// denyNothing asks the replica that is behind in all ways whose answer could be that there is nothing. It must say that it can't tell, or who can.
func (w *world) denyNothing(when string, behind, owner *replica, group string, epoch int32) {
	w.t.Helper()
	var wg sync.WaitGroup
	for _, d := range denials(group, "nobodys", epoch) {
		wg.Go(func() {
			resp, err := behind.exchange(d.req)
			if err == nil {
				err = refusedFor(resp, group)
			}
			if !slices.ContainsFunc(again, func(e error) bool { return errors.Is(err, e) }) {
				w.t.Errorf("%s, and %s is answered with %v: %+v", when, d.what, err, resp)
			}
		})
	}
	wg.Wait()
	// Not on its list may be what is on the owner's, whom the client asks too.
	listed := false
	for _, r := range []*replica{behind, owner} {
		resp, err := r.exchange(kafkatest.ListStreams())
		if err == nil {
			err = kafkatest.Refusal(resp)
		}
		if err != nil {
			if !errors.Is(err, kerr.CoordinatorLoadInProgress) {
				w.t.Errorf("%s, and node %d answers ListGroups with %v", when, r.node, err)
			}
			listed = true // the client has no list, and knows it
			continue
		}
		listed = listed || slices.ContainsFunc(resp.(*kmsg.ListGroupsResponse).Groups, func(g kmsg.ListGroupsResponseGroup) bool { return g.Group == group })
	}
	if !listed {
		w.t.Errorf("%s, and nobody lists %s", when, group)
	}
	// The calls for groups of other kinds go on to the cluster, and say the same as before Kafka: it is none of theirs.
	classic := kmsg.NewPtrDescribeGroupsRequest()
	classic.Version, classic.Groups = 5, []string{group}
	if resp, err := behind.exchange(classic); err != nil || resp.(*kmsg.DescribeGroupsResponse).Groups[0].State != "Dead" {
		w.t.Errorf("%s, and DescribeGroups is answered with %v: %+v", when, err, resp)
	}
}

// refusedFor is the error that an answer holds for the group, where it is about several, or for anything.
func refusedFor(resp kmsg.Response, group string) error {
	switch r := resp.(type) {
	case *kmsg.OffsetFetchResponse:
		for _, g := range r.Groups {
			if g.Group == group {
				one := *r
				one.Groups = []kmsg.OffsetFetchResponseGroup{g}
				return kafkatest.Refusal(&one)
			}
		}
	case *kmsg.DeleteGroupsResponse:
		for _, g := range r.Groups {
			if g.Group == group {
				return kerr.ErrorForCode(g.ErrorCode)
			}
		}
	}
	return kafkatest.Refusal(resp)
}

// configure gives the group a setting, at the replica that owns it.
func (r *replica) configure(group string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = configured, kmsg.StringPtr(configuredValue)
	res.Configs = append(res.Configs, c)
	req.Resources = append(req.Resources, res)
	resp, err := r.exchange(req)
	if err != nil {
		return err
	}
	answer := resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		text := ""
		if answer.ErrorMessage != nil {
			text = *answer.ErrorMessage
		}
		return fmt.Errorf("%w %s", err, strings.TrimSpace(text))
	}
	return nil
}
