package coordinator

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client/explain"
	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

// groupOperationsAll is the bit field of everything that may be done to a group: READ 3, DELETE 6, DESCRIBE 8,
// DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11. It is what a Kafka without an authorizer answers.
const groupOperationsAll = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11

// operationsUnasked is the field's default, where it was not asked for or the group is in error.
const operationsUnasked = math.MinInt32

const (
	groupType           = "streams" // GroupType and ProtocolType of a streams group
	listTypesFrom int16 = 5         // ListGroups versions with a type
	// deleteMessageFrom is the first DeleteGroups version with a message.
	deleteMessageFrom int16 = 3
)

// Describe answers StreamsGroupDescribe: one entry per id, in the order of the request.
func (c *Coordinator) Describe(ctx context.Context, _ Caller, r *kmsg.StreamsGroupDescribeRequest) *kmsg.StreamsGroupDescribeResponse {
	resp := r.ResponseKind().(*kmsg.StreamsGroupDescribeResponse)
	q, explaining := explain.QuestionOf(&r.UnknownTags)
	resp.Groups = make([]kmsg.StreamsGroupDescribeResponseGroup, len(r.Groups))
	all := make([]described, len(r.Groups))
	fanout(len(r.Groups), func(i int) {
		resp.Groups[i], all[i] = c.describe(ctx, r, r.Groups[i], explaining)
	})
	if attach := c.descriptions != nil && r.IncludeTopologyDescription; attach || explaining {
		c.attachDescriptions(ctx, resp.Groups, all, attach && q.TopologyEpoch == nil)
	}
	c.attachEpochs(ctx, resp.Groups, all, q, r.IncludeTopologyDescription)
	for i := range all {
		if all[i].explain != nil {
			all[i].explain.Put(&resp.Groups[i].UnknownTags)
		}
	}
	return resp
}

func (c *Coordinator) describe(ctx context.Context, r *kmsg.StreamsGroupDescribeRequest, group string, explaining bool) (kmsg.StreamsGroupDescribeResponseGroup, described) {
	var d described
	var f failure
	if group == "" {
		f.Code = codeInvalidGroup
	} else {
		var err error
		ctx, cancel := c.writing(ctx)
		defer cancel()
		if d, err = c.ask(ctx, r, group, explaining); err != nil {
			f = c.failed("StreamsGroupDescribe", group, c.foreignToo(ctx, group, c.nowhere(ctx, group, err)))
		}
	}
	g := d.Group
	if f.Code != 0 {
		g = kmsg.NewStreamsGroupDescribeResponseGroup()
		g.Group, g.ErrorCode, g.ErrorMessage, g.AuthorizedOperations = group, f.Code, f.text(), operationsUnasked
		return g, described{}
	}
	g.AuthorizedOperations = operationsUnasked
	if r.IncludeAuthorizedOperations {
		g.AuthorizedOperations = groupOperationsAll
	}
	g.TopologyDescription, g.TopologyDescriptionStatus = nil, descriptionNotRequested
	if r.IncludeTopologyDescription {
		g.TopologyDescriptionStatus = descriptionNotStored
	}
	if g.AssignorName == nil && c.cfg.Assignor != "" {
		g.AssignorName = kmsg.StringPtr(c.cfg.Assignor)
	}
	return g, d
}

// nowhere answers for the owner where a group that is asked about is in no replica's log: that it does not exist can be told
// by everybody, after a read barrier. Sent away instead, the client would look the group up at a replica that knows as
// little of it, and be led here again.
func (c *Coordinator) nowhere(ctx context.Context, group string, refused error) error {
	if !errors.Is(refused, shard.ErrNotOwner) && !errors.Is(refused, shard.ErrUnavailable) || c.Judge(ctx, group) != Foreign {
		return refused
	}
	return &streams.Error{Code: codeNoGroup, Message: "Group " + group + " not found."}
}

// foreignToo says of a group that is not in the log whether the cluster has one of its own of that id, as Kafka does, whose coordinator has
// groups of all kinds. Where the cluster does not tell the group is nowhere.
func (c *Coordinator) foreignToo(ctx context.Context, group string, err error) error {
	var refusal *streams.Error
	if !errors.As(err, &refusal) || refusal.Code != codeNoGroup || c.cfg.Foreign == nil {
		return err
	}
	asking, done := context.WithTimeout(ctx, foreignTimeout)
	defer done()
	if kind, _, failed := c.cfg.Foreign.Find(asking, group); failed == nil && kind != "" {
		return &streams.Error{Code: codeNoGroup, Message: "Group " + group + " is not a streams group."}
	}
	return err
}

// DeleteGroups answers DeleteGroups v0–3. The fate of one group does not affect another.
func (c *Coordinator) DeleteGroups(ctx context.Context, _ Caller, r *kmsg.DeleteGroupsRequest) *kmsg.DeleteGroupsResponse {
	resp := r.ResponseKind().(*kmsg.DeleteGroupsResponse)
	groups := distinct(r.Groups)
	resp.Groups = make([]kmsg.DeleteGroupsResponseGroup, len(groups))
	fanout(len(groups), func(i int) {
		g := kmsg.NewDeleteGroupsResponseGroup()
		g.Group = groups[i]
		if f := c.deleteGroup(ctx, groups[i]); f.Code != 0 {
			g.ErrorCode, g.ErrorMessage = f.Code, f.text()
			if f.Code == codeGroupDeletionFailed && r.Version < deleteMessageFrom {
				g.ErrorCode = codeInternal // what Kafka tells a client that can't know the code
			}
		} else {
			c.descriptions.forget(groups[i])
			c.remembered.drop(groups[i])
			c.topics.Forget(groups[i])
			c.log.Info("group deleted", "group", groups[i])
		}
		resp.Groups[i] = g
	})
	return resp
}

// ListGroups lists the groups of the shards that this replica answers for (shard.Host.List), ascending by id.
func (c *Coordinator) ListGroups(ctx context.Context, _ Caller, r *kmsg.ListGroupsRequest) *kmsg.ListGroupsResponse {
	resp := r.ResponseKind().(*kmsg.ListGroupsResponse)
	resp.Groups = []kmsg.ListGroupsResponseGroup{}
	if !typeWanted(r.TypesFilter) {
		return resp
	}
	listed, err := c.shards.List(ctx)
	if err != nil {
		resp.ErrorCode = c.failed("ListGroups", "", err).Code
		return resp
	}
	wanted := statesWanted(r.StatesFilter)
	for _, l := range listed {
		if len(r.StatesFilter) > 0 && !wanted[stateFilterName(l.State)] {
			continue
		}
		g := kmsg.NewListGroupsResponseGroup()
		g.Group, g.ProtocolType, g.GroupState = l.Group, groupType, l.State
		if r.Version >= listTypesFrom {
			g.GroupType = groupType
		}
		resp.Groups = append(resp.Groups, g)
	}
	slices.SortFunc(resp.Groups, func(a, b kmsg.ListGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
	return resp
}

// typeWanted says whether a types filter lets streams groups through: no filter is all, unknown names match nothing.
func typeWanted(types []string) bool {
	return len(types) == 0 || slices.ContainsFunc(types, func(t string) bool { return strings.EqualFold(t, groupType) })
}

// statesWanted reads a states filter as Kafka does, trimmed and in lower case, but takes NotReady in both spellings:
// Kafka 4.4 compares the client's "notready" with "not_ready", so its filter never finds such a group.
func statesWanted(states []string) map[string]bool {
	wanted := make(map[string]bool, len(states))
	for _, s := range states {
		wanted[stateFilterName(strings.TrimSpace(s))] = true
	}
	return wanted
}

func stateFilterName(state string) string {
	return strings.ReplaceAll(strings.ToLower(state), "_", "")
}
