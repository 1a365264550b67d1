package admin

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Delete deletes one group with its committed offsets. It has to be without members.
func (c *Client) Delete(ctx context.Context, group string) error {
	return retry(ctx, func() error {
		node, err := c.coordinator(ctx, group)
		if err != nil {
			return err
		}
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{group}
		kresp, err := c.cl.Broker(int(node.ID)).RetriableRequest(ctx, req)
		if err != nil {
			return fmt.Errorf("delete group %s at %v: %w", group, node, err)
		}
		resp := kresp.(*kmsg.DeleteGroupsResponse)
		if len(resp.Groups) != 1 {
			return fmt.Errorf("delete group %s at %v: the answer is about %d groups", group, node, len(resp.Groups))
		}
		return refusal(resp.Groups[0].ErrorCode, resp.Groups[0].ErrorMessage)
	})
}
