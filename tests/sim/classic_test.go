package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The cluster's own coordinator of classic groups, which conversions take groups from and hand them over to. It lets one member at a time into
// a group: what matters here is who is let in, and when, not how members rebalance. All brokers together are one coordinator that is never away, for
// what becomes of a cluster that loses its groups is not ours to prevent; requests and answers are late, or lost, on their way.

// classicGroup is a group of the cluster's.
type classicGroup struct {
	offsets    map[topicPartition]committed
	member     string // "": it has none
	kind       string // protocol type of the member
	generation int32
	until      time.Time // the member's session
	session    time.Duration
}

// Codes of classic groups.
const (
	codeIllegalGeneration    = 22
	codeInconsistentProtocol = 23
	codeRebalance            = 27
	codeMemberIDRequired     = 79
)

// group is the group, as it is at this moment, or nil. b.mu is held.
func (b *brokers) group(name string) *classicGroup {
	g := b.groups[name]
	if g != nil && g.member != "" && !time.Now().Before(g.until) {
		b.w.note("%s: the session of classic member %s is over", name, g.member)
		g.member = ""
	}
	return g
}

// make is the group; it is made where there is none. b.mu is held.
func (b *brokers) make(name string) *classicGroup {
	g := b.group(name)
	if g == nil {
		g = &classicGroup{offsets: map[topicPartition]committed{}}
		b.groups[name] = g
	}
	return g
}

// is says whether a request comes from the group's member.
func (g *classicGroup) is(member string, generation int32) (code int16) {
	switch {
	case g == nil || g.member == "" || g.member != member:
		return codeUnknownMember
	case g.generation != generation:
		return codeIllegalGeneration
	}
	g.until = time.Now().Add(g.session)
	return 0
}

func (b *brokers) join(r *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	b.mu.Lock()
	defer b.mu.Unlock()
	resp := r.ResponseKind().(*kmsg.JoinGroupResponse)
	resp.Generation, resp.MemberID = -1, r.MemberID
	g := b.make(r.Group)
	switch {
	case g.member != "" && g.kind != r.ProtocolType:
		resp.ErrorCode = codeInconsistentProtocol
	case r.MemberID == "":
		b.ids++
		resp.ErrorCode, resp.MemberID = codeMemberIDRequired, fmt.Sprintf("classic-%d", b.ids)
	case g.member != "" && g.member != r.MemberID:
		resp.ErrorCode = codeRebalance
	default:
		g.member, g.kind, g.session = r.MemberID, r.ProtocolType, time.Duration(r.SessionTimeoutMillis)*time.Millisecond
		g.until = time.Now().Add(g.session)
		g.generation++
		resp.Generation, resp.LeaderID, resp.ProtocolType, resp.Protocol = g.generation, g.member, &r.ProtocolType, &r.Protocols[0].Name
		b.w.note("%s: the cluster let classic member %s in, of kind %s", r.Group, g.member, g.kind)
	}
	return resp
}

func (b *brokers) beat(r *kmsg.HeartbeatRequest) *kmsg.HeartbeatResponse {
	b.mu.Lock()
	defer b.mu.Unlock()
	resp := r.ResponseKind().(*kmsg.HeartbeatResponse)
	resp.ErrorCode = b.group(r.Group).is(r.MemberID, r.Generation)
	return resp
}

func (b *brokers) leave(r *kmsg.LeaveGroupRequest) *kmsg.LeaveGroupResponse {
	b.mu.Lock()
	defer b.mu.Unlock()
	resp := r.ResponseKind().(*kmsg.LeaveGroupResponse)
	g := b.group(r.Group)
	for _, m := range r.Members {
		a := kmsg.NewLeaveGroupResponseMember()
		a.MemberID = m.MemberID
		if g == nil || g.member != m.MemberID {
			a.ErrorCode = codeUnknownMember
		} else {
			g.member = ""
			b.w.note("%s: classic member %s has left", r.Group, m.MemberID)
		}
		resp.Members = append(resp.Members, a)
	}
	return resp
}

// commit takes offsets of the group's member, or of anybody where it has none. by is the conversion that sends it, nil for a client.
func (b *brokers) commit(r *kmsg.OffsetCommitRequest, by *looked) *kmsg.OffsetCommitResponse {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.group(r.Group)
	var code int16
	switch {
	case r.MemberID != "" && g == nil:
		code = codeGroupNotFound // of a member of a group that is not there
	case r.MemberID != "":
		code = g.is(r.MemberID, r.Generation)
	case r.Generation >= 0, g != nil && g.member != "":
		code = codeUnknownMember
	default:
		g = b.make(r.Group)
	}
	resp := r.ResponseKind().(*kmsg.OffsetCommitResponse)
	for _, t := range r.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		name, there := b.w.cluster.named(t.TopicID)
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			if rp.Partition, rp.ErrorCode = p.Partition, code; code == 0 && !there {
				rp.ErrorCode = codeUnknownTopicID
			}
			if rp.ErrorCode == 0 {
				tp, is := topicPartition{name, p.Partition}, committed{t.TopicID, p.Offset}
				g.offsets[tp] = is
				b.w.checker.theirCommit(r.Group, tp, is, by)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// fetch says "no offset" where there is none, whether the group is there or not. Offsets of topics that are gone went with them.
func (b *brokers) fetch(r *kmsg.OffsetFetchRequest) kmsg.Response {
	b.mu.Lock()
	defer b.mu.Unlock()
	resp := r.ResponseKind().(*kmsg.OffsetFetchResponse)
	for _, asked := range r.Groups {
		rg := kmsg.NewOffsetFetchResponseGroup()
		rg.Group = asked.Group
		g := b.group(asked.Group)
		if asked.Topics == nil {
			asked.Topics = b.w.cluster.all()
		}
		for _, t := range asked.Topics {
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			name, there := b.w.cluster.named(t.TopicID)
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
				rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = p, -1, -1, kmsg.StringPtr("")
				if !there {
					rp.ErrorCode = codeUnknownTopicID
				} else if g != nil {
					if is, ok := g.offsets[topicPartition{name, p}]; ok && is.topic == t.TopicID {
						rp.Offset = is.offset
					}
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			rg.Topics = append(rg.Topics, rt)
		}
		resp.Groups = append(resp.Groups, rg)
	}
	return resp
}

// remove deletes a group that has no members.
func (b *brokers) remove(name string, by *looked) (code int16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch g := b.group(name); {
	case g == nil:
		return codeGroupNotFound
	case g.member != "":
		return codeNonEmpty
	}
	delete(b.groups, name)
	b.w.checker.theirRemoval(name, by)
	return 0
}

// find says what the cluster has of a group, as describe calls do.
func (b *brokers) find(name string) (kind string, members bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch g := b.group(name); {
	case g == nil:
		return "", false
	case g.member == "" || g.kind == consumerKind:
		return "classic", g.member != ""
	default:
		return g.kind, true
	}
}

// consumerKind is the protocol type of classic consumers.
const consumerKind = "consumer"

func (b *brokers) names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return sortedKeys(b.groups)
}

// member is who is in a group of the cluster's.
func (b *brokers) member(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.group(name); g != nil {
		return g.member
	}
	return ""
}

// named is the topic that has the id now.
func (c *cluster) named(id [16]byte) (name string, there bool) {
	for name, t := range c.topics.Load().byName {
		if t.ID == id {
			return name, true
		}
	}
	return "", false
}

// all are all partitions of all topics, as an OffsetFetch asks for them.
func (c *cluster) all() (topics []kmsg.OffsetFetchRequestGroupTopic) {
	for name, t := range c.topics.Load().byName {
		asked := kmsg.OffsetFetchRequestGroupTopic{Topic: name, TopicID: t.ID}
		for p := range t.Partitions {
			asked.Partitions = append(asked.Partitions, p)
		}
		topics = append(topics, asked)
	}
	slices.SortFunc(topics, func(a, b kmsg.OffsetFetchRequestGroupTopic) int { return strings.Compare(a.Topic, b.Topic) })
	return topics
}
