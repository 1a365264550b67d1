package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

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
		case verb == 0 && !w.isCalm():
			before := w.checker.removals(group)
			err = p.host.DeleteGroup(ctx, group)
			if err == nil && w.checker.removals(group) == before {
				w.violate("%s: its deletion was acknowledged, and the log does not have it", group)
			}
			w.note("%s: deletion: %v", group, err)
		case verb < 3:
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
