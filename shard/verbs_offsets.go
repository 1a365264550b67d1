package shard

import (
	"context"

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

// Fetch answers an OffsetFetch for one group; topics carry their names (see offsets.Fetch). A group that does not exist is ErrNotOwner: it was there when the request
// was led here, and may be a classic group of the cluster's by now, with all its offsets. Asked again, the client is led there, and the cluster says what there is.
// The answer waits for proof that no other owner was in the log when the request came (D3): a replica that was replaced would
// tell an application to start over.
func (h *Host) Fetch(ctx context.Context, req *kmsg.OffsetFetchRequestGroup, requireStable bool) (kmsg.OffsetFetchResponseGroup, error) {
	return call(ctx, h, "fetch", req.Group, func(t *turn) (kmsg.OffsetFetchResponseGroup, effect, error) {
		if !t.g.Exists() {
			return kmsg.OffsetFetchResponseGroup{}, effect{}, ErrNotOwner
		}
		if err := t.g.AdmitFetch(req.MemberID, req.MemberEpoch); err != nil {
			return kmsg.OffsetFetchResponseGroup{}, effect{}, err
		}
		if err := h.readable(t); err != nil {
			return kmsg.OffsetFetchResponseGroup{}, effect{}, err
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

// fitting is how many of the records fit one batch of the log.
func (s *Shard) fitting(recs []eventlog.Record) int {
	size := batchOverhead
	for i, r := range recs {
		if size += rawBytes(eventlog.Encode(r)); size > s.host.cfg.Log.BatchBytesMax() {
			return i
		}
	}
	return len(recs)
}
