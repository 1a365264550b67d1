package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

const (
	// settleMax is how long the world may take to come to rest: the longest single waits are a task that does not close for
	// 90 s, sessions of 45 s, the rebalance time-out of a minute, and a few of them may follow each other.
	settleMax  = 10 * time.Minute
	settleLook = 2 * time.Second
)

// settle repairs everything and waits until all is as it should be.
func (w *world) settle() {
	w.mu.Lock()
	w.calm = true
	w.catalogue.setCalm()
	clients := slices.Clone(w.clients)
	w.mu.Unlock()
	for _, r := range w.replicas {
		r.setClientCut(false)
		r.full.Store(false)
		r.start()
		if p := r.running(); p != nil {
			p.freeze(false)
			p.link.set(false)
			p.link.setTail(false)
			p.member.Cut(false)
		}
	}
	for _, c := range append(clients, w.consuming()...) {
		c.setCut(false)
	}
	begin := time.Now()
	for {
		what := w.unsettled()
		if what == "" {
			break
		}
		if time.Since(begin) > settleMax {
			w.violate("not at rest %v after the faults stopped: %s", settleMax, what)
			return
		}
		if !w.sleep(w.ctx, settleLook) {
			return
		}
	}
	w.note("at rest after %v", time.Since(begin))
}

// unsettled says what is not yet as it should be in the end.
func (w *world) unsettled() string {
	for _, r := range w.replicas {
		if r.running() == nil {
			return fmt.Sprintf("replica %d is down", r.node)
		}
	}
	for p := range w.partitions {
		var owners []int32
		for _, r := range w.replicas {
			if r.running().host.Owns(p) {
				owners = append(owners, r.node)
			}
		}
		node, ok := w.ownership.Owner(p)
		if !ok || len(owners) != 1 || owners[0] != node {
			return fmt.Sprintf("partition %d is served by %v, and assigned to %d (%v)", p, owners, node, ok)
		}
	}
	for g := range w.groups {
		group := groupName(g)
		if what := cmp.Or(w.unsettledGroup(group), w.unsettledConsumer(group), w.unconverted(group)); what != "" {
			return group + ": " + what
		}
	}
	return w.undescribed()
}

func (w *world) unsettledGroup(group string) string {
	exists, members, epoch, assignment := w.checker.snapshot(group)
	working := map[task]string{}
	standbys := map[task]int{}
	processes := map[string]bool{}
	var ids []string
	for _, c := range w.living() {
		if c.group != group {
			continue
		}
		c.mu.Lock()
		id, at, has := c.id, c.epoch, c.owned.clone()
		c.mu.Unlock()
		ids = append(ids, id)
		processes[c.process] = true
		if at != epoch {
			return fmt.Sprintf("%s is at epoch %d of %d", id, at, epoch)
		}
		told, state := w.checker.assignmentOf(group, id)
		if state != eventlog.MemberStable || !told.equal(has) {
			return fmt.Sprintf("%s has %v, the log says %v in state %d", id, has, told, state)
		}
		for x, standby := range has {
			if standby {
				standbys[x]++
			} else {
				working[x] = id
			}
		}
	}
	slices.Sort(ids)
	switch {
	case !slices.Equal(ids, members):
		return fmt.Sprintf("clients %v, members %v", ids, members)
	case !exists || len(ids) == 0:
		return ""
	case epoch != assignment:
		return fmt.Sprintf("group epoch %d, assignment epoch %d", epoch, assignment)
	}
	for _, x := range w.cluster.topics.Load().tasks() {
		want := 0
		if x.sub == stateful {
			want = min(w.checker.effective(group).NumStandbyReplicas, len(processes)-1)
		}
		if working[x] == "" || standbys[x] != want {
			return fmt.Sprintf("task %v: worked on by %q, %d of %d standbys", x, working[x], standbys[x], want)
		}
	}
	return ""
}

// assignmentOf is what the log says of a member.
func (c *checker) assignmentOf(group, member string) (tasks, eventlog.MemberState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cur := c.group(group).current[member]
	if cur == nil {
		return nil, 0
	}
	t := tasks{}
	for x := range recorded(cur.Active) {
		t[x] = false
	}
	for x := range recorded(cur.Standby) {
		t[x] = true
	}
	return t, cur.State
}

// compare holds what is in memory and on every disk against what the checker made of the log. Nothing moves any more.
func (w *world) compare() {
	w.mu.Lock()
	failed := w.violation != ""
	w.mu.Unlock()
	if failed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	// What was under way when the clients stopped has arrived, and every session is over: the longest take a minute, from the last takeover on.
	pause(3 * time.Minute)
	for _, r := range w.replicas {
		p := r.running()
		for part := range w.partitions {
			if err := p.host.Barrier(ctx, part); err != nil {
				w.violate("replica %d: barrier of %d: %v", r.node, part, err)
				return
			}
		}
		for g := range w.groups {
			w.compareStored(r, p, groupName(g))
		}
	}
	for g := range w.groups {
		w.compareLive(ctx, groupName(g))
	}
	w.compareRouting(ctx)
}

// compareStored: the group hydrated from a replica's projection is the group replayed from the log.
func (w *world) compareStored(r *replica, p *process, group string) {
	part := p.host.Partition(group)
	stored, err := p.store.Group(part, group)
	if err != nil {
		w.violate("replica %d: %s: %v", r.node, group, err)
		return
	}
	hydrated := streams.NewGroup(group)
	for _, s := range stored {
		if err := hydrated.Apply(s.Record); err != nil {
			w.violate("replica %d: hydrating %s: %v", r.node, group, err)
			return
		}
	}
	w.checker.mu.Lock()
	defer w.checker.mu.Unlock()
	g := w.checker.group(group)
	if got, want := hydrated.String(), g.applied.String(); got != want {
		w.violate("replica %d has on disk of %s\n%s\nthe log says\n%s", r.node, group, got, want)
	}
	got := map[topicPartition]committed{}
	if err := p.store.Offsets(part, group, func(s projection.Stored) bool {
		v := s.Record.Value.(*eventlog.OffsetCommit)
		got[topicPartition{s.Record.Key.Topic, s.Record.Key.Partition}] = committed{v.TopicID, v.Offset}
		return true
	}); err != nil {
		w.violate("replica %d: offsets of %s: %v", r.node, group, err)
	}
	if configs, err := p.store.GroupConfig(part, group); err != nil || !maps.Equal(configs, g.config) {
		w.violate("replica %d has on disk the configuration %v of %s, the log says %v (%v)", r.node, configs, group, g.config, err)
	}
	if !maps.Equal(got, g.offsets) {
		w.violate("replica %d has on disk the offsets %v of %s, the log says %v", r.node, got, group, g.offsets)
	}
}

// compareLive: what the owner answers is what the log says.
func (w *world) compareLive(ctx context.Context, group string) {
	live, err := patiently(w, ctx, group, func(h *shard.Host) (kmsg.StreamsGroupDescribeResponseGroup, error) { return h.Describe(ctx, group) })
	cfg := w.checker.effective(group)
	w.checker.mu.Lock()
	exists := w.checker.group(group).exists
	replayed := w.checker.group(group).applied.Describe(streams.Env{Now: time.Now().UnixMilli(), Topics: w.cluster.topics.Load(), Config: cfg, APIVersion: 1})
	w.checker.mu.Unlock()
	if !exists {
		if err == nil {
			w.violate("%s: described, and the log has it not", group)
		}
		return
	}
	if err != nil {
		w.violate("%s: describe: %v", group, err)
		return
	}
	live.Topology, replayed.Topology = nil, nil // what the topology was resolved to is in memory alone
	for i := range live.Members {               // and so are the positions that members reported
		live.Members[i].TaskOffsets, live.Members[i].TaskEndOffsets = nil, nil
	}
	for i := range replayed.Members {
		replayed.Members[i].TaskOffsets, replayed.Members[i].TaskEndOffsets = nil, nil
	}
	if a, b := text(live), text(replayed); a != b {
		w.violate("%s: described as\n%s\nthe log says\n%s", group, a, b)
	}
	req := kmsg.NewOffsetFetchRequestGroup()
	req.Group, req.MemberEpoch = group, -1
	for _, name := range []string{source, side} {
		t, _ := w.cluster.now(name)
		asked := kmsg.OffsetFetchRequestGroupTopic{Topic: name, TopicID: t.ID}
		for p := range t.Partitions {
			asked.Partitions = append(asked.Partitions, p)
		}
		req.Topics = append(req.Topics, asked)
	}
	resp, err := patiently(w, ctx, group, func(h *shard.Host) (kmsg.OffsetFetchResponseGroup, error) { return h.Fetch(ctx, &req, true) })
	if err != nil {
		w.violate("%s: fetch: %v", group, err)
		return
	}
	w.checker.mu.Lock()
	defer w.checker.mu.Unlock()
	g := w.checker.group(group)
	for i, t := range resp.Topics {
		for _, p := range t.Partitions {
			tp, id := topicPartition{req.Topics[i].Topic, p.Partition}, req.Topics[i].TopicID
			want := int64(-1)
			if is, ok := g.offsets[tp]; ok && is.topic == id {
				want = is.offset
			}
			if acked, ok := g.acked[tp]; p.ErrorCode != 0 || p.Offset != want || ok && acked.topic == id && p.Offset < acked.offset {
				w.violate("%s: offset of %v is answered as %d (error %d), the log says %d, acknowledged was %v", group, tp, p.Offset, p.ErrorCode, want, acked)
			}
		}
	}
}

// patiently asks the owner of the group, again if it says so: a fault for "the next append" may have waited until now.
func patiently[T any](w *world, ctx context.Context, group string, ask func(*shard.Host) (T, error)) (v T, err error) {
	rng := w.rng("patience")
	for {
		err = shard.ErrUnavailable
		if r := w.owner(group, rng); r != nil {
			v, err = ask(r.running().host)
		}
		if !errors.Is(err, shard.ErrLoading) && !errors.Is(err, shard.ErrNotOwner) && !errors.Is(err, shard.ErrUnavailable) {
			return v, err
		}
		if !w.sleep(ctx, time.Second) {
			return v, err
		}
	}
}

func text(v any) string {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		panic(err)
	}
	return string(b)
}
