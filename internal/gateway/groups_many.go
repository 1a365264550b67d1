package gateway

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
)

// Requests about several groups are split: ours are answered here, the others go up in one request, and both
// answers become one. Their order is arbitrary, as with Kafka.

// planOffsetFetch: up to version 7 a request has one group, then several.
func planOffsetFetch(c *conn, rq *request) (plan, error) {
	req, who := rq.msg.(*kmsg.OffsetFetchRequest), rq.caller(c)
	fetch := func(r *kmsg.OffsetFetchRequest) func(context.Context) kmsg.Response {
		return func(ctx context.Context) kmsg.Response { return c.g.service.OffsetFetch(ctx, who, r) }
	}
	if rq.Version < 8 {
		p, err := c.oneGroup(req.Group, fetch(req), func(code int16) kmsg.Response { return failOffsetFetch(req, code) })
		if p.forward {
			p.rewrite = c.doubtOffset(req)
		}
		return p, err
	}
	groups := make([]string, len(req.Groups))
	for i, g := range req.Groups {
		groups[i] = g.Group
	}
	verdicts, err := c.judge(groups...)
	if err != nil {
		return plan{}, err
	}
	own, foreign := *req, *req
	own.Groups, foreign.Groups = nil, nil
	refused := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	for i, g := range req.Groups {
		switch v := verdicts[i]; v {
		case coordinator.Ours:
			own.Groups = append(own.Groups, g)
		case coordinator.Foreign:
			foreign.Groups = append(foreign.Groups, g)
		default:
			rg := kmsg.NewOffsetFetchResponseGroup()
			rg.Group, rg.ErrorCode = g.Group, refusedCode(v)
			refused.Groups = append(refused.Groups, rg)
		}
	}
	if len(foreign.Groups) == len(req.Groups) {
		return plan{forward: true, rewrite: c.doubtOffsets}, nil
	}
	p := plan{rewrite: c.doubtOffsets, merge: func(up, local kmsg.Response) kmsg.Response {
		into := up.(*kmsg.OffsetFetchResponse)
		into.Groups = append(into.Groups, local.(*kmsg.OffsetFetchResponse).Groups...)
		return into
	}}
	if len(own.Groups) == 1 {
		p.group = own.Groups[0].Group
	}
	return p.split(len(own.Groups) > 0, refused, func(ctx context.Context) kmsg.Response {
		resp := fetch(&own)(ctx).(*kmsg.OffsetFetchResponse)
		resp.Groups = append(resp.Groups, refused.Groups...)
		return resp
	}, len(foreign.Groups) > 0, &foreign), nil
}

// The cluster says "no offset" also of a group that was its own when it was judged, and became ours, with its offsets, before the request was there. An application
// would start over. So where that is the answer the groups are judged once more.

// doubtOffsets looks through the cluster's answer to a request about several groups.
func (c *conn) doubtOffsets(_ *Gateway, resp kmsg.Response) {
	r := resp.(*kmsg.OffsetFetchResponse)
	var doubted []int
	var names []string
	for i := range r.Groups {
		g := &r.Groups[i]
		lacks := len(g.Topics) == 0
		for _, t := range g.Topics {
			lacks = lacks || slices.ContainsFunc(t.Partitions, func(p kmsg.OffsetFetchResponseGroupTopicPartition) bool { return p.ErrorCode == 0 && p.Offset < 0 })
		}
		if g.ErrorCode == 0 && lacks {
			doubted, names = append(doubted, i), append(names, g.Group)
		}
	}
	for n, code := range c.moved(names) {
		if code != 0 {
			failed := kmsg.NewOffsetFetchResponseGroup()
			failed.Group, failed.ErrorCode = names[n], code
			r.Groups[doubted[n]] = failed
		}
	}
}

// doubtOffset does the same for a request about one group, of a version before 8.
func (c *conn) doubtOffset(req *kmsg.OffsetFetchRequest) func(*Gateway, kmsg.Response) {
	return func(_ *Gateway, resp kmsg.Response) {
		r := resp.(*kmsg.OffsetFetchResponse)
		lacks := len(r.Topics) == 0
		for _, t := range r.Topics {
			lacks = lacks || slices.ContainsFunc(t.Partitions, func(p kmsg.OffsetFetchResponseTopicPartition) bool { return p.ErrorCode == 0 && p.Offset < 0 })
		}
		if r.ErrorCode != 0 || !lacks {
			return
		}
		if code := c.moved([]string{req.Group})[0]; code != 0 {
			version := r.Version
			*r = *failOffsetFetch(req, code).(*kmsg.OffsetFetchResponse)
			r.SetVersion(version)
		}
	}
}

// moved gives, for groups that were the cluster's when they were judged, the error code of those that may not be any more. What was answered before is sent
// first: it may have to wait for the log.
func (c *conn) moved(groups []string) []int16 {
	codes := make([]int16, len(groups))
	if len(groups) == 0 {
		return codes
	}
	_ = c.client.w.Flush() // an error stays with the writer
	for i, v := range c.verdicts(groups) {
		switch v {
		case coordinator.Foreign:
		case coordinator.Undecided:
			codes[i] = coordinatorLoading.Code
		default:
			codes[i] = notCoordinator.Code
		}
	}
	return codes
}

// split completes a plan that has a merge: our part is local, or answer where there is nothing to run; the
// cluster's part is up, where there is one.
func (p plan) split(run bool, answer kmsg.Response, local func(context.Context) kmsg.Response, send bool, up kmsg.Request) plan {
	if run {
		p.local = local
	} else {
		p.answer = answer
	}
	if send {
		p.up = up
	} else {
		p.merge = nil
	}
	return p
}

func failOffsetFetch(req *kmsg.OffsetFetchRequest, code int16) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	resp.ErrorCode = code
	for _, t := range req.Topics { // versions 0 and 1 have errors at the partitions only
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata, rp.ErrorCode = p, -1, -1, kmsg.StringPtr(""), code
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func planDeleteGroups(c *conn, rq *request) (plan, error) {
	req, who := rq.msg.(*kmsg.DeleteGroupsRequest), rq.caller(c)
	verdicts, err := c.judge(req.Groups...)
	if err != nil {
		return plan{}, err
	}
	own, foreign := *req, *req
	own.Groups, foreign.Groups = nil, nil
	refused := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for i, group := range req.Groups {
		switch v := verdicts[i]; v {
		case coordinator.Ours:
			own.Groups = append(own.Groups, group)
		case coordinator.Foreign:
			foreign.Groups = append(foreign.Groups, group)
		default:
			rg := kmsg.NewDeleteGroupsResponseGroup()
			rg.Group, rg.ErrorCode = group, refusedCode(v)
			refused.Groups = append(refused.Groups, rg)
		}
	}
	if len(foreign.Groups) == len(req.Groups) {
		return forward(), nil
	}
	p := plan{merge: func(up, local kmsg.Response) kmsg.Response {
		into := up.(*kmsg.DeleteGroupsResponse)
		into.Groups = append(into.Groups, local.(*kmsg.DeleteGroupsResponse).Groups...)
		return into
	}}
	return p.split(len(own.Groups) > 0, refused, func(ctx context.Context) kmsg.Response {
		resp := c.g.service.DeleteGroups(ctx, who, &own)
		resp.Groups = append(resp.Groups, refused.Groups...)
		return resp
	}, len(foreign.Groups) > 0, &foreign), nil
}

// partition splits ids into those known as streams groups here and the others.
func (c *conn) partition(groups []string) (own, foreign []string, err error) {
	if err := c.settle(); err != nil {
		return nil, nil, err
	}
	for _, group := range groups {
		if _, known, _ := c.g.service.Coordinator(c.ctx, group); known {
			own = append(own, group)
		} else {
			foreign = append(foreign, group)
		}
	}
	return own, foreign, nil
}

// planDescribeGroups: to the classic call a streams group is dead, in version 6 with a text.
func planDescribeGroups(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.DescribeGroupsRequest)
	own, foreign, err := c.partition(req.Groups)
	if err != nil || len(own) == 0 {
		return forward(), err
	}
	answer := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, group := range own {
		g := kmsg.NewDescribeGroupsResponseGroup()
		g.Group, g.State = group, "Dead"
		if rq.Version >= 6 {
			g.ErrorCode, g.ErrorMessage = groupIDNotFound.Code, notOfType(group, "classic")
		}
		answer.Groups = append(answer.Groups, g)
	}
	up := *req
	up.Groups = foreign
	return plan{merge: func(up, _ kmsg.Response) kmsg.Response {
		into := up.(*kmsg.DescribeGroupsResponse)
		into.Groups = append(into.Groups, answer.Groups...)
		return into
	}}.split(false, answer, nil, len(foreign) > 0, &up), nil
}

func planConsumerDescribe(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.ConsumerGroupDescribeRequest)
	own, foreign, err := c.partition(req.Groups)
	if err != nil || len(own) == 0 {
		return forward(), err
	}
	answer := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	for _, group := range own {
		g := kmsg.NewConsumerGroupDescribeResponseGroup()
		g.Group, g.ErrorCode, g.ErrorMessage = group, groupIDNotFound.Code, notOfType(group, "consumer")
		answer.Groups = append(answer.Groups, g)
	}
	up := *req
	up.Groups = foreign
	return plan{merge: func(up, _ kmsg.Response) kmsg.Response {
		into := up.(*kmsg.ConsumerGroupDescribeResponse)
		into.Groups = append(into.Groups, answer.Groups...)
		return into
	}}.split(false, answer, nil, len(foreign) > 0, &up), nil
}

func planShareDescribe(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.ShareGroupDescribeRequest)
	own, foreign, err := c.partition(req.GroupIDs)
	if err != nil || len(own) == 0 {
		return forward(), err
	}
	answer := req.ResponseKind().(*kmsg.ShareGroupDescribeResponse)
	for _, group := range own {
		g := kmsg.NewShareGroupDescribeResponseGroup()
		g.GroupID, g.ErrorCode, g.ErrorMessage = group, groupIDNotFound.Code, notOfType(group, "share")
		answer.Groups = append(answer.Groups, g)
	}
	up := *req
	up.GroupIDs = foreign
	return plan{merge: func(up, _ kmsg.Response) kmsg.Response {
		into := up.(*kmsg.ShareGroupDescribeResponse)
		into.Groups = append(into.Groups, answer.Groups...)
		return into
	}}.split(false, answer, nil, len(foreign) > 0, &up), nil
}

// planListGroups: the own node lists the groups of its shards and a broker its own, so that nothing is listed
// twice. A broker from before version 5 knows no group types: all its groups are classic ones.
func planListGroups(c *conn, rq *request) (plan, error) {
	req, who := rq.msg.(*kmsg.ListGroupsRequest), rq.caller(c)
	if c.listener.own() {
		return plan{local: func(ctx context.Context) kmsg.Response { return c.g.service.ListGroups(ctx, who, req) }}, nil
	}
	u, err := c.upstreamFor(rq.Header)
	if err != nil {
		return plan{}, err
	}
	if rq.Version < 5 || u.versions.max(listGroups) >= 5 {
		return forward(), nil
	}
	if len(req.TypesFilter) > 0 && !slices.ContainsFunc(req.TypesFilter, func(t string) bool { return strings.EqualFold(t, "classic") }) {
		return answerWith(req.ResponseKind()), nil
	}
	up := *req
	up.TypesFilter = nil
	return plan{up: &up, rewrite: func(_ *Gateway, resp kmsg.Response) {
		groups := resp.(*kmsg.ListGroupsResponse).Groups
		for i := range groups {
			groups[i].GroupType = "classic"
		}
	}}, nil
}
