package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
	"streamkeeper/shard"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/streams"
)

// admin is an operator: lists, describes, and now and then deletes a group.
func (w *world) admin() {
	rng := w.rng("admin")
	for w.sleep(w.ctx, time.Duration(rng.Int64N(int64(40*time.Second)))) {
		group := groupName(rng.IntN(w.groups))
		verb, r := rng.IntN(10), w.owner(group, rng)
		if r == nil {
			continue
		}
		p := r.reachable()
		if p == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(w.ctx, requestTimeout)
		var err error
		switch {
		case verb < 3 && !w.isCalm():
			before := w.checker.removals(group)
			err = deleteGroup(ctx, p, group)
			if err == nil && w.checker.removals(group) == before {
				w.violate("%s: its deletion was acknowledged, and the log does not have it", group)
			}
			w.note("%s: deletion: %v", group, err)
		case verb < 5:
			_, err = p.host.List(ctx)
		default:
			_, err = p.host.Describe(ctx, group)
		}
		cancel()
		var refusal *streams.Error
		switch {
		case err == nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		case errors.Is(err, shard.ErrNotOwner), errors.Is(err, shard.ErrLoading), errors.Is(err, shard.ErrUnavailable):
		case errors.As(err, &refusal) && (refusal.Code == codeGroupNotFound || refusal.Code == codeNonEmpty):
		default:
			w.violate("%s: admin request %s: %v", group, fmt.Sprint(verb), err)
		}
	}
}

// deleteGroup deletes a group and its description.
func deleteGroup(ctx context.Context, p *process, group string) error {
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Version, req.Groups = 3, []string{group}
	resp := p.service.DeleteGroups(ctx, coordinator.Caller{}, req)
	const deletionFailed = 134
	switch code := resp.Groups[0].ErrorCode; code {
	case 0:
		return nil
	case codeLoading, codeTimedOut, deletionFailed: // the last: the catalogue is out of order
		return shard.ErrLoading
	case codeUnavailable:
		return shard.ErrUnavailable
	case codeNotCoordinator:
		return shard.ErrNotOwner
	default:
		return &streams.Error{Code: code}
	}
}

// configure changes the configuration of a group. What is refused or gets no answer is not repeated.
func (w *world) configure(group string, changes []groupconfig.Change, rng *rand.Rand) {
	r := w.owner(group, rng)
	if r == nil {
		return
	}
	p := r.reachable()
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, requestTimeout)
	defer cancel()
	var wanted map[string]string
	err := p.host.AlterConfig(ctx, group, false, func(b *groupconfig.Broker, current map[string]string) (map[string]string, *streams.Error) {
		next, refused := b.Alter(current, changes)
		wanted = next
		return next, refused
	})
	w.note("%s: configured with %v: %v", group, changes, err)
	if err == nil {
		w.checker.ackedConfig(group, wanted)
	}
}
