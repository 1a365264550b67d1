package kafkatest

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// Ask sends one request to an address, whether it is the right one or not, on a connection of its own, and returns the answer. It may be
// called from any goroutine.
func Ask(ctx context.Context, addr string, req kmsg.Request) (kmsg.Response, error) {
	cl, err := wire.Dial(ctx, addr, "by-hand")
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	return cl.Exchange(ctx, req)
}

// FindCoordinators asks who coordinates groups, many at once (version 4).
func FindCoordinators(groups ...string) *kmsg.FindCoordinatorRequest {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKeys = 4, groups
	return req
}

// Nodes asks for the nodes of a cluster, and for no topics.
func Nodes() *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 9, []kmsg.MetadataRequestTopic{}
	return req
}

// ListStreams asks a node for the streams groups that it coordinates.
func ListStreams() *kmsg.ListGroupsRequest {
	req := kmsg.NewPtrListGroupsRequest()
	req.Version, req.TypesFilter = 5, []string{"Streams"}
	return req
}

// DescribeStreams asks for streams groups.
func DescribeStreams(groups ...string) *kmsg.StreamsGroupDescribeRequest {
	req := kmsg.NewPtrStreamsGroupDescribeRequest()
	req.Groups = groups
	return req
}

// FetchAll asks for all committed offsets of groups.
func FetchAll(groups ...string) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 9
	for _, id := range groups {
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = id
		req.Groups = append(req.Groups, g)
	}
	return req
}

// Refusal is the first error in the answer to a request of a member or about groups, and nil where it has none. That an answer's kind is not
// known here is an error as well.
func Refusal(resp kmsg.Response) error {
	var code int16
	first := func(c int16) {
		if code == 0 {
			code = c
		}
	}
	switch r := resp.(type) {
	case *kmsg.StreamsGroupHeartbeatResponse:
		first(r.ErrorCode)
	case *kmsg.OffsetCommitResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				first(p.ErrorCode)
			}
		}
	case *kmsg.OffsetFetchResponse:
		first(r.ErrorCode) // until version 7, one group
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				first(p.ErrorCode)
			}
		}
		for _, g := range r.Groups {
			first(g.ErrorCode)
			for _, t := range g.Topics {
				for _, p := range t.Partitions {
					first(p.ErrorCode)
				}
			}
		}
	case *kmsg.OffsetDeleteResponse:
		first(r.ErrorCode)
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				first(p.ErrorCode)
			}
		}
	case *kmsg.FindCoordinatorResponse:
		first(r.ErrorCode) // until version 3, one group
		for _, c := range r.Coordinators {
			first(c.ErrorCode)
		}
	case *kmsg.StreamsGroupDescribeResponse:
		for _, g := range r.Groups {
			first(g.ErrorCode)
		}
	case *kmsg.ConsumerGroupDescribeResponse:
		for _, g := range r.Groups {
			first(g.ErrorCode)
		}
	case *kmsg.DescribeGroupsResponse:
		for _, g := range r.Groups {
			first(g.ErrorCode)
		}
	case *kmsg.DeleteGroupsResponse:
		for _, g := range r.Groups {
			first(g.ErrorCode)
		}
	case *kmsg.DescribeConfigsResponse:
		for _, res := range r.Resources {
			first(res.ErrorCode)
		}
	case *kmsg.ListGroupsResponse:
		first(r.ErrorCode)
	case *kmsg.JoinGroupResponse:
		first(r.ErrorCode)
	default:
		return fmt.Errorf("kafkatest.Refusal knows nothing of %T", resp)
	}
	return kerr.ErrorForCode(code)
}

// CommittedIn is the offset of a partition in an answer to FetchAll or Member.Fetch about one group; -1 where there is none.
func CommittedIn(resp kmsg.Response, topic string, partition int32) int64 {
	for _, g := range resp.(*kmsg.OffsetFetchResponse).Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if t.Topic == topic && p.Partition == partition {
					return p.Offset
				}
			}
		}
	}
	return -1
}

// CoordinatorIn is the first node in an answer to FindCoordinators and its address, or the error that stands there instead.
func CoordinatorIn(resp kmsg.Response) (node int32, addr string, err error) {
	c := resp.(*kmsg.FindCoordinatorResponse).Coordinators[0]
	return c.NodeID, net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))), kerr.ErrorForCode(c.ErrorCode)
}
