package gateway

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// planUnregisterBroker takes the replicas for brokers, as Metadata shows them: one that is gone is left out of it. Who means a replica for certain says so
// (wire.ForgetRequest) and is never sent on to the cluster, where the id may be a broker's. A cluster without KRaft has no such request, and no broker to forget.
func planUnregisterBroker(c *conn, rq *request) (plan, error) {
	req, who := rq.msg.(*kmsg.UnregisterBrokerRequest), rq.caller(c)
	node, certain := wire.ForgottenNode(req)
	if !certain {
		node = req.BrokerID
	}
	if certain || slices.ContainsFunc(c.g.nodes(), func(n endpoint) bool { return n.id == node }) {
		return plan{local: func(ctx context.Context) kmsg.Response {
			resp := c.g.service.UnregisterBroker(ctx, who, node)
			if certain {
				wire.MarkForgetResponse(resp)
			}
			return resp
		}}, nil
	}
	u, err := c.upstreamFor(rq.Header)
	if err != nil {
		return plan{}, err
	}
	if u.versions.max(unregisterBroker) < rq.Version {
		resp := req.ResponseKind().(*kmsg.UnregisterBrokerResponse)
		resp.ErrorCode = brokerNotRegistered.Code
		return answerWith(resp), nil
	}
	return forward(), nil
}
