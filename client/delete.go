package client

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeletedGroup is what came of deleting a group; Err is nil if it is gone.
type DeletedGroup struct {
	Group string
	Err   error
}

// deleteBatchMax bounds the groups of one request: the node answers when its plugin has deleted all their descriptions.
const deleteBatchMax = 200

// DeleteStreamsGroups deletes groups with their committed offsets and topology descriptions, in the order given and each once. A
// group has to be without members (NON_EMPTY_GROUP). GROUP_DELETION_FAILED says that its topology description could not
// be deleted, and that the group is still there. Waiting is as in DescribeStreamsGroups. The protocol can't tell a group that
// was deleted by a request whose answer was lost from one that never existed: the error is then GROUP_ID_NOT_FOUND.
func (a *Admin) DeleteStreamsGroups(ctx context.Context, groups ...string) []DeletedGroup {
	ctx, cancel := bounded(ctx)
	defer cancel()
	groups = unique(groups)
	errs := ask(ctx, a.cl, groups, question{
		what: "delete", batchMax: deleteBatchMax,
		request: func(groups []string) kmsg.Request {
			req := kmsg.NewPtrDeleteGroupsRequest()
			req.Groups = groups
			return req
		},
		answer: func(_ Node, kresp kmsg.Response, done func(string, error)) {
			for _, g := range kresp.(*kmsg.DeleteGroupsResponse).Groups {
				done(g.Group, refusal(g.ErrorCode, g.ErrorMessage))
			}
		},
	})
	out := make([]DeletedGroup, len(groups))
	for i, g := range groups {
		out[i] = DeletedGroup{g, errs[g]}
	}
	return out
}
