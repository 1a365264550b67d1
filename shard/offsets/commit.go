package offsets

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
)

// Defaults of Kafka 4.4.
const (
	MetadataMaxDefault = 4096               // offset.metadata.max.bytes, counted in UTF-16 units
	RetentionDefault   = 7 * 24 * time.Hour // offsets.retention.minutes
)

// noExpiry is the retention time of a commit that has none of its own, and the expire timestamp of an offset without.
const noExpiry = -1

// Env is everything outside the group that a handler may look at.
type Env struct {
	Now int64 // ms since 1970; also the commit time in records
	// MetadataBytesMax is offset.metadata.max.bytes. Kafka's name is wrong: the units are those of Java's
	// String.length(), and so they are here, since a client counts on the same commits being accepted.
	MetadataBytesMax int
	Retention        time.Duration // offsets.retention.minutes
}

// Topic is what a commit needs to know of a topic.
type Topic struct {
	Name       string
	ID         [16]byte // zero: unknown
	Partitions int32    // partition p exists if 0 <= p < Partitions
}

// Commit is an OffsetCommit request with its topics resolved: each partition carries the error that is already
// certain. Build it with NewCommit.
type Commit struct {
	Group     string
	Version   int16
	Retention int64 // RetentionTimeMs of versions 2 to 4, in ms; -1: the group's
	Topics    []CommitTopic
}

// CommitTopic is a topic of a Commit. Name is empty where the id could not be resolved.
type CommitTopic struct {
	Name       string
	ID         [16]byte
	Partitions []CommitPartition
}

// CommitPartition is a partition of a CommitTopic. With a Code it is answered with it and not committed.
type CommitPartition struct {
	Partition   int32
	Offset      int64
	LeaderEpoch int32 // -1: unknown
	Metadata    string
	Code        int16
}

// NewCommit resolves the topics of a request. resolve is asked once per topic, by name (versions 2 to 9, id zero) or by
// id (version 10, name ""), and returns the topic or the code for all its partitions: UNKNOWN_TOPIC_ID,
// UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED. Partitions that the topic has not get
// UNKNOWN_TOPIC_OR_PARTITION.
func NewCommit(req *kmsg.OffsetCommitRequest, resolve func(name string, id [16]byte) (Topic, int16)) Commit {
	c := Commit{Group: req.Group, Version: req.Version, Retention: noExpiry, Topics: make([]CommitTopic, 0, len(req.Topics))}
	if req.Version >= 2 && req.Version <= 4 {
		c.Retention = req.RetentionTimeMillis
	}
	for _, t := range req.Topics {
		topic, code := resolve(t.Topic, t.TopicID)
		ct := CommitTopic{Name: topic.Name, ID: topic.ID, Partitions: make([]CommitPartition, 0, len(t.Partitions))}
		if code != 0 {
			ct.Name, ct.ID = t.Topic, t.TopicID // echo what was asked
		}
		for _, p := range t.Partitions {
			cp := CommitPartition{Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Code: code}
			if req.Version < 6 {
				cp.LeaderEpoch = -1
			}
			if p.Metadata != nil {
				cp.Metadata = *p.Metadata
			}
			if code == 0 && (p.Partition < 0 || p.Partition >= topic.Partitions) {
				cp.Code = kerr.UnknownTopicOrPartition.Code
			}
			ct.Partitions = append(ct.Partitions, cp)
		}
		c.Topics = append(c.Topics, ct)
	}
	return c
}

// Decided says that every partition has its error already, so that the group need not be asked: Response is the answer.
func (c Commit) Decided() bool {
	for _, t := range c.Topics {
		for _, p := range t.Partitions {
			if p.Code == 0 {
				return false
			}
		}
	}
	return true
}

// Response is the answer with the codes as they stand; the group is not asked.
func (c Commit) Response() *kmsg.OffsetCommitResponse {
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Version = c.Version
	for _, t := range c.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Name, t.ID
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, p.Code
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// Fail is the answer that fails the whole request: code goes to every partition that has no error of its own yet.
func (c Commit) Fail(code int16) *kmsg.OffsetCommitResponse {
	resp := c.Response()
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			if t.Partitions[i].ErrorCode == 0 {
				t.Partitions[i].ErrorCode = code
			}
		}
	}
	return resp
}

// Run commits. admit says whether the member may commit the partition; nil is: every one. Its first error fails the
// whole request and nothing is committed: Run returns it, and the caller answers with Fail. Metadata that is too long
// fails its partition alone, without asking admit.
func (c Commit) Run(env Env, admit func(topic string, partition int32) error) (*kmsg.OffsetCommitResponse, []eventlog.Record, error) {
	resp := c.Response()
	var recs []eventlog.Record
	for ti, t := range c.Topics {
		for pi, p := range t.Partitions {
			if p.Code != 0 {
				continue
			}
			if utf16Exceeds(p.Metadata, env.MetadataBytesMax) {
				resp.Topics[ti].Partitions[pi].ErrorCode = kerr.OffsetMetadataTooLarge.Code
				continue
			}
			if admit != nil {
				if err := admit(t.Name, p.Partition); err != nil {
					return nil, nil, err
				}
			}
			recs = append(recs, eventlog.Record{
				Key:   offsetKey(c.Group, t.Name, p.Partition),
				Value: c.value(env.Now, t, p),
			})
		}
	}
	return resp, recs, nil
}

// value is the record value of a commit. One with an expire timestamp has neither leader epoch nor topic id, because
// the record version that holds the timestamp does not hold them; they are left out here already, so that a fetch
// answers the same before and after the state was read from the log again.
func (c Commit) value(now int64, t CommitTopic, p CommitPartition) *eventlog.OffsetCommit {
	v := &eventlog.OffsetCommit{
		Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata,
		CommitTimestamp: now, ExpireTimestamp: noExpiry, TopicID: t.ID,
	}
	if c.Retention != noExpiry {
		v.LeaderEpoch, v.TopicID = -1, [16]byte{}
		v.ExpireTimestamp = now + c.Retention
		if c.Retention > math.MaxInt64-now {
			v.ExpireTimestamp = math.MaxInt64
		}
	}
	return v
}

// FailCommit is the answer with code in every partition of an unresolved request.
func FailCommit(req *kmsg.OffsetCommitRequest, code int16) *kmsg.OffsetCommitResponse {
	return NewCommit(req, func(string, [16]byte) (Topic, int16) { return Topic{}, code }).Response()
}

func offsetKey(group, topic string, partition int32) eventlog.Key {
	return eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: group, Topic: topic, Partition: partition}
}

// utf16Exceeds says that Java's length() of s is above limit.
func utf16Exceeds(s string, limit int) bool {
	if len(s) <= limit {
		return false // a character takes at least as many bytes as units
	}
	n := 0
	for _, r := range s {
		n++
		if r > 0xffff {
			n++
		}
	}
	return n > limit
}
