package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

const (
	requestTimeout = 10 * time.Second
	// serverPatience is how long a replica works on a request whose client has long gone.
	serverPatience   = time.Minute
	backoffMin       = 100 * time.Millisecond
	backoffMax       = time.Second
	rebalanceTimeout = time.Minute
	subtopology      = "0"
)

// Error codes that a client knows.
const (
	codeUnknownMember    = 25
	codeGroupNotFound    = 69
	codeFencedEpoch      = 110
	codeStaleMemberEpoch = 113
	codeNonEmpty         = 68
)

// errLost: no answer came.
var errLost = errors.New("no answer")

// client is one stream thread: a member of a streams group as the Java client of Kafka 4.4 is one.
type client struct {
	w       *world
	number  int
	group   string
	process string
	rng     *rand.Rand
	cancel  context.CancelFunc

	// Written by the client's goroutine alone, under mu where others read.
	mu    sync.Mutex
	id    string
	epoch int32
	owned map[int32]bool // active tasks that it works on
	alive bool
	cut   bool // the network is away

	leaves atomic.Bool // it is to leave at its next step

	coordinator *replica
	assigned    map[int32]bool // what the coordinator said last
	reported    map[int32]bool // what the coordinator was told last; nil: nothing yet
	full        bool           // tell everything again
	attempts    int            // failed ones in a row
	beatAt      time.Time
	commitAt    time.Time
	births      int
	position    map[int32]int64 // next offset to read; missing: not fetched yet
}

// spawn starts a client.
func (w *world) spawn(group string) *client {
	w.mu.Lock()
	w.born++
	n := w.born
	w.mu.Unlock()
	c := &client{
		w: w, number: n, group: group, process: fmt.Sprintf("process-%d", n-n%2), rng: w.rng(fmt.Sprintf("client %d", n)), alive: true,
	}
	ctx, cancel := context.WithCancel(w.ctx)
	c.cancel = cancel
	c.rebirth()
	w.mu.Lock()
	w.clients = append(w.clients, c)
	w.mu.Unlock()
	w.active.Go(func() { c.run(ctx) })
	return c
}

// rebirth makes the client a new member, as a restart of the application does.
func (c *client) rebirth() {
	c.births++
	c.abandon()
	c.mu.Lock()
	c.id = fmt.Sprintf("c%d.%d", c.number, c.births)
	c.mu.Unlock()
	c.w.note("%s: %s begins", c.group, c.id)
}

// abandon gives everything up, to join again.
func (c *client) abandon() {
	c.mu.Lock()
	c.epoch, c.owned = 0, map[int32]bool{}
	c.mu.Unlock()
	c.assigned, c.reported, c.position = map[int32]bool{}, nil, map[int32]int64{}
	c.beatAt = time.Now()
}

func (c *client) run(ctx context.Context) {
	defer func() {
		c.mu.Lock()
		c.alive, c.owned = false, map[int32]bool{}
		c.mu.Unlock()
	}()
	for ctx.Err() == nil {
		if c.leaves.Load() {
			c.leave()
			return
		}
		c.step()
		next := c.beatAt
		if c.epoch > 0 && c.commitAt.Before(next) {
			next = c.commitAt
		}
		if !c.w.sleep(ctx, max(time.Until(next), time.Duration(1+c.rng.IntN(1000))*time.Microsecond)) {
			return
		}
	}
}

// step does what is due.
func (c *client) step() {
	now := time.Now()
	if !now.Before(c.beatAt) {
		c.heartbeat()
		c.reconcile()
	}
	if c.epoch > 0 {
		c.fetch()
		if !now.Before(c.commitAt) {
			c.work()
			c.commit(sortedKeys(c.owned))
			c.commitAt = time.Now().Add(time.Duration(500+c.rng.IntN(5000)) * time.Millisecond)
		}
	}
}

func (c *client) heartbeat() {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Version = 1
	req.Group, req.MemberID, req.MemberEpoch = c.group, c.id, c.epoch
	joining := c.epoch == 0
	var told map[int32]bool
	switch {
	case joining:
		req.RebalanceTimeoutMillis = int32(rebalanceTimeout.Milliseconds())
		req.ProcessID = &c.process
		req.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{
			{SubtopologyID: subtopology, SourceTopics: []string{source}}}}
		req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	case c.full || !maps.Equal(c.owned, c.reported):
		told = maps.Clone(c.owned)
		req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = tasksOf(told), []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	}
	result, err := ask(c, func(ctx context.Context, h *shard.Host) (shard.HeartbeatResult, error) {
		return h.Heartbeat(ctx, c.caller(), 1, req)
	})
	if err != nil {
		c.heartbeatFailed(err)
		return
	}
	resp := result.Response
	c.attempts, c.full = 0, false
	if !joining && resp.MemberEpoch < c.epoch {
		c.w.violate("%s: epoch of %s went back from %d to %d", c.group, c.id, c.epoch, resp.MemberEpoch)
	}
	c.w.checker.ackedEpoch(c.group, c.id, resp.MemberEpoch)
	c.mu.Lock()
	c.epoch = resp.MemberEpoch
	c.mu.Unlock()
	if told != nil {
		c.reported = told
	}
	if joining {
		c.reported = map[int32]bool{}
		c.commitAt = time.Now()
	}
	c.beatAt = time.Now().Add(time.Duration(resp.HeartbeatIntervalMillis) * time.Millisecond)
	if resp.ActiveTasks != nil {
		c.assigned = map[int32]bool{}
		for _, t := range resp.ActiveTasks {
			for _, p := range t.Partitions {
				c.assigned[p] = true
			}
		}
	}
}

func (c *client) heartbeatFailed(err error) {
	var refusal *streams.Error
	c.full = true
	if !errors.As(err, &refusal) {
		c.retry(err)
		return
	}
	c.w.note("%s: %s at epoch %d was refused: %v", c.group, c.id, c.epoch, err)
	if epoch, member := c.w.checker.memberEpoch(c.group, c.id); member && epoch == c.epoch && c.epoch > 0 {
		c.w.violate("%s: %s at epoch %d, which the log says it is at, was refused: %v", c.group, c.id, epoch, err)
	}
	switch {
	case refusal.Code == codeUnknownMember && c.epoch > 0, refusal.Code == codeFencedEpoch:
		c.abandon()
	case refusal.Code == codeGroupNotFound && c.epoch > 0:
		// The group emptied while this member was away, and was removed: the thread dies, and is started again.
		c.rebirth()
	default:
		c.w.violate("%s: heartbeat of %s at epoch %d: %v", c.group, c.id, c.epoch, err)
	}
}

// retry takes an error that is about the coordinator, not about the group.
func (c *client) retry(err error) {
	c.attempts++
	backoff := min(backoffMin<<min(c.attempts, 10), backoffMax)
	switch {
	case errors.Is(err, shard.ErrLoading):
	case errors.Is(err, shard.ErrNotOwner), errors.Is(err, shard.ErrUnavailable), errors.Is(err, errLost),
		errors.Is(err, context.DeadlineExceeded):
		c.coordinator = nil
	default:
		c.w.violate("%s: %s got %v", c.group, c.id, err)
	}
	c.beatAt = time.Now().Add(backoff*8/10 + time.Duration(c.rng.Int64N(int64(backoff)*4/10)))
}

// reconcile makes what the client owns what it was assigned: first it gives up, which takes time, then it takes.
func (c *client) reconcile() {
	if maps.Equal(c.owned, c.assigned) || c.epoch == 0 {
		return
	}
	var revoke []int32
	for _, p := range sortedKeys(c.owned) {
		if !c.assigned[p] {
			revoke = append(revoke, p)
		}
	}
	if len(revoke) > 0 {
		closing := time.Duration(c.rng.Int64N(int64(300 * time.Millisecond)))
		if c.rng.IntN(30) == 0 && !c.w.isCalm() {
			closing = time.Duration(c.rng.Int64N(int64(90 * time.Second))) // a task that does not close in time
		}
		pause(closing)
		c.commit(revoke)
	}
	owned := maps.Clone(c.owned)
	for _, p := range revoke {
		delete(owned, p)
		delete(c.position, p)
	}
	for p := range c.assigned {
		if !owned[p] {
			owned[p] = true
			c.take(p)
		}
	}
	c.mu.Lock()
	c.owned = owned
	c.mu.Unlock()
	c.beatAt = time.Now()
}

// take checks that nobody else works on the task with a right to.
func (c *client) take(p int32) {
	c.w.mu.Lock()
	others := slices.Clone(c.w.clients)
	c.w.mu.Unlock()
	for _, o := range others {
		if o == c || o.group != c.group {
			continue
		}
		o.mu.Lock()
		id, epoch, works := o.id, o.epoch, o.alive && o.owned[p]
		o.mu.Unlock()
		if valid, ok := c.w.checker.memberEpoch(c.group, id); works && ok && valid == epoch {
			c.w.violate("%s: %s takes task %d, and %s works on it at its epoch %d", c.group, c.id, p, id, epoch)
		}
	}
}

// leave is a planned stop: last commits, then goodbye.
func (c *client) leave() {
	if c.epoch == 0 {
		return
	}
	c.commit(sortedKeys(c.owned))
	c.mu.Lock()
	c.owned = map[int32]bool{}
	c.mu.Unlock()
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Version = 1
	req.Group, req.MemberID, req.MemberEpoch = c.group, c.id, -1
	_, err := ask(c, func(ctx context.Context, h *shard.Host) (shard.HeartbeatResult, error) {
		return h.Heartbeat(ctx, c.caller(), 1, req)
	})
	c.w.note("%s: %s leaves: %v", c.group, c.id, err)
}

func (c *client) caller() shard.Caller {
	return shard.Caller{ClientID: fmt.Sprintf("client-%d", c.number), ClientHost: "/10.0.0.1"}
}

func (c *client) name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

func (c *client) reach() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.cut
}

func (c *client) setCut(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
}

// ask sends a request to the coordinator and waits for its answer. Requests and answers take time and get lost; a request that
// arrived is worked on even if its client does not wait any more.
func ask[T any](c *client, f func(context.Context, *shard.Host) (T, error)) (T, error) {
	var zero T
	if c.coordinator == nil {
		pause(delay(c.rng))
		if !c.reach() {
			return zero, errLost
		}
		if c.coordinator = c.w.owner(c.group, c.rng); c.coordinator == nil {
			return zero, shard.ErrUnavailable
		}
	}
	give := time.Now().Add(requestTimeout)
	lost := func() (T, error) {
		pause(time.Until(give))
		return zero, errLost
	}
	loses := 0
	if !c.w.isCalm() {
		loses = 50 // one in that many
	}
	dropped := func() bool { return loses > 0 && c.rng.IntN(loses) == 0 }
	to, answer := delay(c.rng), delay(c.rng)
	dropThere, dropBack := dropped(), dropped()
	pause(to)
	p := c.coordinator.reachable()
	if p == nil || !c.reach() || dropThere {
		if p == nil {
			return zero, errLost // refused at once
		}
		return lost()
	}
	type outcome struct {
		v   T
		err error
	}
	out := make(chan outcome, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), serverPatience)
		defer cancel()
		v, err := f(ctx, p.host)
		out <- outcome{v, err}
	}()
	t := time.NewTimer(time.Until(give))
	defer t.Stop()
	select {
	case o := <-out:
		pause(answer)
		if !c.reach() || dropBack || c.coordinator.reachable() != p {
			return lost()
		}
		return o.v, o.err
	case <-t.C:
		return zero, errLost
	}
}

func tasksOf(set map[int32]bool) []kmsg.TaskIDs {
	if len(set) == 0 {
		return []kmsg.TaskIDs{}
	}
	t := kmsg.NewTaskIDs()
	t.SubtopologyID, t.Partitions = subtopology, sortedKeys(set)
	return []kmsg.TaskIDs{t}
}
