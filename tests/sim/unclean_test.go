package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/internal/history"
)

// A log that loses acknowledged records: cut off by an unclean leader election, or deleted and made again. No coordinator can save what is gone;
// what it must do is to notice, wherever its tail stands, and go on from what the log still says. So the checker goes back to that, too, and what
// clients were told before does not bind any more.

var errCutting = errors.New("the log is being cut off")

// lose makes something of partition p get lost, and takes the checker back to offset cut.
func (c *checker) lose(p int32, cut int64, from func() (epoch int32)) {
	c.mu.Lock()
	c.parts[p].cutting = true
	c.mu.Unlock()
	epoch := from()
	c.mu.Lock()
	defer c.mu.Unlock()
	part := c.parts[p]
	part.cutting, part.cut, part.epoch = false, cut, epoch
	c.rebuild(p, cut)
}

// rebuild makes the state of a partition from what is left below cut. c.mu is held.
func (c *checker) rebuild(p int32, cut int64) {
	part := c.parts[p]
	part.fence, part.owner, part.next = eventlog.Fence{}, ownership{generation: -1, since: time.Now()}, min(part.next, cut)
	c.whole[p] = slices.DeleteFunc(c.whole[p], func(e eventlog.Entry) bool { return e.Offset >= cut })
	part.starts = slices.DeleteFunc(part.starts, func(at int64) bool { return at >= cut })
	before := map[string]*checkedGroup{}
	for name, g := range c.groups {
		if eventlog.Partition(name, c.w.partitions) == p {
			before[name] = g
			delete(c.groups, name)
		}
	}
	c.w.losses[p].Add(1)
	part.lostAt = time.Since(c.w.start)
	c.quiet = true
	for _, e := range c.whole[p] {
		r, err := eventlog.Decode(eventlog.Raw{Key: e.Key, Value: e.Value})
		if err != nil {
			panic(err) // it was decoded before
		}
		if o, ok := r.Value.(*eventlog.Ownership); ok {
			part.observe(e, o)
		} else if !part.fence.Void(e) {
			c.apply(p, e.Offset, r)
		}
	}
	c.quiet = false
	for _, name := range sortedKeys(before) {
		old, g := before[name], c.group(name)
		// What was ever there may still be on its way to a client.
		g.seenEpochs, g.seenOffsets, g.seenConfigs, g.seenStored = old.seenEpochs, old.seenOffsets, old.seenConfigs, old.seenStored
		g.removals, g.since, g.cluster = old.removals+1, time.Now(), old.cluster
		g.offsetRemovals = old.offsetRemovals
		for tp := range old.offsets {
			g.offsetRemovals[tp]++
		}
		for _, tp := range sortedOffsets(g.offsets) {
			g.offsetRemovals[tp]++
			c.stands(name, tp, g.offsets[tp])
		}
	}
}

func sortedOffsets(m map[topicPartition]committed) []topicPartition {
	tps := make([]topicPartition, 0, len(m))
	for tp := range m {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, func(a, b topicPartition) int { return strings.Compare(a.String(), b.String()) })
	return tps
}

// stands adds to the histories that the log has an offset at this moment, for a register that began when something was lost: who committed it may
// have done so before. c.mu is held.
func (c *checker) stands(group string, tp topicPartition, is committed) {
	at := time.Since(c.w.start)
	c.left = append(c.left, history.Op{
		Kind: history.Commit, Client: "log", Node: history.NodeUnknown, Group: group, Topic: c.w.registerName(group, tp.topic, is.topic), Partition: tp.partition,
		Offset: is.offset, Begin: at - time.Nanosecond, End: at + time.Nanosecond, Outcome: history.Done,
	})
}

// loss counts how often the group's partition lost something, or a conversion that came late spoiled it.
func (w *world) loss(group string) int32 {
	n := w.losses[w.partition(group)].Load()
	if spoils := w.spoils[group]; spoils != nil {
		n += spoils.Load()
	}
	return n
}

// lostAt is when that was so for the last time; 0: never. When all is over.
func (w *world) lostAt(group string) time.Duration {
	return max(w.checker.parts[w.partition(group)].lostAt, w.checker.group(group).spoiledAt)
}

// binding are the ops that still bind where something was lost, for the rules about clients alone: no heartbeat that may tell of before, no answer that
// was under way then.
func (w *world) binding(ops []history.Op) []history.Op {
	return slices.DeleteFunc(slices.Clone(ops), func(o history.Op) bool {
		at := w.lostAt(o.Group)
		return w.ofBefore(o) && (o.Kind == history.Heartbeat || o.Begin <= at && o.End >= at && o.Kind == history.Fetch)
	})
}

// inLog are those of them that the log must bear out: not what the cluster was told.
func (w *world) inLog(ops []history.Op) []history.Op {
	return slices.DeleteFunc(slices.Clone(ops), func(o history.Op) bool { return strings.HasPrefix(o.Client, classicTitle) || w.ofBefore(o) })
}

// ofBefore says that an answer may tell of what the partition of its group had before it lost something: it was asked for before, or it needs no write (a
// heartbeat, a description) and was asked for while an owner that has read nothing since had its lease (D3), which does not know of the loss. That what a heartbeat
// tells was in the log once is looked at when it is told (answered).
func (w *world) ofBefore(o history.Op) bool {
	at := w.lostAt(o.Group)
	if at > 0 && (o.Kind == history.Heartbeat || o.Kind == history.Describe) {
		at += tailAgeMax
	}
	return at > 0 && o.Begin <= at
}

// cleaned: a log is never cut off where the cleaner was. A leader that lacks records has cleaned nothing for them either: each replica
// of a partition cleans its own log.
func (c *checker) cleaned(p int32, upTo int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts[p].starts = slices.DeleteFunc(c.parts[p].starts, func(at int64) bool { return at < upTo })
}

// cutOff cuts the log off below some of the last batches, as a leader does that was elected although it was not in sync.
func (w *world) cutOff(rng *rand.Rand) {
	p := w.anyPartition(rng)
	pause(time.Millisecond) // what was appended at this very moment is read first
	w.checker.mu.Lock()
	starts := slices.Clone(w.checker.parts[p].starts)
	w.checker.mu.Unlock()
	n := 1 + rng.IntN(8)
	if len(starts) <= n {
		return
	}
	cut := starts[len(starts)-n]
	w.note("partition %d is cut off at %d", p, cut)
	w.checker.lose(p, cut, func() int32 { return w.log.Truncate(p, cut) })
}

// replaceTopic deletes the log and makes it again, empty: an operator who knows what that means, and has all replicas accept it. Each of them
// ends when it notices, and is started again.
func (w *world) replaceTopic() {
	pause(time.Millisecond)
	w.note("the log is deleted and made again")
	for p := range w.partitions {
		w.checker.mu.Lock()
		w.checker.parts[p].cutting = true
		w.checker.mu.Unlock()
	}
	w.log.Replace()
	for p := range w.partitions {
		w.checker.lose(p, 0, func() int32 { return 0 })
	}
}

// gone is called when a process finds that its log is not the one that it opened: it ends, and is started again after a while.
func (r *replica) gone(p *process, err error) {
	r.w.note("replica %d ends: %v", r.node, err)
	r.w.restarting.Go(func() {
		if r.running() == p {
			r.crash()
		}
		pause(time.Duration(1+r.node) * time.Second)
		r.start()
	})
}

func (o ownership) String() string {
	return fmt.Sprintf("node %d, generation %d, released %v", o.node, o.generation, o.released)
}
