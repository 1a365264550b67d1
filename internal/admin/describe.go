package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Description is everything that is shown of a group.
type Description struct {
	Group           string        `json:"group"`
	State           string        `json:"state"`
	Epoch           int32         `json:"epoch"`
	AssignmentEpoch int32         `json:"assignmentEpoch"`
	TopologyEpoch   int32         `json:"topologyEpoch"`
	Assignor        string        `json:"assignor,omitempty"`
	Coordinator     Node          `json:"coordinator"`
	Subtopologies   []Subtopology `json:"subtopologies"`
	Members         []Member      `json:"members"`
	Offsets         []Offset      `json:"offsets"`
}

// Subtopology names the topics of one part of the topology.
type Subtopology struct {
	ID                      string   `json:"id"`
	SourceTopics            []string `json:"sourceTopics,omitempty"`
	RepartitionSinkTopics   []string `json:"repartitionSinkTopics,omitempty"`
	RepartitionSourceTopics []string `json:"repartitionSourceTopics,omitempty"`
	ChangelogTopics         []string `json:"changelogTopics,omitempty"`
}

// Tasks are partitions by subtopology.
type Tasks map[string][]int32

// Member is one stream thread.
type Member struct {
	ID            string            `json:"id"`
	Epoch         int32             `json:"epoch"`
	TopologyEpoch int32             `json:"topologyEpoch"`
	InstanceID    *string           `json:"instanceId,omitempty"`
	RackID        *string           `json:"rackId,omitempty"`
	ClientID      string            `json:"clientId"`
	Host          string            `json:"host"`
	ProcessID     string            `json:"processId"`
	Endpoint      string            `json:"endpoint,omitempty"`
	Tags          map[string]string `json:"tags,omitempty"`
	Active        Tasks             `json:"active"`
	Standby       Tasks             `json:"standby,omitempty"`
	Warmup        Tasks             `json:"warmup,omitempty"`
	TargetActive  Tasks             `json:"targetActive"`
	TargetStandby Tasks             `json:"targetStandby,omitempty"`
	TargetWarmup  Tasks             `json:"targetWarmup,omitempty"`
}

// Offset is a partition that the group reads or has a committed offset of.
type Offset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// Committed is the committed offset, nil for none; End the end of the partition, nil where it is not known; Lag what
	// lies between them, or all that is there where nothing is committed.
	Committed *int64 `json:"committed"`
	End       *int64 `json:"end"`
	Lag       *int64 `json:"lag"`
	// Task and Member say who reads the partition now; empty where nobody does.
	Task   string `json:"task,omitempty"`
	Member string `json:"member,omitempty"`
}

// Describe asks the group's coordinator, and the leaders of what it reads for the ends of their partitions.
func (c *Client) Describe(ctx context.Context, group string) (*Description, error) {
	var d *Description
	if err := retry(ctx, func() error {
		node, err := c.coordinator(ctx, group)
		if err != nil {
			return err
		}
		req := kmsg.NewPtrStreamsGroupDescribeRequest()
		req.Groups = []string{group}
		kresp, err := c.cl.Broker(int(node.ID)).RetriableRequest(ctx, req)
		if err != nil {
			return fmt.Errorf("describe group %s at %v: %w", group, node, err)
		}
		resp := kresp.(*kmsg.StreamsGroupDescribeResponse)
		if len(resp.Groups) != 1 {
			return fmt.Errorf("describe group %s at %v: the answer is about %d groups", group, node, len(resp.Groups))
		}
		g := &resp.Groups[0]
		if err := refusal(g.ErrorCode, g.ErrorMessage); err != nil {
			return err
		}
		d = description(g, node)
		return nil
	}); err != nil {
		return nil, err
	}
	return d, c.offsets(ctx, d)
}

func description(g *kmsg.StreamsGroupDescribeResponseGroup, node Node) *Description {
	d := &Description{
		Group: g.Group, State: g.State, Epoch: g.Epoch, AssignmentEpoch: g.AssignmentEpoch, Coordinator: node,
		Subtopologies: []Subtopology{}, Members: []Member{}, Offsets: []Offset{},
	}
	if g.AssignorName != nil {
		d.Assignor = *g.AssignorName
	}
	if g.Topology != nil {
		d.TopologyEpoch = g.Topology.Epoch
		for _, s := range g.Topology.Subtopologies {
			d.Subtopologies = append(d.Subtopologies, Subtopology{
				ID: s.SubtopologyID, SourceTopics: s.SourceTopics, RepartitionSinkTopics: s.RepartitionSinkTopics,
				RepartitionSourceTopics: topicNames(s.RepartitionSourceTopics), ChangelogTopics: topicNames(s.StateChangelogTopics),
			})
		}
	}
	for i := range g.Members {
		d.Members = append(d.Members, member(&g.Members[i]))
	}
	slices.SortFunc(d.Members, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.ClientID, b.ClientID), strings.Compare(a.ID, b.ID))
	})
	return d
}

func member(m *kmsg.StreamsGroupDescribeResponseGroupMember) Member {
	out := Member{
		ID: m.MemberID, Epoch: m.MemberEpoch, TopologyEpoch: m.TopologyEpoch, InstanceID: m.InstanceID, RackID: m.RackID,
		ClientID: m.ClientID, Host: strings.TrimPrefix(m.ClientHost, "/"), ProcessID: m.ProcessID,
		Active: tasks(m.Assignment.ActiveTasks), Standby: tasks(m.Assignment.StandbyTasks), Warmup: tasks(m.Assignment.WarmupTasks),
		TargetActive: tasks(m.TargetAssignment.ActiveTasks), TargetStandby: tasks(m.TargetAssignment.StandbyTasks), TargetWarmup: tasks(m.TargetAssignment.WarmupTasks),
	}
	if m.UserEndpoint != nil {
		out.Endpoint = fmt.Sprintf("%s:%d", m.UserEndpoint.Host, m.UserEndpoint.Port)
	}
	for _, t := range m.ClientTags {
		if out.Tags == nil {
			out.Tags = map[string]string{}
		}
		out.Tags[t.Key] = t.Value
	}
	return out
}

func tasks(in []kmsg.TaskIDs) Tasks {
	out := Tasks{}
	for _, t := range in {
		out[t.SubtopologyID] = slices.Sorted(slices.Values(t.Partitions))
	}
	return out
}

func topicNames(in []kmsg.TopicInfo) []string {
	var out []string
	for _, t := range in {
		out = append(out, t.Topic)
	}
	return out
}

// offsets fills in what is committed, what is read by whom, and how far behind it is.
func (c *Client) offsets(ctx context.Context, d *Description) error {
	type place struct {
		topic     string
		partition int32
	}
	rows := map[place]*Offset{}
	row := func(topic string, partition int32) *Offset {
		p := place{topic, partition}
		if rows[p] == nil {
			rows[p] = &Offset{Topic: topic, Partition: partition}
		}
		return rows[p]
	}

	var committed kadm.OffsetResponses
	if err := retry(ctx, func() (err error) {
		committed, err = c.adm.FetchOffsets(ctx, d.Group)
		return err
	}); err != nil {
		return fmt.Errorf("committed offsets of group %s: %w", d.Group, err)
	}
	committed.Each(func(o kadm.OffsetResponse) {
		if o.At >= 0 {
			row(o.Topic, o.Partition).Committed = &o.At
		}
	})

	reads := map[string][]string{}
	for _, s := range d.Subtopologies {
		reads[s.ID] = append(slices.Clone(s.SourceTopics), s.RepartitionSourceTopics...)
	}
	for _, m := range d.Members {
		for id, partitions := range m.Active {
			for _, p := range partitions {
				for _, topic := range reads[id] {
					r := row(topic, p)
					r.Task, r.Member = fmt.Sprintf("%s_%d", id, p), m.ID
				}
			}
		}
	}
	if len(rows) == 0 {
		return nil
	}

	topics := map[string]struct{}{}
	for p := range rows {
		topics[p.topic] = struct{}{}
	}
	names := make([]string, 0, len(topics))
	for t := range topics {
		names = append(names, t)
	}
	ends, err := c.adm.ListEndOffsets(ctx, names...)
	if err != nil && !tolerable(err) {
		return fmt.Errorf("ends of the topics of group %s: %w", d.Group, err)
	}
	starts, err := c.adm.ListStartOffsets(ctx, names...)
	if err != nil && !tolerable(err) {
		return fmt.Errorf("starts of the topics of group %s: %w", d.Group, err)
	}
	for p, r := range rows {
		end, ok := ends.Lookup(p.topic, p.partition)
		if ok && end.Err == nil {
			r.End = &end.Offset
			from := int64(0)
			if start, ok := starts.Lookup(p.topic, p.partition); ok && start.Err == nil {
				from = start.Offset
			}
			if r.Committed != nil {
				from = *r.Committed
			}
			lag := max(end.Offset-from, 0)
			r.Lag = &lag
		} else if r.Task != "" && r.Committed == nil {
			continue // a task of another topic's partition: this topic has fewer
		}
		d.Offsets = append(d.Offsets, *r)
	}
	slices.SortFunc(d.Offsets, func(a, b Offset) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return nil
}

// tolerable errors concern single topics: one that was deleted has no end, and the rest is shown all the same.
func tolerable(err error) bool {
	var se *kadm.ShardErrors
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.As(err, &se) && !se.AllFailed
}
