package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"streamkeeper/shard"
)

// TestReadyWithDeclinedShards: a replica is not ready for what it should serve and can't, and where it can serve nothing; what it left to others it needs not serve.
func TestReadyWithDeclinedShards(t *testing.T) {
	refused := errors.New("refused")
	declines := func(why string, ps ...int32) (out []shard.Decline) {
		for _, p := range ps {
			out = append(out, shard.Decline{Partition: p, Why: why, Err: refused})
		}
		return out
	}
	for i, c := range []struct {
		declines    []shard.Decline
		held, owned []int32
		want        int // shards that it names; 0: ready
	}{
		{nil, []int32{0, 1}, []int32{0, 1}, 0},
		{declines(shard.DeclinedRights, 2), []int32{0, 1}, []int32{0, 1}, 0},
		{declines(shard.DeclinedRights, 2), nil, nil, 0},
		{declines(shard.DeclinedRights, 2), []int32{0, 2}, []int32{0}, 1},
		{declines(shard.DeclinedRights, 2), []int32{0, 2}, []int32{0, 2}, 0}, // the reason has passed
		{declines(shard.DeclinedRecord, 2), []int32{0, 2}, []int32{0}, 0},
		{declines(shard.DeclinedClock, 0, 1, 2), nil, nil, 3},
		{declines(shard.DeclinedStorage, 0, 1, 2), []int32{0, 1}, []int32{0}, 2},
		{declines(shard.DeclinedRecord, 0, 1, 2), nil, nil, 0},
		{declines(shard.DeclinedReading, 0, 1, 2), []int32{0}, nil, 0},
		{declines(shard.DeclinedBroker, 0, 1, 2), []int32{0}, nil, 0},
	} {
		err := judgeDeclines(c.declines, 3, c.held, func(p int32) bool { return slices.Contains(c.owned, p) })
		if (err == nil) != (c.want == 0) || c.want > 0 && !(errors.Is(err, refused) && strings.HasPrefix(err.Error(), fmt.Sprintf("%d shards", c.want))) {
			t.Errorf("%d: %v, want %d shards", i, err, c.want)
		}
	}
}
