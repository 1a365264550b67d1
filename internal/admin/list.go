package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const streamsType = "streams"

// Listed is one group of a list.
type Listed struct {
	Group       string `json:"group"`
	State       string `json:"state"`
	Coordinator Node   `json:"coordinator"`
}

// List lists the streams groups of all nodes, ascending by id; states, if there are any, are those that are wanted.
func (c *Client) List(ctx context.Context, states []string) ([]Listed, error) {
	var out []Listed
	err := retry(ctx, func() error {
		out = nil
		req := kmsg.NewPtrListGroupsRequest()
		req.StatesFilter, req.TypesFilter = states, []string{streamsType}
		for _, s := range c.cl.RequestSharded(ctx, req) {
			if s.Err != nil {
				return fmt.Errorf("list groups of node %d: %w", s.Meta.NodeID, s.Err)
			}
			resp := s.Resp.(*kmsg.ListGroupsResponse)
			if err := refusal(resp.ErrorCode, nil); err != nil {
				return fmt.Errorf("list groups of node %d: %w", s.Meta.NodeID, err)
			}
			for _, g := range resp.Groups {
				if g.ProtocolType == streamsType { // nodes below version 5 know no types
					out = append(out, Listed{g.Group, g.GroupState, Node{s.Meta.NodeID, s.Meta.Host, s.Meta.Port}})
				}
			}
		}
		return nil
	})
	slices.SortFunc(out, func(a, b Listed) int { return strings.Compare(a.Group, b.Group) })
	return out, err
}
