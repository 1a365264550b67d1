package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// streamsType is the group type, and the protocol type, of streams groups.
const streamsType = "streams"

// ListedGroup is one group of a list.
type ListedGroup struct {
	Group       string `json:"group"`
	State       string `json:"state"` // empty if the node does not say (below version 4 of ListGroups)
	Coordinator Node   `json:"coordinator"`
}

// ListStreamsGroups lists the streams groups of all nodes, ascending by id. states, if there are any, are those that are wanted, in any
// case. The error joins those of the nodes that could not be asked; the list holds what the others have. A node that does not answer and
// then leaves the cluster's metadata is not waited for: the others, who have its groups by then, are asked once more.
//
// The states are compared here rather than by the nodes: Kafka 4.4's own filter finds no NotReady group.
func (a *Admin) ListStreamsGroups(ctx context.Context, states ...string) ([]ListedGroup, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for { // as often as nodes leave while they are asked; ctx bounds it
		out, left, err := a.listOnce(ctx, states)
		if !left {
			return out, err
		}
		if ctx.Err() != nil {
			return out, errors.Join(err, fmt.Errorf("list the groups of a node that has left meanwhile: %w", context.Cause(ctx)))
		}
	}
}

// listOnce asks each node. left says that one of them has left the cluster meanwhile, so that its groups may be on nobody's list.
func (a *Admin) listOnce(ctx context.Context, states []string) (out []ListedGroup, left bool, err error) {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
		all  = map[string]ListedGroup{} // a group that moves while we ask may be on two nodes' lists
	)
	failed := func(node Node, err error) {
		mu.Lock()
		defer mu.Unlock()
		if node.ID < 0 { // nobody said which nodes there are
			errs = append(errs, fmt.Errorf("list the nodes: %w", err))
			return
		}
		errs = append(errs, fmt.Errorf("list the groups of node %v: %w", node, err))
	}
	read := func(node Node, resp *kmsg.ListGroupsResponse) {
		mu.Lock()
		defer mu.Unlock()
		for _, g := range resp.Groups {
			switch {
			case g.ProtocolType != streamsType && !strings.EqualFold(g.GroupType, streamsType): // nodes below version 5 know no types
			case len(states) > 0 && !slices.ContainsFunc(states, func(s string) bool { return strings.EqualFold(s, g.GroupState) }):
			default:
				all[g.Group] = ListedGroup{g.Group, g.GroupState, node}
			}
		}
	}
	request := func() *kmsg.ListGroupsRequest {
		req := kmsg.NewPtrListGroupsRequest()
		req.TypesFilter = []string{streamsType}
		return req
	}
	settle := func(node Node, kresp kmsg.Response, err error) {
		for failures := 1; ; failures++ {
			if err == nil {
				resp := kresp.(*kmsg.ListGroupsResponse)
				if len(states) > 0 && resp.Version < 4 {
					failed(node, &Error{Err: kerr.UnsupportedVersion, Message: fmt.Sprintf("it speaks version %d of ListGroups, which has no states", resp.Version)})
					return
				}
				if err = refusal(resp.ErrorCode, nil); err == nil {
					read(node, resp)
					return
				}
			}
			if again, _ := moved(err); !again && !passing(err) || node.ID < 0 {
				failed(node, err)
				return
			}
			if cause := pause(ctx, retryDelay(failures)); cause != nil {
				failed(node, fmt.Errorf("%w (%w)", err, cause))
				return
			}
			if passing(err) && a.gone(ctx, node) {
				mu.Lock()
				defer mu.Unlock()
				left = true
				return
			}
			kresp, err = a.cl.Broker(int(node.ID)).Request(ctx, request())
		}
	}
	for _, s := range a.cl.RequestSharded(ctx, request()) {
		wg.Go(func() { settle(nodeOf(s.Meta), s.Resp, s.Err) })
	}
	wg.Wait()
	out = make([]ListedGroup, 0, len(all))
	for _, g := range all {
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b ListedGroup) int { return strings.Compare(a.Group, b.Group) })
	return out, left, errors.Join(errs...)
}

// gone says that the cluster does not list the node any more. A cluster that does not say may have it still.
func (a *Admin) gone(ctx context.Context, node Node) bool {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none: nil would be all
	resp, err := req.RequestWith(ctx, a.cl)
	return err == nil && len(resp.Brokers) > 0 && !slices.ContainsFunc(resp.Brokers, func(b kmsg.MetadataResponseBroker) bool { return b.NodeID == node.ID })
}

func nodeOf(m kgo.BrokerMetadata) Node { return Node{m.NodeID, m.Host, m.Port} }
