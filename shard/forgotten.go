package shard

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
)

// A replica is named in Metadata for a day after its last ownership record, dead or alive (D9). Where an operator knows that it is gone for good it is forgotten:
// the log then says up to which of its claims nobody need look for it. That is kept as configuration of the ownership group, in one record of its own (type 32001)
// under names that no client can set, so replicas of older versions keep it, back it up, and need not know what it means. A later claim of
// the replica is not covered by it: who comes back is there again, without anybody having to say so.

// forgottenPrefix begins the names, before the node id.
const forgottenPrefix = "streamkeeper.forgotten."

// forgottenMax bounds what is kept of forgotten replicas, of which the record has a hundred bytes or two each. Beyond it those that were heard of least lately are
// left out; they are listed for the rest of their day then.
const forgottenMax = 200

// forgotten is what the log says of a forgotten replica, as JSON. Unknown fields are left to newer versions.
type forgotten struct {
	Address   string `json:"address"`
	Instance  string `json:"instance"`
	Order     int64  `json:"order"`     // of its last claim; 0 where its version wrote none
	Timestamp int64  `json:"timestamp"` // ms, of its last ownership record, by its own clock
	// TopicID is the log in which Order counts ("" where the cluster has no topic ids): a restored one begins anew.
	TopicID string `json:"topicId,omitempty"`
}

// covers says that an ownership record of the node is not newer than what was known of it when it was forgotten. Claims of two processes are told apart by
// their order, because clocks differ; records of one process are newer with a later claim, or a later time.
func (f forgotten) covers(o eventlog.Owner) bool {
	if f.Instance != o.Instance && f.Order > 0 && o.Order > 0 {
		return o.Order < f.Order
	}
	return o.Order <= f.Order && o.Timestamp <= f.Timestamp
}

// forgottenIn reads what a configuration says, by node id; what can't be read was written by somebody else, and does not count.
func forgottenIn(configs map[string]string) map[int32]forgotten {
	nodes := map[int32]forgotten{}
	for name, text := range configs {
		id, err := strconv.ParseInt(strings.TrimPrefix(name, forgottenPrefix), 10, 32)
		var f forgotten
		if strings.HasPrefix(name, forgottenPrefix) && err == nil && json.Unmarshal([]byte(text), &f) == nil {
			nodes[int32(id)] = f
		}
	}
	return nodes
}

// forget is current with the replica of o forgotten, and without those of whom nothing is remembered any more anyhow. current is left as it is.
func forget(current map[string]string, o eventlog.Owner, topicID string, now time.Time) (map[string]string, error) {
	next := maps.Clone(current)
	if next == nil {
		next = map[string]string{}
	}
	oldest := now.Add(-projection.ReplicaKept).UnixMilli()
	nodes := forgottenIn(current)
	delete(nodes, o.NodeID)
	ids := slices.SortedFunc(maps.Keys(nodes), func(a, b int32) int { return -cmp.Compare(nodes[a].Timestamp, nodes[b].Timestamp) })
	for i, id := range ids {
		if nodes[id].Timestamp < oldest || i >= forgottenMax-1 {
			delete(next, forgottenName(id))
		}
	}
	text, err := json.Marshal(forgotten{o.Address, o.Instance, o.Order, o.Timestamp, topicID})
	next[forgottenName(o.NodeID)] = string(text)
	return next, err
}

func forgottenName(id int32) string { return forgottenPrefix + strconv.Itoa(int(id)) }

// isReserved says that a name of a configuration is our own: nobody can set, remove or see it from outside.
func isReserved(name string) bool { return strings.HasPrefix(name, forgottenPrefix) }

// forgottenPatience is how long callers wait for what is forgotten to be read again: reading one key takes microseconds, and on a busy disk milliseconds. With a disk
// that hangs they go on with what was read before, all of them together after that time: Metadata must not wait for a disk.
const forgottenPatience = 100 * time.Millisecond

// forgottenNodes is what this replica has read of them.
type forgottenNodes struct {
	stale atomic.Bool // the partition has moved since
	nodes atomic.Pointer[map[int32]forgotten]
	look  atomic.Pointer[look] // the one reading that is under way; nil: none
}

// look is a reading of what is forgotten.
type look struct {
	began time.Time
	done  chan struct{}
}

// group is the ownership group's name, under whose id its configuration is.
func (h *Host) group() string { return OwnershipGroup(h.cfg.Log.Identity().Topic) }

// topicID is the log's topic id as text.
func (h *Host) topicID() string {
	id := h.cfg.Log.Identity().TopicID
	if id == [16]byte{} {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// Forget has the replica whose last ownership record is o forgotten by all: it is durable when Forget returns. Whether it may be is the caller's business.
// Only the owner of the ownership group's shard can do it (Partition).
func (h *Host) Forget(ctx context.Context, o eventlog.Owner) error {
	group, topic := h.group(), h.topicID()
	_, err := call(ctx, h, "forget", group, func(t *turn) (struct{}, effect, error) {
		current := configsOf(t.g.Config())
		next, err := forget(current, o, topic, t.now)
		if err != nil || maps.Equal(next, current) {
			return struct{}{}, effect{}, err
		}
		value := &eventlog.GroupConfig{Format: eventlog.GroupConfigFormat, Configs: next}
		return struct{}{}, effect{quiet: true, records: []eventlog.Record{{Key: eventlog.Key{Type: eventlog.TypeGroupConfig, Group: group}, Value: value}}}, nil
	})
	if err == nil {
		h.log.Info("replica forgotten: it is not in Metadata any more, unless it comes back", "node", o.NodeID, "address", o.Address)
	}
	return err
}

// Forgotten says that the replica of an ownership record was forgotten, and has not been heard of since, as far as this replica has read the log.
func (h *Host) Forgotten(o eventlog.Owner) bool {
	f, ok := h.forgottenNodes()[o.NodeID]
	return ok && f.TopicID == h.topicID() && f.covers(o)
}

// forgottenNodes has the configuration read again where its partition has moved, and waits for that, within forgottenPatience: what was applied before the call is in
// what it returns. While the partition is read again, from its start, what was read before counts.
func (h *Host) forgottenNodes() map[int32]forgotten {
	n := &h.forgotten
	for range 2 { // one that is under way may have read before what was applied last
		if l := h.lookAtForgotten(); l == nil || !l.wait() {
			break
		}
	}
	if nodes := n.nodes.Load(); nodes != nil {
		return *nodes
	}
	return nil
}

// lookAtForgotten returns the reading that is under way, or begins one where there is something to read; else nil. One that begins is under way before stale is taken back: who
// finds nothing stale and none under way has all that was applied.
func (h *Host) lookAtForgotten() *look {
	n := &h.forgotten
	if !n.stale.Load() {
		return n.look.Load()
	}
	if l := n.look.Load(); l != nil {
		return l
	}
	whole := h.cfg.Store.AtEnd(h.Partition(h.group()))
	if n.nodes.Load() != nil && !whole {
		return nil
	}
	select {
	case <-h.ended: // what is not read now need not be
		return nil
	default:
	}
	l := &look{began: time.Now(), done: make(chan struct{})}
	if !n.look.CompareAndSwap(nil, l) {
		return n.look.Load()
	}
	go func() {
		defer close(l.done)
		defer n.look.Store(nil)
		n.stale.Store(!whole) // before it is read: what is applied meanwhile makes it stale again
		configs, err := h.GroupConfig(h.group())
		if err != nil {
			n.stale.Store(true)
			h.log.Debug("can't tell which replicas were forgotten", "err", err)
			return
		}
		nodes := forgottenIn(configs)
		n.nodes.Store(&nodes)
	}()
	return l
}

// wait returns when the reading has ended, or has taken so long that nobody waits for it.
func (l *look) wait() bool {
	select {
	case <-l.done:
		return true
	default:
	}
	t := time.NewTimer(forgottenPatience - time.Since(l.began))
	defer t.Stop()
	select {
	case <-l.done:
		return true
	case <-t.C:
		return false
	}
}

// Members are those of the ownership group, as its coordinator says.
func (h *Host) Members(ctx context.Context) ([]GroupMember, error) {
	return h.cfg.Membership.Members(ctx)
}
