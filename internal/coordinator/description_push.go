package coordinator

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"streamkeeper/eventlog"
	"streamkeeper/plugin"
)

// Kafka's codes that only topology descriptions meet.
var (
	codeUnsupportedVersion      = kerr.UnsupportedVersion.Code                     // 35
	codeInvalidRequest          = kerr.InvalidRequest.Code                         // 42
	codeGroupDeletionFailed     = kerr.GroupDeletionFailed.Code                    // 134
	codeDescriptionUpdateFailed = kerr.StreamsTopologyDescriptionUpdateFailed.Code // 135
)

// TopologyDescriptionUpdate answers StreamsGroupTopologyDescriptionUpdate: a member pushes the description of its topology. The order
// of the checks, and the texts, are Kafka 4.4's.
func (c *Coordinator) TopologyDescriptionUpdate(ctx context.Context, _ Caller, r *kmsg.StreamsGroupTopologyDescriptionUpdateRequest) *kmsg.StreamsGroupTopologyDescriptionUpdateResponse {
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("group", strings.ToValidUTF8(r.Group, "?")),
		attribute.String("member", strings.ToValidUTF8(r.MemberID, "?")), attribute.Int("topology.epoch", int(r.TopologyEpoch)))
	resp := r.ResponseKind().(*kmsg.StreamsGroupTopologyDescriptionUpdateResponse)
	f := c.push(ctx, r)
	resp.ErrorCode, resp.ErrorMessage = f.Code, f.text()
	return resp
}

func (c *Coordinator) push(ctx context.Context, r *kmsg.StreamsGroupTopologyDescriptionUpdateRequest) failure {
	d := c.descriptions
	switch {
	case d == nil:
		return failure{Code: codeUnsupportedVersion, Message: "The broker has no streams group topology description plugin configured."}
	case strings.TrimSpace(r.MemberID) == "":
		return failure{Code: codeInvalidRequest, Message: "MemberId can't be empty."}
	case strings.TrimSpace(r.Group) == "":
		return failure{Code: codeInvalidRequest, Message: "GroupId can't be empty."}
	case !possibleGroup(r.Group):
		return failure{Code: impossibleGroup.Code, Message: impossibleGroup.Message}
	}
	description, invalid := descriptionOf(&r.TopologyDescription)
	tenure := d.shards.Tenure(r.Group) // before the barrier: a call that it allows must not outlast it
	ctx, cancel := withTenure(ctx, tenure)
	defer cancel()
	if err := c.beginPush(ctx, r, invalid); err != nil {
		return c.failed("StreamsGroupTopologyDescriptionUpdate", r.Group, err, "member", r.MemberID, "topology_epoch", r.TopologyEpoch)
	}
	defer d.pushing.begin(r.Group)()
	outcomes := make(chan plugin.Outcome, 1)
	call := plugin.SetCall{Group: r.Group, TopologyEpoch: r.TopologyEpoch, Description: description, Link: d.backoff.AskedBy(r.Group)}
	d.plugin.Set(ctx, call, func(o plugin.Outcome) { outcomes <- o })
	return c.pushed(ctx, tenure, r, <-outcomes)
}

// beginPush is the barrier; it tells a group of the cluster's own from one that is nowhere.
func (c *Coordinator) beginPush(ctx context.Context, r *kmsg.StreamsGroupTopologyDescriptionUpdateRequest, invalid error) error {
	writing, cancel := c.writing(ctx)
	defer cancel()
	err := c.descriptions.shards.BeginPush(writing, r.Group, r.MemberID, r.TopologyEpoch, invalid)
	if err == nil {
		return nil
	}
	return c.foreignToo(ctx, r.Group, c.nowhere(ctx, r.Group, err))
}

// pushed records the outcome of the plugin's call, and says what the member is told. It can't tell a permanent failure from a
// transient one: after the first it is not asked again, after the second when the next window is over.
func (c *Coordinator) pushed(ctx, tenure context.Context, r *kmsg.StreamsGroupTopologyDescriptionUpdateRequest, o plugin.Outcome) failure {
	d, group, epoch := c.descriptions, r.Group, r.TopologyEpoch
	refused := failure{Code: codeDescriptionUpdateFailed, Message: o.Message}
	writing, cancel := c.writing(ctx)
	defer cancel()
	var err error
	switch {
	case o.OK():
		err, refused = d.shards.PushStored(writing, group, epoch), failure{}
	case o.Permanent:
		err = d.shards.PushRefused(writing, group, eventlog.DescriptionRefusal{
			TopologyEpoch: epoch, Plugin: d.plugin.Name(), Member: r.MemberID, Reason: o.Message,
		})
	case o.Kind == plugin.Cancelled: // the shard moved, or this replica stops: the group stays uncertain, and the member asks elsewhere
		return c.gaveUp(tenure)
	default:
		d.backoff.Fail(group, epoch, c.cfg.Now(), o.Message)
		return refused
	}
	if err == nil {
		d.backoff.Clear(group, epoch)
		c.log.Info("topology description "+string(o.Kind), "group", group, "topology_epoch", epoch, "message", o.Message)
		return refused
	}
	f := c.failed("StreamsGroupTopologyDescriptionUpdate", group, err, "member", r.MemberID, "topology_epoch", epoch, "outcome", string(o.Kind))
	switch f.Code {
	case codeNoGroup:
		d.forget(group)
		if o.OK() {
			c.orphaned(ctx, group)
		}
	case codeNotCoordinator, codeLoading, codeUnavailable:
	default:
		d.backoff.Fail(group, epoch, c.cfg.Now(), "the outcome could not be recorded: "+err.Error())
	}
	return f
}

// gaveUp is the answer where the call of the plugin was cancelled.
func (c *Coordinator) gaveUp(tenure context.Context) failure {
	if tenure.Err() == nil {
		return failure{Code: codeUnavailable}
	}
	if f := failureOf(context.Cause(tenure)); f.Code == codeLoading || f.Code == codeUnavailable {
		return f
	}
	return failure{Code: codeNotCoordinator}
}

// orphaned deletes a description whose group was deleted while it was being stored; Kafka leaves it behind. A group of the same id
// may have been made, and described, in the meantime: that one is marked uncertain, and its members are asked again.
func (c *Coordinator) orphaned(ctx context.Context, group string) {
	if o := c.deleteAtPlugin(ctx, group); !o.OK() {
		c.log.Warn("the topology description of a group that was deleted meanwhile stays at the plugin", "group", group, "err", o.Err)
	}
	writing, cancel := c.writing(ctx)
	defer cancel()
	if err := c.descriptions.shards.Doubt(writing, group); err != nil {
		c.log.Warn("a group can't be marked uncertain", "group", group, "err", err)
	}
}

// deleteAtPlugin waits for its turn, unlike a single call: what is to be deleted comes in large numbers.
func (c *Coordinator) deleteAtPlugin(ctx context.Context, group string) plugin.Outcome {
	return c.descriptions.plugin.DeleteAll(ctx, []string{group})[0]
}
