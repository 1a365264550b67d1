package client

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client/explain"
	"streamkeeper/client/topology"
)

// TopologyStatus says what there is to know about the topology description of a group. The numbers are those of the
// wire (key 89 v1).
type TopologyStatus int8

// The statuses.
const (
	TopologyNotRequested TopologyStatus = 0 // it was not asked for
	TopologyNotStored    TopologyStatus = 1 // there is none, or not for the current topology
	TopologyFailed       TopologyStatus = 2 // there is one, but the broker could not get it
	TopologyAvailable    TopologyStatus = 3
)

// String is Kafka's name of the status (StreamsGroupTopologyDescriptionStatus).
func (s TopologyStatus) String() string {
	switch s {
	case TopologyNotRequested:
		return "NOT_REQUESTED"
	case TopologyNotStored:
		return "NOT_STORED"
	case TopologyFailed:
		return "ERROR"
	case TopologyAvailable:
		return "AVAILABLE"
	}
	return strconv.Itoa(int(s))
}

// MarshalText writes Kafka's name.
func (s TopologyStatus) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// TaskID names a task: a partition of a subtopology.
type TaskID struct {
	Subtopology string `json:"subtopology"`
	Partition   int32  `json:"partition"`
}

// String is the name that Kafka Streams uses, "0_3".
func (t TaskID) String() string { return fmt.Sprintf("%s_%d", t.Subtopology, t.Partition) }

func compareTasks(a, b TaskID) int {
	return cmp.Or(strings.Compare(a.Subtopology, b.Subtopology), cmp.Compare(a.Partition, b.Partition))
}

// Tasks are the tasks of a member by role, each list sorted.
type Tasks struct {
	Active  []TaskID `json:"active"`
	Standby []TaskID `json:"standby,omitempty"`
	Warmup  []TaskID `json:"warmup,omitempty"`
}

// Empty says that there are no tasks.
func (t Tasks) Empty() bool { return len(t.Active)+len(t.Standby)+len(t.Warmup) == 0 }

// Equal says that the tasks and their roles are the same.
func (t Tasks) Equal(o Tasks) bool {
	return slices.Equal(t.Active, o.Active) && slices.Equal(t.Standby, o.Standby) && slices.Equal(t.Warmup, o.Warmup)
}

// String lists the tasks, "active 0_0 0_1, standby 1_0"; "none" for none.
func (t Tasks) String() string {
	var roles []string
	for _, r := range []struct {
		name  string
		tasks []TaskID
	}{{"active", t.Active}, {"standby", t.Standby}, {"warm-up", t.Warmup}} {
		if len(r.tasks) > 0 {
			words := []string{r.name}
			for _, id := range r.tasks {
				words = append(words, id.String())
			}
			roles = append(roles, strings.Join(words, " "))
		}
	}
	if len(roles) == 0 {
		return "none"
	}
	return strings.Join(roles, ", ")
}

// clone is a copy that shares nothing.
func (t Tasks) clone() Tasks {
	return Tasks{slices.Clone(t.Active), slices.Clone(t.Standby), slices.Clone(t.Warmup)}
}

// tasksFromWire flattens and sorts; a task that is listed twice is one task.
func tasksFromWire(in []kmsg.TaskIDs) []TaskID {
	var out []TaskID
	for _, t := range in {
		for _, p := range t.Partitions {
			out = append(out, TaskID{t.SubtopologyID, p})
		}
	}
	slices.SortFunc(out, compareTasks)
	return slices.Compact(out)
}

// TaskOffset is how far a member has got with the changelogs of a task.
type TaskOffset struct {
	Task   TaskID `json:"task"`
	Offset int64  `json:"offset"` // summed over the task's changelogs
}

func taskOffsetsFromWire(in []kmsg.TaskOffset) []TaskOffset {
	var out []TaskOffset
	for _, o := range in {
		out = append(out, TaskOffset{TaskID{o.SubtopologyID, o.Partition}, o.Offset})
	}
	return out
}

// InternalTopic is a topic that the application's coordinator creates.
type InternalTopic struct {
	Name string `json:"name"`
	// Partitions is the number of partitions, 0 where it follows from the topics it is made of; always 0 for changelogs.
	Partitions int32 `json:"partitions,omitempty"`
	// ReplicationFactor is 0 for the cluster's default.
	ReplicationFactor int16             `json:"replicationFactor,omitempty"`
	Configs           map[string]string `json:"configs,omitempty"`
}

func internalTopicsFromWire(in []kmsg.TopicInfo) []InternalTopic {
	var out []InternalTopic
	for _, t := range in {
		o := InternalTopic{Name: t.Topic, Partitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor}
		for _, c := range t.Configs {
			if o.Configs == nil {
				o.Configs = map[string]string{}
			}
			o.Configs[c.Key] = c.Value
		}
		out = append(out, o)
	}
	return out
}

// Subtopology is what the group protocol knows of a connected part of an application: its topics.
type Subtopology struct {
	ID                      string          `json:"id"`
	SourceTopics            []string        `json:"sourceTopics,omitempty"`
	RepartitionSinkTopics   []string        `json:"repartitionSinkTopics,omitempty"`
	RepartitionSourceTopics []InternalTopic `json:"repartitionSourceTopics,omitempty"`
	ChangelogTopics         []InternalTopic `json:"changelogTopics,omitempty"`
	// CopartitionGroups are sets of the subtopology's source and repartition source topics that must have the same number of
	// partitions. A member sends them; a description does not have them.
	CopartitionGroups [][]string `json:"copartitionGroups,omitempty"`
}

// Endpoint is where an instance of an application answers queries of its state.
type Endpoint struct {
	Host string `json:"host"`
	Port uint16 `json:"port"`
}

// MemberDescription is one member, in Kafka Streams one thread.
type MemberDescription struct {
	ID            string            `json:"id"`
	Epoch         int32             `json:"epoch"`
	TopologyEpoch int32             `json:"topologyEpoch"`
	InstanceID    *string           `json:"instanceId,omitempty"`
	RackID        *string           `json:"rackId,omitempty"`
	ClientID      string            `json:"clientId"`
	Host          string            `json:"host"`
	ProcessID     string            `json:"processId"`
	Endpoint      *Endpoint         `json:"endpoint,omitempty"`
	Tags          map[string]string `json:"tags,omitempty"`
	Offsets       []TaskOffset      `json:"offsets,omitempty"`
	EndOffsets    []TaskOffset      `json:"endOffsets,omitempty"`
	Assignment    Tasks             `json:"assignment"`
	Target        Tasks             `json:"target"`
	Classic       bool              `json:"classic,omitempty"` // it has not been upgraded to the streams protocol yet
}

// GroupDescription is a streams group as its coordinator describes it (key 89).
type GroupDescription struct {
	Group           string              `json:"group"`
	State           string              `json:"state"` // Empty, NotReady, Assigning, Reconciling, Stable
	Epoch           int32               `json:"epoch"`
	AssignmentEpoch int32               `json:"assignmentEpoch"` // of the target assignment
	TopologyEpoch   int32               `json:"topologyEpoch"`
	Assignor        string              `json:"assignor,omitempty"` // empty if the node does not say (version 0)
	Coordinator     Node                `json:"coordinator"`
	Subtopologies   []Subtopology       `json:"subtopologies"`
	Members         []MemberDescription `json:"members"`
	// AuthorizedOperations are what the caller may do with the group, nil if that was not asked for.
	AuthorizedOperations []kmsg.ACLOperation `json:"authorizedOperations,omitempty"`
	// TopologyStatus says whether there is a TopologyDescription: it is not nil if and only if the status is AVAILABLE.
	TopologyStatus      TopologyStatus        `json:"topologyDescriptionStatus"`
	TopologyDescription *topology.Description `json:"topologyDescription,omitempty"`
	// Explanation is what the coordinator tells beyond the protocol; nil where it was not asked or does not know the question.
	Explanation *explain.Group `json:"explanation,omitempty"`
}

// groupFromWire reads one group of a response as Kafka's admin client does (DescribeStreamsGroupsHandler). An error concerns this group alone.
func groupFromWire(g *kmsg.StreamsGroupDescribeResponseGroup, node Node) (*GroupDescription, error) {
	if g.Topology == nil {
		return nil, fmt.Errorf("group %q at %v: topology information is missing", g.Group, node)
	}
	d := &GroupDescription{
		Group: g.Group, State: g.State, Epoch: g.Epoch, AssignmentEpoch: g.AssignmentEpoch, TopologyEpoch: g.Topology.Epoch, Coordinator: node,
		Subtopologies: []Subtopology{}, Members: []MemberDescription{}, AuthorizedOperations: operations(g.AuthorizedOperations),
		TopologyStatus: TopologyStatus(g.TopologyDescriptionStatus),
	}
	if g.AssignorName != nil {
		d.Assignor = *g.AssignorName
	}
	for _, s := range g.Topology.Subtopologies {
		d.Subtopologies = append(d.Subtopologies, Subtopology{
			ID: s.SubtopologyID, SourceTopics: s.SourceTopics, RepartitionSinkTopics: s.RepartitionSinkTopics,
			RepartitionSourceTopics: internalTopicsFromWire(s.RepartitionSourceTopics), ChangelogTopics: internalTopicsFromWire(s.StateChangelogTopics),
		})
	}
	for i := range g.Members {
		d.Members = append(d.Members, memberFromWire(&g.Members[i]))
	}
	slices.SortFunc(d.Members, func(a, b MemberDescription) int {
		return cmp.Or(strings.Compare(a.ClientID, b.ClientID), strings.Compare(a.ID, b.ID))
	})
	var err error
	if d.Explanation, err = explain.GroupOf(&g.UnknownTags); err != nil {
		return nil, fmt.Errorf("group %q at %v: %w", g.Group, node, err)
	}
	switch d.TopologyStatus {
	case TopologyNotRequested, TopologyNotStored, TopologyFailed:
		// whatever the field holds
	case TopologyAvailable:
		t := g.TopologyDescription
		if t == nil {
			return nil, fmt.Errorf("group %q at %v: topology description is missing despite status %v", g.Group, node, d.TopologyStatus)
		}
		if d.TopologyDescription, err = topology.FromWire(t.Subtopologies, t.GlobalStores); err != nil {
			return nil, fmt.Errorf("group %q at %v: topology description: %w", g.Group, node, err)
		}
	default:
		return nil, fmt.Errorf("group %q at %v: unknown topology description status %d", g.Group, node, d.TopologyStatus)
	}
	return d, nil
}

func memberFromWire(m *kmsg.StreamsGroupDescribeResponseGroupMember) MemberDescription {
	tasks := func(a kmsg.StreamsAssignment) Tasks {
		return Tasks{tasksFromWire(a.ActiveTasks), tasksFromWire(a.StandbyTasks), tasksFromWire(a.WarmupTasks)}
	}
	out := MemberDescription{
		ID: m.MemberID, Epoch: m.MemberEpoch, TopologyEpoch: m.TopologyEpoch, InstanceID: m.InstanceID, RackID: m.RackID,
		ClientID: m.ClientID, Host: strings.TrimPrefix(m.ClientHost, "/"), ProcessID: m.ProcessID, Classic: m.IsClassic,
		Offsets: taskOffsetsFromWire(m.TaskOffsets), EndOffsets: taskOffsetsFromWire(m.TaskEndOffsets),
		Assignment: tasks(m.Assignment), Target: tasks(m.TargetAssignment),
	}
	if m.UserEndpoint != nil {
		out.Endpoint = &Endpoint{m.UserEndpoint.Host, m.UserEndpoint.Port}
	}
	for _, t := range m.ClientTags {
		if out.Tags == nil {
			out.Tags = map[string]string{}
		}
		out.Tags[t.Key] = t.Value
	}
	return out
}

// operations reads the bits of AuthorizedOperations. The smallest number says that they were not asked for; bits of no operation
// that is known are passed over.
func operations(bits int32) []kmsg.ACLOperation {
	if bits == math.MinInt32 {
		return nil
	}
	out := []kmsg.ACLOperation{}
	for op := kmsg.ACLOperationRead; op <= kmsg.ACLOperationDescribeTokens; op++ {
		if bits&(1<<op) != 0 {
			out = append(out, op)
		}
	}
	return out
}
