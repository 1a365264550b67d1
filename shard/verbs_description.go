package shard

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

// What the log says of topology descriptions (KIP-1331). The plugin is called elsewhere, between these verbs: a barrier before the
// call, whose record is durable when the verb returns, and the outcome after it.

// wants returns what decides, once the records of an accepted heartbeat are applied, whether its member is to be asked for a
// description. A member that joins may have got its id only now.
func (h *Host) wants(t *turn, version int16, req *kmsg.StreamsGroupHeartbeatRequest, result *HeartbeatResult) func() {
	if !h.cfg.Descriptions {
		return nil
	}
	return func() {
		result.TopologyEpoch = t.g.TopologyEpoch()
		result.Wants = t.g.WantsDescription(result.Response.MemberID, req.MemberEpoch, version)
	}
}

// mayBeDescribed says that the plugin may hold a description of the group, so that the group must stay.
func (h *Host) mayBeDescribed(t *turn) bool {
	return h.cfg.Descriptions && t.g.StoredDescriptionTopologyEpoch() != eventlog.EpochNone
}

// Described is a described group, and the topology epoch that the plugin holds for sure: EpochNone, EpochUncertain, or an epoch.
type Described struct {
	Group  kmsg.StreamsGroupDescribeResponseGroup
	Stored int32
}

// DescribeStored is Describe with the stored topology epoch of the same moment.
func (h *Host) DescribeStored(ctx context.Context, group string) (Described, error) {
	return call(ctx, h, "describe", group, func(t *turn) (Described, effect, error) {
		if !t.g.Exists() {
			return Described{}, effect{}, notFound(group)
		}
		return Described{t.g.Describe(t.env(Caller{}, 1)), t.g.StoredDescriptionTopologyEpoch()}, effect{}, nil
	})
}

// BeginPush is the barrier before a push. It refuses what the group does not take (a *streams.Error) and, only after that, with
// invalid, if that is not nil: what is wrong with the description itself. The group is marked uncertain, durably, when it returns nil.
func (h *Host) BeginPush(ctx context.Context, group, member string, topologyEpoch int32, invalid error) error {
	return h.mark(ctx, "begin push", group, func(t *turn) ([]eventlog.Record, error) {
		if err := t.g.AdmitPush(member, topologyEpoch); err != nil {
			return nil, err
		}
		if invalid != nil {
			return nil, invalid
		}
		return t.g.MarkUncertain(), nil
	})
}

// PushStored records that the plugin took a description. A group that is gone by now is a *streams.Error with GROUP_ID_NOT_FOUND.
func (h *Host) PushStored(ctx context.Context, group string, topologyEpoch int32) error {
	_, err := call(ctx, h, "push stored", group, func(t *turn) (struct{}, effect, error) {
		if !t.g.Exists() {
			return struct{}{}, effect{}, notFound(group)
		}
		return struct{}{}, effect{records: t.g.DescriptionStored(topologyEpoch), soft: streams.Described(t.env(Caller{}, 0)), quiet: true}, nil
	})
	return err
}

// PushRefused records that the plugin refused a description for good, and why (the shard fills in when); errors as PushStored.
func (h *Host) PushRefused(ctx context.Context, group string, why eventlog.DescriptionRefusal) error {
	return h.mark(ctx, "push refused", group, func(t *turn) ([]eventlog.Record, error) {
		if !t.g.Exists() {
			return nil, notFound(group)
		}
		why.Format, why.Timestamp = eventlog.DescriptionRefusalFormat, t.now.UnixMilli()
		return t.g.DescriptionRefused(why), nil
	})
}

// DescriptionDeleted records that the plugin deleted what it held of the group. A group that is gone is no error.
func (h *Host) DescriptionDeleted(ctx context.Context, group string) error {
	return h.mark(ctx, "description deleted", group, func(t *turn) ([]eventlog.Record, error) {
		return t.g.DescriptionDeleted(), nil
	})
}

// DescriptionLost records that the plugin has not what it stored of the epoch, so that members are asked again; nothing where something else
// was recorded meanwhile. A group that is gone is no error.
func (h *Host) DescriptionLost(ctx context.Context, group string, topologyEpoch int32) error {
	return h.mark(ctx, "description lost", group, func(t *turn) ([]eventlog.Record, error) {
		return t.g.DescriptionLost(topologyEpoch), nil
	})
}

func (h *Host) mark(ctx context.Context, verb, group string, run func(t *turn) ([]eventlog.Record, error)) error {
	_, err := call(ctx, h, verb, group, func(t *turn) (struct{}, effect, error) {
		records, err := run(t)
		return struct{}{}, effect{records: records, quiet: true}, err
	})
	return err
}

// MarkForDelete is the barrier before a deletion at the plugin. false: there is nothing to delete, or the group has members. Where it
// is true the group is marked uncertain, durably.
func (h *Host) MarkForDelete(ctx context.Context, group string) (bool, error) {
	return h.markForDelete(ctx, "mark for delete", group, func(*turn) (bool, error) { return true, nil })
}

// MarkExpired is MarkForDelete for the cleanup cycle: the group must have no committed offset and no open transaction either.
func (h *Host) MarkExpired(ctx context.Context, group string) (bool, error) {
	return h.markForDelete(ctx, "mark expired", group, func(t *turn) (bool, error) {
		if h.unfrozen(t) != nil {
			return false, nil
		}
		v := t.s.view(group)
		expired, rest := offsets.Expire(t.offsetsEnv(), v, group, t.g.Subscribed)
		if v.err != nil {
			return false, v.failed()
		}
		return rest && len(expired) == 0, nil
	})
}

func (h *Host) markForDelete(ctx context.Context, verb, group string, eligible func(*turn) (bool, error)) (bool, error) {
	return call(ctx, h, verb, group, func(t *turn) (bool, effect, error) {
		records, marked := t.g.MarkForDelete()
		if !marked {
			return false, effect{}, nil
		}
		ok, err := eligible(t)
		if err != nil || !ok {
			return false, effect{}, err
		}
		return true, effect{records: records, quiet: true}, nil
	})
}

// MayBeDescribed says that a group exists and its record says that it has a description, or may have one. Whatever was marked before the
// call is seen.
func (h *Host) MayBeDescribed(ctx context.Context, group string) (bool, error) {
	return call(ctx, h, "may be described", group, func(t *turn) (bool, effect, error) {
		return t.g.Exists() && t.g.StoredDescriptionTopologyEpoch() != eventlog.EpochNone, effect{}, nil
	})
}

// Doubt marks an existing group uncertain: something was deleted at the plugin that may have been the group's. A group that is gone is
// no error.
func (h *Host) Doubt(ctx context.Context, group string) error {
	return h.mark(ctx, "doubt", group, func(t *turn) ([]eventlog.Record, error) { return t.g.MarkUncertain(), nil })
}
