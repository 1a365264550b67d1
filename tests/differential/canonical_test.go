package differential

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"streamkeeper/eventlog"
	"streamkeeper/shard/streams"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kafka keeps members, subtopologies and topics in hash maps, so the order of lists in responses, and of the targets in one
// operation, is the map's. Everything here sorts such lists, and nothing else.

func hexRecords(list []eventlog.Record) []logged {
	r := make([]logged, len(list))
	for i, rec := range list {
		raw := eventlog.Encode(rec)
		r[i] = logged{Type: int(rec.Key.Type), KeyHex: hex.EncodeToString(raw.Key)}
		if raw.Value != nil {
			v := hex.EncodeToString(raw.Value)
			r[i].ValueHex = &v
		}
	}
	return r
}

// canonicalRecords prints records of groups (offsets are another package's), targets that follow each other in order of
// members: bytes, and for the reader what they say.
func canonicalRecords(list []logged) []string {
	type line struct {
		rec  eventlog.Record
		text string
	}
	var lines []line
	for _, l := range list {
		if l.Type == int(eventlog.TypeOffsetCommit) || l.Type == int(eventlog.TypeClassicGroup) {
			continue
		}
		key, err := hex.DecodeString(l.KeyHex)
		if err != nil {
			panic(err)
		}
		raw := eventlog.Raw{Key: key}
		value := "null"
		if l.ValueHex != nil {
			value = *l.ValueHex
			if raw.Value, err = hex.DecodeString(value); err != nil {
				panic(err)
			}
		}
		rec, err := eventlog.Decode(raw)
		if err != nil {
			panic(err)
		}
		says, err := json.Marshal(rec.Value)
		if err != nil {
			panic(err)
		}
		lines = append(lines, line{rec, fmt.Sprintf("%s %s %s %s", rec.Key.Type, rec.Key.Member, says, value)})
	}
	for from := 0; from < len(lines); {
		to := from + 1
		for lines[from].rec.Key.Type == eventlog.TypeTargetAssignmentMember && to < len(lines) && lines[to].rec.Key.Type == eventlog.TypeTargetAssignmentMember {
			to++
		}
		slices.SortStableFunc(lines[from:to], func(a, b line) int { return strings.Compare(a.rec.Key.Member, b.rec.Key.Member) })
		from = to
	}
	texts := make([]string, len(lines))
	for i, l := range lines {
		texts[i] = l.text
	}
	return texts
}

type canonicalTimer struct {
	At      int64
	Timer   string
	Records []string
}

func canonicalFired(list []fired) []canonicalTimer {
	r := []canonicalTimer{}
	for _, f := range list {
		if recs := canonicalRecords(f.Records); len(recs) > 0 {
			r = append(r, canonicalTimer{f.At, f.Timer, recs})
		}
	}
	return r
}

func canonicalTasks(list []kmsg.TaskIDs) []kmsg.TaskIDs {
	for _, t := range list {
		slices.Sort(t.Partitions)
	}
	slices.SortFunc(list, func(a, b kmsg.TaskIDs) int { return strings.Compare(a.SubtopologyID, b.SubtopologyID) })
	return list
}

func canonicalResponse(r *kmsg.StreamsGroupHeartbeatResponse) *kmsg.StreamsGroupHeartbeatResponse {
	canonicalTasks(r.ActiveTasks)
	canonicalTasks(r.StandbyTasks)
	canonicalTasks(r.WarmupTasks)
	for i := range r.Status {
		r.Status[i].StatusDetail = canonicalStatus(r.Status[i].StatusDetail)
	}
	byHost := func(a, b kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpoint) int {
		return cmp.Or(strings.Compare(a.UserEndpoint.Host, b.UserEndpoint.Host), cmp.Compare(a.UserEndpoint.Port, b.UserEndpoint.Port))
	}
	slices.SortStableFunc(r.PartitionsByUserEndpoint, byHost)
	for _, e := range r.PartitionsByUserEndpoint {
		slices.SortFunc(e.ActivePartitions, func(a, b kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpointActivePartition) int {
			return strings.Compare(a.Topic, b.Topic)
		})
		slices.SortFunc(e.StandbyPartitions, func(a, b kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpointStandbyPartition) int {
			return strings.Compare(a.Topic, b.Topic)
		})
	}
	return r
}

// canonicalStatus sorts the names in the status that lists internal topics; Kafka lists them, and picks three, in the order of a
// hash map. In that order it also looks for topics with a wrong count, and names the first.
func canonicalStatus(detail string) string {
	if strings.HasPrefix(detail, "Existing topic ") {
		return "Existing topic (one of them) has different number of partitions"
	}
	const prefix = "Internal topics are missing: "
	names, ok := strings.CutPrefix(detail, prefix)
	if !ok {
		return detail
	}
	if i := strings.Index(names, " and "); i >= 0 {
		return prefix + "(three)" + names[i:]
	}
	list := strings.Split(names, ", ")
	slices.Sort(list)
	return prefix + strings.Join(list, ", ")
}

func canonicalDescription(r *kmsg.StreamsGroupDescribeResponse) *kmsg.StreamsGroupDescribeResponse {
	assignment := func(a kmsg.StreamsAssignment) {
		canonicalTasks(a.ActiveTasks)
		canonicalTasks(a.StandbyTasks)
		canonicalTasks(a.WarmupTasks)
	}
	offsets := func(list []kmsg.TaskOffset) {
		slices.SortFunc(list, func(a, b kmsg.TaskOffset) int {
			return cmp.Or(strings.Compare(a.SubtopologyID, b.SubtopologyID), cmp.Compare(a.Partition, b.Partition))
		})
	}
	infos := func(list []kmsg.TopicInfo) {
		for _, t := range list {
			slices.SortFunc(t.Configs, func(a, b kmsg.TopicInfoConfig) int { return strings.Compare(a.Key, b.Key) })
		}
	}
	for _, g := range r.Groups {
		slices.SortFunc(g.Members, func(a, b kmsg.StreamsGroupDescribeResponseGroupMember) int {
			return strings.Compare(a.MemberID, b.MemberID)
		})
		for _, m := range g.Members {
			assignment(m.Assignment)
			assignment(m.TargetAssignment)
			offsets(m.TaskOffsets)
			offsets(m.TaskEndOffsets)
			slices.SortFunc(m.ClientTags, func(a, b kmsg.StreamsGroupDescribeResponseGroupMemberClientTag) int {
				return strings.Compare(a.Key, b.Key)
			})
		}
		if g.Topology != nil {
			for _, s := range g.Topology.Subtopologies {
				infos(s.StateChangelogTopics)
				infos(s.RepartitionSourceTopics)
			}
		}
	}
	return r
}

func canonicalInternal(list []internalTopic) []internalTopic {
	r := append([]internalTopic{}, list...)
	slices.SortFunc(r, func(a, b internalTopic) int { return strings.Compare(a.Name, b.Name) })
	return r
}

func canonicalCreate(list []streams.CreatableTopic) []internalTopic {
	r := []internalTopic{}
	for _, t := range list {
		configs := map[string]string{}
		for _, kv := range t.Configs {
			configs[kv.Key] = kv.Value
		}
		r = append(r, internalTopic{t.Name, t.Partitions, t.ReplicationFactor, configs})
	}
	return canonicalInternal(r)
}

// maskUndecided accepts a decided partition count where Kafka still shows the topology as it was sent: it describes the state
// at the last write, and deciding writes nothing.
func maskUndecided(theirs, ours *kmsg.StreamsGroupDescribeResponse) {
	mask := func(a, b []kmsg.TopicInfo) {
		for i := range min(len(a), len(b)) {
			if a[i].NumPartitions == 0 {
				b[i].NumPartitions = 0
			}
		}
	}
	for i := range theirs.Groups {
		a, b := theirs.Groups[i].Topology, ours.Groups[i].Topology
		if a == nil || b == nil {
			continue
		}
		for k := range min(len(a.Subtopologies), len(b.Subtopologies)) {
			mask(a.Subtopologies[k].StateChangelogTopics, b.Subtopologies[k].StateChangelogTopics)
			mask(a.Subtopologies[k].RepartitionSourceTopics, b.Subtopologies[k].RepartitionSourceTopics)
		}
	}
}

// requestText and responseText are short forms for the story.
func requestText(r *kmsg.StreamsGroupHeartbeatRequest, clientID string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "v%d %s epoch=%d", r.Version, r.MemberID, r.MemberEpoch)
	opt := func(name string, p *string) {
		if p != nil {
			fmt.Fprintf(&b, " %s=%s", name, *p)
		}
	}
	opt("instance", r.InstanceID)
	opt("process", r.ProcessID)
	opt("rack", r.RackID)
	fmt.Fprintf(&b, " client=%s", clientID)
	if r.RebalanceTimeoutMillis != -1 {
		fmt.Fprintf(&b, " timeout=%d", r.RebalanceTimeoutMillis)
	}
	if r.Topology != nil {
		fmt.Fprintf(&b, " topology=%s", mustJSON(r.Topology))
	}
	for _, l := range []struct {
		name string
		t    []kmsg.TaskIDs
	}{{"active", r.ActiveTasks}, {"standby", r.StandbyTasks}, {"warmup", r.WarmupTasks}} {
		if l.t != nil {
			fmt.Fprintf(&b, " %s=%s", l.name, tasksText(l.t))
		}
	}
	if r.UserEndpoint != nil {
		fmt.Fprintf(&b, " endpoint=%s:%d", r.UserEndpoint.Host, r.UserEndpoint.Port)
	}
	fmt.Fprintf(&b, " seen=%d", r.EndpointInformationEpoch)
	if r.ClientTags != nil {
		fmt.Fprintf(&b, " tags=%v", r.ClientTags)
	}
	if r.TaskOffsets != nil {
		fmt.Fprintf(&b, " offsets=%v", r.TaskOffsets)
	}
	if r.ShutdownApplication {
		b.WriteString(" shutdown")
	}
	return b.String()
}

func responseText(r *kmsg.StreamsGroupHeartbeatResponse) string {
	if r.ErrorCode != 0 {
		msg := ""
		if r.ErrorMessage != nil {
			msg = *r.ErrorMessage
		}
		return fmt.Sprintf("error %d %s", r.ErrorCode, msg)
	}
	s := fmt.Sprintf("epoch=%d", r.MemberEpoch)
	if r.ActiveTasks != nil {
		s += fmt.Sprintf(" active=%s standby=%s", tasksText(r.ActiveTasks), tasksText(r.StandbyTasks))
	}
	for _, st := range r.Status {
		s += fmt.Sprintf(" status=%d(%s)", st.StatusCode, st.StatusDetail)
	}
	return s
}

func tasksText(list []kmsg.TaskIDs) string {
	var s []string
	for _, t := range list {
		s = append(s, fmt.Sprintf("%s:%v", t.SubtopologyID, t.Partitions))
	}
	return "{" + strings.Join(s, " ") + "}"
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
