package shard

import (
	"context"

	"streamkeeper/eventlog"
)

// tenure is the time during which a shard serves without a break. What is done for a group outside the loop, such as a call of a
// plugin, ends with it: whoever owns the partition by then decides anew.
type tenure struct {
	ctx    context.Context
	end    context.CancelCauseFunc
	writer eventlog.Writer
}

func (s *Shard) beginTenure() {
	ctx, end := context.WithCancelCause(context.Background())
	s.tenure.Store(&tenure{ctx, end, s.writer})
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

// Holding is what a writer beside the log needs to adopt the claim under which a shard is served (eventlog.Annex).
type Holding struct {
	Claim eventlog.Claim
	// Owner is the claim's ownership record, but for producer id, epoch and claim.
	Owner eventlog.Ownership
	// Tenure ends when the shard is not served under this claim or a renewed one any more. What waits to be written then must not be.
	Tenure context.Context
	// Renew asks for the claim's next producer epoch. Where the claim can't be renewed the tenure ends.
	Renew func()
}

// Holding returns the claim of a partition that is served here; ok is false where it isn't. A context under Tenure or TenureOf that was
// taken before, and has not ended after Holding returned, is of the same tenure.
func (h *Host) Holding(p int32) (held Holding, ok bool) {
	s := h.shards[p]
	t := s.tenure.Load()
	if t == nil {
		return Holding{}, false
	}
	renew := func() { s.post(func(s *Shard) { s.renew(t) }) }
	return Holding{Claim: t.writer.Claim(), Owner: h.cfg.Self, Tenure: t.ctx, Renew: renew}, true
}

// renew has the writer of a tenure take its next epoch. The barrier behind it finds out where that has ended the writer (the cluster has
// forgotten its producer id): the shard might have nothing to append for a long time.
func (s *Shard) renew(t *tenure) {
	if s.tenure.Load() != t || s.writer == nil {
		return
	}
	s.writer.Renew()
	s.tryWrite()
}

// tryWrite appends a barrier that nobody waits for: where the cluster refuses it the shard ends.
func (s *Shard) tryWrite() {
	if s.state != active || s.writer == nil {
		return
	}
	run, nobody := s.run, &waiter{write: true, answer: func() {}, fail: func(error) {}}
	s.writer.Barrier(func(offset int64, err error) { s.postAck(ack{run: run, offset: offset, err: err, barrier: nobody}) })
}

// Under returns a context that ends with tenure, at the same moment, and not with ctx, whose values it has. What is decided after a
// later tenure has begun therefore never goes on under it.
func Under(ctx, tenure context.Context) (context.Context, context.CancelCauseFunc) {
	return context.WithCancelCause(under{tenure, ctx})
}

// under is a tenure's context with the values of another. Its own values come first: the context package finds the parent to register
// a child with by one of them, and only a registered child ends together with its parent.
type under struct {
	context.Context
	values context.Context
}

func (u under) Value(key any) any {
	if v := u.Context.Value(key); v != nil {
		return v
	}
	return u.values.Value(key)
}
