package gateway

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Clients ask some things of each node and add up the answers. The own node is no broker: forwarded, it would
// repeat what some broker said.

// planListTransactions: the own node coordinates no transactions.
func planListTransactions(c *conn, rq *request) (plan, error) {
	if !c.listener.own() {
		return forward(), nil
	}
	return answerWith(rq.msg.ResponseKind()), nil
}

// planDescribeLogDirs: the own node has one log directory without topics. Without any, the Java client takes the
// answer for CLUSTER_AUTHORIZATION_FAILED.
func planDescribeLogDirs(c *conn, rq *request) (plan, error) {
	if !c.listener.own() {
		return forward(), nil
	}
	resp := rq.msg.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir = "/streamkeeper"
	resp.Dirs = append(resp.Dirs, dir)
	return answerWith(resp), nil
}

// isOwnNode says that a config resource is the own node as a broker.
func (g *Gateway) isOwnNode(t kmsg.ConfigResourceType, name string) bool {
	return (t == kmsg.ConfigResourceTypeBroker || t == kmsg.ConfigResourceTypeBrokerLogger) && name == strconv.Itoa(int(g.self.id))
}
