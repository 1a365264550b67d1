package differential

import (
	"slices"

	"streamkeeper/shard/streams"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// tp is a partition to commit.
type tp struct {
	topic     string
	partition int32
}

// commit compares who may commit offsets: a whole request is admitted or refused with one code. The group must exist; what is
// written is another package's.
func (w *world) commit(member string, epoch int32, instance *string, version int16, transactional bool, parts []tp) {
	w.t.Helper()
	w.note("commit v%d member=%q epoch=%d transactional=%v %v", version, member, epoch, transactional, parts)
	var theirs []int16
	if transactional {
		theirs = w.txnCommit(member, epoch, instance, version, parts)
	} else {
		theirs = w.plainCommit(member, epoch, instance, version, parts)
	}
	admit, err := w.g.AdmitCommit(member, epoch, instance, version, transactional)
	for _, p := range parts {
		if err == nil && admit != nil {
			err = admit(p.topic, p.partition)
		}
	}
	ours := int16(0)
	if err != nil {
		ours = err.(*streams.Error).Code
	}
	for _, code := range theirs {
		if code != ours {
			w.fail("commit: Kafka answers %v, we %d", theirs, ours)
		}
	}
}

func byTopic(parts []tp) (names []string, of map[string][]int32) {
	of = map[string][]int32{}
	for _, p := range parts {
		if of[p.topic] == nil {
			names = append(names, p.topic)
		}
		of[p.topic] = append(of[p.topic], p.partition)
	}
	return names, of
}

func (w *world) plainCommit(member string, epoch int32, instance *string, version int16, parts []tp) (codes []int16) {
	w.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation, req.InstanceID = version, group, member, epoch, instance
	names, of := byTopic(parts)
	for _, name := range names {
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic = name
		for _, n := range of[name] {
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset = n, 5
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	_, body := w.request(req, "committer", "/127.0.0.1")
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Version = version
	if err := resp.ReadFrom(body); err != nil {
		w.fail("%v", err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			codes = append(codes, p.ErrorCode)
		}
	}
	return codes
}

func (w *world) txnCommit(member string, epoch int32, instance *string, version int16, parts []tp) (codes []int16) {
	w.t.Helper()
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation, req.InstanceID = version, group, member, epoch, instance
	req.TransactionalID, req.ProducerID = "t", 7
	names, of := byTopic(parts)
	for _, name := range names {
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		t.Topic = name
		for _, n := range of[name] {
			p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset = n, 5
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	_, body := w.request(req, "committer", "/127.0.0.1")
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	resp.Version = version
	if err := resp.ReadFrom(body); err != nil {
		w.fail("%v", err)
	}
	const illegalGeneration, staleMemberEpoch = 22, 113
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			code := p.ErrorCode
			if code == illegalGeneration { // up to version 5 it stands for a stale epoch
				code = staleMemberEpoch
			}
			codes = append(codes, code)
		}
	}
	return codes
}

// fetch compares who may fetch offsets.
func (w *world) fetch(member *string, epoch int32) {
	w.t.Helper()
	w.note("fetch member=%v epoch=%d", member, epoch)
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 9
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberID, g.MemberEpoch = group, member, epoch
	req.Groups = append(req.Groups, g)
	_, body := w.request(req, "fetcher", "/127.0.0.1")
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Version = 9
	if err := resp.ReadFrom(body); err != nil || len(resp.Groups) != 1 {
		w.fail("answer to a fetch: %v", err)
	}
	ours := int16(0)
	if err := w.g.AdmitFetch(member, epoch); err != nil {
		ours = err.(*streams.Error).Code
	}
	if theirs := resp.Groups[0].ErrorCode; theirs != ours {
		w.fail("fetch: Kafka answers %d, we %d", theirs, ours)
	}
}

// offsets draws a commit or a fetch.
func (h *history) offsets(c *client) {
	if !h.g.Exists() {
		return
	}
	epoch := c.epoch + rapid.Int32Range(-2, 2).Draw(h.rt, "epoch off by")
	if rapid.Bool().Draw(h.rt, "right epoch") {
		epoch = c.epoch
	}
	member := rapid.SampledFrom([]string{c.id, c.id, c.id, "", "nobody"}).Draw(h.rt, "as")
	if rapid.IntRange(0, 2).Draw(h.rt, "fetch") == 0 {
		id := &member
		// With an epoch and without an id Kafka 4.4 fails (UNKNOWN_SERVER_ERROR); here the member is unknown.
		if rapid.IntRange(0, 3).Draw(h.rt, "no id") == 0 {
			id, epoch = nil, min(epoch, -1)
		}
		h.fetch(id, epoch)
		return
	}
	var parts []tp
	for _, t := range h.have {
		for n := range t.Partitions {
			if rapid.IntRange(0, 3).Draw(h.rt, "commits") == 0 {
				parts = append(parts, tp{t.Name, n})
			}
		}
	}
	if len(parts) == 0 {
		return
	}
	var instance *string
	if rapid.IntRange(0, 9).Draw(h.rt, "instance") == 0 {
		instance = kmsg.StringPtr("i0")
	}
	transactional := rapid.IntRange(0, 2).Draw(h.rt, "transactional") == 0
	version := int16(9)
	switch {
	case transactional:
		version = 5
	case rapid.IntRange(0, 9).Draw(h.rt, "old") == 0:
		version = 8
	}
	h.commit(member, epoch, instance, version, transactional, slices.Clone(parts))
}
