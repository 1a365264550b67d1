package client

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client/explain"
)

// DescribeOptions say what a description is to hold beyond the group itself.
type DescribeOptions struct {
	// IncludeTopologyDescription asks for the picture of the application (KIP-1331). A node that speaks only version 0 of
	// StreamsGroupDescribe can't be asked: the group's error is then UNSUPPORTED_VERSION.
	IncludeTopologyDescription bool
	// IncludeAuthorizedOperations asks what the caller may do with the group.
	IncludeAuthorizedOperations bool
	// Explain asks why the group is in its state, and why its topology description is not there. Only streamkeeper answers; others ignore
	// the question, and GroupDescription.Explanation stays nil.
	Explain bool
	// Epochs asks, besides, which topology epochs the plugin has a description of.
	Epochs bool
	// TopologyEpoch, where it is not nil, asks for the topology description of that epoch in the place of the current one's. Where the coordinator can't
	// be asked so, the group's error is UNSUPPORTED_VERSION.
	TopologyEpoch *int32
}

// question is what goes into our tagged field; ok is false where nothing does.
func (o DescribeOptions) question() (q explain.Question, ok bool) {
	q = explain.Question{Epochs: o.Epochs, TopologyEpoch: o.TopologyEpoch}
	return q, o.Explain || o.Epochs || o.TopologyEpoch != nil
}

// checked refuses an answer in which the question for another epoch was not understood.
func (o DescribeOptions) checked(d *GroupDescription, node Node) error {
	if want := o.TopologyEpoch; want != nil && (d.Explanation == nil || d.Explanation.TopologyEpoch == nil || *d.Explanation.TopologyEpoch != *want) {
		return &Error{Err: kerr.UnsupportedVersion, Message: fmt.Sprintf("node %v has only the topology description of the current topology epoch", node)}
	}
	return nil
}

// DescribedGroup is what came of describing a group: a description or an error.
type DescribedGroup struct {
	Group       string
	Description *GroupDescription
	Err         error
}

const (
	// describeBatchMax bounds the groups of one request, and describePicturesMax of one with topology descriptions, which
	// can be megabytes each: an answer must not exceed what the client reads (kgo.BrokerMaxReadBytes, 100 MiB), and the node answers when
	// its plugin has answered for all.
	describeBatchMax    = 200
	describePicturesMax = 20
)

// DescribeStreamsGroups describes groups, in the order given and each once. A group that can't be described has an error of its
// own and disturbs no other: an *Error is the coordinator's, with GROUP_ID_NOT_FOUND for one that does not exist or is of another type.
// Coordinators that are being elected, load or move are waited for, until ctx ends, or a minute if it has no deadline.
func (a *Admin) DescribeStreamsGroups(ctx context.Context, groups []string, o DescribeOptions) []DescribedGroup {
	ctx, cancel := bounded(ctx)
	defer cancel()
	o.IncludeTopologyDescription = o.IncludeTopologyDescription || o.TopologyEpoch != nil
	groups = unique(groups)
	descriptions := make(map[string]*GroupDescription, len(groups))
	batchMax := describeBatchMax
	if o.IncludeTopologyDescription {
		batchMax = describePicturesMax
	}
	errs := ask(ctx, a.cl, groups, question{
		what: "describe", batchMax: batchMax,
		request: func(groups []string) kmsg.Request {
			req := kmsg.NewPtrStreamsGroupDescribeRequest()
			req.Groups = groups
			req.IncludeTopologyDescription, req.IncludeAuthorizedOperations = o.IncludeTopologyDescription, o.IncludeAuthorizedOperations
			if q, ok := o.question(); ok {
				q.Put(&req.UnknownTags)
			}
			return req
		},
		answer: func(node Node, kresp kmsg.Response, done func(string, error)) {
			resp := kresp.(*kmsg.StreamsGroupDescribeResponse)
			for i := range resp.Groups {
				g := &resp.Groups[i]
				err := refusal(g.ErrorCode, g.ErrorMessage)
				if err == nil && o.IncludeTopologyDescription && resp.Version < 1 {
					// The request lost the question on its way: what came back is no answer to it.
					err = &Error{Err: kerr.UnsupportedVersion, Message: fmt.Sprintf("node %v speaks only version %d of StreamsGroupDescribe, which has no topology descriptions", node, resp.Version)}
				}
				if err == nil {
					descriptions[g.Group], err = groupFromWire(g, node)
				}
				if err == nil {
					err = o.checked(descriptions[g.Group], node)
				}
				done(g.Group, err)
			}
		},
	})
	out := make([]DescribedGroup, len(groups))
	for i, g := range groups {
		out[i] = DescribedGroup{Group: g, Err: errs[g]}
		if errs[g] == nil {
			out[i].Description = descriptions[g]
		}
	}
	return out
}
