package coordinator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard/streams"
)

// metadataIDsFrom is the first version of Metadata that takes a topic id for a name.
const metadataIDsFrom = 12

// racksMax bounds the memory of brokers' racks; no cluster has that many brokers.
const racksMax = 10_000

// fetch asks for topics by name and by id, some per request, and takes the answers in.
func (t *Topics) fetch(ctx context.Context, names []string, ids [][16]byte) error {
	for chunk := range slices.Chunk(names, topicNamesPerRequest) {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(chunk))
		for _, name := range chunk {
			rt := kmsg.NewMetadataRequestTopic()
			rt.Topic = kmsg.StringPtr(name)
			req.Topics = append(req.Topics, rt)
		}
		if err := t.ask(ctx, req, chunk, nil); err != nil {
			return err
		}
	}
	for chunk := range slices.Chunk(ids, topicNamesPerRequest) {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(chunk))
		for _, id := range chunk {
			rt := kmsg.NewMetadataRequestTopic()
			rt.TopicID = id
			req.Topics = append(req.Topics, rt)
		}
		if err := t.ask(ctx, req, nil, chunk); err != nil {
			return err
		}
	}
	return nil
}

func (t *Topics) ask(ctx context.Context, req *kmsg.MetadataRequest, names []string, ids [][16]byte) error {
	ctx, cancel := context.WithTimeout(ctx, topicFetchTimeout)
	defer cancel()
	req.AllowAutoTopicCreation = false
	resp, err := req.RequestWith(ctx, t.cfg.Client)
	if err == nil && len(ids) > 0 && resp.Version < metadataIDsFrom {
		// A cluster before Kafka 3.1 can't be asked by id, but tells the ids of all topics.
		all := kmsg.NewPtrMetadataRequest()
		all.Topics = nil
		resp, err = all.RequestWith(ctx, t.cfg.Client)
	}
	if err == nil && resp.ErrorCode != 0 {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTopicsUnknown, err)
	}
	t.merge(time.Now(), resp, names, ids)
	return nil
}

// merge takes an answer in: what the cluster said of the topics, and that it did not know the rest of what was asked.
func (t *Topics) merge(now time.Time, resp *kmsg.MetadataResponse, names []string, ids [][16]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range resp.Brokers {
		if b.Rack != nil && *b.Rack != "" && len(t.racks) < racksMax {
			t.racks[b.NodeID] = *b.Rack
		}
	}
	if len(resp.Brokers) > 0 {
		t.nodes = t.nodes[:0]
		for _, b := range resp.Brokers {
			t.nodes = append(t.nodes, b.NodeID)
		}
	}
	asked := make(map[string]struct{}, len(names))
	for _, name := range names {
		asked[name] = struct{}{}
	}
	changed := false
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		if rt.Topic == nil || *rt.Topic == "" {
			continue // an id that the cluster does not know
		}
		name := *rt.Topic
		if _, byName := asked[name]; !byName && !slices.Contains(ids, rt.TopicID) {
			continue // of the answer that lists everything
		}
		if rt.ErrorCode == kerr.TopicAuthorizationFailed.Code {
			t.cfg.Logger.Warn("the cluster does not let us see a topic that a client named; it counts as missing", "topic", name)
		}
		switch there, absent := told(rt); {
		case there:
			changed = t.exists(now, name, rt) || changed
		case absent:
			changed = t.absent(now, name) || changed
		default:
			t.cfg.Logger.Warn("the cluster can't tell about a topic", "topic", name, "err", kerr.ErrorForCode(rt.ErrorCode))
		}
	}
	for _, id := range ids {
		if _, ok := t.names[id]; ok {
			delete(t.absentIDs, id)
		} else if len(t.absentIDs) < topicsMax {
			t.absentIDs[id] = now
		}
	}
	if changed {
		t.publish()
	}
}

// told says what an answer means for a topic; neither: nothing.
func told(rt *kmsg.MetadataResponseTopic) (there, absent bool) {
	switch rt.ErrorCode {
	case 0, kerr.LeaderNotAvailable.Code, kerr.ListenerNotFound.Code, kerr.ReplicaNotAvailable.Code:
		there = len(rt.Partitions) > 0
		return there, !there // without: being created, not there yet
	case kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code, kerr.InvalidTopicException.Code, kerr.TopicAuthorizationFailed.Code:
		return false, true
	}
	return false, false
}

// exists notes an existing topic and says whether anything of it is new.
func (t *Topics) exists(now time.Time, name string, rt *kmsg.MetadataResponseTopic) bool {
	topic := streams.Topic{Name: name, ID: rt.TopicID, Partitions: int32(len(rt.Partitions)), Racks: make([][]string, len(rt.Partitions))}
	for _, p := range rt.Partitions {
		if p.Partition < 0 || int(p.Partition) >= len(topic.Racks) {
			continue
		}
		for _, replica := range p.Replicas {
			if rack, ok := t.racks[replica]; ok {
				topic.Racks[p.Partition] = append(topic.Racks[p.Partition], rack)
			}
		}
	}
	e := t.entries[name]
	if e == nil {
		e = &topicEntry{used: now}
		t.entries[name] = e
	}
	e.checked, e.misses, e.sure = now, 0, false
	if e.exists {
		same := e.topic.ID == topic.ID
		if !same && topic.ID == e.former && topic.ID != ([16]byte{}) {
			return false // a broker that is behind tells of the topic that was deleted
		}
		if same && topic.Partitions < e.topic.Partitions {
			return false // the count of one topic only grows: that broker is behind
		}
		if same && topic.Partitions == e.topic.Partitions && slices.EqualFunc(e.topic.Racks, topic.Racks, slices.Equal) {
			return false
		}
		if !same {
			e.former = e.topic.ID
			delete(t.names, e.topic.ID)
			t.deleted(name)
		}
	}
	e.exists, e.topic = true, topic
	if topic.ID != ([16]byte{}) {
		t.names[topic.ID] = name
	}
	return true
}

// absent notes that the cluster does not know a topic and says whether that is news.
func (t *Topics) absent(now time.Time, name string) bool {
	e := t.entries[name]
	if e == nil {
		t.entries[name] = &topicEntry{checked: now, since: now, used: now}
		return false
	}
	e.checked = now
	if !e.exists {
		return false
	}
	if e.misses++; e.misses < topicMissesMax {
		return false
	}
	e.exists, e.sure, e.former, e.since = false, true, e.topic.ID, now
	delete(t.names, e.topic.ID)
	t.cfg.Logger.Info("a topic is gone from the cluster", "topic", name)
	t.deleted(name)
	return true
}

// deleted tells of a topic that is gone, or was replaced by another one of its name.
func (t *Topics) deleted(name string) {
	if t.cfg.OnDeleted != nil {
		t.cfg.OnDeleted(name)
	}
}
