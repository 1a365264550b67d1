package coordinator

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/plugin"
	"streamkeeper/shard"
)

// Values of TopologyDescriptionStatus (KIP-1331).
const (
	descriptionNotRequested int8 = 0
	descriptionNotStored    int8 = 1
	descriptionError        int8 = 2
	descriptionAvailable    int8 = 3
)

// described asks the group's shard; stored is the topology epoch that the plugin holds for sure, where a description is asked for.
func (c *Coordinator) described(ctx context.Context, r *kmsg.StreamsGroupDescribeRequest, group string) (shard.Described, error) {
	if c.descriptions != nil && r.IncludeTopologyDescription {
		return c.descriptions.shards.DescribeStored(ctx, group)
	}
	g, err := c.shards.Describe(ctx, group)
	return shard.Described{Group: g, Stored: eventlog.EpochNone}, err
}

// attachDescriptions fills in the descriptions of those groups whose stored epoch is that of their topology, all side by side. A
// failure of the plugin changes nothing but the status.
func (c *Coordinator) attachDescriptions(ctx context.Context, groups []kmsg.StreamsGroupDescribeResponseGroup, stored []int32) {
	var calls []plugin.GetCall
	var of []int
	for i := range groups {
		g := &groups[i]
		if g.ErrorCode == 0 && g.Topology != nil && stored[i] >= 0 && stored[i] == g.Topology.Epoch {
			calls = append(calls, plugin.GetCall{Group: g.Group, TopologyEpoch: stored[i]})
			of = append(of, i)
		}
	}
	if len(calls) == 0 {
		return
	}
	for i, result := range c.descriptions.plugin.GetAll(context.WithoutCancel(ctx), calls) {
		g := &groups[of[i]]
		switch {
		case result.Description != nil:
			g.TopologyDescription, g.TopologyDescriptionStatus = wireDescription(result.Description), descriptionAvailable
		case result.Outcome.OK():
			g.TopologyDescriptionStatus = descriptionNotStored
		default:
			g.TopologyDescriptionStatus = descriptionError
		}
	}
}

// deletionsMax is how often a deletion begins anew where a push got in between.
const deletionsMax = 3

// deletionFailed is all that a client is told of a plugin that did not delete; what the plugin said is in the log.
var deletionFailed = failure{Code: codeGroupDeletionFailed, Message: "Topology description plugin failed to delete the topology."}

// deleteGroup deletes a group: its description first, if it may have one.
func (c *Coordinator) deleteGroup(ctx context.Context, group string) failure {
	for range deletionsMax {
		writing, cancel := c.writing(ctx)
		err := c.shards.DeleteGroup(writing, group)
		cancel()
		switch {
		case err == nil:
			return failure{}
		case !errors.Is(err, shard.ErrDescribed):
			// Kafka fills the message only from topology descriptions, not from the refusal of a group with members or without
			// existence; the code alone tells.
			return failure{Code: c.failed("DeleteGroups", group, err).Code}
		}
		if f := c.deleteDescription(ctx, group); f.Code != 0 {
			return f
		}
	}
	c.log.Warn("group not deleted: its description is pushed again and again", "group", group)
	return deletionFailed
}

// deleteDescription deletes the description of an empty group, between the marker and the outcome.
func (c *Coordinator) deleteDescription(ctx context.Context, group string) failure {
	d := c.descriptions
	tenure := d.shards.Tenure(group)
	ctx, cancel := withTenure(ctx, tenure)
	defer cancel()
	marking, done := c.writing(ctx)
	marked, err := d.shards.MarkForDelete(marking, group)
	done()
	if err != nil {
		return c.failed("DeleteGroups", group, err)
	}
	if !marked {
		return failure{} // a member has come, or somebody else has done it: the deletion of the group will tell
	}
	switch o := c.deleteAtPlugin(ctx, group); {
	case o.Kind == plugin.Cancelled:
		return c.gaveUp(tenure)
	case !o.OK():
		return deletionFailed
	}
	d.backoff.Forget(group)
	writing, done := c.writing(ctx)
	defer done()
	if err := d.shards.DescriptionDeleted(writing, group); err != nil {
		c.failed("DeleteGroups", group, err) // the group stays uncertain, which the next attempt finds
	}
	return failure{}
}
