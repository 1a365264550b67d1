package coordinator

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client/explain"
	"streamkeeper/eventlog"
	"streamkeeper/shard"
)

// What a client that asks for it is told of a group beyond Kafka's protocol (package explain). Nobody else's answer changes by a byte.

// described is one group of a describe on its way.
type described struct {
	shard.Explained
	explain *explain.Group // nil: not asked for
}

// ask asks the group's shard: for what Kafka's protocol has, and for the reasons where there is a question.
func (c *Coordinator) ask(ctx context.Context, r *kmsg.StreamsGroupDescribeRequest, group string, explaining bool) (d described, err error) {
	switch {
	case explaining:
		unknown := c.knowTopicsOf(ctx, group)
		if d.Explained, err = c.shards.Explain(ctx, group); err != nil {
			return d, err
		}
		if unknown != nil {
			d.Reasons = append([]explain.Reason{{Code: explain.TopicsUnknown, Text: "The cluster's topics can't be read: " + unknown.Error() + "."}},
				slices.DeleteFunc(d.Reasons, aboutTopics)...)
		}
		c.creation.tell(d.Reasons)
		d.explain = &explain.Group{At: d.At.UTC(), State: d.Group.State, Reasons: d.Reasons}
		if d.Reasons == nil {
			d.explain.Reasons = []explain.Reason{}
		}
		return d, nil
	case c.descriptions != nil && r.IncludeTopologyDescription:
		d.Described, err = c.descriptions.shards.DescribeStored(ctx, group)
		return d, err
	}
	d.Group, err = c.shards.Describe(ctx, group)
	d.Stored = eventlog.EpochNone
	return d, err
}

// aboutTopics are reasons that can't be told without the cluster's topics.
func aboutTopics(r explain.Reason) bool {
	switch r.Code {
	case explain.MissingSourceTopics, explain.WrongPartitionCounts, explain.MissingInternalTopics, explain.InvalidTopology, explain.NextHeartbeat:
		return true
	}
	return false
}

// knowTopicsOf makes the topics of a group known, as its next heartbeat would.
func (c *Coordinator) knowTopicsOf(ctx context.Context, group string) error {
	if c.cfg.RequiredTopics == nil {
		return nil
	}
	names, err := c.cfg.RequiredTopics(group)
	if err != nil || len(names) == 0 {
		return err
	}
	return c.topics.Ensure(ctx, names, nil)
}

// tell completes what is said of internal topics: whether they are being created, or why they can't be.
func (c *creation) tell(reasons []explain.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for i := range reasons {
		r := &reasons[i]
		if r.Code != explain.MissingInternalTopics {
			continue
		}
		busy, failed := 0, 0
		for j := range r.Topics {
			t := &r.Topics[j]
			if _, ok := c.busy[t.Name]; ok {
				t.Creating = true
				busy++
			} else if f := c.failures.byTopic[t.Name]; f.retryAt.After(now) {
				t.Failure, t.RetryAt = f.text, explain.At(f.retryAt)
				failed++
			}
		}
		switch {
		case c.creator == nil:
			r.Todo = "This coordinator does not make topics."
		case failed > 0:
			r.Todo = "The cluster says why; the coordinator's log has more. They can also be made by hand, with the partition counts that are expected."
		case busy == 0:
			r.Todo = "The next heartbeat of a member has them made."
		}
	}
}
