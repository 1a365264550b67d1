package shard

import (
	"context"
	"time"

	"streamkeeper/client/explain"
	"streamkeeper/eventlog"
	"streamkeeper/shard/streams"
)

// Explained is a described group with what is known of it beyond Kafka's protocol, all of one moment.
type Explained struct {
	Described
	At      time.Time
	Reasons []explain.Reason // why the state is what it is; the caller's own

	// What decides whether a member can be asked for a topology description: the epoch that was refused for good and why (nil where that is
	// not known), the members that run the group's topology, and which versions of StreamsGroupHeartbeat were heard: too old to
	// be asked, and able to.
	DescribedAt         int64 // when the description that is stored was, in ms since 1970; 0: not known
	Failed              int32
	Refusal             *eventlog.DescriptionRefusal
	Current             int
	SpeakOld, SpeakDesc bool
}

// Explain is DescribeStored with the reasons.
func (h *Host) Explain(ctx context.Context, group string) (Explained, error) {
	return call(ctx, h, "explain", group, func(t *turn) (Explained, effect, error) {
		if !t.g.Exists() {
			return Explained{}, effect{}, notFound(group)
		}
		env := t.env(Caller{}, 1)
		e := Explained{
			Described: Described{t.g.Describe(env), t.g.StoredDescriptionTopologyEpoch()}, At: t.now, Reasons: t.g.Explain(env, t.due),
			DescribedAt: t.g.DescribedAt(), Failed: t.g.FailedDescriptionTopologyEpoch(), Refusal: t.g.Refusal(), Current: t.g.MembersCurrent(),
		}
		e.SpeakOld, e.SpeakDesc = t.g.Versions()
		return e, effect{}, nil
	})
}

// due is when a timer of the group ends, in ms since 1970.
func (t *turn) due(key streams.TimerKey) (ms int64, running bool) {
	tm := t.g.timers[key]
	if tm == nil {
		return 0, false
	}
	return tm.due.UnixMilli(), true
}
