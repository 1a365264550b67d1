package gateway

import "github.com/twmb/franz-go/pkg/kmsg"

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
	return c.foreignOr(req.Group, fail, fail(unsupportedVersion.Code))
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
	return c.foreignOr(req.Group, fail, fail(unsupportedVersion.Code))
}
