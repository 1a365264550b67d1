package differential

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// offsets draws something about the group's offsets: a commit, a fetch, a deletion, the end of a transaction.
func (h *history) drawOffsets(c *client) {
	if !h.g.Exists() {
		return
	}
	switch k := rapid.IntRange(0, 9).Draw(h.rt, "about offsets"); {
	case k < 4:
		h.drawCommit(c)
	case k < 5:
		h.drawTxnCommit(c)
	case k < 6:
		h.marker(h.drawProducer(), rapid.Bool().Draw(h.rt, "commits"))
	case k < 7:
		if parts := h.drawParts(); len(parts) > 0 {
			h.deleteOffsets(parts)
		}
	default:
		h.drawFetch(c)
	}
}

func (h *history) drawProducer() int64 { return rapid.Int64Range(7, 8).Draw(h.rt, "producer") }

// drawAs draws who asks, at what epoch.
func (h *history) drawAs(c *client) (member string, epoch int32) {
	epoch = c.epoch
	if rapid.Bool().Draw(h.rt, "wrong epoch") {
		epoch += rapid.Int32Range(-2, 2).Draw(h.rt, "epoch off by")
	}
	return rapid.SampledFrom([]string{c.id, c.id, c.id, "", "nobody"}).Draw(h.rt, "as"), epoch
}

func (h *history) drawInstance() *string {
	if rapid.IntRange(0, 9).Draw(h.rt, "instance") == 0 {
		return kmsg.StringPtr("i0")
	}
	return nil
}

// drawParts draws partitions, now and then one that is not there.
func (h *history) drawParts() (parts []tp) {
	for _, t := range h.have {
		for n := range t.Partitions {
			if rapid.IntRange(0, 3).Draw(h.rt, "this one") == 0 {
				parts = append(parts, tp{t.Name, n})
			}
		}
	}
	switch rapid.IntRange(0, 14).Draw(h.rt, "another") {
	case 0:
		parts = append(parts, tp{"nowhere", 0})
	case 1:
		if len(h.have) > 0 {
			parts = append(parts, tp{h.have[0].Name, h.have[0].Partitions})
		}
	}
	return parts
}

func (h *history) drawCommit(c *client) {
	parts := h.drawParts()
	if len(parts) == 0 {
		return
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version = rapid.SampledFrom([]int16{9, 9, 9, 10, 10, 8, 2}).Draw(h.rt, "version")
	req.Group, req.InstanceID = group, h.drawInstance()
	req.MemberID, req.Generation = h.drawAs(c)
	if h.g.Empty() && rapid.Bool().Draw(h.rt, "an administrator") {
		req.MemberID, req.Generation = "", -1
	}
	if req.Version < 7 {
		req.InstanceID = nil
	}
	if req.Version == 2 {
		req.RetentionTimeMillis = rapid.SampledFrom([]int64{-1, 5000}).Draw(h.rt, "retention")
	}
	names, of := byTopic(parts)
	for _, name := range names {
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic = name
		if req.Version >= 10 {
			t.TopicID = topic(name, 0, 1).ID
			if known, ok := h.topics.byName[name]; ok {
				t.TopicID = known.ID
			}
		}
		for _, n := range of[name] {
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset = n, rapid.Int64Range(0, 9).Draw(h.rt, "offset")
			if req.Version >= 6 && rapid.Bool().Draw(h.rt, "leader epoch") {
				p.LeaderEpoch = 3
			}
			switch rapid.IntRange(0, 19).Draw(h.rt, "metadata") {
			case 0:
				p.Metadata = kmsg.StringPtr(strings.Repeat("x", 5000))
			case 1:
				p.Metadata = kmsg.StringPtr(strings.Repeat("é", 4096))
			case 2:
				p.Metadata = kmsg.StringPtr("m")
			}
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	h.plainCommit(req)
}

func (h *history) drawTxnCommit(c *client) {
	var parts []tp
	for _, p := range h.drawParts() {
		if t, ok := h.topics.byName[p.topic]; ok && p.partition < t.Partitions {
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		return
	}
	member, epoch := h.drawAs(c)
	h.txnCommit(member, epoch, h.drawInstance(), 5, h.drawProducer(), parts, rapid.Int64Range(0, 9).Draw(h.rt, "offset"))
}

func (h *history) drawFetch(c *client) {
	member, epoch := h.drawAs(c)
	id := &member
	// With an epoch and without an id Kafka 4.4 fails (UNKNOWN_SERVER_ERROR); here the member is unknown.
	if rapid.IntRange(0, 3).Draw(h.rt, "no id") == 0 {
		id, epoch = nil, min(epoch, -1)
	}
	var parts []tp
	if rapid.IntRange(0, 2).Draw(h.rt, "all") > 0 {
		if parts = h.drawParts(); parts == nil {
			parts = []tp{}
		}
	}
	version := rapid.SampledFrom([]int16{9, 9, 10}).Draw(h.rt, "version")
	h.fetch(id, epoch, version, rapid.Bool().Draw(h.rt, "stable"), parts)
}

// drawList lists groups. Kafka 4.4 never finds a streams group by its state NotReady, which is not asked for here.
func (h *history) drawList() {
	states := rapid.SliceOfN(rapid.SampledFrom([]string{"Empty", "assigning", "Reconciling", "stable", "Dead"}), 0, 2).Draw(h.rt, "states")
	types := rapid.SliceOfN(rapid.SampledFrom([]string{"streams", "Streams", "classic", "consumer"}), 0, 2).Draw(h.rt, "types")
	h.list(states, types)
}
