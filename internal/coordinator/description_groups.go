package coordinator

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

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

// attachDescriptions fills in the descriptions of those groups whose stored epoch is that of their topology, all side by side, and says of
// groups that are explained where theirs is. A failure of the plugin changes nothing but the status.
func (c *Coordinator) attachDescriptions(ctx context.Context, groups []kmsg.StreamsGroupDescribeResponseGroup, all []described, attach bool) {
	var calls []plugin.GetCall
	var of []int
	for i := range groups {
		g := &groups[i]
		if g.ErrorCode == 0 && g.Topology != nil && all[i].Stored >= 0 && all[i].Stored == g.Topology.Epoch && (attach || all[i].explain != nil) {
			calls = append(calls, plugin.GetCall{Group: g.Group, TopologyEpoch: all[i].Stored})
			of = append(of, i)
		}
	}
	results := make([]*plugin.GetResult, len(groups))
	if len(calls) > 0 {
		for i, result := range c.descriptions.plugin.GetAll(context.WithoutCancel(ctx), calls) {
			results[of[i]] = &result
			if result.Outcome.Kind == plugin.NotFound {
				c.foundLost(ctx, calls[i].Group, calls[i].TopologyEpoch)
			}
			if attach {
				attachDescription(&groups[of[i]], &result)
			}
		}
	}
	for i := range groups {
		if all[i].explain != nil {
			c.explainDescription(&all[i], results[i])
		}
	}
}

// foundLost has members asked again for a description that the plugin has lost, where that is wanted. On the wire it changes nothing.
func (c *Coordinator) foundLost(ctx context.Context, group string, epoch int32) {
	d := c.descriptions
	if !d.reask || !d.backoff.Lose(group, epoch, c.cfg.Now()) {
		return
	}
	if d.lost != nil {
		d.lost()
	}
	writing, cancel := c.writing(ctx)
	defer cancel()
	if err := d.shards.DescriptionLost(writing, group, epoch); err != nil {
		c.log.Warn("a group whose topology description is lost can't be marked", "group", group, "err", err)
		return
	}
	c.log.Info("topology description lost by the plugin, members are asked again", "group", group, "topology_epoch", epoch)
}

func attachDescription(g *kmsg.StreamsGroupDescribeResponseGroup, result *plugin.GetResult) {
	switch {
	case result.Description != nil:
		g.TopologyDescription, g.TopologyDescriptionStatus = wireDescription(result.Description), descriptionAvailable
	case result.Outcome.OK():
		g.TopologyDescriptionStatus = descriptionNotStored
	default:
		g.TopologyDescriptionStatus = descriptionError
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
