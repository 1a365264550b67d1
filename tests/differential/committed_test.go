package differential

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"streamkeeper/eventlog"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// committed are the offsets of the group on our side: what a projection would hold, as maps. It is the offsets.View of the handlers.
type committed struct {
	seq          int  // number of the newest record
	transactions bool // some record was of a transaction
	last         map[offsets.TopicPartition]sequenced
	// pending are offsets of transactions that are not settled, by producer id.
	pending map[int64]map[offsets.TopicPartition]sequenced
}

// sequenced is an offset with the number of its record.
type sequenced struct {
	eventlog.OffsetCommit
	seq int
}

func newCommitted() *committed {
	return &committed{last: map[offsets.TopicPartition]sequenced{}, pending: map[int64]map[offsets.TopicPartition]sequenced{}}
}

func (c *committed) Get(topic string, p int32) (eventlog.OffsetCommit, bool) {
	v, ok := c.last[offsets.TopicPartition{Topic: topic, Partition: p}]
	return v.OffsetCommit, ok
}

func (c *committed) All() iter.Seq2[offsets.TopicPartition, eventlog.OffsetCommit] {
	return func(yield func(offsets.TopicPartition, eventlog.OffsetCommit) bool) {
		for tp, v := range c.last {
			if !yield(tp, v.OffsetCommit) {
				return
			}
		}
	}
}

func (c *committed) Open(topic string, p int32) bool {
	for _, of := range c.pending {
		if _, ok := of[offsets.TopicPartition{Topic: topic, Partition: p}]; ok {
			return true
		}
	}
	return false
}

func (c *committed) OpenAll() iter.Seq[offsets.TopicPartition] {
	all := map[offsets.TopicPartition]bool{}
	for _, of := range c.pending {
		for tp := range of {
			all[tp] = true
		}
	}
	return maps.Keys(all)
}

const noProducer = -1

// apply takes records of offsets; those of a transaction are pending.
func (c *committed) apply(recs []eventlog.Record, producer int64) {
	for _, r := range recs {
		c.seq++
		tp := offsets.TopicPartition{Topic: r.Key.Topic, Partition: r.Key.Partition}
		v, ok := r.Value.(*eventlog.OffsetCommit)
		switch {
		case r.Key.Type != eventlog.TypeOffsetCommit:
		case !ok:
			delete(c.last, tp)
			for _, of := range c.pending {
				delete(of, tp)
			}
		case producer != noProducer:
			c.transactions = true
			if c.pending[producer] == nil {
				c.pending[producer] = map[offsets.TopicPartition]sequenced{}
			}
			c.pending[producer][tp] = sequenced{*v, c.seq}
		default:
			c.last[tp] = sequenced{*v, c.seq}
		}
	}
}

// settle ends the transactions of a producer. A commit that came after the one in the transaction stays.
func (c *committed) settle(producer int64, commits bool) {
	for tp, v := range c.pending[producer] {
		if commits && c.last[tp].seq < v.seq {
			c.last[tp] = v
		}
	}
	delete(c.pending, producer)
}

func (w *world) offsetsEnv() offsets.Env {
	return offsets.Env{Now: w.now, MetadataBytesMax: offsets.MetadataMaxDefault, Retention: offsets.RetentionDefault}
}

// resolve is what the coordinator knows of topics.
func (w *world) resolve(version int16) func(name string, id [16]byte) (offsets.Topic, int16) {
	const unknownTopic, unknownTopicID, topicIDsFrom = 3, 100, 10
	return func(name string, id [16]byte) (offsets.Topic, int16) {
		for _, t := range w.topics.byName {
			if version < topicIDsFrom && t.Name == name || version >= topicIDsFrom && t.ID == id {
				return offsets.Topic{Name: t.Name, ID: t.ID, Partitions: t.Partitions}, 0
			}
		}
		if version < topicIDsFrom {
			return offsets.Topic{}, unknownTopic
		}
		return offsets.Topic{}, unknownTopicID
	}
}

// offsetRecords prints the records of offsets among those that were written, in the order of partitions: what an operation writes at once
// has no order in Kafka either.
func offsetRecords(list []logged) []string {
	out := []string{}
	for _, l := range list {
		if l.Type != int(eventlog.TypeOffsetCommit) {
			continue
		}
		raw := eventlog.Raw{}
		raw.Key, _ = hex.DecodeString(l.KeyHex)
		value := "null"
		if l.ValueHex != nil {
			value = *l.ValueHex
			raw.Value, _ = hex.DecodeString(value)
		}
		r, err := eventlog.Decode(raw)
		if err != nil {
			panic(err)
		}
		out = append(out, fmt.Sprintf("%s-%03d %s %s", r.Key.Topic, r.Key.Partition, mustJSON(r.Value), value))
	}
	slices.Sort(out)
	return out
}

// tp is a partition to commit.
type tp struct {
	topic     string
	partition int32
}

func (p tp) String() string { return fmt.Sprintf("%s-%d", p.topic, p.partition) }

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

// plainCommit commits on both sides and compares answers and records. The group must exist: what a commit to none does is the gateway's.
func (w *world) plainCommit(req *kmsg.OffsetCommitRequest) {
	w.t.Helper()
	w.note("commit v%d member=%q epoch=%d %s", req.Version, req.MemberID, req.Generation, commitText(req))
	a, body := w.request(req, "committer", "/127.0.0.1")
	theirs := kmsg.NewPtrOffsetCommitResponse()
	theirs.Version = req.Version
	if err := theirs.ReadFrom(body); err != nil {
		w.fail("%v", err)
	}
	c := offsets.NewCommit(req, w.resolve(req.Version))
	ours := c.Response()
	var recs []eventlog.Record
	if !c.Decided() {
		admit, err := w.g.AdmitCommit(req.MemberID, req.Generation, req.InstanceID, req.Version, false)
		if err == nil {
			ours, recs, err = c.Run(w.offsetsEnv(), admit)
		}
		if err != nil {
			ours = c.Fail(err.(*streams.Error).Code)
		}
	}
	w.compare("answers to a commit", commitCodes(theirs), commitCodes(ours))
	w.compare("records of a commit", offsetRecords(a.Records), offsetRecords(hexRecords(recs)))
	w.offsets.apply(recs, noProducer)
}

func commitText(req *kmsg.OffsetCommitRequest) string {
	var s []string
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			s = append(s, fmt.Sprintf("%s-%d=%d", cmp.Or(t.Topic, hex.EncodeToString(t.TopicID[:])), p.Partition, p.Offset))
		}
	}
	return strings.Join(s, " ")
}

// commitCodes are the codes in the order of partitions: Kafka answers those that it refuses before asking the group first.
func commitCodes(r *kmsg.OffsetCommitResponse) []string {
	out := []string{}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			name := t.Topic
			if r.Version >= 10 {
				name = hex.EncodeToString(t.TopicID[:])
			}
			out = append(out, fmt.Sprintf("%s-%d: %d", name, p.Partition, p.ErrorCode))
		}
	}
	slices.Sort(out)
	return out
}

// txnCommit commits in a transaction of the producer on both sides.
func (w *world) txnCommit(member string, epoch int32, instance *string, version int16, producer int64, parts []tp, offset int64) {
	w.t.Helper()
	w.note("commit in a transaction of %d, v%d member=%q epoch=%d %v=%d", producer, version, member, epoch, parts, offset)
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation, req.InstanceID = version, group, member, epoch, instance
	req.TransactionalID, req.ProducerID = fmt.Sprintf("t-%d", producer), producer
	names, of := byTopic(parts)
	c := offsets.Commit{Group: group, Version: version, Retention: -1}
	for _, name := range names {
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		t.Topic = name
		ct := offsets.CommitTopic{Name: name, ID: w.topics.byName[name].ID}
		for _, n := range of[name] {
			p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset = n, offset
			t.Partitions = append(t.Partitions, p)
			ct.Partitions = append(ct.Partitions, offsets.CommitPartition{Partition: n, Offset: offset, LeaderEpoch: p.LeaderEpoch})
		}
		req.Topics, c.Topics = append(req.Topics, t), append(c.Topics, ct)
	}
	a, body := w.request(req, "committer", "/127.0.0.1")
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	resp.Version = version
	if err := resp.ReadFrom(body); err != nil {
		w.fail("%v", err)
	}
	ours := int16(0)
	admit, err := w.g.AdmitCommit(member, epoch, instance, version, true)
	var recs []eventlog.Record
	if err == nil {
		_, recs, err = c.Run(w.offsetsEnv(), admit)
	}
	if err != nil {
		ours = err.(*streams.Error).Code
	}
	const illegalGeneration, staleMemberEpoch = 22, 113
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			code := p.ErrorCode
			if code == illegalGeneration { // up to version 5 it stands for a stale epoch
				code = staleMemberEpoch
			}
			if code != ours {
				w.fail("commit in a transaction: Kafka answers %d for %s-%d, we %d", code, t.Topic, p.Partition, ours)
			}
		}
	}
	w.compare("records of a commit in a transaction", offsetRecords(a.Records), offsetRecords(hexRecords(recs)))
	w.offsets.apply(recs, producer)
}

// marker ends the transactions of the producer on both sides.
func (w *world) marker(producer int64, commits bool) {
	w.t.Helper()
	w.note("the transaction of %d ends, commits: %v", producer, commits)
	w.do(map[string]any{"op": "marker", "producerId": producer, "commit": commits, "group": group})
	w.offsets.settle(producer, commits)
}

// fetch compares what is fetched; topics nil: everything.
func (w *world) fetch(member *string, epoch int32, version int16, stable bool, parts []tp) {
	w.t.Helper()
	name := "nobody"
	if member != nil {
		name = *member
	}
	w.note("fetch v%d member=%s epoch=%d stable=%v %v", version, name, epoch, stable, parts)
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.RequireStable = version, stable
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberID, g.MemberEpoch = group, member, epoch
	resolve := w.resolve(version)
	if parts != nil {
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
		names, of := byTopic(parts)
		for _, name := range names {
			t := kmsg.NewOffsetFetchRequestGroupTopic()
			t.Topic, t.Partitions = name, of[name]
			if version >= 10 {
				t.TopicID = topic(name, 0, 1).ID // the first of that name; it may be gone, or another one there
			}
			g.Topics = append(g.Topics, t)
		}
	}
	req.Groups = append(req.Groups, g)
	_, body := w.request(req, "fetcher", "/127.0.0.1")
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Version = version
	if err := resp.ReadFrom(body); err != nil || len(resp.Groups) != 1 {
		w.fail("answer to a fetch: %v", err)
	}
	var ours kmsg.OffsetFetchResponseGroup
	if err := w.g.AdmitFetch(member, epoch); err != nil {
		ours = offsets.FailFetchGroup(group, err.(*streams.Error).Code)
	} else {
		asked := g
		asked.Topics = slices.Clone(g.Topics)
		for i := range asked.Topics {
			if version >= 10 {
				known, _ := resolve("", asked.Topics[i].TopicID)
				asked.Topics[i].Topic = known.Name
			}
		}
		ours = offsets.Fetch(w.offsets, &asked, stable)
		if version >= 10 && parts == nil {
			offsets.NameIDs(&ours, func(name string) ([16]byte, bool) { t, ok := w.topics.byName[name]; return t.ID, ok })
		}
	}
	again := kmsg.NewPtrOffsetFetchResponse()
	again.Version = version
	if err := again.ReadFrom((&kmsg.OffsetFetchResponse{Version: version, Groups: []kmsg.OffsetFetchResponseGroup{ours}}).AppendTo(nil)); err != nil {
		w.fail("our answer to a fetch: %v", err)
	}
	w.compare("answers to a fetch", canonicalFetch(resp.Groups[0]), canonicalFetch(again.Groups[0]))
}

// canonicalFetch sorts topics and partitions.
func canonicalFetch(g kmsg.OffsetFetchResponseGroup) kmsg.OffsetFetchResponseGroup {
	slices.SortFunc(g.Topics, func(a, b kmsg.OffsetFetchResponseGroupTopic) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), slices.Compare(a.TopicID[:], b.TopicID[:]))
	})
	for _, t := range g.Topics {
		slices.SortFunc(t.Partitions, func(a, b kmsg.OffsetFetchResponseGroupTopicPartition) int {
			return cmp.Compare(a.Partition, b.Partition)
		})
	}
	return g
}

// deleteOffsets deletes offsets of the group on both sides.
func (w *world) deleteOffsets(parts []tp) {
	w.t.Helper()
	w.note("delete offsets %v", parts)
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = group
	names, of := byTopic(parts)
	for _, name := range names {
		t := kmsg.NewOffsetDeleteRequestTopic()
		t.Topic = name
		for _, n := range of[name] {
			p := kmsg.NewOffsetDeleteRequestTopicPartition()
			p.Partition = n
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	a, body := w.request(req, "admin", "/127.0.0.1")
	theirs := kmsg.NewPtrOffsetDeleteResponse()
	if err := theirs.ReadFrom(body); err != nil {
		w.fail("%v", err)
	}
	const unknownTopic = 3
	ours, recs := offsets.Delete(w.offsets, req, w.g.Subscribed, func(topic string, partition int32) int16 {
		if t, ok := w.topics.byName[topic]; !ok || partition < 0 || partition >= t.Partitions {
			return unknownTopic
		}
		return 0
	})
	w.compare("answers to a deletion of offsets", deleteCodes(theirs), deleteCodes(ours))
	w.compare("records of a deletion of offsets", offsetRecords(a.Records), offsetRecords(hexRecords(recs)))
	w.offsets.apply(recs, noProducer)
}

func deleteCodes(r *kmsg.OffsetDeleteResponse) []string {
	out := []string{fmt.Sprint("all: ", r.ErrorCode)}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			out = append(out, fmt.Sprintf("%s-%d: %d", t.Topic, p.Partition, p.ErrorCode))
		}
	}
	slices.Sort(out)
	return out
}

// topicsDeleted compares the tombstones of offsets of topics that are there no more. Kafka writes them with the metadata; here a sweep does.
func (w *world) topicsDeleted(before *topicSet, written []logged) {
	w.t.Helper()
	gone := func(t offsets.TopicRef) bool {
		was, had := before.byName[t.Name]
		is, has := w.topics.byName[t.Name]
		return had && (!has || is.ID != was.ID) && (t.ID == [16]byte{} || t.ID == was.ID)
	}
	recs := offsets.TopicsDeleted(w.offsets, group, gone, w.now+1)
	w.compare("records of deleted topics", offsetRecords(written), offsetRecords(hexRecords(recs)))
	w.offsets.apply(recs, noProducer)
}

// list compares the group's entry in ListGroups.
func (w *world) list(states, types []string) {
	w.t.Helper()
	w.note("list states=%v types=%v", states, types)
	req := kmsg.NewPtrListGroupsRequest()
	req.Version, req.StatesFilter, req.TypesFilter = 5, states, types
	_, body := w.request(req, "admin", "/127.0.0.1")
	resp := kmsg.NewPtrListGroupsResponse()
	resp.Version = 5
	if err := resp.ReadFrom(body); err != nil || resp.ErrorCode != 0 {
		w.fail("list: %v, code %d", err, resp.ErrorCode)
	}
	theirs, ours := []string{}, []string{}
	for _, g := range resp.Groups {
		theirs = append(theirs, fmt.Sprintf("%s %s %s %s", g.Group, g.GroupType, g.ProtocolType, g.GroupState))
	}
	fits := func(filter []string, value string) bool {
		return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
	}
	if w.g.Exists() && fits(states, w.g.State().Filter()) && fits(types, "streams") {
		ours = append(ours, fmt.Sprintf("%s streams streams %s", group, w.g.State()))
	}
	w.compare("lists", theirs, ours)
}
