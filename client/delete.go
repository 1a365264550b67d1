package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
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
// group has to be without members (NON_EMPTY_GROUP). Kafka deletes a group of any type by its id, so the coordinators are asked first: one that
// is not a streams group, or does not exist, is left as it is (GROUP_ID_NOT_FOUND). GROUP_DELETION_FAILED says that its topology description could not
// be deleted, and that the group is still there. Waiting is as in DescribeStreamsGroups. The protocol can't tell a group that
// was deleted by a request whose answer was lost from one that never existed: the error is then GROUP_ID_NOT_FOUND.
func (a *Admin) DeleteStreamsGroups(ctx context.Context, groups ...string) []DeletedGroup {
	ctx, cancel := bounded(ctx)
	defer cancel()
	groups = unique(groups)
	errs := a.areStreamsGroups(ctx, groups)
	deletable := slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return errs[g] != nil })
	maps.Copy(errs, ask(ctx, a.cl, deletable, question{
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
	}))
	out := make([]DeletedGroup, len(groups))
	for i, g := range groups {
		out[i] = DeletedGroup{g, errs[g]}
	}
	return out
}

// areStreamsGroups says of each group nil, or why it is not known to be a streams group.
func (a *Admin) areStreamsGroups(ctx context.Context, groups []string) map[string]error {
	return ask(ctx, a.cl, groups, question{
		what: "describe", batchMax: describeBatchMax,
		request: func(groups []string) kmsg.Request {
			req := kmsg.NewPtrStreamsGroupDescribeRequest()
			req.Groups = groups
			return req
		},
		answer: func(_ Node, kresp kmsg.Response, done func(string, error)) {
			resp := kresp.(*kmsg.StreamsGroupDescribeResponse)
			for i := range resp.Groups {
				g := &resp.Groups[i]
				err := refusal(g.ErrorCode, g.ErrorMessage)
				switch {
				case errors.Is(err, kerr.GroupIDNotFound):
					err = &Error{Err: kerr.GroupIDNotFound, Message: fmt.Sprintf("Group '%s' does not exist or is not a streams group.", g.Group)} // the words of Kafka's tool
				case errors.Is(err, kerr.TopicAuthorizationFailed): // it is one: only its topics are not for the caller's eyes
					err = nil
				}
				done(g.Group, err)
			}
		},
	})
}
