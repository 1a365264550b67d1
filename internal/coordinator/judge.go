package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

const (
	// rememberFor is how long lookups of a group name the owner of its shard after it was asked for as a streams group at the
	// wrong replica, although it is not in the log (D9). The client looks it up at once, and joins within seconds; a
	// classic group that takes the id afterwards is led astray for no longer than this.
	rememberFor = 2 * time.Minute
	// rememberMax bounds the remembered groups; a stream of invented group ids pushes out old ones, it does not fill the heap.
	rememberMax = 10_000
	// judgeTimeout bounds the read barrier of a verdict: below the clients' request time-out, so that they get an answer.
	judgeTimeout = 10 * time.Second
	// refreshMax bounds the read barrier of a lookup, which can do without: a few round trips to the cluster, and short beside the back-off
	// of clients that were led astray.
	refreshMax = 500 * time.Millisecond
)

// Judge says whose the group is. Foreign is only said after a read barrier: everything that was in the log when
// Judge was called was looked at.
func (c *Coordinator) Judge(ctx context.Context, group string) Verdict {
	if v, ok := c.judgeKnown(group); ok {
		return v
	}
	ctx, cancel := context.WithTimeout(ctx, judgeTimeout)
	defer cancel()
	if err := c.barriers.wait(ctx, c.shards.Partition(group)); err != nil {
		level := slog.LevelWarn
		if errors.Is(err, shard.ErrBlind) { // which is said once, where the shard is declined; and clients ask again within moments
			level = slog.LevelDebug
		}
		c.log.Log(ctx, level, "can't tell whose a group is", "group", group, "err", err)
		return Undecided
	}
	if v, ok := c.judgeKnown(group); ok {
		return v
	}
	return Foreign
}

// redirect is called where a request that is only about streams groups came to a replica that does not own the shard. It
// makes the client's next lookup name the owner, unless the cluster has a group of its own of that id: the answer is then
// what the owner would say, because a lookup that names the owner would lead that group's own clients astray.
func (c *Coordinator) redirect(ctx context.Context, group string, refused error) error {
	if !errors.Is(refused, shard.ErrNotOwner) && !errors.Is(refused, shard.ErrUnavailable) {
		return refused
	}
	if known, err := c.shards.Known(group); err != nil || known {
		return refused
	}
	var refusal *streams.Error
	switch _, _, err := c.checkForeign(ctx, group); {
	case errors.As(err, &refusal):
		return err
	case err == nil:
		c.remembered.note(c.cfg.Now(), group)
	}
	return refused
}

// judgeKnown is the verdict where it can be given from what this replica holds.
func (c *Coordinator) judgeKnown(group string) (Verdict, bool) {
	known, err := c.shards.Known(group)
	switch {
	case err != nil:
		c.log.Warn("can't look a group up", "group", group, "err", err)
		return Undecided, true
	case !known:
		return Foreign, false
	}
	switch _, err := c.owned(c.shards.Partition(group)); {
	case err == nil:
		return Ours, true
	case errors.Is(err, shard.ErrLoading): // sent away, the client would be led here again
		return Undecided, true
	}
	return Elsewhere, true
}

// Coordinator names the node that owns a streams group's shard. Where this replica can't read the shard, a group that it knew before stays a
// streams group: its owner may be a replica that can, a newer one.
func (c *Coordinator) Coordinator(_ context.Context, group string) (n Node, known, ok bool) {
	known, err := c.shards.Known(group)
	if !known && (err != nil || !c.hinted(group)) {
		return Node{}, false, false
	}
	if known {
		c.remembered.drop(group) // it has done its part: if the group leaves the log now, it is gone
	}
	n, ok = c.ownerNode(c.shards.Partition(group))
	return n, true, ok && (err == nil || n.ID != c.cfg.Node.ID)
}

// CatchUp reads up to the log's end before groups are looked up, as far as refreshMax allows: a client that was sent away by a former owner
// looks the group up wherever it likes, also here, where the successor's claim may not have been read yet. Named once more, the former owner
// would send the client away again. Only shards of groups that are known here, and not served here, are read. Where that can't be done this replica would name the former owner, or nobody, until it can.
func (c *Coordinator) CatchUp(ctx context.Context, groups []string) (blind []string) {
	shards := map[int32][]string{}
	for _, group := range groups {
		p := c.shards.Partition(group)
		if c.shards.Owns(p) {
			continue
		}
		if known, err := c.shards.Known(group); err == nil && (known || c.hinted(group)) {
			shards[p] = append(shards[p], group)
		}
	}
	if len(shards) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, refreshMax)
	defer cancel()
	ps := slices.Collect(maps.Keys(shards))
	unseen := make([]bool, len(ps))
	fanout(len(ps), func(i int) {
		// What is known already is named otherwise: the former owner says what it knows.
		err := c.barriers.wait(ctx, ps[i])
		unseen[i] = errors.Is(err, shard.ErrBlind)
		if err != nil && c.log.Enabled(ctx, slog.LevelDebug) {
			c.log.Debug("a group is looked up in an older state of the log", "partition", ps[i], "err", err)
		}
	})
	for i, p := range ps {
		if unseen[i] {
			blind = append(blind, shards[p]...)
		}
	}
	return blind
}

// hinted says that a lookup of a group that is not in the log names the owner of its shard all the same, because a streams client was sent away
// (redirect). The owner itself needs no hint: what it has not is not there, and what it calls its own all the same would be kept from the cluster.
func (c *Coordinator) hinted(group string) bool {
	return !c.shards.Owns(c.shards.Partition(group)) && c.remembered.has(c.cfg.Now(), group)
}

// remembered are groups whose lookups name the owner of their shard because of a request alone.
type remembered struct {
	mu     sync.Mutex
	groups map[string]time.Time // until when
	order  []string             // in the order of note, for pushing out; may hold groups that are gone
}

func (r *remembered) note(now time.Time, group string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.groups == nil {
		r.groups = map[string]time.Time{}
	}
	if _, ok := r.groups[group]; !ok {
		r.order = append(r.order, group)
	}
	r.groups[group] = now.Add(rememberFor)
	for len(r.groups) > rememberMax {
		delete(r.groups, r.order[0])
		r.order = r.order[1:]
	}
}

func (r *remembered) has(now time.Time, group string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	until, ok := r.groups[group]
	return ok && now.Before(until)
}

// drop forgets a group: it was deleted, or is in the log.
func (r *remembered) drop(group string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.groups[group]; ok {
		delete(r.groups, group)
		r.order = slices.DeleteFunc(r.order, func(g string) bool { return g == group })
	}
}

// barriers lets everybody who wants to read a partition up to its end share the questions to the cluster: one that begins
// after a caller came answers that caller too.
type barriers struct {
	read func(ctx context.Context, p int32) error
	mu   sync.Mutex
	next map[int32]*barrier // not begun yet, behind one that is under way
	busy map[int32]bool
}

type barrier struct {
	done chan struct{}
	err  error
}

// wait returns when everything that was in the partition when it was called is applied.
func (b *barriers) wait(ctx context.Context, p int32) error {
	b.mu.Lock()
	n := b.next[p]
	if n == nil {
		n = &barrier{done: make(chan struct{})}
		b.next[p] = n
		if !b.busy[p] {
			b.busy[p] = true
			go b.run(p)
		}
	}
	b.mu.Unlock()
	select {
	case <-n.done:
		return n.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run does one barrier after the other until nobody waits.
func (b *barriers) run(p int32) {
	for {
		b.mu.Lock()
		n := b.next[p]
		delete(b.next, p)
		if n == nil {
			delete(b.busy, p)
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), judgeTimeout)
		n.err = b.read(ctx, p)
		cancel()
		close(n.done)
	}
}
