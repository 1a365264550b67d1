package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/history"
	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

const (
	backoffMin       = 100 * time.Millisecond
	backoffMax       = time.Second
	rebalanceTimeout = time.Minute
	// diedWait is after how long at most somebody starts an application again that ended with an error.
	diedWait = 20 * time.Second
)

// Error codes that a client knows.
const (
	codeUnknownTopic       = 3
	codeTimedOut           = 7
	codeLoading            = 14
	codeUnavailable        = 15
	codeNotCoordinator     = 16
	codeUnknownMember      = 25
	codeInvalidRequest     = 42
	codeNonEmpty           = 68
	codeGroupNotFound      = 69
	codeUnknownTopicID     = 100
	codeFencedEpoch        = 110
	codeFencedInstance     = 82
	codeUnreleasedInstance = 111
	codeStaleMemberEpoch   = 113
)

// Epochs of a goodbye.
const (
	leavesForGood   = -1
	leavesForAWhile = -2
)

// client is one stream thread: a member of a streams group as the Java client of Kafka 4.4 is one.
type client struct {
	w        *world
	number   int
	group    string
	process  string
	instance *string // static membership; nil: dynamic
	endpoint *kmsg.StreamsGroupHeartbeatRequestUserEndpoint
	rng      *rand.Rand
	cancel   context.CancelFunc
	killed   func() bool // without a word to anybody, wherever it happens to be

	// Written by the client's goroutine alone, under mu where others read.
	mu    sync.Mutex
	id    string
	epoch int32
	owned tasks // what it works on
	alive bool
	cut   bool // the network is away

	leaves atomic.Int32 // it is to leave at its next step, with that epoch; 0: it stays
	stalls atomic.Int64 // it is to stop for that long at its next step, ns

	seek        *seeker
	coordinator *node    // nil: it must be looked up
	by          *replica // that the last request went to
	found       view     // when the coordinator was looked up
	redirects   int      // in a row
	astray      view     // at the first of them
	// answeredBy took the last heartbeat, nil before.
	answeredBy atomic.Pointer[replica]
	lossTold   atomic.Int32 // what the log had lost then
	before     int32        // the epoch before the one it is at
	assigned   tasks        // what the coordinator said last
	reported   tasks        // what the coordinator was told last
	full       bool         // tell everything again
	seen       int32        // endpoint epoch
	attempts   int          // failed ones in a row
	beatAt     time.Time
	commitAt   time.Time
	pushAt     time.Time // no description before
	births     int
	classic    bool // a consumer of a classic group: see consumer_test.go
	position   map[task]position
}

// spawn starts a client.
func (w *world) spawn(group string) *client {
	w.mu.Lock()
	w.born++
	n := w.born
	w.mu.Unlock()
	c := &client{w: w, number: n, group: group, process: fmt.Sprintf("process-%d", n-n%2), rng: w.rng(fmt.Sprintf("client %d", n)), alive: true}
	c.seek = w.newSeeker(fmt.Sprintf("client %d", n), fmt.Sprintf("client-%d", n), func() bool { return !c.reach() })
	if c.rng.IntN(3) == 0 {
		instance := fmt.Sprintf("instance-%d", n)
		c.instance = &instance
	}
	if c.rng.IntN(3) == 0 {
		c.endpoint = &kmsg.StreamsGroupHeartbeatRequestUserEndpoint{Host: fmt.Sprintf("host-%d", n), Port: 8080}
	}
	if w.options.mutes(group) {
		return c
	}
	ctx, cancel := context.WithCancel(w.ctx)
	c.cancel, c.killed = cancel, func() bool { return ctx.Err() != nil }
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

// die ends the application's life; somebody starts it again after a while.
func (c *client) die() {
	c.rebirth()
	c.beatAt = time.Now().Add(time.Duration(c.rng.Int64N(int64(diedWait))))
}

// abandon gives everything up, to join again.
func (c *client) abandon() {
	c.mu.Lock()
	c.epoch, c.owned = 0, tasks{}
	c.mu.Unlock()
	c.before, c.assigned, c.reported, c.seen, c.position = 0, tasks{}, tasks{}, -1, map[task]position{}
	c.beatAt = time.Now()
}

func (c *client) run(ctx context.Context) {
	defer func() {
		c.seek.close()
		c.mu.Lock()
		c.alive, c.owned = false, tasks{}
		c.mu.Unlock()
	}()
	for ctx.Err() == nil {
		if epoch := c.leaves.Swap(0); epoch != 0 {
			c.leave(epoch)
			if epoch == leavesForGood || c.w.isClassic(c.group) {
				return
			}
			if !c.w.sleep(ctx, c.away()) {
				return
			}
			c.rebirth()
		}
		if d := c.stalls.Swap(0); d > 0 {
			c.w.note("%s: %s stops for %v", c.group, c.id, time.Duration(d).Round(time.Millisecond))
			if !c.w.sleep(ctx, time.Duration(d)) {
				return
			}
			c.commit(c.owned, c.epoch) // the thread that commits is the first to wake up
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

// away is how long a static member stays away.
func (c *client) away() time.Duration {
	longest := 70 * time.Second // longer than some sessions
	if c.w.isCalm() {
		longest = 10 * time.Second
	}
	return time.Duration(c.rng.Int64N(int64(longest)))
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
			epoch := c.epoch
			if c.before > 0 && c.rng.IntN(8) == 0 {
				epoch = c.before // as if it had been sent before the heartbeat was answered
			}
			c.commit(c.owned, epoch)
			c.commitAt = time.Now().Add(time.Duration(500+c.rng.IntN(5000)) * time.Millisecond)
		}
	}
}

// request is a heartbeat with what every one of them says.
func (c *client) request(epoch int32) *kmsg.StreamsGroupHeartbeatRequest {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Version = 1
	req.Group, req.MemberID, req.MemberEpoch, req.InstanceID, req.EndpointInformationEpoch = c.group, c.id, epoch, c.instance, c.seen
	return req
}

// send asks the coordinator to take a heartbeat.
func (c *client) send(req *kmsg.StreamsGroupHeartbeatRequest) (*kmsg.StreamsGroupHeartbeatResponse, error) {
	before := c.w.view(c.group)
	answer, err := c.ask(req)
	if err != nil {
		return nil, err
	}
	resp := answer.(*kmsg.StreamsGroupHeartbeatResponse)
	err = problem(resp.ErrorCode, resp.ErrorMessage)
	c.w.refusedWrongly("a heartbeat", c.group, before, err)
	return resp, err
}

func (c *client) heartbeat() {
	req := c.request(c.epoch)
	joining := c.epoch == 0
	var telling bool
	told := c.owned.clone()
	if c.w.options.sabotages(hoarder) {
		told = c.assigned.clone()
	}
	switch {
	case joining:
		told = tasks{}
		req.RebalanceTimeoutMillis = int32(rebalanceTimeout.Milliseconds())
		req.ProcessID, req.UserEndpoint = &c.process, c.endpoint
		req.Topology = applicationTopology()
		fallthrough
	case c.full || !c.owned.equal(c.reported):
		telling = true
		req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = told.wire(false), told.wire(true), []kmsg.TaskIDs{}
	}
	if telling && c.rng.IntN(4) == 0 {
		req.TaskOffsets = c.restored()
	}
	known, member := c.w.checker.memberEpoch(c.group, c.id)
	loss := c.w.loss(c.group)
	asked := c.w.recorder.Begin(history.Op{Kind: history.Heartbeat, Client: fmt.Sprint(c.number), Group: c.group, Member: c.id, Sent: req.MemberEpoch})
	resp, err := c.send(req)
	if err != nil {
		failed(asked, err)
		c.heartbeatFailed(req, err, loss)
		return
	}
	by := c.by
	c.answeredBy.Store(by)
	c.lossTold.Store(loss)
	asked.Done(func(o *history.Op) { o.Node, o.Epoch = by.node, resp.MemberEpoch })
	c.attempts, c.redirects, c.full = 0, 0, false
	if !joining && resp.MemberEpoch < c.epoch {
		c.w.violate("%s: epoch of %s went back from %d to %d", c.group, c.id, c.epoch, resp.MemberEpoch)
	}
	if !joining && (!member || resp.MemberEpoch < known) && by.deposed.Load() == 0 && c.w.loss(c.group) == 0 {
		c.w.violate("%s: a heartbeat of %s was answered with epoch %d although the log said before that it is at %d (member: %v): a replaced owner answered",
			c.group, c.id, resp.MemberEpoch, known, member)
	}
	c.w.checker.ackedEpoch(c.group, c.id, resp.MemberEpoch, loss)
	if resp.MemberEpoch != c.epoch {
		c.before = c.epoch
	}
	c.mu.Lock()
	c.epoch = resp.MemberEpoch
	c.mu.Unlock()
	if telling {
		c.reported = told
	}
	if joining {
		c.commitAt = time.Now()
	}
	c.seen = resp.EndpointInformationEpoch
	c.beatAt = time.Now().Add(time.Duration(resp.HeartbeatIntervalMillis) * time.Millisecond)
	if resp.ActiveTasks != nil {
		c.assigned = tasksOf(resp.ActiveTasks, resp.StandbyTasks)
	}
	c.push(resp.TopologyDescriptionRequired)
}

func (c *client) heartbeatFailed(req *kmsg.StreamsGroupHeartbeatRequest, err error, loss int32) {
	var refusal *streams.Error
	c.full = true
	if !errors.As(err, &refusal) {
		c.retry(err)
		return
	}
	c.w.note("%s: %s at epoch %d was refused: %v", c.group, c.id, c.epoch, err)
	if refusal.Code == codeInvalidRequest && strings.HasPrefix(refusal.Message, "Task ") && !c.w.fits(req) {
		c.die() // a topic was made again with fewer partitions: the application ends, as it does with Kafka
		return
	}
	if epoch, member := c.w.checker.memberEpoch(c.group, c.id); member && epoch == c.epoch && c.epoch > 0 && !c.w.options.silent && loss == c.w.loss(c.group) {
		c.w.violate("%s: %s at epoch %d, which the log says it is at, was refused: %v", c.group, c.id, epoch, err)
	}
	switch {
	case refusal.Code == codeUnknownMember && c.epoch > 0, refusal.Code == codeFencedEpoch:
		c.abandon()
	case refusal.Code == codeGroupNotFound && c.epoch > 0:
		// The group emptied while this member was away, and was removed: the thread dies, and is started again.
		c.rebirth()
	case refusal.Code == codeGroupNotFound && c.epoch == 0 && c.w.converts:
		// A classic group with members: the application ends, and is started again.
		c.die()
	case refusal.Code == codeUnreleasedInstance && c.epoch == 0 && c.instance != nil:
		// The life before ended without a word, or its goodbye or the answer to this join was lost: fatal, until its session is over.
		c.die()
	case refusal.Code == codeFencedInstance && c.instance != nil && c.births > 1:
		// A join of the life before, which waited in a replica that was stopped, came after that of this one: fatal as well.
		c.die()
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
	case errors.Is(err, shard.ErrNotOwner):
		if !c.classic {
			c.ledAstray()
		}
		c.coordinator = nil
	case errors.Is(err, shard.ErrUnavailable), errors.Is(err, errLost),
		errors.Is(err, context.DeadlineExceeded):
		c.coordinator = nil
	default:
		c.w.violate("%s: %s got %v", c.group, c.id, err)
	}
	c.beatAt = time.Now().Add(backoff*8/10 + time.Duration(c.rng.Int64N(int64(backoff)*4/10)))
}

// leave is a planned stop: last commits, then goodbye. A dynamic member always leaves for good.
func (c *client) leave(epoch int32) {
	if c.epoch == 0 {
		return
	}
	c.commit(c.owned, c.epoch)
	c.mu.Lock()
	c.owned = tasks{}
	c.mu.Unlock()
	_, err := c.send(c.request(epoch))
	c.w.note("%s: %s leaves with %d: %v", c.group, c.id, epoch, err)
}

func (c *client) name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}
