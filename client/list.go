package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
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
		all  = map[string]ListedGroup{}
		// A group that moves while we ask is on two nodes' lists; a former owner may list it a while longer.
		twice = map[string][]ListedGroup{}
	)
	nodes, err := a.nodes(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("list the nodes: %w", err)
	}
	failed := func(node Node, err error) {
		mu.Lock()
		defer mu.Unlock()
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
				listed := ListedGroup{g.Group, g.GroupState, node}
				if was, there := all[g.Group]; there && was.Coordinator != node {
					twice[g.Group] = append(twice[g.Group], was, listed)
				}
				all[g.Group] = listed
			}
		}
	}
	settle := func(node Node) {
		for failures := 1; ; failures++ {
			req := kmsg.NewPtrListGroupsRequest()
			req.TypesFilter = []string{streamsType}
			// Not a retriable one, nor RequestSharded: kgo would go on asking a node that hangs for half a minute, where we look whether it is still there.
			resp, err := req.RequestWith(ctx, a.cl.Broker(int(node.ID)))
			if err == nil {
				if len(states) > 0 && resp.Version < 4 {
					failed(node, &Error{Err: kerr.UnsupportedVersion, Message: fmt.Sprintf("it speaks version %d of ListGroups, which has no states", resp.Version)})
					return
				}
				if err = refusal(resp.ErrorCode, nil); err == nil {
					read(node, resp)
					return
				}
			}
			again, _ := moved(err)
			if again = again || passing(err); again {
				if cause := pause(ctx, retryDelay(failures)); cause != nil {
					failed(node, fmt.Errorf("%w (%w)", err, cause))
					return
				}
			}
			var refused *Error
			if !errors.As(err, &refused) { // also where kgo does not know the node any more, for which it has no error of its own
				unreached(a.cl, err)
				if a.gone(ctx, node, nodes) {
					mu.Lock()
					defer mu.Unlock()
					left = true
					return
				}
			}
			if !again {
				failed(node, err)
				return
			}
		}
	}
	for _, node := range nodes {
		wg.Go(func() { settle(node) })
	}
	wg.Wait()
	// Whoever coordinates a group now knows best. Where nobody can say, one entry is as good as the other.
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(twice)), lookupBatchMax) {
		at, _ := findCoordinators(ctx, a.cl, ids)
		for id, f := range at {
			if i := slices.IndexFunc(twice[id], func(g ListedGroup) bool { return g.Coordinator.ID == f.node.ID }); f.err == nil && i >= 0 {
				all[id] = twice[id][i]
			}
		}
	}
	out = make([]ListedGroup, 0, len(all))
	for _, g := range all {
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b ListedGroup) int { return strings.Compare(a.Group, b.Group) })
	return out, left, errors.Join(errs...)
}

// nodes are those that the cluster lists.
func (a *Admin) nodes(ctx context.Context) ([]Node, error) {
	resp, err := nodesRequest().RequestWith(ctx, a.cl)
	if err != nil {
		return nil, err
	}
	out := make([]Node, 0, len(resp.Brokers))
	for _, b := range resp.Brokers {
		out = append(out, Node{b.NodeID, b.Host, b.Port})
	}
	if len(out) == 0 {
		return nil, errors.New("the cluster lists none")
	}
	return out, nil
}

// gone says that the cluster does not list the node any more. A cluster that does not say may have it still. All others are asked at once and
// the first answer counts: any one of them may hang as the node does.
func (a *Admin) gone(ctx context.Context, node Node, nodes []Node) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the others
	asked := a.cl.SeedBrokers()
	for _, other := range nodes {
		if other.ID != node.ID {
			asked = append(asked, a.cl.Broker(int(other.ID)))
		}
	}
	answers := make(chan []kmsg.MetadataResponseBroker, len(asked))
	for _, b := range asked {
		go func() {
			resp, err := nodesRequest().RequestWith(ctx, b)
			if err != nil {
				answers <- nil
				return
			}
			answers <- resp.Brokers
		}()
	}
	for range asked {
		if listed := <-answers; len(listed) > 0 {
			return !slices.ContainsFunc(listed, func(b kmsg.MetadataResponseBroker) bool { return b.NodeID == node.ID })
		}
	}
	return false
}

func nodesRequest() *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none: nil would be all
	return req
}
