package shard

import "context"

// tenure is the time during which a shard serves without a break. What is done for a group outside the loop, such as a call of a
// plugin, ends with it: whoever owns the partition by then decides anew.
type tenure struct {
	ctx context.Context
	end context.CancelCauseFunc
}

func (s *Shard) beginTenure() {
	ctx, end := context.WithCancelCause(context.Background())
	s.tenure.Store(&tenure{ctx, end})
}

func (s *Shard) endTenure(err error) {
	if t := s.tenure.Swap(nil); t != nil {
		t.end(err)
		if ended := s.host.cfg.TenureEnded; ended != nil {
			ended(s.partition)
		}
	}
}

// Tenure is a context that ends when this replica no longer serves the group's partition; its cause says why. Where it does not
// serve it now, the context has ended.
func (h *Host) Tenure(group string) context.Context { return h.TenureOf(h.Partition(group)) }

// TenureOf is Tenure of a partition.
func (h *Host) TenureOf(p int32) context.Context {
	if t := h.shards[p].tenure.Load(); t != nil {
		return t.ctx
	}
	ctx, end := context.WithCancelCause(context.Background())
	end(ErrNotOwner)
	return ctx
}

// Holds says that nobody else can have been assigned the group's partition without our knowledge at this moment (D3). What is about to
// be done elsewhere in the group's name, where nothing fences it, asks this last.
func (h *Host) Holds(group string) bool {
	s := h.shards[h.Partition(group)]
	return s.serving.Load() && s.leaseValid()
}
