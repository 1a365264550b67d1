package eventlog

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
)

// JSON prints r as one line in the shape of kafka-dump-log with --offsets-decoder, so that the two can be compared:
//
//	{"key":{"type":"17","data":{…}},"payload":{"version":"0","data":{…}}}
//
// Names, order and omissions (a tagged field that has its default) are those of Kafka's generated JSON converters; uuids are in
// URL-safe base64 without padding, bytes in standard base64. The version is the one that Encode would write. The
// payload of a tombstone is null. Records of our own types, which Kafka's tools skip, are printed in the same way.
func JSON(r Record) ([]byte, error) {
	if _, err := TryEncode(r); err != nil {
		return nil, err
	}
	var payload any
	if r.Value != nil {
		version, data := valueText(r.Key.Type, r.Value)
		payload = object{"version", strconv.Itoa(version), "data", data}
	}
	key := object{"type", strconv.Itoa(int(r.Key.Type)), "data", r.Key.text()}
	return object{"key", key, "payload", payload}.MarshalJSON()
}

// object is a JSON object whose names keep their order: name, value, name, value, …
type object []any

// MarshalJSON writes the names in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	b.WriteByte('{')
	for i := 0; i < len(o); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:", o[i])
		if err := e.Encode(o[i+1]); err != nil {
			return nil, err
		}
		b.Truncate(b.Len() - 1) // the encoder's newline
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func (k Key) text() object {
	switch k.Type.shape() {
	case shapeMember:
		return object{"groupId", k.Group, "memberId", k.Member}
	case shapeOffset:
		return object{"group", k.Group, "topic", k.Topic, "partition", k.Partition}
	case shapePartition:
		return object{}
	case shapeGroup, shapeUnknown:
	}
	if k.Type == TypeClassicGroup {
		return object{"group", k.Group}
	}
	return object{"groupId", k.Group}
}

// valueText is the version and the fields of v under a key of type t, as they would be encoded.
func valueText(t Type, v Value) (version int, data any) {
	switch v := v.(type) {
	case *OffsetCommit:
		return offsetCommitText(t, v)
	case *ClassicGroup:
		return classicVersionWritten, classicGroupText(v)
	case *Group:
		return 0, groupText(v)
	case *Member:
		return 0, memberText(v)
	case *TargetAssignment:
		o := object{"assignmentEpoch", v.AssignmentEpoch}
		if v.AssignmentTimestamp != 0 {
			o = append(o, "assignmentTimestamp", v.AssignmentTimestamp)
		}
		return 0, o
	case *TargetAssignmentMember:
		return 0, object{
			"activeTasks", tasksText(v.Active, false),
			"standbyTasks", tasksText(v.Standby, false),
			"warmupTasks", tasksText(v.Warmup, false),
		}
	case *CurrentMemberAssignment:
		return 0, object{
			"memberEpoch", v.MemberEpoch,
			"previousMemberEpoch", v.PreviousMemberEpoch,
			"state", int8(v.State),
			"activeTasks", tasksText(v.Active, true),
			"standbyTasks", tasksText(v.Standby, false),
			"warmupTasks", tasksText(v.Warmup, false),
			"activeTasksPendingRevocation", tasksText(v.ActivePendingRevocation, true),
			"standbyTasksPendingRevocation", tasksText(v.StandbyPendingRevocation, false),
			"warmupTasksPendingRevocation", tasksText(v.WarmupPendingRevocation, false),
		}
	case *Topology:
		return 0, object{"epoch", v.Epoch, "subtopologies", each(v.Subtopologies, subtopologyText)}
	case *Ownership:
		return OwnershipFormat, v
	case *DescriptionRefusal:
		return DescriptionRefusalFormat, v
	case *GroupConfig:
		return GroupConfigFormat, v
	}
	return 0, nil // TryEncode has refused it
}

func offsetCommitText(t Type, v *OffsetCommit) (int, object) {
	switch {
	case t == TypeLegacyOffsetCommit:
		return 0, object{"offset", v.Offset, "metadata", v.Metadata, "commitTimestamp", v.CommitTimestamp}
	case v.ExpireTimestamp != -1:
		return 1, object{"offset", v.Offset, "metadata", v.Metadata, "commitTimestamp", v.CommitTimestamp, "expireTimestamp", v.ExpireTimestamp}
	}
	o := object{"offset", v.Offset, "leaderEpoch", v.LeaderEpoch, "metadata", v.Metadata, "commitTimestamp", v.CommitTimestamp}
	if v.TopicID != [16]byte{} {
		o = append(o, "topicId", base64.RawURLEncoding.EncodeToString(v.TopicID[:]))
	}
	return 4, o
}

func classicGroupText(v *ClassicGroup) object {
	return object{
		"protocolType", v.ProtocolType,
		"generation", v.Generation,
		"protocol", v.Protocol,
		"leader", v.Leader,
		"currentStateTimestamp", v.CurrentStateTimestamp,
		"members", each(v.Members, func(m ClassicMember) any {
			return object{
				"memberId", m.MemberID,
				"groupInstanceId", m.GroupInstanceID,
				"clientId", m.ClientID,
				"clientHost", m.ClientHost,
				"rebalanceTimeout", m.RebalanceTimeout,
				"sessionTimeout", m.SessionTimeout,
				"subscription", base64.StdEncoding.EncodeToString(m.Subscription),
				"assignment", base64.StdEncoding.EncodeToString(m.Assignment),
			}
		}),
	}
}

func groupText(v *Group) object {
	o := object{"epoch", v.Epoch, "metadataHash", v.MetadataHash}
	if v.ValidatedTopologyEpoch != EpochNone {
		o = append(o, "validatedTopologyEpoch", v.ValidatedTopologyEpoch)
	}
	if len(v.LastAssignmentConfigs) > 0 {
		o = append(o, "lastAssignmentConfigs", each(v.LastAssignmentConfigs, keyValueText))
	}
	if v.StoredDescriptionTopologyEpoch != EpochNone {
		o = append(o, "storedDescriptionTopologyEpoch", v.StoredDescriptionTopologyEpoch)
	}
	if v.FailedDescriptionTopologyEpoch != EpochNone {
		o = append(o, "failedDescriptionTopologyEpoch", v.FailedDescriptionTopologyEpoch)
	}
	if v.Conversion != ConversionNone { // ours: Kafka's converters leave unknown tags out
		o = append(o, "conversion", v.Conversion.String())
	}
	return o
}

func memberText(v *Member) object {
	var endpoint any
	if e := v.UserEndpoint; e != nil {
		endpoint = object{"host", e.Host, "port", e.Port}
	}
	return object{
		"instanceId", v.InstanceID,
		"rackId", v.RackID,
		"clientId", v.ClientID,
		"clientHost", v.ClientHost,
		"rebalanceTimeoutMs", v.RebalanceTimeoutMs,
		"topologyEpoch", v.TopologyEpoch,
		"processId", v.ProcessID,
		"userEndpoint", endpoint,
		"clientTags", each(v.ClientTags, keyValueText),
	}
}

func subtopologyText(s Subtopology) any {
	return object{
		"subtopologyId", s.SubtopologyID,
		"sourceTopics", list0(s.SourceTopics),
		"sourceTopicRegex", list0(s.SourceTopicRegex),
		"stateChangelogTopics", each(s.StateChangelogTopics, topicInfoText),
		"repartitionSinkTopics", list0(s.RepartitionSinkTopics),
		"repartitionSourceTopics", each(s.RepartitionSourceTopics, topicInfoText),
		"copartitionGroups", each(s.CopartitionGroups, func(g CopartitionGroup) any {
			return object{
				"sourceTopics", list0(g.SourceTopics),
				"sourceTopicRegex", list0(g.SourceTopicRegex),
				"repartitionSourceTopics", list0(g.RepartitionSourceTopics),
			}
		}),
	}
}

func topicInfoText(t TopicInfo) any {
	return object{
		"name", t.Name,
		"partitions", t.Partitions,
		"replicationFactor", t.ReplicationFactor,
		"topicConfigs", each(t.TopicConfigs, keyValueText),
	}
}

func tasksText(tasks []TaskIDs, epochs bool) []any {
	return each(tasks, func(t TaskIDs) any {
		o := object{"subtopologyId", t.SubtopologyID, "partitions", list0(t.Partitions)}
		if epochs && len(t.Epochs) > 0 {
			o = append(o, "assignmentEpochs", t.Epochs)
		}
		return o
	})
}

func keyValueText(kv KeyValue) any { return object{"key", kv.Key, "value", kv.Value} }

// list0 makes an empty list of nil, which would be printed as null.
func list0[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func each[T any](s []T, text func(T) any) []any {
	out := make([]any, len(s))
	for i, v := range s {
		out[i] = text(v)
	}
	return out
}
