package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/internal/history"
	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

// What the clients asked and were told is judged once more when all is over, by a checker that looks at all clients together: committed
// offsets as linearizable registers, and each acknowledgement as a record that counts, in a tenure of the replica that gave it.

// register is a request about one committed offset. Offsets in a topic that was made again are another register.
func (c *client) register(kind history.Kind, topic string, p int32, id [16]byte) history.Op {
	return history.Op{
		Kind: kind, Client: c.title(), Node: history.NodeUnknown, Group: c.group, Topic: c.w.registerName(c.group, topic, id), Partition: p, Member: c.id, Offset: history.None,
	}
}

const registerSeparator = "#" // not allowed in names of topics

func (w *world) registerName(group, topic string, id [16]byte) string {
	return fmt.Sprint(topic, registerSeparator, id[15], ".", w.loss(group)) // what was lost begins anew
}

// title is the client's name in the history.
func (c *client) title() string {
	if c.classic {
		return fmt.Sprint(classicTitle, c.number)
	}
	return fmt.Sprint(c.number)
}

const classicTitle = "classic "

// failed records that a request was not answered with success. A refusal by the group changed nothing; everything else may have.
func failed(r *history.Request, err error) {
	var refusal *streams.Error
	if errors.As(err, &refusal) {
		r.Refused(err)
		return
	}
	r.Unknown(err)
}

// removes records that the log lost a committed offset: by a tombstone, or by an offset of another topic of the name. It is so from this very
// moment on, for the checker reads the log as it grows. c.mu is held.
func (c *checker) removes(k eventlog.Key, old committed) {
	if c.quiet {
		return
	}
	at := time.Since(c.w.start)
	c.removed = append(c.removed, history.Op{
		Kind: history.Remove, Client: "log", Node: history.NodeUnknown, Group: k.Group, Topic: c.w.registerName(k.Group, k.Topic, old.topic), Partition: k.Partition, Offset: history.None,
		Begin: at - time.Nanosecond, End: at + time.Nanosecond, Outcome: history.Done,
	})
}

// misled says that the client's last heartbeat was answered by a replica whose lease was worth nothing, or that the log has lost something since: it may work on tasks that the group has
// given to others after its session was over.
func (c *client) misled() bool {
	r := c.answeredBy.Load()
	return r != nil && r.deposed.Load() > 0 || c.lossTold.Load() != c.w.loss(c.group)
}

// judge is called outside of virtual time, which would not pass while an order is searched for.
func (w *world) judge() string {
	h := w.recorder.History()
	all := h.Ops
	h.Ops = slices.Concat(w.binding(all), w.checker.removed, w.checker.left)
	slices.SortStableFunc(h.Ops, func(a, b history.Op) int { return int(a.Begin - b.Begin) })
	bad := h.Check(history.Options{Stale: w.staleMax()})
	h.Ops = w.inLog(all)
	// In the log a topic has its name alone.
	for i := range h.Ops {
		h.Ops[i].Topic, _, _ = strings.Cut(h.Ops[i].Topic, registerSeparator)
	}
	_, more := h.CheckLog(w.checker.whole)
	if bad = append(bad, more...); len(bad) == 0 {
		return ""
	}
	return bad[0].String()
}

// tailAgeMax is for how long a replica may go on telling what needs no write without having read its partition to the end (D3): five leases.
const tailAgeMax = 5 * shard.SessionTimeoutDefault

// staleMax is how old an answer without a write may be: where coordinators of the ownership group lie a replica that reads nothing knows no better (D3).
func (w *world) staleMax() time.Duration {
	if w.lies {
		return tailAgeMax
	}
	return 0
}
