package coordinator

import (
	"slices"
	"time"
)

const (
	// topicPinFor is how long the topics of a group stay pinned after its last heartbeat: longer than any session time-out,
	// so that no member of the group is left when they go.
	topicPinFor = 10 * time.Minute
	// topicPinsMax bounds the groups whose topics are pinned. Groups beyond it are served too, but each heartbeat has to make
	// sure of their topics again.
	topicPinsMax = 1_000_000
	// topicsPerPinMax bounds the topics of one group: far more than a topology has, too few for a client that joins with
	// ever new ones to fill the heap. Beyond it those of the last join alone are kept.
	topicsPerPinMax = 10_000
)

// topicPin keeps the topics of one group.
type topicPin struct {
	names      []string // ascending
	generation int64    // of the claim of the group's shard under which they were found
	last       time.Time
}

// Pin keeps the topics known and fresh as long as the group is heard of (Touch). Under one claim of the group's shard topics
// are only added: members of an older topology may come and go, and the group's own stays.
func (t *Topics) Pin(now time.Time, group string, generation int64, names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	pin := t.pins[group]
	if pin == nil {
		if len(t.pins) >= topicPinsMax {
			return
		}
		pin = &topicPin{}
		t.pins[group] = pin
	}
	old := pin.names
	if pin.generation == generation && len(old)+len(names) <= topicsPerPinMax {
		names = append(slices.Clone(old), names...)
	}
	pin.names = slices.Compact(slices.Sorted(slices.Values(names)))
	pin.generation, pin.last = generation, now
	if slices.Equal(pin.names, old) {
		return
	}
	for _, name := range pin.names {
		e := t.entries[name]
		if e == nil {
			e = &topicEntry{since: now, used: now}
			t.entries[name] = e
		}
		e.pins++
	}
	t.unpin(now, old)
}

// Touch notes a heartbeat of the group; false says that its topics are not pinned, or were before the shard was claimed
// the last time: in between it may have been another replica's, and the group another one.
func (t *Topics) Touch(now time.Time, group string, generation int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	pin := t.pins[group]
	if pin == nil || pin.generation != generation {
		return false
	}
	pin.last = now
	return true
}

// Forget forgets the topics of a group that was deleted, but for those that other groups need: its internal topics are usually
// deleted with it, and a next start of the application must not find them still there.
func (t *Topics) Forget(group string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	pin := t.pins[group]
	if pin == nil {
		return
	}
	delete(t.pins, group)
	t.unpin(time.Now(), pin.names)
	if t.forget(pin.names) {
		t.publish()
	}
}

// unpinIdle lets go of the topics of groups that are no longer heard of; called with mu held.
func (t *Topics) unpinIdle(now time.Time) {
	for group, pin := range t.pins {
		if now.Sub(pin.last) > topicPinFor {
			delete(t.pins, group)
			t.unpin(now, pin.names)
		}
	}
}

func (t *Topics) unpin(now time.Time, names []string) {
	for _, name := range names {
		if e := t.entries[name]; e != nil && e.pins > 0 {
			e.pins--
			e.used = now
		}
	}
}
