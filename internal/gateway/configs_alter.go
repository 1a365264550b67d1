package gateway

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
)

// Changes of configurations. Where one concerns names of streams groups and others of the same group, Kafka would make both or none. Here
// the own part is validated first, then the cluster's is sent, and where the cluster has made it the own part is made.

// alterMax bounds each own part of such a change; the coordinator gives up before.
const alterMax = 12 * time.Second

// The texts are those of Kafka 4.4's ConfigAdminManager, which looks at these before anything else.
const (
	resourceTwiceText = "Each resource must appear at most once."
	nameTwiceText     = "Error due to duplicate config keys"
	nullValueText     = "Null value not supported for : "
)

// planAlter is the plan for AlterConfigs and IncrementalAlterConfigs.
func planAlter(c *conn, rq *request) (plan, error) {
	req, who := readAlter(rq.msg), rq.caller(c)
	up, ours, both, refused := req.none(), req.none(), req.none(), []altered(nil)
	u, err := c.upstreamFor(rq.Header)
	if err != nil {
		return plan{}, err
	}
	times := req.times()
	for _, r := range req.resources {
		here, there := r.split()
		switch no := c.g.refuseAlter(r, times[r.resource()] > 1); {
		case no != nil:
			refused = append(refused, *no)
		case !r.isGroup() || len(here.configs) == 0 && len(there.configs) > 0 && !req.replaces:
			up.resources = append(up.resources, r)
		case len(there.configs) == 0 && (!req.replaces || !u.versions.knowGroups()): // replaced is everything, also at the cluster
			ours.resources = append(ours.resources, r)
		default:
			both.resources = append(both.resources, here)
			up.resources = append(up.resources, there)
		}
	}
	if len(refused)+len(ours.resources)+len(both.resources) == 0 {
		return forward(), nil
	}
	if len(both.resources) > 0 {
		if err := c.settle(); err != nil {
			return plan{}, err
		}
		refused = append(refused, c.validateAlter(who, &both, &up)...)
	}
	return plan{merge: func(resp, local kmsg.Response) kmsg.Response {
		results := c.alterRest(who, both, up, readAltered(resp))
		answer := req.answer(append(results, readAltered(local)...))
		if throttle, ok := resp.(kmsg.ThrottleResponse); ok {
			millis, _ := throttle.Throttle()
			answer.(kmsg.SetThrottleResponse).SetThrottle(millis)
		}
		return answer
	}}.split(len(ours.resources) > 0, req.answer(refused), func(ctx context.Context) kmsg.Response {
		return req.answer(append(readAltered(c.g.alterOurs(ctx, who, ours.message())), refused...))
	}, len(up.resources) > 0, up.message()), nil
}

// alterRest makes the own part where the cluster has made its own, and returns results with what became of it.
func (c *conn) alterRest(who coordinator.Caller, both, up alterRequest, results []altered) []altered {
	there, at, rest := up.byResource(), map[resource]int{}, both.none()
	for i, a := range results {
		if there[a.resource()].made(a, up.replaces) {
			at[a.resource()] = i
		}
	}
	for _, r := range both.resources {
		if _, ok := at[r.resource()]; ok {
			rest.resources = append(rest.resources, r)
		}
	}
	if len(rest.resources) == 0 {
		return results
	}
	for _, a := range c.alterOurs(who, rest) {
		results[at[a.resource()]] = a
	}
	return results
}

// made says that the cluster has made its part r. One that does not take groups in AlterConfigs (the embedded one of dev) has nothing to do
// where none of what replaces a configuration was for the cluster.
func (r alterResource) made(a altered, replaces bool) bool {
	return a.code == 0 || a.code == invalidRequest.Code && replaces && r.isGroup() && len(r.configs) == 0
}

// validateAlter takes out of both requests what would be refused here, and returns the refusals.
func (c *conn) validateAlter(who coordinator.Caller, both, up *alterRequest) (refused []altered) {
	asked := *both
	asked.validateOnly = true
	gone := map[resource]bool{}
	for _, a := range c.alterOurs(who, asked) {
		if a.code != 0 {
			refused = append(refused, a)
			gone[a.resource()] = true
		}
	}
	isGone := func(r alterResource) bool { return gone[r.resource()] }
	both.resources, up.resources = slices.DeleteFunc(both.resources, isGone), slices.DeleteFunc(up.resources, isGone)
	return refused
}

func (c *conn) alterOurs(who coordinator.Caller, r alterRequest) []altered {
	ctx, cancel := context.WithTimeout(c.ctx, alterMax)
	defer cancel()
	return readAltered(c.g.alterOurs(ctx, who, r.message()))
}

func (g *Gateway) alterOurs(ctx context.Context, who coordinator.Caller, r kmsg.Request) kmsg.Response {
	if inc, ok := r.(*kmsg.IncrementalAlterConfigsRequest); ok {
		return g.service.IncrementalAlterConfigs(ctx, who, inc)
	}
	return g.service.AlterConfigs(ctx, who, r.(*kmsg.AlterConfigsRequest))
}

// refuseAlter says why a resource, which may be twice in its request, can't be altered; nil: it can, as far as the gateway knows. Where nothing has to be
// altered it says that (code 0).
func (g *Gateway) refuseAlter(r alterResource, twice bool) *altered {
	refuse := func(code int16, text string) *altered { return &altered{r.typ, r.name, code, &text} }
	if r.typ == kmsg.ConfigResourceTypeTopic {
		if own := g.own.named(r.name); own != nil {
			return refuse(topicDenied.Code, own.text)
		}
	}
	switch here, there := r.split(); {
	case g.isOwnNode(r.typ, r.name) && !twice && r.deletes():
		// There is nothing to delete. kafka-reassign-partitions has every node forget its throttles at the end, and fails with it.
		return &altered{r.typ, r.name, 0, nil}
	case g.isOwnNode(r.typ, r.name):
		return refuse(invalidRequest.Code, "Node "+r.name+" is streamkeeper, which has no broker configs.")
	case !r.isGroup() || len(here.configs) == 0 && len(there.configs) > 0:
		return nil // the cluster says what is wrong
	}
	if twice {
		return refuse(invalidRequest.Code, resourceTwiceText)
	}
	seen := map[string]bool{}
	var null []string
	strange := false
	for _, x := range r.configs {
		if seen[x.name] {
			return refuse(invalidRequest.Code, nameTwiceText)
		}
		seen[x.name] = true
		if x.value == nil && x.op != kmsg.IncrementalAlterConfigOpDelete {
			null = append(null, x.name)
		}
		strange = strange || x.op < kmsg.IncrementalAlterConfigOpSet || x.op > kmsg.IncrementalAlterConfigOpSubtract
	}
	switch {
	case len(null) > 0:
		return refuse(invalidRequest.Code, nullValueText+strings.Join(null, ", "))
	case strange:
		return &altered{r.typ, r.name, unknownServerError.Code, nil} // Kafka 4.4 fails, and says no more
	}
	return nil
}
