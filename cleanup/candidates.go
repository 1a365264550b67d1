package cleanup

import (
	"context"
	"iter"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard/offsets"
)

// pageMax is how many candidates are listed before they are judged, some 10 MB of ids. The list of a larger shard is
// read again for each page.
const pageMax = 100_000

// Source is what Candidates reads; a projection.Store is one.
type Source interface {
	GroupsAndOffsets(p int32, after string, f func(group string, offsets func(func(projection.Stored) bool) error) bool) error
	GroupsWithMembers(p int32, f func(group string) bool) error
	Offsets(p int32, group string, f func(projection.Stored) bool) error
}

// Candidates is the first page of AllCandidates: at most limit ids, pageMax if it is 0. Groups that can't be removed for a long
// time may fill it cycle after cycle; a sweep should use AllCandidates.
func Candidates(ctx context.Context, src Source, p int32, env offsets.Env, limit int) ([]string, error) {
	if limit <= 0 {
		limit = pageMax
	}
	return page(ctx, src, p, env, "", limit)
}

// AllCandidates yields the groups of partition p that are worth judging, ascending by id: those with an offset past its
// retention, and those with neither members nor offsets. A group with members is listed for an old offset even of a
// topic that it reads, because only its shard knows what it reads. The sequence ends after its first error.
//
// A page is read completely before its first group is yielded: an open iterator keeps files of the store alive, and
// judging can take as long as the log is slow.
func AllCandidates(ctx context.Context, src Source, p int32, env offsets.Env) iter.Seq2[string, error] {
	return candidates(ctx, src, p, env, pageMax)
}

func candidates(ctx context.Context, src Source, p int32, env offsets.Env, limit int) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		after := ""
		for {
			list, err := page(ctx, src, p, env, after, limit)
			if err != nil {
				yield("", err)
				return
			}
			for _, group := range list {
				if !yield(group, nil) {
					return
				}
			}
			if len(list) < limit {
				return
			}
			after = list[len(list)-1]
		}
	}
}

// page lists at most limit candidates with ids above after.
func page(ctx context.Context, src Source, p int32, env offsets.Env, after string, limit int) ([]string, error) {
	active := map[string]bool{}
	if err := src.GroupsWithMembers(p, func(group string) bool {
		active[group] = true
		return ctx.Err() == nil
	}); err != nil {
		return nil, err
	}
	var list []string
	var failed error
	var pace pacer
	if err := src.GroupsAndOffsets(p, after, func(group string, offsets func(func(projection.Stored) bool) error) bool {
		var worth bool
		if worth, failed = worthJudging(env, offsets, active[group]); worth {
			list = append(list, group)
		}
		return failed == nil && len(list) < limit && pace.next(ctx)
	}); err != nil {
		return nil, err
	}
	if failed == nil {
		failed = context.Cause(ctx)
	}
	if failed != nil {
		return nil, failed
	}
	return list, nil
}

func worthJudging(env offsets.Env, committed func(func(projection.Stored) bool) error, active bool) (bool, error) {
	past, some := false, false
	err := committed(func(s projection.Stored) bool {
		some = true
		c, ok := s.Record.Value.(*eventlog.OffsetCommit)
		past = ok && offsets.PastRetention(env, *c)
		return !past
	})
	return past || !some && !active, err
}
