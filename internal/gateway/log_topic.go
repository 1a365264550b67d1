package gateway

import (
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The log topic is the coordinator's memory. Clients may read it; what would change it is refused here, as a broker
// refuses a client that lacks the right. (What a client does at the cluster itself is a matter of its ACLs.)

// logTopicText is the error message where the schema has one.
const logTopicText = "This is the record log of streamkeeper. It can be read; changes to it are made at the cluster itself, not through streamkeeper."

// isLogTransaction says that a transactional id is the coordinator's own, `<log topic>-<partition>`: a client that
// initialised it would fence the shard's owner.
func (g *Gateway) isLogTransaction(id string) bool {
	n, ok := strings.CutPrefix(id, g.service.LogTopic()+"-")
	if !ok {
		return false
	}
	_, err := strconv.ParseUint(n, 10, 31)
	return err == nil
}

func planDeleteTopics(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.DeleteTopicsRequest)
	name, id := c.g.service.LogTopic(), c.g.logTopicID()
	answer := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	refuse := func(topic *string, id [16]byte) {
		t := kmsg.NewDeleteTopicsResponseTopic()
		t.Topic, t.TopicID, t.ErrorCode, t.ErrorMessage = topic, id, topicDenied.Code, kmsg.StringPtr(logTopicText)
		answer.Topics = append(answer.Topics, t)
	}
	up := *req
	up.TopicNames, up.Topics = nil, nil
	for _, t := range req.TopicNames {
		if t == name {
			refuse(&t, [16]byte{})
		} else {
			up.TopicNames = append(up.TopicNames, t)
		}
	}
	for _, t := range req.Topics {
		if t.Topic != nil && *t.Topic == name || id != [16]byte{} && t.TopicID == id {
			refuse(t.Topic, t.TopicID)
		} else {
			up.Topics = append(up.Topics, t)
		}
	}
	if len(answer.Topics) == 0 {
		return forward(), nil
	}
	return plan{merge: func(up, _ kmsg.Response) kmsg.Response {
		into := up.(*kmsg.DeleteTopicsResponse)
		into.Topics = append(into.Topics, answer.Topics...)
		return into
	}}.split(false, answer, nil, len(up.TopicNames)+len(up.Topics) > 0, &up), nil
}

func planDeleteRecords(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.DeleteRecordsRequest)
	answer := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	up := *req
	up.Topics = nil
	for _, t := range req.Topics {
		if t.Topic != c.g.service.LogTopic() {
			up.Topics = append(up.Topics, t)
			continue
		}
		rt := kmsg.NewDeleteRecordsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewDeleteRecordsResponseTopicPartition()
			rp.Partition, rp.LowWatermark, rp.ErrorCode = p.Partition, -1, topicDenied.Code
			rt.Partitions = append(rt.Partitions, rp)
		}
		answer.Topics = append(answer.Topics, rt)
	}
	if len(answer.Topics) == 0 {
		return forward(), nil
	}
	return plan{merge: func(up, _ kmsg.Response) kmsg.Response {
		into := up.(*kmsg.DeleteRecordsResponse)
		into.Topics = append(into.Topics, answer.Topics...)
		return into
	}}.split(false, answer, nil, len(up.Topics) > 0, &up), nil
}

func planCreatePartitions(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.CreatePartitionsRequest)
	answer := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	up := *req
	up.Topics = nil
	for _, t := range req.Topics {
		if t.Topic != c.g.service.LogTopic() {
			up.Topics = append(up.Topics, t)
			continue
		}
		rt := kmsg.NewCreatePartitionsResponseTopic()
		rt.Topic, rt.ErrorCode, rt.ErrorMessage = t.Topic, topicDenied.Code, kmsg.StringPtr(logTopicText)
		answer.Topics = append(answer.Topics, rt)
	}
	if len(answer.Topics) == 0 {
		return forward(), nil
	}
	return plan{merge: func(up, _ kmsg.Response) kmsg.Response {
		into := up.(*kmsg.CreatePartitionsResponse)
		into.Topics = append(into.Topics, answer.Topics...)
		return into
	}}.split(false, answer, nil, len(up.Topics) > 0, &up), nil
}

// alterRefused says why a config resource can't be altered through the gateway; code 0: it can.
func (g *Gateway) alterRefused(t kmsg.ConfigResourceType, name string) (code int16, text *string) {
	if t == kmsg.ConfigResourceTypeTopic && name == g.service.LogTopic() {
		return topicDenied.Code, kmsg.StringPtr(logTopicText)
	}
	if g.isOwnNode(t, name) {
		return invalidRequest.Code, kmsg.StringPtr("Node " + name + " is streamkeeper, which has no broker configs.")
	}
	return 0, nil
}

func planAlterConfigs(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.AlterConfigsRequest)
	answer := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	up := *req
	up.Resources = nil
	for _, r := range req.Resources {
		code, text := c.g.alterRefused(r.ResourceType, r.ResourceName)
		if code == 0 {
			up.Resources = append(up.Resources, r)
			continue
		}
		own := kmsg.NewAlterConfigsResponseResource()
		own.ResourceType, own.ResourceName, own.ErrorCode, own.ErrorMessage = r.ResourceType, r.ResourceName, code, text
		answer.Resources = append(answer.Resources, own)
	}
	if len(answer.Resources) == 0 {
		return forward(), nil
	}
	return plan{merge: func(up, _ kmsg.Response) kmsg.Response {
		into := up.(*kmsg.AlterConfigsResponse)
		into.Resources = append(into.Resources, answer.Resources...)
		return into
	}}.split(false, answer, nil, len(up.Resources) > 0, &up), nil
}

func planIncrementalAlterConfigs(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.IncrementalAlterConfigsRequest)
	answer := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	up := *req
	up.Resources = nil
	for _, r := range req.Resources {
		code, text := c.g.alterRefused(r.ResourceType, r.ResourceName)
		if code == 0 {
			up.Resources = append(up.Resources, r)
			continue
		}
		own := kmsg.NewIncrementalAlterConfigsResponseResource()
		own.ResourceType, own.ResourceName, own.ErrorCode, own.ErrorMessage = r.ResourceType, r.ResourceName, code, text
		answer.Resources = append(answer.Resources, own)
	}
	if len(answer.Resources) == 0 {
		return forward(), nil
	}
	return plan{merge: func(up, _ kmsg.Response) kmsg.Response {
		into := up.(*kmsg.IncrementalAlterConfigsResponse)
		into.Resources = append(into.Resources, answer.Resources...)
		return into
	}}.split(false, answer, nil, len(up.Resources) > 0, &up), nil
}

func planInitProducerID(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.InitProducerIDRequest)
	if req.TransactionalID == nil || !c.g.isLogTransaction(*req.TransactionalID) {
		return forward(), nil
	}
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = transactionalIDDenied.Code, -1, -1
	return answerWith(resp), nil
}

func planEndTxn(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.EndTxnRequest)
	if !c.g.isLogTransaction(req.TransactionalID) {
		return forward(), nil
	}
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = transactionalIDDenied.Code, -1, -1
	return answerWith(resp), nil
}

// planAddPartitionsToTxn refuses the whole transaction where a partition of the log is among its partitions, as
// Kafka does: that topic is not authorised, the others are not attempted.
func planAddPartitionsToTxn(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.AddPartitionsToTxnRequest)
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	if rq.Version < 4 {
		code := c.g.txnCode(req.TransactionalID, len(req.Topics), func(i int) string { return req.Topics[i].Topic })
		if code == nil {
			return forward(), nil
		}
		for _, t := range req.Topics {
			rt := kmsg.NewAddPartitionsToTxnResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p, code(t.Topic)
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return answerWith(resp), nil
	}
	up := *req
	up.Transactions = nil
	for _, txn := range req.Transactions {
		code := c.g.txnCode(txn.TransactionalID, len(txn.Topics), func(i int) string { return txn.Topics[i].Topic })
		if code == nil {
			up.Transactions = append(up.Transactions, txn)
			continue
		}
		rx := kmsg.NewAddPartitionsToTxnResponseTransaction()
		rx.TransactionalID = txn.TransactionalID
		for _, t := range txn.Topics {
			rt := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
				rp.Partition, rp.ErrorCode = p, code(t.Topic)
				rt.Partitions = append(rt.Partitions, rp)
			}
			rx.Topics = append(rx.Topics, rt)
		}
		resp.Transactions = append(resp.Transactions, rx)
	}
	if len(resp.Transactions) == 0 {
		return forward(), nil
	}
	return plan{merge: func(up, _ kmsg.Response) kmsg.Response {
		into := up.(*kmsg.AddPartitionsToTxnResponse)
		into.Transactions = append(into.Transactions, resp.Transactions...)
		return into
	}}.split(false, resp, nil, len(up.Transactions) > 0, &up), nil
}

// txnCode returns the error code by topic of a transaction that is refused, nil for one that is not.
func (g *Gateway) txnCode(id string, topics int, topic func(int) string) func(string) int16 {
	if g.isLogTransaction(id) {
		return func(string) int16 { return transactionalIDDenied.Code }
	}
	for i := range topics {
		if topic(i) == g.service.LogTopic() {
			return func(t string) int16 {
				if t == g.service.LogTopic() {
					return topicDenied.Code
				}
				return notAttempted.Code
			}
		}
	}
	return nil
}
