package shard

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

const codeIllegalGeneration = 22

// Commit commits offsets of a streams group. A refusal of the whole request is a *streams.Error; c.Fail makes the response of it.
func (h *Host) Commit(ctx context.Context, c offsets.Commit, member string, epoch int32, instance *string) (*kmsg.OffsetCommitResponse, error) {
	return call(ctx, h, "commit", c.Group, func(t *turn) (*kmsg.OffsetCommitResponse, effect, error) {
		if !t.g.Exists() {
			if c.Version < 9 && epoch >= 0 {
				return nil, effect{}, &streams.Error{Code: codeIllegalGeneration}
			}
			return nil, effect{}, notFound(c.Group)
		}
		if err := h.unfrozen(t); err != nil {
			return nil, effect{}, err
		}
		admit, err := t.g.AdmitCommit(member, epoch, instance, c.Version, false)
		if err != nil {
			return nil, effect{}, err
		}
		resp, recs, err := c.Run(t.offsetsEnv(), admit)
		if err != nil {
			return nil, effect{}, err
		}
		h.stats.offsetCommits.Add(int64(len(recs)))
		return resp, effect{records: recs}, nil
	})
}

// offsetsEnv is the environment of an offsets handler.
func (t *turn) offsetsEnv() offsets.Env {
	env := t.s.host.cfg.Offsets
	env.Now = t.now.UnixMilli()
	return env
}

// Fetch answers an OffsetFetch for one group; topics carry their names (see offsets.Fetch). A group that does not exist has no offsets, without an error.
// The answer waits for proof that no other owner was in the log when the request came (D3): a replica that was replaced would
// tell an application to start over.
func (h *Host) Fetch(ctx context.Context, req *kmsg.OffsetFetchRequestGroup, requireStable bool) (kmsg.OffsetFetchResponseGroup, error) {
	return call(ctx, h, "fetch", req.Group, func(t *turn) (kmsg.OffsetFetchResponseGroup, effect, error) {
		if t.g.Exists() {
			if err := t.g.AdmitFetch(req.MemberID, req.MemberEpoch); err != nil {
				return kmsg.OffsetFetchResponseGroup{}, effect{}, err
			}
			if err := h.readable(t); err != nil {
				return kmsg.OffsetFetchResponseGroup{}, effect{}, err
			}
		}
		v := t.s.view(req.Group)
		resp := offsets.Fetch(v, req, requireStable)
		if v.err != nil {
			return kmsg.OffsetFetchResponseGroup{}, effect{}, v.failed()
		}
		return resp, effect{barrier: true}, nil
	})
}

// DeleteOffsets answers an OffsetDelete; judge gives the code of partitions that are refused for reasons outside the group.
func (h *Host) DeleteOffsets(ctx context.Context, req *kmsg.OffsetDeleteRequest, judge func(topic string, partition int32) int16) (*kmsg.OffsetDeleteResponse, error) {
	return call(ctx, h, "delete offsets", req.Group, func(t *turn) (*kmsg.OffsetDeleteResponse, effect, error) {
		if !t.g.Exists() {
			return nil, effect{}, notFound(req.Group)
		}
		if err := h.unfrozen(t); err != nil {
			return nil, effect{}, err
		}
		v := t.s.view(req.Group)
		resp, recs := offsets.Delete(v, req, t.g.Subscribed, judge)
		if v.err != nil {
			return nil, effect{}, v.failed()
		}
		h.stats.offsetDeletions.Add(int64(len(recs)))
		return resp, effect{records: recs}, nil
	})
}

// failed logs a storage error that a handler met through the view, and returns what the client is told.
func (v *view) failed() error {
	v.s.log.Error("offsets can't be read", "group", v.group, "err", v.err)
	return ErrLoading
}

// Expired is what Expire did to a group.
type Expired struct {
	Offsets int  // tombstones of offsets written
	Removed bool // the group itself went
}

// Expire judges one group of the cleanup cycle on the loop: offsets past their retention get tombstones, and a group that is empty
// and has no offset left is removed, unless a description of it may be stored: that goes first.
func (h *Host) Expire(ctx context.Context, group string) (Expired, error) {
	return call(ctx, h, "expire", group, func(t *turn) (Expired, effect, error) {
		if !t.g.Exists() || h.settled(t) != nil {
			return Expired{}, effect{}, nil
		}
		v := t.s.view(group)
		recs, allGone := offsets.Expire(t.offsetsEnv(), v, group, t.g.Subscribed)
		if v.err != nil {
			return Expired{}, effect{}, v.failed()
		}
		e := Expired{Offsets: len(recs)}
		if allGone && t.g.Empty() && !h.mayBeDescribed(t) {
			gone, err := t.g.Delete()
			if err != nil {
				return Expired{}, effect{}, err
			}
			recs, e.Removed = append(recs, gone...), true
		}
		// A sweep may be split where a request may not (D2): offsets that do not fit one batch are left to the next call, and the
		// group with them, whose own tombstones stay together.
		if keep := t.s.fitting(recs); keep < len(recs) {
			e = Expired{Offsets: min(e.Offsets, keep)}
			recs = recs[:e.Offsets]
		}
		h.stats.offsetExpirations.Add(int64(e.Offsets))
		return e, effect{records: recs}, nil
	})
}

// ForgetTopics removes the group's committed offsets of topics that were deleted, and says how many; see offsets.TopicsDeleted. Where more are to go
// than fit one batch it removes a part, and is to be called again until it removes none.
func (h *Host) ForgetTopics(ctx context.Context, group string, gone func(offsets.TopicRef) bool, before time.Time) (int, error) {
	return call(ctx, h, "forget topics", group, func(t *turn) (int, effect, error) {
		if !t.g.Exists() {
			return 0, effect{}, nil
		}
		v := t.s.view(group)
		recs := offsets.TopicsDeleted(v, group, gone, before.UnixMilli())
		if v.err != nil {
			return 0, effect{}, v.failed()
		}
		recs = recs[:t.s.fitting(recs)]
		return len(recs), effect{records: recs}, nil
	})
}

// fitting is how many of the records fit one batch of the log.
func (s *Shard) fitting(recs []eventlog.Record) int {
	size := batchOverhead
	for i, r := range recs {
		raw := eventlog.Encode(r)
		if size += recordOverhead + len(raw.Key) + len(raw.Value); size > s.host.cfg.Log.BatchBytesMax() {
			return i
		}
	}
	return len(recs)
}
