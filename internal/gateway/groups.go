package gateway

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
)

// Whose a group is decides where its requests go. Two questions exist:
//
//	judge   waits for the log where it must (design D9). Needed before the cluster may answer for offsets (it says
//	        "no offset" of a group it does not know, and the application would start over), and before it may create
//	        or delete a group
//	known   is from memory. Enough where the cluster's answer for a group of ours that we don't know yet is as good
//	        as ours: "unknown member", "not found"

// judge asks whose the groups are, in their order. Requests of this connection that came before are done by then:
// one may be the join that made the group ours.
func (c *conn) judge(groups ...string) ([]coordinator.Verdict, error) {
	if err := c.settle(); err != nil {
		return nil, err
	}
	return c.verdicts(groups), nil
}

// verdicts asks whose the groups are, in their order.
func (c *conn) verdicts(groups []string) []coordinator.Verdict {
	ctx, cancel := context.WithTimeout(c.ctx, judgeTimeout)
	defer cancel()
	verdicts := make([]coordinator.Verdict, len(groups))
	if len(groups) == 1 {
		verdicts[0] = c.g.service.Judge(ctx, groups[0])
		return verdicts
	}
	next := make(chan int, len(groups))
	for i := range groups {
		next <- i
	}
	close(next)
	var wg sync.WaitGroup
	for range min(judgeFanOut, len(groups)) {
		wg.Go(func() {
			for i := range next {
				verdicts[i] = c.g.service.Judge(ctx, groups[i])
			}
		})
	}
	wg.Wait()
	return verdicts
}

// settle sends what is buffered upstream and waits for the jobs before.
func (c *conn) settle() error {
	if c.up != nil {
		if err := c.up.w.Flush(); err != nil {
			return err
		}
	}
	c.local.Wait()
	return nil
}

// known says whether the group is known as a streams group here, whoever owns it.
func (c *conn) known(group string) (bool, error) {
	if err := c.settle(); err != nil {
		return false, err
	}
	_, known, _ := c.g.service.Coordinator(c.ctx, group)
	return known, nil
}

// refused is the error code for a group that can be answered for neither here nor by the cluster.
func refusedCode(v coordinator.Verdict) int16 {
	if v == coordinator.Elsewhere {
		return notCoordinator.Code
	}
	return coordinatorLoading.Code
}

// oneGroup is the plan for a request about one group: ours by local, the cluster's by forwarding, else the error.
func (c *conn) oneGroup(group string, local func(context.Context) kmsg.Response, fail func(code int16) kmsg.Response) (plan, error) {
	verdicts, err := c.judge(group)
	if err != nil {
		return plan{}, err
	}
	switch v := verdicts[0]; v {
	case coordinator.Ours:
		return plan{local: local, group: group}, nil
	case coordinator.Foreign:
		return forward(), nil
	default:
		return answerWith(fail(refusedCode(v))), nil
	}
}

func planStreamsHeartbeat(c *conn, rq *request) (plan, error) {
	req, who := rq.msg.(*kmsg.StreamsGroupHeartbeatRequest), rq.caller(c)
	return plan{group: req.Group, local: func(ctx context.Context) kmsg.Response {
		return c.g.service.Heartbeat(ctx, who, req)
	}}, nil
}

func planStreamsDescribe(c *conn, rq *request) (plan, error) {
	req, who := rq.msg.(*kmsg.StreamsGroupDescribeRequest), rq.caller(c)
	return plan{local: func(ctx context.Context) kmsg.Response {
		return c.g.service.Describe(ctx, who, req)
	}}, nil
}

// planTopologyUpdate takes a push. Where descriptions are not kept it is not offered, and nobody asked for it.
func planTopologyUpdate(c *conn, rq *request) (plan, error) {
	if c.g.service.Descriptions() {
		req, who := rq.msg.(*kmsg.StreamsGroupTopologyDescriptionUpdateRequest), rq.caller(c)
		return plan{group: req.Group, local: func(ctx context.Context) kmsg.Response {
			return c.g.service.TopologyDescriptionUpdate(ctx, who, req)
		}}, nil
	}
	resp := rq.msg.ResponseKind().(*kmsg.StreamsGroupTopologyDescriptionUpdateResponse)
	resp.ErrorCode = unsupportedVersion.Code
	resp.ErrorMessage = kmsg.StringPtr("The broker has no streams group topology description plugin configured.")
	return answerWith(resp), nil
}

func planOffsetCommit(c *conn, rq *request) (plan, error) {
	req, who := rq.msg.(*kmsg.OffsetCommitRequest), rq.caller(c)
	local := func(ctx context.Context) kmsg.Response { return c.g.service.OffsetCommit(ctx, who, req) }
	return c.oneGroup(req.Group, local, func(code int16) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewOffsetCommitResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetCommitResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	})
}

func planOffsetDelete(c *conn, rq *request) (plan, error) {
	req, who := rq.msg.(*kmsg.OffsetDeleteRequest), rq.caller(c)
	local := func(ctx context.Context) kmsg.Response { return c.g.service.OffsetDelete(ctx, who, req) }
	return c.oneGroup(req.Group, local, func(code int16) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
		resp.ErrorCode = code
		return resp
	})
}

// planJoinGroup: a classic member of a streams group is refused, or makes it a classic group of the cluster; only its owner can tell.
func planJoinGroup(c *conn, rq *request) (plan, error) {
	req, who := rq.msg.(*kmsg.JoinGroupRequest), rq.caller(c)
	local := func(ctx context.Context) kmsg.Response { return c.g.service.JoinGroup(ctx, who, req) }
	return c.oneGroup(req.Group, local, func(code int16) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode, resp.Generation, resp.MemberID = code, -1, req.MemberID
		if rq.Version < 7 {
			resp.Protocol = kmsg.StringPtr("")
		}
		return resp
	})
}

// foreignOr forwards for a group that is not ours, and answers for one that is, whoever owns it.
func (c *conn) foreignOr(group string, fail func(code int16) kmsg.Response, own kmsg.Response) (plan, error) {
	verdicts, err := c.judge(group)
	if err != nil {
		return plan{}, err
	}
	switch verdicts[0] {
	case coordinator.Foreign:
		return forward(), nil
	case coordinator.Undecided:
		return answerWith(fail(coordinatorLoading.Code)), nil
	}
	return answerWith(own), nil
}

// unknownOr forwards for a group that is not known as ours, else answers own.
func (c *conn) unknownOr(group string, own kmsg.Response) (plan, error) {
	known, err := c.known(group)
	if err != nil || !known {
		return forward(), err
	}
	return answerWith(own), nil
}

func planSyncGroup(c *conn, rq *request) (plan, error) {
	resp := rq.msg.ResponseKind().(*kmsg.SyncGroupResponse)
	resp.ErrorCode = unknownMember.Code
	return c.unknownOr(rq.msg.(*kmsg.SyncGroupRequest).Group, resp)
}

func planHeartbeat(c *conn, rq *request) (plan, error) {
	resp := rq.msg.ResponseKind().(*kmsg.HeartbeatResponse)
	resp.ErrorCode = unknownMember.Code
	return c.unknownOr(rq.msg.(*kmsg.HeartbeatRequest).Group, resp)
}

func planLeaveGroup(c *conn, rq *request) (plan, error) {
	resp := rq.msg.ResponseKind().(*kmsg.LeaveGroupResponse)
	resp.ErrorCode = unknownMember.Code
	return c.unknownOr(rq.msg.(*kmsg.LeaveGroupRequest).Group, resp)
}

// notOfType is Kafka's text for a group of another type.
func notOfType(group, article string) *string {
	return kmsg.StringPtr("Group " + group + " is not a " + article + " group.")
}

// memberEpochJoin is the member epoch of a request to join; only that one can create a group.
const memberEpochJoin = 0

func planConsumerHeartbeat(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.ConsumerGroupHeartbeatRequest)
	fail := func(code int16) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
		resp.ErrorCode = code
		return resp
	}
	own := fail(groupIDNotFound.Code).(*kmsg.ConsumerGroupHeartbeatResponse)
	own.ErrorMessage = notOfType(req.Group, "consumer")
	if req.MemberEpoch == memberEpochJoin {
		return c.foreignOr(req.Group, fail, own)
	}
	return c.unknownOr(req.Group, own)
}

func planShareHeartbeat(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.ShareGroupHeartbeatRequest)
	fail := func(code int16) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
		resp.ErrorCode = code
		return resp
	}
	own := fail(groupIDNotFound.Code).(*kmsg.ShareGroupHeartbeatResponse)
	own.ErrorMessage = notOfType(req.GroupID, "share")
	if req.MemberEpoch == memberEpochJoin {
		return c.foreignOr(req.GroupID, fail, own)
	}
	return c.unknownOr(req.GroupID, own)
}
