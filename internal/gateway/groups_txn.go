package gateway

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
)

// Transactions over the offsets of a streams group (exactly once) are not served yet. They are refused with
// UNSUPPORTED_VERSION: the Java producer treats every code that it has no rule for as fatal ("Unexpected error in
// TxnOffsetCommitResponse: The version of API is not supported."), and a fatal error ends a Streams thread with that
// text, where a retriable or abortable one would make it try for ever.

func planAddOffsetsToTxn(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.AddOffsetsToTxnRequest)
	fail := func(code int16) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
		resp.ErrorCode = code
		return resp
	}
	if c.g.isLogTransaction(req.TransactionalID) {
		return answerWith(fail(transactionalIDDenied.Code)), nil
	}
	return c.withoutOffsets(req.Group, req.TransactionalID, fail)
}

// withoutOffsets forwards for a foreign group, and refuses with a log line for one of ours: what the application
// prints does not name the reason.
func (c *conn) withoutOffsets(group, transaction string, fail func(code int16) kmsg.Response) (plan, error) {
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
	c.g.metrics.refuse(c.ctx, "exactly once")
	c.g.warn("exactly once", "a transaction over the offsets of a streams group was refused: processing.guarantee=exactly_once_v2 is not supported yet",
		"group", group, "transactional_id", transaction, "peer", c.client.conn.RemoteAddr().String())
	return answerWith(fail(unsupportedVersion.Code)), nil
}

func planTxnOffsetCommit(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.TxnOffsetCommitRequest)
	fail := func(code int16) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewTxnOffsetCommitResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewTxnOffsetCommitResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	}
	if c.g.isLogTransaction(req.TransactionalID) {
		return answerWith(fail(transactionalIDDenied.Code)), nil
	}
	return c.withoutOffsets(req.Group, req.TransactionalID, fail)
}
