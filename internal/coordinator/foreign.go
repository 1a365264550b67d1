package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

// foreignTimeout bounds the question whether the cluster has a group of its own of that id.
const foreignTimeout = 5 * time.Second

// ForeignGroups tells about the cluster's own groups.
type ForeignGroups interface {
	// Find says what the cluster's coordinator knows of the group: a kind ("classic", "consumer", "share", "streams", or another
	// group's protocol type) and whether it has members; kind "" where it has no such group.
	Find(ctx context.Context, group string) (kind string, members bool, err error)
}

// checkForeign refuses to make a streams group of an id that is in use on the cluster: two coordinators would
// then hand out the same partitions, and an application whose committed offsets lie there would start over. classic says that there
// is a classic group without members, whose place a streams group may take with its offsets. A group that is known here is no question; then asked is false.
func (c *Coordinator) checkForeign(ctx context.Context, group string) (classic, asked bool, err error) {
	if c.cfg.Foreign == nil {
		return false, true, nil
	}
	if known, err := c.shards.Known(group); err != nil || known {
		return false, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, foreignTimeout)
	defer cancel()
	kind, members, err := c.cfg.Foreign.Find(ctx, group)
	switch {
	case err != nil:
		if !errors.Is(err, context.Canceled) { // the client left
			c.foreignUnknown.warn(c.log, c.cfg.Now(), group, err)
		}
		return false, true, fmt.Errorf("%w: whether the cluster has a group %q of its own is not known: %w", shard.ErrLoading, group, err)
	case kind == "":
		return false, true, nil
	case kind == kindStreams:
		return false, true, &streams.Error{Code: codeNoGroup, Message: "Group " + group + " is a streams group of the cluster's own coordinator, and can't be another one here."}
	case kind == TakeOverProtocol && members:
		return false, true, fmt.Errorf("%w: a replica is taking it over, or was when it died", shard.ErrConverting)
	case members, kind == "consumer", kind == "share", c.conversions == nil:
		return false, true, notStreams(group)
	}
	return true, true, nil
}

// foreignUnknown warns that groups can't be made because the cluster does not say whether it has them. Their members are told to try again
// and do so for ever; where the reason stays (a missing permission), this line is all that tells.
type foreignUnknown struct {
	mu   sync.Mutex
	last time.Time
	left int // of the log since
}

// foreignUnknownEvery is how often the line comes at most; members try again several times a second.
const foreignUnknownEvery = 10 * time.Second

func (u *foreignUnknown) warn(log *slog.Logger, now time.Time, group string, err error) {
	u.mu.Lock()
	if !u.last.IsZero() && now.Sub(u.last) < foreignUnknownEvery {
		u.left++
		u.mu.Unlock()
		return
	}
	left := u.left
	u.last, u.left = now, 0
	u.mu.Unlock()
	args := []any{"group", group, "err", err}
	if left > 0 {
		args = append(args, "since_last_line", left)
	}
	log.Warn("can't tell whether the cluster has a group of that id, members that join are told to try again", args...)
}
