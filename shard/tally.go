package shard

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// tallyPause is how long a message waits for other shards that say the same: a replica's fifty shards move together, and fifty lines
// would hide the one that matters.
const tallyPause = 250 * time.Millisecond

// tally turns one message of many shards into one log line with their partitions.
type tally struct {
	log *slog.Logger
	mu  sync.Mutex
	by  map[tallyKey][]int32
}

type tallyKey struct {
	level slog.Level
	msg   string
}

// say logs msg for partition p, together with whatever other partitions say within the pause.
func (t *tally) say(level slog.Level, msg string, p int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[tallyKey][]int32{}
	}
	k := tallyKey{level, msg}
	if len(t.by[k]) == 0 {
		time.AfterFunc(tallyPause, func() { t.tell(k) })
	}
	t.by[k] = append(t.by[k], p)
}

func (t *tally) tell(k tallyKey) {
	t.mu.Lock()
	ps := t.by[k]
	delete(t.by, k)
	t.mu.Unlock()
	t.log.Log(context.Background(), k.level, k.msg, "shards", len(ps), "partitions", partitionRanges(ps))
}

// partitionRanges are partitions for a log line, ascending, runs of them as their ends: "0-49", or "0 3-5 7".
func partitionRanges(ps []int32) string {
	ps = slices.Compact(slices.Sorted(slices.Values(ps)))
	var b strings.Builder
	for from := 0; from < len(ps); {
		to := from
		for to+1 < len(ps) && ps[to+1] == ps[to]+1 {
			to++
		}
		if from > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprint(&b, ps[from])
		if to > from {
			fmt.Fprintf(&b, "-%d", ps[to])
		}
		from = to + 1
	}
	return b.String()
}
