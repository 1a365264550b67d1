package shard

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Members of the ownership group tell in their metadata which partitions they can't serve, behind what the cooperative sticky protocol has in its user
// data, where everybody else looks no further: replicas before this, and Kafka's tools. The leader of the group heeds it; one that is older does not, so
// until it has been replaced declined partitions stay where they are. Older leaders place by the library, or do while nobody declines anything. What they and
// newer ones come to is as even, and each leaves the other's where it is.

// declineMark begins what a member says of itself.
const declineMark = "\x00streamkeeper:"

// memberNote is what a member says of itself, as JSON. Unknown fields are left to newer versions.
type memberNote struct {
	Declines []declineNote `json:"declines"`
}

// declineNote says which partitions a member can't serve, and why, in a word.
type declineNote struct {
	Partitions string `json:"partitions"` // as partitionRanges writes them
	Why        string `json:"why"`
}

// appendNote adds to a member's metadata what it declines; nothing where that is nothing.
func appendNote(metadata []byte, declines map[int32]string) []byte {
	var note memberNote
	by := map[string][]int32{}
	for p, why := range declines {
		by[why] = append(by[why], p)
	}
	for _, why := range slices.Sorted(maps.Keys(by)) {
		note.Declines = append(note.Declines, declineNote{partitionRanges(by[why]), why})
	}
	var meta kmsg.ConsumerMemberMetadata
	if len(note.Declines) == 0 || meta.ReadFrom(metadata) != nil {
		return metadata
	}
	said, err := json.Marshal(note)
	if err != nil {
		return metadata
	}
	meta.UserData = append(append(meta.UserData, declineMark...), said...)
	return meta.AppendTo(nil)
}

// readNote returns what the member with such user data declines, and why.
func readNote(userData []byte) map[int32]string {
	_, said, ok := bytes.Cut(userData, []byte(declineMark))
	var note memberNote
	if !ok || json.Unmarshal(said, &note) != nil {
		return nil
	}
	declines := map[int32]string{}
	for _, d := range note.Declines {
		for _, p := range parseRanges(d.Partitions) {
			declines[p] = d.Why
		}
	}
	return declines
}

// rangeMax bounds what parseRanges makes of a few bytes of somebody else's: no log has more partitions.
const rangeMax = 100_000

// parseRanges undoes partitionRanges; what is no range is left out.
func parseRanges(s string) (ps []int32) {
	for _, r := range strings.Fields(s) {
		first, last, ok := strings.Cut(r, "-")
		if !ok {
			last = first
		}
		from, err1 := strconv.ParseInt(first, 10, 32)
		to, err2 := strconv.ParseInt(last, 10, 32)
		if err1 != nil || err2 != nil || to-from >= int64(rangeMax-len(ps)) {
			continue
		}
		for p := from; p <= to; p++ {
			ps = append(ps, int32(p))
		}
	}
	return ps
}

// decliningBalancer is the cooperative sticky balancer with a placement of our own (place): members may decline partitions, and neighbours part.
type decliningBalancer struct {
	kgo.GroupBalancer
	topic    string
	declines func() map[int32]string // what this member declines now
}

func newDecliningBalancer(topic string, declines func() map[int32]string) decliningBalancer {
	return decliningBalancer{kgo.CooperativeStickyBalancer(), topic, declines}
}

// JoinGroupMetadata implements kgo.GroupBalancer.
func (b decliningBalancer) JoinGroupMetadata(interests []string, assignment map[string][]int32, generation int32) []byte {
	return appendNote(b.GroupBalancer.JoinGroupMetadata(interests, assignment, generation), b.declines())
}

// MemberBalancer implements kgo.GroupBalancer.
func (b decliningBalancer) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	balancer, err := kgo.NewConsumerBalancer(b, members)
	if err != nil {
		return nil, nil, err
	}
	return balancer, balancer.MemberTopics(), nil
}

// Balance implements kgo.ConsumerBalancerBalance. The members come in the order of their ids.
func (b decliningBalancer) Balance(members *kgo.ConsumerBalancer, topics map[string]int32) kgo.IntoSyncAssignment {
	var seats []seat
	var who []*kmsg.JoinGroupResponseMember
	members.EachMember(func(m *kmsg.JoinGroupResponseMember, meta *kmsg.ConsumerMemberMetadata) {
		s := seat{round: meta.Generation, declines: map[int32]bool{}}
		for p := range readNote(meta.UserData) {
			s.declines[p] = true
		}
		for _, t := range meta.OwnedPartitions {
			if t.Topic == b.topic {
				s.owns = append(s.owns, t.Partitions...)
			}
		}
		if slices.Contains(meta.Topics, b.topic) {
			seats, who = append(seats, s), append(who, m)
		}
	})
	plan := members.NewPlan()
	for i, ps := range place(topics[b.topic], seats) {
		plan.AddPartitions(who[i], b.topic, ps)
	}
	plan.AdjustCooperative(members) // what moves is given up first, and assigned in the next round
	return plan
}
