package gateway

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
)

// What is configured for a group lies in two places: names of streams groups in the record log, all others at the cluster, which
// may not know groups as something that is configured at all. Whose a group is does not matter, nor whether it exists:
// the name of the configuration decides.

// knowGroups says that a cluster takes GROUP resources at all. A Kafka that does not (before 4.0) refuses a whole request for the sake of
// one and writes an error into its log, so it is not asked. No API version says it; Kafka 4.0 dropped version 0 of
// DescribeConfigs, and who has version 1 of ListConfigResources can list groups.
func (v *versions) knowGroups() bool {
	return v[describeConfigs].known && v[describeConfigs].min >= 1 || v.max(listConfigResources) >= 1
}

// planDescribeConfigs: the own node has no configs; a broker asked for them refuses ("Unexpected broker id"), and kafka-configs fails
// altogether. Groups are asked about here and at the cluster.
func planDescribeConfigs(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.DescribeConfigsRequest)
	answer := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	up, ours := *req, *req
	up.Resources, ours.Resources = nil, nil
	u, err := c.upstreamFor(rq.Header)
	if err != nil {
		return plan{}, err
	}
	for _, r := range req.Resources {
		switch {
		case c.g.isOwnNode(r.ResourceType, r.ResourceName):
			own := kmsg.NewDescribeConfigsResponseResource()
			own.ResourceType, own.ResourceName = r.ResourceType, r.ResourceName
			answer.Resources = append(answer.Resources, own)
		case r.ResourceType == kmsg.ConfigResourceTypeGroupConfig:
			here, there := splitNames(r)
			if here || !u.versions.knowGroups() { // somebody has to answer
				ours.Resources = append(ours.Resources, r)
			}
			if there && u.versions.knowGroups() {
				up.Resources = append(up.Resources, r)
			}
		default:
			up.Resources = append(up.Resources, r)
		}
	}
	if len(answer.Resources)+len(ours.Resources) == 0 {
		return forward(), nil
	}
	who := rq.caller(c)
	return plan{merge: func(up, local kmsg.Response) kmsg.Response {
		into := up.(*kmsg.DescribeConfigsResponse)
		at := make(map[resource][]int, len(into.Resources)) // a group may be asked for twice, perhaps for other names
		for i, r := range into.Resources {
			of := resource{r.ResourceType, r.ResourceName}
			at[of] = append(at[of], i)
		}
		for _, r := range local.(*kmsg.DescribeConfigsResponse).Resources {
			of := resource{r.ResourceType, r.ResourceName}
			if left := at[of]; len(left) > 0 {
				into.Resources[left[0]], at[of] = mergeDescribed(into.Resources[left[0]], r), left[1:]
			} else {
				into.Resources = append(into.Resources, r)
			}
		}
		return into
	}}.split(len(ours.Resources) > 0, answer, func(ctx context.Context) kmsg.Response {
		resp := c.g.service.DescribeConfigs(ctx, who, &ours)
		resp.Resources = append(resp.Resources, answer.Resources...)
		return resp
	}, len(up.Resources) > 0, &up), nil
}

// splitNames says who has to be asked for the names of a GROUP resource. An empty list asks for all, as no list does (Kafka 4.4).
func splitNames(r kmsg.DescribeConfigsRequestResource) (here, there bool) {
	if len(r.ConfigNames) == 0 {
		return true, true
	}
	here = slices.ContainsFunc(r.ConfigNames, coordinator.IsStreamsConfig)
	there = slices.ContainsFunc(r.ConfigNames, func(name string) bool { return !coordinator.IsStreamsConfig(name) })
	return here, there
}

// mergeDescribed puts what the cluster says of a group and what is configured here into one. What a newer cluster has under names of
// streams groups has no effect here, and is left out.
func mergeDescribed(theirs, ours kmsg.DescribeConfigsResponseResource) kmsg.DescribeConfigsResponseResource {
	switch {
	case ours.ErrorCode != 0:
		return ours
	case theirs.ErrorCode != 0:
		return theirs
	}
	theirs.ErrorMessage = ours.ErrorMessage // Kafka's is empty, others' may be null
	theirs.Configs = slices.DeleteFunc(theirs.Configs, func(d kmsg.DescribeConfigsResponseResourceConfig) bool {
		return coordinator.IsStreamsConfig(d.Name)
	})
	theirs.Configs = append(theirs.Configs, ours.Configs...)
	return theirs
}

// listConfigResourcesMax is offered whatever the cluster has. Version 1 is the one with types; where the cluster ends at 0 it has client
// metrics alone.
const listConfigResourcesMax = 1

// planListConfigResources adds the groups that have a configuration here to what the cluster lists.
func planListConfigResources(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.ListConfigResourcesRequest)
	const groups, metrics = int8(kmsg.ConfigResourceTypeGroupConfig), int8(kmsg.ConfigResourceTypeClientMetrics)
	wanted := func(t int8) bool {
		return rq.Version == 0 && t == metrics || rq.Version > 0 && (len(req.ResourceTypes) == 0 || slices.Contains(req.ResourceTypes, t))
	}
	u, err := c.upstreamFor(rq.Header)
	if err != nil {
		return plan{}, err
	}
	up := *req
	var send bool
	switch most := u.versions.max(listConfigResources); {
	case most >= 1:
		send = true
	case slices.ContainsFunc(req.ResourceTypes, func(t int8) bool { return t != groups && t != metrics }):
		resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
		resp.ErrorCode = unsupportedVersion.Code // what Kafka says of types that it can't list
		return answerWith(resp), nil
	case most == 0:
		send = wanted(metrics)
		up.ResourceTypes = nil
	}
	if !wanted(groups) && send && u.versions.max(listConfigResources) >= rq.Version {
		return forward(), nil
	}
	who, none := rq.caller(c), req.ResponseKind()
	return plan{merge: func(up, local kmsg.Response) kmsg.Response {
		into := up.(*kmsg.ListConfigResourcesResponse)
		if into.ErrorCode != 0 {
			return into
		}
		more := local.(*kmsg.ListConfigResourcesResponse)
		into.ErrorCode = more.ErrorCode
		listed := make(map[resource]bool, len(into.ConfigResources))
		for _, x := range into.ConfigResources {
			listed[resource{kmsg.ConfigResourceType(x.Type), x.Name}] = true
		}
		for _, r := range more.ConfigResources {
			if !listed[resource{kmsg.ConfigResourceType(r.Type), r.Name}] {
				into.ConfigResources = append(into.ConfigResources, r)
			}
		}
		return into
	}}.split(wanted(groups), none, func(ctx context.Context) kmsg.Response {
		return c.g.service.ListConfigResources(ctx, who, req)
	}, send, &up), nil
}
