package gateway

import (
	"bytes"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The log topic, and the topic of topology descriptions where there is one, are the coordinator's memory. Clients may read them; what would
// change them is refused here, as a broker refuses a client that lacks the right. (What a client does at the cluster itself is a
// matter of its ACLs.)

// logTopicText and descriptionTopicText are the error messages where the schema has one.
const (
	logTopicText         = "This is the record log of streamkeeper. It can be read; changes to it are made at the cluster itself, not through streamkeeper."
	descriptionTopicText = "These are the topology descriptions of streamkeeper. They can be read; changes to the topic are made at the cluster itself, not through streamkeeper."
)

// ownTopic is one of the coordinator's topics.
type ownTopic struct {
	name, text string
	// What stands for it in a request that must not reach it, as long as its name and its id. No topic has them: slashes and colons are illegal in
	// names, and the first bit pattern of a version 4 UUID is wrong.
	blankName []byte
	blankID   [16]byte

	id atomic.Pointer[[16]byte] // once it is known
}

// ownTopics are all of them, the log first.
type ownTopics []*ownTopic

func newOwnTopics(logTopic, descriptionTopic string) ownTopics {
	own := ownTopics{{name: logTopic, text: logTopicText, blankName: bytes.Repeat([]byte{'/'}, len(logTopic)),
		blankID: [16]byte{'s', 't', 'r', 'e', 'a', 'm', 'k', 'e', 'e', 'p', 'e', 'r', '/', '/', '/', '/'}}}
	if descriptionTopic != "" {
		own = append(own, &ownTopic{name: descriptionTopic, text: descriptionTopicText, blankName: bytes.Repeat([]byte{':'}, len(descriptionTopic)),
			blankID: [16]byte{'s', 't', 'r', 'e', 'a', 'm', 'k', 'e', 'e', 'p', 'e', 'r', ':', ':', ':', ':'}})
	}
	return own
}

// topicID is zero until it is known.
func (t *ownTopic) topicID() [16]byte {
	if id := t.id.Load(); id != nil {
		return *id
	}
	return [16]byte{}
}

// find returns the topic of that name or, where it is known, id; nil if it is none of ours.
func (o ownTopics) find(name *string, id [16]byte) *ownTopic {
	for _, t := range o {
		if name != nil && *name == t.name || id != [16]byte{} && t.topicID() == id {
			return t
		}
	}
	return nil
}

func (o ownTopics) named(name string) *ownTopic { return o.find(&name, [16]byte{}) }

// identified says that the ids of all of them are known.
func (o ownTopics) identified() bool {
	for _, t := range o {
		if t.topicID() == [16]byte{} {
			return false
		}
	}
	return true
}

// isLogTransaction says that a transactional id is the coordinator's own, `<log topic>-<partition>` or `<log topic>-<partition>.<number>`: a client that
// initialised it would fence the shard's owner.
func (g *Gateway) isLogTransaction(id string) bool {
	n, ok := strings.CutPrefix(id, g.service.LogTopic()+"-")
	if !ok {
		return false
	}
	partition, number, numbered := strings.Cut(n, ".")
	if _, err := strconv.ParseUint(partition, 10, 31); err != nil {
		return false
	}
	if !numbered {
		return true
	}
	_, err := strconv.ParseUint(number, 10, 31)
	return err == nil
}

func planDeleteTopics(c *conn, rq *request) (plan, error) {
	req := rq.msg.(*kmsg.DeleteTopicsRequest)
	own := c.g.own
	answer := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	refuse := func(ours *ownTopic, topic *string, id [16]byte) {
		t := kmsg.NewDeleteTopicsResponseTopic()
		t.Topic, t.TopicID, t.ErrorCode, t.ErrorMessage = topic, id, topicDenied.Code, kmsg.StringPtr(ours.text)
		answer.Topics = append(answer.Topics, t)
	}
	up := *req
	up.TopicNames, up.Topics = nil, nil
	for _, t := range req.TopicNames {
		if ours := own.named(t); ours != nil {
			refuse(ours, &t, [16]byte{})
		} else {
			up.TopicNames = append(up.TopicNames, t)
		}
	}
	for _, t := range req.Topics {
		if ours := own.find(t.Topic, t.TopicID); ours != nil {
			refuse(ours, t.Topic, t.TopicID)
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
		if c.g.own.named(t.Topic) == nil {
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
		ours := c.g.own.named(t.Topic)
		if ours == nil {
			up.Topics = append(up.Topics, t)
			continue
		}
		rt := kmsg.NewCreatePartitionsResponseTopic()
		rt.Topic, rt.ErrorCode, rt.ErrorMessage = t.Topic, topicDenied.Code, kmsg.StringPtr(ours.text)
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
		if g.own.named(topic(i)) != nil {
			return func(t string) int16 {
				if g.own.named(t) != nil {
					return topicDenied.Code
				}
				return notAttempted.Code
			}
		}
	}
	return nil
}
