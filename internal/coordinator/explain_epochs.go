package coordinator

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client/explain"
	"streamkeeper/plugin"
)

// Earlier topology epochs of a group, where the plugin keeps them. Kafka's protocol has the description of the current epoch alone.

// attachEpochs answers what a question asks of other epochs: which ones there are, and the description of one of them in the place of the
// current one's.
func (c *Coordinator) attachEpochs(ctx context.Context, groups []kmsg.StreamsGroupDescribeResponseGroup, all []described, q explain.Question, attach bool) {
	ctx = context.WithoutCancel(ctx)
	if q.Epochs {
		fanout(len(groups), func(i int) {
			if all[i].explain != nil {
				c.listEpochs(ctx, groups[i].Group, all[i].explain)
			}
		})
	}
	if q.TopologyEpoch == nil || !attach {
		return
	}
	var calls []plugin.GetCall
	var of []int
	for i := range groups {
		if all[i].explain == nil {
			continue
		}
		all[i].explain.TopologyEpoch = q.TopologyEpoch
		groups[i].TopologyDescription, groups[i].TopologyDescriptionStatus = nil, descriptionNotStored
		calls = append(calls, plugin.GetCall{Group: groups[i].Group, TopologyEpoch: *q.TopologyEpoch})
		of = append(of, i)
	}
	if c.descriptions == nil || len(calls) == 0 {
		return
	}
	for i, result := range c.descriptions.plugin.GetAll(ctx, calls) {
		attachDescription(&groups[of[i]], &result)
	}
}

// listEpochs asks the plugin which epochs it has of a group.
func (c *Coordinator) listEpochs(ctx context.Context, group string, e *explain.Group) {
	if c.descriptions == nil {
		e.EpochsError = "This coordinator keeps no topology descriptions."
		return
	}
	done := make(chan struct{})
	c.descriptions.plugin.Epochs(ctx, group, func(epochs []int32, o plugin.Outcome) {
		defer close(done)
		if e.Epochs = epochs; !o.OK() {
			e.EpochsError = o.Message
		} else if epochs == nil {
			e.Epochs = []int32{}
		}
	})
	<-done
}
