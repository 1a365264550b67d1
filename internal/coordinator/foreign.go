package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

// foreignTimeout bounds the question whether the cluster has a group of its own of that id.
const foreignTimeout = 5 * time.Second

// ForeignGroups tells about the cluster's own groups.
type ForeignGroups interface {
	// Find says what the cluster's coordinator knows of the group: a kind ("classic", "consumer", "share", or another
	// group's protocol type) and whether it has members; kind "" where it has no such group.
	Find(ctx context.Context, group string) (kind string, members bool, err error)
}

// checkForeign refuses to make a streams group of an id that is in use on the cluster: two coordinators would
// then hand out the same partitions, and an application whose committed offsets lie there would start over.
func (c *Coordinator) checkForeign(ctx context.Context, group string) error {
	if c.cfg.Foreign == nil {
		return nil
	}
	if known, err := c.shards.Known(group); err != nil || known {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, foreignTimeout)
	defer cancel()
	kind, members, err := c.cfg.Foreign.Find(ctx, group)
	switch {
	case err != nil:
		if !errors.Is(err, context.Canceled) { // the client left
			c.foreignUnknown.warn(c.log, c.cfg.Now(), group, err)
		}
		return fmt.Errorf("%w: whether the cluster has a group %q of its own is not known: %w", shard.ErrLoading, group, err)
	case kind == "":
		return nil
	case members:
		return &streams.Error{Code: codeNoGroup, Message: fmt.Sprintf("Group %s is not a streams group.", group)}
	}
	return &streams.Error{Code: codeNoGroup, Message: fmt.Sprintf("Group %s is not a streams group: the cluster behind this coordinator has a %s group "+
		"of that name without members, and taking over its offsets is not supported yet. Delete it there, or use another application.id.", group, kind)}
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

// UpstreamGroups asks the cluster's coordinators with the describe calls of each kind of group.
type UpstreamGroups struct {
	// Client finds coordinators and asks them; *kgo.Client does.
	Client kmsg.Requestor
}

// Find implements ForeignGroups. A kind that the cluster does not support is a kind it has no groups of. The newer kinds come
// first: what DescribeGroups answers about them differs between versions and implementations.
func (u UpstreamGroups) Find(ctx context.Context, group string) (kind string, members bool, err error) {
	consumer := kmsg.NewPtrConsumerGroupDescribeRequest()
	consumer.Groups = []string{group}
	gr, err := consumer.RequestWith(ctx, u.Client)
	if err != nil && !unsupported(err) {
		return "", false, fmt.Errorf("ConsumerGroupDescribe: %w", err)
	}
	if err == nil {
		for _, g := range gr.Groups {
			if found, err := describedKind(g.ErrorCode); err != nil {
				return "", false, fmt.Errorf("ConsumerGroupDescribe: %w", err)
			} else if found {
				return "consumer", len(g.Members) > 0, nil
			}
		}
	}

	share := kmsg.NewPtrShareGroupDescribeRequest()
	share.GroupIDs = []string{group}
	sr, err := share.RequestWith(ctx, u.Client)
	if err != nil && !unsupported(err) {
		return "", false, fmt.Errorf("ShareGroupDescribe: %w", err)
	}
	if err == nil {
		for _, g := range sr.Groups {
			if found, err := describedKind(g.ErrorCode); err != nil {
				return "", false, fmt.Errorf("ShareGroupDescribe: %w", err)
			} else if found {
				return "share", len(g.Members) > 0, nil
			}
		}
	}

	classic := kmsg.NewPtrDescribeGroupsRequest()
	classic.Groups = []string{group}
	cr, err := classic.RequestWith(ctx, u.Client)
	if err != nil {
		return "", false, fmt.Errorf("DescribeGroups: %w", err)
	}
	for _, g := range cr.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return "", false, fmt.Errorf("DescribeGroups: %w", err)
		}
		if g.ErrorCode == 0 && g.State != "Dead" {
			kind := g.ProtocolType
			if kind == "" || kind == "consumer" {
				kind = "classic"
			}
			return kind, len(g.Members) > 0, nil
		}
	}
	return "", false, nil
}

func describedKind(code int16) (found bool, err error) {
	switch err := kerr.ErrorForCode(code); {
	case err == nil:
		return true, nil
	case errors.Is(err, kerr.GroupIDNotFound), errors.Is(err, kerr.UnsupportedVersion):
		return false, nil
	default:
		return false, err
	}
}

// unsupported says that a broker does not know the request. The client library has no exported error for it; a test
// against an old cluster guards the texts.
func unsupported(err error) bool {
	return errors.Is(err, kerr.UnsupportedVersion) ||
		strings.Contains(err.Error(), "broker is too old") || strings.Contains(err.Error(), "request key is unknown")
}
