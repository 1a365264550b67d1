package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"streamkeeper/eventlog"
	"streamkeeper/plugin"
	"streamkeeper/shard"
)

// A classic JoinGroup on an empty streams group converts it (GroupCoordinatorService.joinGroup and
// GroupMetadataManager.classicGroupJoin of Kafka 4.4). Classic groups are the cluster's, so the offsets are handed over to its
// coordinator (D10):
//
//	1 the description is deleted at the plugin, between marker and outcome
//	2 the group is frozen: a durable mark in its own record            → nobody can join it or change its offsets
//	3 the offsets are committed at the cluster, as by a simple consumer → acknowledged, every one
//	4 offsets and group get their tombstones, mark and all             → the group is the cluster's
//
// Until 4 the group is ours, whatever the cluster has under that id: FindCoordinator names us, and every request comes here. A crash or
// a failure after 2 leaves the mark, and whoever owns the group next either goes on at 3, where a classic join comes again, or removes
// the copy at the cluster and lifts the mark, where anything else asks for the group. Where the tombstones do not fit one
// batch, a mark of its own between 3 and 4 says that the cluster has them all, and that there is only the way forward.
//
// Nothing fences step 3 at the cluster. So the lease is looked at right before each commit; what remains is a process that is
// paused between that look and the sending for longer than its lease.

// Kafka's codes that only a classic join meets.
var (
	codeInconsistentProtocol = kerr.InconsistentGroupProtocol.Code // 23
	codeUnknownMember        = kerr.UnknownMemberID.Code           // 25
	codeRebalance            = kerr.RebalanceInProgress.Code       // 27
)

const (
	// conversionsMax is how many groups are converted, or settled, at a time: applications move one by one; a flood of joins
	// must not fill the connection to the cluster with commits.
	conversionsMax = 64
	// conversionTimeout bounds one attempt: below the clients' time-out for joins.
	conversionTimeout = 20 * time.Second
	// settleTimeout bounds the way back from a failed attempt, and the settling of one that was interrupted.
	settleTimeout = 10 * time.Second
	// conversionPause is how long after a failed attempt joins are told to wait at once; clients repeat them many times a second.
	conversionPause = 2 * time.Second
	// missingTopicsFor is how long topics of committed offsets must be unknown at the cluster before all brokers are asked, and the offsets
	// left behind: a broker that has just started knows few topics.
	missingTopicsFor = 10 * time.Second
	// missingTopicsPause is how long nobody may have looked in that time; else it begins anew. One attempt and the way back from it
	// take half of that at most.
	missingTopicsPause = time.Minute
	// convertedOffsetsMax is how many offsets of one classic group are read: far more than fit the one batch that they must.
	convertedOffsetsMax = 100_000
	// conversionNotesMax bounds what is remembered of failed attempts. Beyond it all is forgotten, which costs an attempt each.
	conversionNotesMax = 1000
)

// ConversionShards is what a conversion needs of the shards; *shard.Host is one.
type ConversionShards interface {
	Tenure(group string) context.Context
	Holds(group string) bool
	Standing(ctx context.Context, group string) (shard.Standing, error)
	BeginConversion(ctx context.Context, group string, over bool) ([]shard.CommittedOffset, eventlog.Conversion, bool, error)
	CancelConversion(ctx context.Context, group string) (bool, error)
	FinishConversion(ctx context.Context, group string) (bool, error)
	TakeOver(ctx context.Context, c shard.Caller, version int16, req *kmsg.StreamsGroupHeartbeatRequest, committed []shard.CommittedOffset) (shard.HeartbeatResult, error)
}

var _ ConversionShards = (*shard.Host)(nil)

// ClassicGroups is the cluster's own coordinator of the groups that take over.
type ClassicGroups interface {
	// Commit commits the offsets of a group that has no members, all or with an error that names what is missing.
	Commit(ctx context.Context, group string, offsets []ClassicOffset) error
	// Delete deletes the group with its offsets; one that is not there is no error, one that has members stays: ErrClassicMembers.
	Delete(ctx context.Context, group string) error
	// Hold joins a group that has no members, so that nobody else can; ErrClassicMembers where somebody was faster.
	Hold(ctx context.Context, group string) (HeldGroup, error)
}

// ClassicOffset is an offset to be committed at the cluster.
type ClassicOffset struct {
	shard.CommittedOffset
	TopicID [16]byte // of the topic as the cluster knows it now; zero where it tells no ids
}

// Conversions makes a coordinator convert empty streams groups that classic members join, and empty classic groups that streams members
// join (takeover.go). Config.Foreign is needed too.
type Conversions struct {
	Shards  ConversionShards
	Cluster ClassicGroups
}

// conversions is what the coordinator has of them; nil where groups are not converted.
type conversions struct {
	shards  ConversionShards
	cluster ClassicGroups
	ended   context.Context // of the coordinator
	end     context.CancelFunc

	toClassic, toStreams, failures atomic.Int64

	mu       sync.Mutex
	wg       sync.WaitGroup // attempts under way; begun with mu held
	underWay map[string]struct{}
	notes    map[string]conversionNote
}

// conversionNote is what is remembered of an attempt that failed.
type conversionNote struct {
	notBefore time.Time
	missing   time.Time // since when topics of its offsets are missing at the cluster; zero: none
	looked    time.Time // when they were missing the last time
}

func newConversions(cfg *Conversions) *conversions {
	if cfg == nil {
		return nil
	}
	v := &conversions{shards: cfg.Shards, cluster: cfg.Cluster, underWay: map[string]struct{}{}, notes: map[string]conversionNote{}}
	v.ended, v.end = context.WithCancel(context.Background())
	return v
}

func (v *conversions) close() {
	if v != nil {
		v.mu.Lock()
		v.end()
		v.mu.Unlock()
		v.wg.Wait()
	}
}

// ConversionStats counts groups that went from one protocol to the other since the start, and attempts that failed and are repeated.
type ConversionStats struct{ ToClassic, ToStreams, Failed int64 }

// ConversionStats counts conversions.
func (c *Coordinator) ConversionStats() ConversionStats {
	if v := c.conversions; v != nil {
		return ConversionStats{ToClassic: v.toClassic.Load(), ToStreams: v.toStreams.Load(), Failed: v.failures.Load()}
	}
	return ConversionStats{}
}

// enter begins an attempt; false: one is under way, one failed a moment ago, or too many are.
func (v *conversions) enter(now time.Time, group string) (leave func(), ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, busy := v.underWay[group]
	if busy || len(v.underWay) >= conversionsMax || now.Before(v.notes[group].notBefore) || v.ended.Err() != nil {
		return nil, false
	}
	v.underWay[group] = struct{}{}
	v.wg.Add(1)
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.underWay, group)
		v.wg.Done()
	}, true
}

// failed notes that an attempt came to nothing.
func (v *conversions) failed(now time.Time, group string) {
	v.failures.Add(1)
	v.note(group, func(n *conversionNote) { n.notBefore = now.Add(conversionPause) })
}

// missing notes that topics are missing, and says since when they are without a break.
func (v *conversions) missing(now time.Time, group string) (since time.Time) {
	v.note(group, func(n *conversionNote) {
		if n.missing.IsZero() || now.Sub(n.looked) > missingTopicsPause {
			n.missing = now
		}
		n.looked, since = now, n.missing
	})
	return since
}

// complete notes that no topic is missing.
func (v *conversions) complete(group string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n, known := v.notes[group]; known {
		n.missing = time.Time{}
		v.notes[group] = n
	}
}

func (v *conversions) note(group string, change func(*conversionNote)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n, known := v.notes[group]
	if !known && len(v.notes) >= conversionNotesMax {
		clear(v.notes)
	}
	change(&n)
	v.notes[group] = n
}

func (v *conversions) forget(group string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.notes, group)
}

// JoinGroup answers a classic JoinGroup on a group of ours. A member is never let in here: a group with members refuses it, and one
// without becomes the cluster's, where the client is sent by NOT_COORDINATOR.
func (c *Coordinator) JoinGroup(ctx context.Context, _ Caller, r *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("group", r.Group), attribute.String("member", r.MemberID))
	f := c.join(ctx, r)
	resp := r.ResponseKind().(*kmsg.JoinGroupResponse)
	resp.ErrorCode, resp.Generation = f.Code, -1
	if f.Code != codeInconsistentProtocol {
		resp.MemberID = r.MemberID
	}
	if r.Version < 7 {
		resp.Protocol = kmsg.StringPtr("") // nullable from version 7 on
	}
	return resp
}

// join says with which code the member is refused.
func (c *Coordinator) join(ctx context.Context, r *kmsg.JoinGroupRequest) failure {
	v, group := c.conversions, r.Group
	if v == nil {
		return failure{Code: codeInconsistentProtocol}
	}
	leave, ok := v.enter(c.cfg.Now(), group)
	if !ok {
		return failure{Code: codeRebalance}
	}
	defer leave()
	tenure := v.shards.Tenure(group) // taken first: what is found out now holds only under it
	asking, done := c.writing(ctx)
	standing, err := v.shards.Standing(asking, group)
	done()
	switch {
	case err != nil:
		return c.failed("JoinGroup", group, err)
	case !standing.Exists:
		return failure{Code: codeNotCoordinator} // somebody else was faster; the lookup will tell
	case standing.Members > 0:
		return failure{Code: codeInconsistentProtocol}
	case r.MemberID != "":
		return failure{Code: codeUnknownMember} // of whatever group it was; it comes back without
	}
	if err := c.withoutTaken(ctx, group, &standing); err != nil {
		v.failed(c.cfg.Now(), group)
		c.log.Warn("group can't be converted to a classic group, it stays a streams group", "group", group, "err", err)
		return failure{Code: codeRebalance}
	}
	f := c.convert(ctx, tenure, group, standing)
	if f.Code == codeRebalance {
		v.failed(c.cfg.Now(), group)
	}
	return f
}

// convert does the four steps. Its success is NOT_COORDINATOR; REBALANCE_IN_PROGRESS says that all stays as it is, or is settled later.
func (c *Coordinator) convert(ctx, tenure context.Context, group string, standing shard.Standing) failure {
	sent := standing.Conversion != eventlog.ConversionNone // by the attempt that was interrupted
	ctx, cancel := withTenure(ctx, tenure)
	defer cancel()
	ctx, done := context.WithTimeout(ctx, conversionTimeout)
	defer done()
	for range deletionsMax {
		if c.descriptions != nil && standing.Stored != eventlog.EpochNone {
			if f := c.convertDescription(ctx, tenure, group); f.Code != 0 {
				return f
			}
		}
		begun, err := c.beginConversion(ctx, group, standing.Conversion)
		if err != nil {
			return c.conversionFailed(ctx, group, eventlog.ConversionNone, false, err)
		}
		if begun.conversion != eventlog.ConversionCopied {
			some, err := c.copyOffsets(ctx, group, begun.committed)
			sent = sent || some
			if err != nil {
				return c.conversionFailed(ctx, group, begun.conversion, sent, err)
			}
		}
		switch err := c.finishConversion(ctx, group); {
		case err == nil:
			c.converted(ctx, group, len(begun.committed))
			return failure{Code: codeNotCoordinator}
		case !errors.Is(err, shard.ErrDescribed):
			return c.failed("JoinGroup", group, err) // frozen; the next request settles it
		}
		standing = shard.Standing{Stored: eventlog.EpochUncertain, Conversion: begun.conversion} // a push came in between
	}
	c.log.Warn("group not converted: its description is pushed again and again", "group", group)
	return failure{Code: codeRebalance}
}

// convertDescription deletes the description at the plugin. A failure throttles further attempts, in the entry of the group's back-off
// with the epoch that stands for deletions.
func (c *Coordinator) convertDescription(ctx, tenure context.Context, group string) failure {
	d := c.descriptions
	if d.backoff.Active(group, eventlog.EpochUncertain, c.cfg.Now()) {
		return failure{Code: codeRebalance}
	}
	marking, done := c.writing(ctx)
	marked, err := d.shards.MarkForDelete(marking, group)
	done()
	switch {
	case err != nil:
		return c.failed("JoinGroup", group, err)
	case !marked:
		return failure{Code: codeRebalance} // a member has come, or somebody else has done it
	}
	switch o := c.deleteAtPlugin(ctx, group); {
	case o.Kind == plugin.Cancelled:
		return c.gaveUp(tenure)
	case !o.OK():
		d.backoff.Arm(group, eventlog.EpochUncertain, c.cfg.Now())
		return failure{Code: codeRebalance}
	}
	d.backoff.Forget(group)
	writing, done := c.writing(ctx)
	defer done()
	if err := d.shards.DescriptionDeleted(writing, group); err != nil {
		return c.failed("JoinGroup", group, err) // uncertain, which the next attempt finds
	}
	return failure{}
}

// conversionFailed takes the group back, if it was frozen, and says what the member is told; sent is takeBack's.
func (c *Coordinator) conversionFailed(ctx context.Context, group string, begun eventlog.Conversion, sent bool, err error) failure {
	var f failure
	switch {
	case errors.Is(err, errLiveAtCluster):
		f.Code = codeInconsistentProtocol
	case errors.Is(err, errNotMoved), errors.Is(err, shard.ErrUnsettled), errors.Is(err, shard.ErrTooManyOffsets):
		f.Code = codeRebalance
	default:
		f = c.failed("JoinGroup", group, err)
	}
	level := slog.LevelWarn
	if f.Code != codeRebalance && f.Code != codeInconsistentProtocol {
		level = slog.LevelDebug // the shard moved, or its log is away: told elsewhere
	}
	c.log.Log(ctx, level, "group can't be converted to a classic group, it stays a streams group", "group", group, "err", err)
	if begun != eventlog.ConversionNone {
		if err := c.takeBack(ctx, group, begun, sent); err != nil {
			c.log.Log(ctx, level, "a group that can't be converted can't be taken back either, it stays frozen for now", "group", group, "err", err)
		}
	}
	return f
}

// converted tells that a group is the cluster's. It returns when this replica has read so in the log, where it can: the client's lookup
// comes next.
func (c *Coordinator) converted(ctx context.Context, group string, moved int) {
	c.conversions.forget(group)
	c.conversions.toClassic.Add(1)
	c.descriptions.forget(group)
	c.remembered.drop(group)
	c.topics.Forget(group)
	c.log.Info("streams group converted: it is a classic group of the cluster now", "group", group, "offsets", moved)
	if err := c.barriers.wait(ctx, c.shards.Partition(group)); err != nil {
		c.log.Debug("the log can't be read up to the end of a conversion", "group", group, "err", err)
	}
}
