package sim

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/history"
	"streamkeeper/shard/streams"
)

// position is where a client stands in a partition of that topic id.
type position struct {
	topic [16]byte
	next  int64
}

// fetch asks where to begin for active tasks that are new. A position in a topic that was made again is none.
func (c *client) fetch() {
	floors, arrivals := map[task]int64{}, map[task]arrival{}
	topics := map[string]*kmsg.OffsetFetchRequestGroupTopic{}
	for _, x := range c.owned.sorted(false) {
		t, there := c.w.cluster.now(topicOf(x.sub))
		if !there || x.partition >= t.Partitions {
			continue
		}
		if at, ok := c.position[x]; ok && at.topic == t.ID {
			continue
		}
		delete(c.position, x)
		if topics[x.sub] == nil {
			topics[x.sub] = &kmsg.OffsetFetchRequestGroupTopic{Topic: t.Name, TopicID: t.ID}
		}
		topics[x.sub].Partitions = append(topics[x.sub].Partitions, x.partition)
		arrivals[x] = c.w.checker.arrival(c.group, t.Name, x.partition, t.ID) // before the floor, which may fall with a removal that comes in between
		floors[x] = c.w.checker.floor(c.group, t.Name, x.partition, t.ID)
	}
	if len(topics) == 0 {
		return
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.RequireStable = offsetsVersion, true
	asking := kmsg.NewOffsetFetchRequestGroup()
	asking.Group, asking.MemberID, asking.MemberEpoch = c.group, &c.id, c.epoch
	for _, sub := range sortedKeys(topics) {
		asking.Topics = append(asking.Topics, *topics[sub])
	}
	req.Groups = append(req.Groups, asking)
	requests := map[task]*history.Request{}
	for _, t := range asking.Topics {
		for _, p := range t.Partitions {
			for sub, its := range topics {
				if its.TopicID == t.TopicID {
					requests[task{sub, p}] = c.w.recorder.Begin(c.register(history.Fetch, t.Topic, p, t.TopicID))
				}
			}
		}
	}
	var resp kmsg.OffsetFetchResponseGroup
	before := c.w.view(c.group)
	answer, err := c.ask(req)
	if err == nil {
		resp = answer.(*kmsg.OffsetFetchResponse).Groups[0]
		err = problem(resp.ErrorCode, nil)
		c.w.refusedWrongly("a fetch", c.group, before, err)
	}
	if err != nil {
		for _, r := range requests {
			failed(r, err)
		}
		c.offsetsFailed("fetch", err)
		return
	}
	for i, sub := range sortedKeys(topics) {
		t := resp.Topics[i]
		asked := topics[sub]
		for _, p := range t.Partitions {
			x := task{sub, p.Partition}
			if err := problem(p.ErrorCode, nil); err != nil {
				failed(requests[x], err)
				continue // asked again
			}
			by := c.by.node
			requests[x].Done(func(o *history.Op) { o.Node, o.Offset = by, p.Offset })
			c.w.checker.fetched(c.group, c.id, asked.Topic, p.Partition, asked.TopicID, floors[x], p.Offset, arrivals[x])
			c.position[x] = position{asked.TopicID, max(p.Offset, 0)}
		}
	}
}

// work reads some records of each active task, if there are any. Groups whose topics are silent never commit: their coordinator
// writes nothing, and only its lease tells it that it has been replaced.
func (c *client) work() {
	if c.w.silent[c.group] {
		return
	}
	for _, x := range c.owned.sorted(false) {
		if at, ok := c.position[x]; ok {
			at.next += c.rng.Int64N(100)
			c.position[x] = at
		}
	}
}

// commit commits, at the epoch, where the client stands in those of the active tasks whose beginning it knows.
func (c *client) commit(of tasks, epoch int32) {
	if epoch <= 0 {
		return
	}
	var topics []kmsg.OffsetCommitRequestTopic
	for _, x := range of.sorted(false) {
		at, ok := c.position[x]
		t, there := c.w.cluster.now(topicOf(x.sub))
		if !ok || at.next == 0 || !there || at.topic != t.ID {
			continue
		}
		if len(topics) == 0 || topics[len(topics)-1].Topic != t.Name {
			rt := kmsg.NewOffsetCommitRequestTopic()
			rt.Topic, rt.TopicID = t.Name, t.ID
			topics = append(topics, rt)
		}
		last := &topics[len(topics)-1]
		next := at.next
		if c.w.options.sabotages(backslider) {
			next = c.rng.Int64N(next + 1)
		}
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = x.partition, next, -1, kmsg.StringPtr("")
		last.Partitions = append(last.Partitions, rp)
	}
	if len(topics) == 0 {
		return
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation, req.InstanceID, req.Topics = offsetsVersion, c.group, c.id, epoch, c.instance, topics
	var requests []*history.Request
	for _, t := range topics {
		for _, p := range t.Partitions {
			op := c.register(history.Commit, t.Topic, p.Partition, t.TopicID)
			op.Offset, op.Sent = p.Offset, epoch
			requests = append(requests, c.w.recorder.Begin(op))
		}
	}
	before, loss := c.w.view(c.group), c.w.loss(c.group)
	answer, err := c.ask(req)
	if err == nil {
		err = refusedCommit(answer.(*kmsg.OffsetCommitResponse))
		c.w.refusedWrongly("a commit", c.group, before, err)
	}
	if err != nil {
		for _, r := range requests {
			failed(r, err)
		}
		c.offsetsFailed("commit", err)
		return
	}
	by := c.by.node
	for i, t := range answer.(*kmsg.OffsetCommitResponse).Topics {
		for j, p := range t.Partitions {
			if err := problem(p.ErrorCode, nil); err != nil { // the topic was deleted, as the replica has heard by now
				failed(requests[0], err)
			} else {
				requests[0].Done(func(o *history.Op) { o.Node = by })
				c.w.checker.ackedOffset(c.group, topics[i].Topic, p.Partition, topics[i].TopicID, topics[i].Partitions[j].Offset, loss)
			}
			requests = requests[1:]
		}
	}
}

// offsetsVersion is that of commits and fetches: topics go by their ids.
const offsetsVersion = 10

// refusedCommit is the error of a commit as a whole: each partition has it.
func refusedCommit(resp *kmsg.OffsetCommitResponse) error {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != codeUnknownTopic && p.ErrorCode != codeUnknownTopicID {
				return problem(p.ErrorCode, nil)
			}
		}
	}
	return nil
}

// offsetsFailed takes the error of a commit or fetch; the next heartbeat tells what is wrong with the member.
func (c *client) offsetsFailed(what string, err error) {
	if c.classic {
		c.refused(what, err)
		return
	}
	var refusal *streams.Error
	if !errors.As(err, &refusal) {
		c.retry(err)
		return
	}
	switch refusal.Code {
	case codeUnknownMember, codeStaleMemberEpoch, codeGroupNotFound:
		c.full = true
		c.beatAt = time.Now()
	default:
		c.w.violate("%s: %s of %s at epoch %d: %v", c.group, what, c.id, c.epoch, err)
	}
}
