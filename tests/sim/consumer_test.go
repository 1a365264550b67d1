package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

// Classic consumers, and the operator that moves applications from one protocol to the other. A consumer is a client whose epoch is a generation, and
// which has all tasks while it is in the group: the cluster lets one member in at a time.

const (
	consumerSession = 15 * time.Second
	consumerBeat    = 3 * time.Second
	// migrateEvery is how often the operator moves an application, on the average: a conversion, with the sessions that it may have to wait for, takes up to a minute.
	migrateEvery = 25 * time.Second
)

// launch starts a client of the group, of the kind that its application has now.
func (w *world) launch(group string) {
	if w.isClassic(group) {
		w.consumer(group)
		return
	}
	w.spawn(group)
}

func (w *world) isClassic(group string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.classic[group]
}

// migrate moves applications from one protocol to the other, and starts consumers again that have gone.
func (w *world) migrate() {
	rng := w.rng("migrations")
	for w.sleep(w.ctx, time.Duration(rng.Int64N(int64(2*migrateEvery)))) && !w.isCalm() {
		group := groupName(rng.IntN(w.groups))
		if w.options.mutes(group) {
			continue
		}
		w.mu.Lock()
		again := rng.IntN(4) == 0 // no move
		if !again {
			w.classic[group] = !w.classic[group]
		}
		classic := w.classic[group]
		w.mu.Unlock()
		if !again {
			w.note("%s: its application moves, classic from now on: %v", group, classic)
			for _, c := range append(w.living(), w.consuming()...) {
				if c.group == group && c.classic != classic {
					c.leaves.Store(leavesForGood)
				}
			}
			// The old ones and the new ones may meet: who starts an application does not wait for the last to end.
			if rng.IntN(2) == 0 && !w.sleep(w.ctx, time.Duration(rng.Int64N(int64(10*time.Second)))) {
				return
			}
		}
		for range 1 + rng.IntN(2) {
			w.launch(group)
		}
	}
}

// consuming are the living consumers.
func (w *world) consuming() (out []*client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.consumers {
		c.mu.Lock()
		if c.alive {
			out = append(out, c)
		}
		c.mu.Unlock()
	}
	return out
}

// consumer starts a classic consumer, unless the group has one.
func (w *world) consumer(group string) {
	for _, c := range w.consuming() {
		if c.group == group {
			return
		}
	}
	w.mu.Lock()
	w.born++
	n := w.born
	w.mu.Unlock()
	c := &client{w: w, number: n, group: group, classic: true, rng: w.rng(fmt.Sprintf("consumer %d", n)), alive: true}
	c.seek = w.newSeeker(fmt.Sprintf("consumer %d", n), fmt.Sprintf("consumer-%d", n), func() bool { return !c.reach() })
	if w.options.mutes(group) {
		return
	}
	ctx, cancel := context.WithCancel(w.ctx)
	c.cancel = cancel
	c.abandon()
	w.mu.Lock()
	w.consumers = append(w.consumers, c)
	w.mu.Unlock()
	w.active.Go(func() { c.consume(ctx) })
}

// consume is the life of a consumer.
func (c *client) consume(ctx context.Context) {
	defer func() {
		c.seek.close()
		c.mu.Lock()
		c.alive, c.owned = false, tasks{}
		c.mu.Unlock()
	}()
	for ctx.Err() == nil {
		if c.leaves.Load() != 0 || !c.w.isCalm() && c.rng.IntN(60) == 0 {
			c.quit()
			return
		}
		switch now := time.Now(); {
		case !c.w.isCalm() && c.rng.IntN(100) == 0:
			c.w.note("%s: consumer %d is killed", c.group, c.number)
			return
		case !c.w.isCalm() && c.rng.IntN(100) == 0:
			d := time.Duration(c.rng.Int64N(int64(2 * consumerSession)))
			c.w.note("%s: consumer %d stops for %v", c.group, c.number, d)
			if !c.w.sleep(ctx, d) {
				return
			}
			c.commit(c.owned, c.epoch) // the thread that commits is the first to wake up
		case c.epoch == 0 && !now.Before(c.beatAt):
			c.enter()
		case c.epoch > 0 && !now.Before(c.beatAt):
			c.remain()
		}
		if c.epoch > 0 {
			c.fetch()
			if !time.Now().Before(c.commitAt) {
				c.work()
				c.commit(c.owned, c.epoch)
				c.commitAt = time.Now().Add(time.Duration(500+c.rng.IntN(5000)) * time.Millisecond)
			}
		}
		next := c.beatAt
		if c.epoch > 0 && c.commitAt.Before(next) {
			next = c.commitAt
		}
		if !c.w.sleep(ctx, max(time.Until(next), time.Duration(1+c.rng.IntN(1000))*time.Microsecond)) {
			return
		}
	}
}

// enter joins the group.
func (c *client) enter() {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.ProtocolType = 9, c.group, c.id, consumerKind
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(consumerSession.Milliseconds()), int32(consumerSession.Milliseconds())
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name = "stream"
	req.Protocols = append(req.Protocols, protocol)
	answer, err := c.ask(req)
	var resp *kmsg.JoinGroupResponse
	if err == nil {
		resp = answer.(*kmsg.JoinGroupResponse)
		err = problem(resp.ErrorCode, nil)
	}
	if resp != nil && resp.ErrorCode == codeMemberIDRequired {
		c.rename(resp.MemberID)
		c.beatAt = time.Now()
		return
	}
	if err != nil {
		c.refused("join", err)
		return
	}
	c.rename(resp.MemberID)
	all := tasks{}
	for _, x := range c.w.cluster.topics.Load().tasks() {
		all[x] = false
	}
	c.mu.Lock()
	c.epoch, c.owned = resp.Generation, all
	c.mu.Unlock()
	c.attempts, c.position = 0, map[task]position{}
	c.beatAt, c.commitAt = time.Now().Add(consumerBeat), time.Now()
	c.w.note("%s: consumer %d is in the group as %s, generation %d", c.group, c.number, c.id, c.epoch)
}

func (c *client) rename(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id = id
}

// remain sends a heartbeat.
func (c *client) remain() {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 4, c.group, c.id, c.epoch
	answer, err := c.ask(req)
	if err == nil {
		err = problem(answer.(*kmsg.HeartbeatResponse).ErrorCode, nil)
	}
	if err != nil {
		c.refused("heartbeat", err)
		return
	}
	c.attempts = 0
	c.beatAt = time.Now().Add(consumerBeat)
}

// quit is a planned stop.
func (c *client) quit() {
	if c.epoch == 0 {
		return
	}
	c.commit(c.owned, c.epoch)
	req := kmsg.NewPtrLeaveGroupRequest()
	member := kmsg.NewLeaveGroupRequestMember()
	req.Version, req.Group, member.MemberID = 5, c.group, c.id
	req.Members = append(req.Members, member)
	_, err := c.ask(req)
	c.w.note("%s: consumer %d leaves: %v", c.group, c.number, err)
}

// refused takes the error of a join, heartbeat, commit, or fetch of a consumer.
func (c *client) refused(what string, err error) {
	var refusal *streams.Error
	if !errors.As(err, &refusal) {
		c.retry(err)
		return
	}
	c.w.note("%s: %s of consumer %d at generation %d is refused: %v", c.group, what, c.number, c.epoch, err)
	switch refusal.Code {
	case codeUnknownMember, codeGroupNotFound:
		c.rename("")
		c.abandon()
	case codeIllegalGeneration:
		c.abandon()
	case codeRebalance: // another one is in the group; or it is being converted
		joining := c.epoch == 0
		c.retry(shard.ErrLoading)
		if !joining {
			c.abandon()
		}
	case codeInconsistentProtocol:
		// A streams group with members, or a replica holds it: the application ends, and is started again.
		c.rename("")
		c.abandon()
		c.coordinator = nil
		c.beatAt = time.Now().Add(time.Duration(c.rng.Int64N(int64(diedWait))))
	default:
		c.w.violate("%s: %s of consumer %d at generation %d: %v", c.group, what, c.number, c.epoch, err)
	}
}

// unsettledConsumer says what is not yet as it should be of a group whose application is classic.
func (w *world) unsettledConsumer(group string) string {
	for _, c := range w.consuming() {
		if c.group != group {
			continue
		}
		c.mu.Lock()
		id, generation := c.id, c.epoch
		c.mu.Unlock()
		exists, members, _, _ := w.checker.snapshot(group)
		switch in := w.brokers.member(group); {
		case exists:
			return fmt.Sprintf("its consumer %d waits, and it is a streams group with members %v", c.number, members)
		case generation == 0 || in != id:
			return fmt.Sprintf("consumer %d is %s in generation %d, and the cluster's member is %q", c.number, id, generation, in)
		}
	}
	return ""
}

// unconverted says what a conversion has left behind where somebody is in the group.
func (w *world) unconverted(group string) string {
	c := w.checker
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.group(group)
	switch {
	case g.exists && len(g.members) > 0 && g.applied.Conversion() != eventlog.ConversionNone:
		return fmt.Sprintf("it is a streams group with members, and %v", g.applied.Conversion())
	case g.exists && len(g.members) > 0 && len(g.cluster) > 0 && !g.stale:
		return fmt.Sprintf("it is a streams group, and the cluster has a copy of its offsets: %v", g.cluster)
	}
	return ""
}

// gone: the record of a group is removed. One that is not converted must not be there again as a classic group. c.mu is held.
func (c *checker) gone(group string, g *checkedGroup, was eventlog.Conversion) {
	if was.Frozen() {
		c.conversions++
		return
	}
	if g.stale {
		g.stale = false
		c.spoil(group, g)
		return
	}
	for _, tp := range sortedOffsets(g.cluster) {
		if is := g.cluster[tp]; c.there(tp, is) {
			c.violate("%s: removed, and there again as a classic group with %v for %v", group, is, tp)
		}
	}
}
