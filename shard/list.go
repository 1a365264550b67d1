package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard/streams"
)

// A client that wants all groups asks each node, one after the other or side by side, and unites the answers. Shards move meanwhile, and a group
// must be on somebody's list whenever the nodes are asked. So a shard is listed by
//
//	who serves it                            from memory, inside the lease
//	who is named by the log and serves not   it loads, or its lease is over: from the log, after a read barrier, as all that follow
//	everybody                                while the log names nobody: it was released, or never claimed
//	who did so until another claimed it      for a while: the successor may have been asked before, or was not among the nodes that were asked
//
// and by nobody else. A group is then on two lists for a while after its shard has moved, which clients expect: Java's admin client and ours know
// groups by their ids. Where the log names an owner that does not answer, the client has asked it in vain, and knows that its list lacks groups.

const (
	// listedAfterLoss is how long a shard is still listed by those who listed it before it was claimed: as long as a list may take altogether,
	// which for Java's admin client is its default.api.timeout.ms.
	listedAfterLoss = time.Minute
	// listsAtOnce is how many shards of one list are read side by side: reading is nothing but work, and others wait for the processors.
	listsAtOnce = 2
	// listBarriersAtOnce is how many shards of one list ask the cluster for their end side by side: waiting costs little, and a log may have
	// thousands of partitions.
	listBarriersAtOnce = 32
	// listBarrierMax bounds one read barrier of a list, so that some that hang don't use up the time of all.
	listBarrierMax = 5 * time.Second
	// listMax bounds a list, however many shards it has: well below the time-outs of requests (Java's request.timeout.ms is 30 s), so that there is an
	// answer, and time to ask again within default.api.timeout.ms. A million groups take a second; a cluster replaces a leader that hangs within 9 s.
	listMax = 10 * time.Second
)

// Listed is one group in a list.
type Listed struct{ Group, State string }

// List lists the groups of the shards that this replica answers for, ascending within a shard. It fails with ErrLoading where it can't tell what
// a shard has that may be on nobody else's list: a list that lacks groups would look like a loss. A shard that can't be read is left out, as Kafka
// leaves out one that failed; its owner may be a replica that can. What is not read after listMax can't be read.
func (h *Host) List(ctx context.Context) ([]Listed, error) {
	bounded, cancel := context.WithTimeout(ctx, listMax)
	defer cancel()
	var mu sync.Mutex
	var all []Listed
	var first error
	var wg sync.WaitGroup
	slots, barriers := make(chan struct{}, listsAtOnce), make(chan struct{}, listBarriersAtOnce)
	for _, s := range h.shards {
		wg.Go(func() {
			l, err := s.list(bounded, slots, barriers)
			if err != nil && bounded.Err() != nil && ctx.Err() == nil {
				err = fmt.Errorf("%w: the groups of partition %d can't be listed within %v: %w", ErrLoading, s.partition, listMax, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil && first == nil {
				first = err
			}
			all = append(all, l...)
		})
	}
	wg.Wait()
	if err := cmp.Or(ctx.Err(), first); err != nil {
		return nil, err
	}
	return all, nil
}

// list is the part of one shard. What it takes of slots and barriers it gives back: a list ends with ctx, and with the shard's loop.
func (s *Shard) list(ctx context.Context, slots, barriers chan struct{}) ([]Listed, error) {
	if s.serving.Load() {
		l, err := s.listServed(ctx, slots)
		if !errors.Is(err, ErrNotOwner) && !errors.Is(err, ErrLoading) {
			return l, err
		}
		// It ended under the list, or its lease is over.
	}
	unread := within(ctx, barriers, func() error { return s.listBarrier(ctx) })
	if mine, err := s.answersFor(unread); err != nil || !mine {
		return nil, err
	}
	var l []Listed
	err := within(ctx, slots, func() (err error) {
		l, err = s.listStored(ctx)
		return err
	})
	return l, err
}

// within holds a slot while f runs. It fails when ctx ends before there is one.
func within(ctx context.Context, slots chan struct{}, f func() error) error {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-slots }()
	return f()
}

// listBarrier reads the log to its end, or says why that can't be done.
func (s *Shard) listBarrier(ctx context.Context) error {
	if err := s.host.cfg.Store.Err(s.partition); errors.Is(err, eventlog.ErrRefused) {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, listBarrierMax)
	defer cancel()
	return s.host.Barrier(bounded, s.partition)
}

// answersFor says whether a shard that this replica does not serve is on its list all the same, after the log was read to its end. Where that
// could not be done, another owner that is known counts, who is asked too.
func (s *Shard) answersFor(unread error) (bool, error) {
	store, self := s.host.cfg.Store, s.host.cfg.Self.NodeID
	if errors.Is(store.Err(s.partition), eventlog.ErrRefused) {
		return false, nil
	}
	o, ok := store.Owner(s.partition)
	if ok {
		s.lost.see(o, self)
	}
	if ok && !o.Released && o.NodeID != self && !s.lost.lately() {
		return false, nil
	}
	if unread != nil {
		return false, fmt.Errorf("%w: the groups of partition %d can't be listed: %w", ErrLoading, s.partition, unread)
	}
	return true, nil
}

// listStored lists what the projection holds.
func (s *Shard) listStored(ctx context.Context) ([]Listed, error) {
	states := map[string]string{}
	var failed error
	err := s.host.cfg.Store.GroupsToHydrate(s.partition, func(id string, records []projection.Stored) bool {
		g, err := replay(id, records)
		if err != nil {
			failed = err
			return false
		}
		states[id] = g.State().String()
		return ctx.Err() == nil
	})
	if err = errors.Join(err, failed, ctx.Err()); err != nil {
		return nil, err
	}
	var out []Listed
	err = s.host.cfg.Store.Groups(s.partition, func(id string) bool {
		state, ok := states[id]
		if !ok {
			state = streams.StateEmpty.String()
		}
		out = append(out, Listed{Group: id, State: state})
		return ctx.Err() == nil
	})
	return out, errors.Join(err, ctx.Err())
}

// listServed reads the stored groups off the loop, and on it only those in memory: before and after, so that none is missed on its way between the two. A group
// that is stored and not in memory has no members (D7), so it is Empty. What was deleted before the request came is in memory until the projection has
// applied that, hence left out; what is deleted meanwhile may be listed. What was seen is waited for at the end, once and without a slot: what a log does not take
// for a while holds up no other shard.
func (s *Shard) listServed(ctx context.Context, slots chan struct{}) ([]Listed, error) {
	var out []Listed
	var run int64
	if err := within(ctx, slots, func() (err error) {
		out, run, err = s.listSeen(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	again := false
	if err := s.do(ctx, func(s *Shard) { again = s.run != run }); err != nil {
		return nil, err
	}
	if again { // claimed anew: these groups are not those in memory now
		return nil, ErrLoading
	}
	return out, nil
}

// listSeen is the list as it is seen in that run of the shard, not all of it durable yet.
func (s *Shard) listSeen(ctx context.Context) (_ []Listed, run int64, _ error) {
	memory := map[string]seen{}
	run, err := s.look(ctx, memory)
	if err != nil {
		return nil, 0, err
	}
	var out []Listed
	add := func(id string) bool {
		out = append(out, Listed{Group: id, State: streams.StateEmpty.String()})
		return ctx.Err() == nil
	}
	if err := errors.Join(s.host.cfg.Store.Groups(s.partition, add), ctx.Err()); err != nil {
		return nil, 0, err
	}
	if _, err := s.look(ctx, memory); err != nil {
		return nil, 0, err
	}
	keep := out[:0]
	for _, l := range out {
		if m, ok := memory[l.Group]; ok {
			if delete(memory, l.Group); !m.exists {
				continue
			}
			l.State = m.state
		}
		keep = append(keep, l)
	}
	for id, m := range memory { // what the projection has not applied yet
		if m.exists {
			keep = append(keep, Listed{Group: id, State: m.state})
		}
	}
	return keep, run, nil
}

// loss notes when a shard that was this node's, or nobody's, became another's, as the log tells. Its methods may be called from any goroutine.
type loss struct {
	mu    sync.Mutex
	mine  bool      // by the newest ownership record seen the shard is this node's, in this life or an earlier one, or nobody's
	until time.Time // of the listing that follows a loss
}

// see is told of each ownership record, and by whoever wants to know of lately what the projection holds: it may be ahead of those who are told.
func (l *loss) see(o eventlog.Owner, self int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	mine := o.NodeID == self || o.Released
	if l.mine && !mine {
		l.until = time.Now().Add(listedAfterLoss)
	}
	l.mine = mine
}

// lately says that that was so short a time ago that a list may have passed its new owner before.
func (l *loss) lately() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.until)
}

// seen is what a list tells of a group in memory.
type seen struct {
	state  string
	exists bool
}

// lookAtOnce is how many groups a list looks at in one turn of the loop, which that takes well below a millisecond.
const lookAtOnce = 1000

// look notes the groups in memory: which there are at one moment, and then the state of each, a part in each turn. One that leaves memory in between is
// stored as it was. None of it may be told before it is durable.
func (s *Shard) look(ctx context.Context, into map[string]seen) (run int64, _ error) {
	var groups []*group
	if err := s.peek(ctx, func(s *Shard) {
		run, groups = s.run, make([]*group, 0, len(s.groups))
		for _, g := range s.groups {
			groups = append(groups, g)
		}
	}); err != nil {
		return 0, err
	}
	states := make([]seen, min(lookAtOnce, len(groups)))
	for part := range slices.Chunk(groups, lookAtOnce) {
		again := false
		if err := s.peek(ctx, func(s *Shard) {
			again = s.run != run
			for i, g := range part {
				states[i] = seen{g.State().String(), g.Exists()}
			}
		}); err != nil {
			return 0, err
		}
		if again { // claimed anew: these groups are not those in memory now
			return 0, ErrLoading
		}
		for i, g := range part {
			into[g.ID()] = states[i]
		}
	}
	return run, nil
}
