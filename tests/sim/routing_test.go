package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/history"
	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

// Where clients are led. Once nothing goes wrong any more, and while shards still move as planned, whoever looks a group up that all replicas
// have read of is led to the replica that the log names as owner at that moment, by whatever replica is asked.

const (
	// readWithin is how long a record needs at most to be read by every replica where nothing goes wrong.
	readWithin = 5 * time.Second
	// orderly is how long shards move as planned after the faults.
	orderly = 40 * time.Second
	// handOver is how long the former owner of a shard may take to hear of its successor where nothing goes wrong; until then it names itself, and
	// whoever comes is sent away when it hears of it.
	handOver = 500 * time.Millisecond
	// hintMost is how long a lookup may lead to a group that does not exist after a heartbeat for it was sent to that replica: two minutes, and
	// what the heartbeat takes.
	hintMost = 2*time.Minute + 20*time.Second
)

// ownership is whom the log names as the owner of a partition.
type ownership struct {
	node       int32
	generation int64
	released   bool
	since      time.Time
}

func (o ownership) same(b ownership) bool {
	return o.generation == b.generation && o.released == b.released
}

// owner is whom the log names as owner of the partition; generation -1: nobody.
func (c *checker) owner(p int32) ownership {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parts[p].owner
}

// stood says since when the log has the group, and false where it has not.
func (c *checker) stood(group string) (since time.Time, removals int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.group(group)
	return g.since, g.removals, g.exists
}

// view is what is true of a group at a moment.
type view struct {
	at       time.Time
	owner    ownership
	since    time.Time
	removals int
	exists   bool
	calm     time.Time // since when nothing went wrong; zero: something does
	readable bool      // no replica is reading the partition again
}

func (w *world) view(group string) view {
	v := view{at: time.Now(), owner: w.checker.owner(w.partition(group))}
	v.since, v.removals, v.exists = w.checker.stood(group)
	w.mu.Lock()
	v.calm = w.peace
	w.mu.Unlock()
	v.readable = !v.calm.IsZero()
	for _, r := range w.replicas {
		if p := r.running(); p != nil && v.readable {
			// Who reads a partition again does not know its groups, and tells their clients to ask again where no other replica can be asked.
			_, err := p.store.HasGroup(w.partition(group), group)
			v.readable = err == nil
		}
	}
	return v
}

func (w *world) partition(group string) int32 { return w.replicas[0].partition(group) }

// settled says that the owner of the group was the same since v, that every replica could have read of the group before, and that nothing
// went wrong since before.
func (w *world) settled(v view, group string) bool {
	now := w.view(group)
	return v.exists && now.exists && v.removals == now.removals && v.at.Sub(v.since) > readWithin && v.owner.same(now.owner) && !v.owner.released &&
		v.owner.generation >= 0 && v.peaceful() && now.calm.Equal(v.calm) && v.readable && now.readable
}

func (v view) peaceful() bool { return !v.calm.IsZero() && v.at.Sub(v.calm) > readWithin }

// peaceBegins: from now on nothing goes wrong; peaceEnds: something does.
func (w *world) setPeace(peace bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.peace = (time.Time{}); peace {
		w.peace = time.Now()
	}
}

// unread says that a replica has not read the group's partition to its end since it was started, or began to read it anew.
func (w *world) unread(node int32, group string) bool {
	p := w.replicas[node-1].running()
	return p != nil && !p.store.AtEnd(w.partition(group))
}

// ledAway judges what a lookup that began at v led to by the word of a replica, which had not read the log then if unread is set: at no time, whatever goes wrong, does
// such a replica lead a client to the cluster while the log has the group.
func (w *world) ledAway(v view, unread bool, group string, asked int32, n node) {
	if now := w.view(group); unread && w.unread(asked, group) && v.exists && now.exists && v.removals == now.removals && isBroker(n.id) {
		w.violate("%s: replica %d, which has not read the log, led to %v, and the log had the group all the time", group, asked, n)
	}
}

// ledAstray: a client was told that this is not its coordinator by the replica to which a lookup that began at v had led it.
func (c *client) ledAstray() {
	loading := c.by.node == c.found.owner.node && !c.w.serves(c.by.node, c.group) // and revoked before it served
	if c.w.settled(c.found, c.group) && !loading && c.found.at.Sub(c.found.owner.since) > handOver {
		c.w.violate("%s: %s was led to replica %d by a lookup at %v, and sent away; replica %d has owned the group since %v before the lookup",
			c.group, c.id, c.by.node, c.found.at.Sub(c.w.start), c.found.owner.node, c.found.at.Sub(c.found.owner.since))
	}
	c.redirects++
	now := c.w.view(c.group)
	if c.redirects == 1 {
		c.astray = now
	}
	// A group that is not in the log yet: each replica knows where to lead after it sent the client away once.
	if c.astray.peaceful() && now.calm.Equal(c.astray.calm) && now.owner.same(c.astray.owner) && c.redirects > len(c.w.replicas) {
		c.w.violate("%s: %s was sent away %d times in a row although replica %d has owned the group all the time", c.group, c.id, c.redirects, now.owner.node)
	}
}

// serves says that a replica serves the group's shard now.
func (w *world) serves(node int32, group string) bool {
	p := w.replicas[node-1].running()
	return p != nil && p.host.Owns(w.partition(group))
}

// beaten remembers that a streams heartbeat for the group was sent to a replica.
func (w *world) beaten(node int32, group string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beats[fmt.Sprint(node, " ", group)] = time.Now()
}

func (w *world) mayHint(node int32, group string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ok := w.beats[fmt.Sprint(node, " ", group)]
	return ok && time.Since(at) < hintMost
}

// passerBy sends heartbeats for groups that are not there to whatever replica, as somebody does who has another cluster in mind.
func (w *world) passerBy() {
	rng := w.rng("passer-by")
	for n := 0; w.sleep(w.ctx, time.Duration(rng.Int64N(int64(30*time.Second)))) && !w.isCalm(); n++ {
		group := passing(n % passersMax)
		r := w.replicas[rng.IntN(len(w.replicas))]
		seek := w.newSeeker(fmt.Sprint("passer-by ", n), "passer-by", never)
		ctx, cancel := context.WithTimeout(w.ctx, requestTimeout)
		c := &client{w: w, group: group, id: "passer-by"}
		w.beaten(r.node, group)
		resp, _, err := seek.ask(ctx, r.node, replicaAddress(r.node), c.request(3))
		if err == nil && resp.(*kmsg.StreamsGroupHeartbeatResponse).ErrorCode == 0 {
			w.violate("%s: a member of a group that is not there was taken for one", group)
		}
		cancel()
		seek.close()
	}
}

// inquirer asks any replica, whoever owns the group, for committed offsets, as clients with an old view do: an owner answers, everybody else
// sends away, and nobody says that there is no offset where the log has one.
func (w *world) inquirer() {
	rng := w.rng("inquirer")
	c := &client{w: w, rng: rng} // for its entries in the history; no member
	seek := w.newSeeker("inquirer", "inquirer", never)
	defer seek.close()
	every := 4 * time.Second
	if w.converts {
		every /= 8 // what is to be met takes milliseconds
	}
	for w.sleep(w.ctx, time.Duration(rng.Int64N(int64(every)))) {
		c.group = groupName(rng.IntN(w.groups))
		if w.silent[c.group] { // its owner is to write nothing, not even for this
			continue
		}
		name := []string{source, side}[rng.IntN(2)]
		t, there := w.cluster.now(name)
		if !there {
			continue
		}
		p := rng.Int32N(t.Partitions)
		at, key := w.anyListener(rng)
		w.inquire(c, seek, at, key, t, p)
	}
}

func (w *world) inquire(c *client, seek *seeker, at string, key int32, t streams.Topic, p int32) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.RequireStable = offsetsVersion, true
	g := kmsg.NewOffsetFetchRequestGroup()
	asked := kmsg.NewOffsetFetchRequestGroupTopic()
	asked.TopicID, asked.Partitions = t.ID, []int32{p}
	g.Group, g.MemberEpoch, g.Topics = c.group, -1, append(g.Topics, asked)
	req.Groups = append(req.Groups, g)
	had := w.checker.arrival(c.group, t.Name, p, t.ID)
	floor := w.checker.floor(c.group, t.Name, p, t.ID)
	op := c.register(history.Fetch, t.Name, p, t.ID)
	op.Client = "inquirer"
	begun := w.recorder.Begin(op)
	ctx, cancel := context.WithTimeout(w.ctx, requestTimeout)
	defer cancel()
	resp, _, err := seek.ask(ctx, key, at, req)
	if err == nil {
		err = problem(resp.(*kmsg.OffsetFetchResponse).Groups[0].ErrorCode, nil)
	}
	if err != nil {
		failed(begun, err)
		return
	}
	got := resp.(*kmsg.OffsetFetchResponse).Groups[0].Topics[0].Partitions[0]
	if err := problem(got.ErrorCode, nil); err != nil {
		failed(begun, err)
		return
	}
	by := replicaAt(at)
	begun.Done(func(o *history.Op) { o.Node, o.Offset = by, got.Offset })
	w.checker.fetched(c.group, fmt.Sprintf("somebody at replica %d", by), t.Name, p, t.ID, floor, got.Offset, had)
}

// anyListener is an address of some replica, its own or that of a broker, with a key for the connection.
func (w *world) anyListener(rng *rand.Rand) (address string, key int32) {
	r := w.anyReplica(rng)
	if rng.IntN(3) > 0 {
		return replicaAddress(r.node), r.node
	}
	broker := brokerIDBase + rng.Int32N(brokersMax)
	return net.JoinHostPort(fmt.Sprintf("r%d", r.node), strconv.Itoa(int(brokerPortBase+broker))), r.node*1000 + broker
}

const passersMax = 4

func passing(n int) string { return fmt.Sprintf("passing-%d", n) }

// orderlyMoves lets shards move as planned, and a replica be restarted, while clients go on and everything is looked up.
func (w *world) orderlyMoves() {
	if w.ctx.Err() != nil {
		return
	}
	w.note("from now on shards move as planned")
	w.setPeace(true)
	ctx, cancel := context.WithTimeout(w.ctx, orderly)
	defer cancel()
	w.active.Go(func() { w.probe(ctx) })
	rng := w.rng("moves")
	restarts := len(w.replicas) > 1 && rng.IntN(2) == 0
	for w.sleep(ctx, time.Duration(2+rng.IntN(4))*time.Second) {
		if restarts && rng.IntN(4) == 0 {
			restarts = false
			r := w.anyReplica(rng)
			w.setPeace(false)
			r.shutdown()
			r.start()
			w.setPeace(true)
			continue
		}
		w.ownership.Assign(w.anyPartition(rng), w.anyReplica(rng).node)
	}
}

// probe looks groups up at whatever replica, and lists them.
func (w *world) probe(ctx context.Context) {
	rng := w.rng("probe")
	seek := w.newSeeker("probe", adminID, never)
	defer seek.close()
	for w.sleep(ctx, time.Duration(20+rng.IntN(200))*time.Millisecond) {
		group := groupName(rng.IntN(w.groups))
		if rng.IntN(8) == 0 {
			group = passing(rng.IntN(passersMax))
		}
		at, key := w.anyListener(rng)
		seek.probe(ctx, at, key, group)
		if rng.IntN(20) == 0 {
			if what := w.listed(ctx, seek); what != "" {
				w.violate("%s", what)
			}
		}
	}
}

// probe looks a group up at one address of a replica, and judges the answer.
func (s *seeker) probe(ctx context.Context, at string, key int32, group string) {
	w, asked := s.w, replicaAt(at)
	before := w.view(group)
	mayHint, unread := w.mayHint(asked, group), w.unread(asked, group)
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKeys = 6, []string{group}
	resp, _, err := s.ask(ctx, key, at, req)
	if err != nil {
		return
	}
	n, err := found(resp)
	if err == nil {
		w.ledAway(before, unread, group, asked, n)
	}
	after := w.view(group)
	switch {
	case w.settled(before, group) && err == nil && n.id == asked && before.at.Sub(before.owner.since) < handOver:
	case w.settled(before, group) && errors.Is(err, shard.ErrUnavailable) && !w.serves(before.owner.node, group):
		// Its claim is still loading, and the shard is meant for the next one already.
	case w.settled(before, group):
		if err != nil || n.id != before.owner.node || n.address != replicaAddress(n.id) {
			w.violate("%s: replica %d led to %v (%v), and replica %d has owned the group since %v before it was asked",
				group, asked, n, err, before.owner.node, before.at.Sub(before.owner.since))
		}
	case before.peaceful() && after.calm.Equal(before.calm) && !before.exists && !after.exists && before.removals == after.removals &&
		before.at.Sub(before.since) > readWithin && !mayHint && !w.mayHint(asked, group):
		if err != nil || !isBroker(n.id) {
			w.violate("%s: replica %d led to %v (%v), and the log has no such group: its clients belong to the cluster", group, asked, n, err)
		}
	}
	if err != nil || !before.peaceful() {
		return
	}
	meta := kmsg.NewPtrMetadataRequest()
	meta.Version, meta.Topics = 12, []kmsg.MetadataRequestTopic{}
	if resp, _, err = s.ask(ctx, key, at, meta); err != nil {
		return
	}
	if nodes := nodesOf(resp); !slices.Contains(nodes, n) && after.owner.same(w.view(group).owner) && time.Since(after.owner.since) > readWithin {
		w.violate("%s: replica %d led to %v, which is not among the nodes that it names: %v", group, asked, n, nodes)
	}
}

func nodesOf(resp kmsg.Response) (nodes []node) {
	for _, b := range resp.(*kmsg.MetadataResponse).Brokers {
		nodes = append(nodes, node{b.NodeID, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))})
	}
	return nodes
}

// standings are the groups that the log has, with how often each was removed before, and the owners of all partitions.
func (w *world) standings() (groups map[string]int, owners []ownership) {
	w.checker.mu.Lock()
	defer w.checker.mu.Unlock()
	groups = map[string]int{}
	for name, g := range w.checker.groups {
		if g.exists {
			groups[name] = g.removals
		}
	}
	for _, p := range w.checker.parts {
		owners = append(owners, p.owner)
	}
	return groups, owners
}

// listsTwice is how long a group may be on two lists after its shard has moved: who had it lists it for a minute more, from when it has read of the
// move.
const listsTwice = time.Minute + readWithin

// listed lists the groups as Java's admin client does, by asking each node of Metadata, and says what is wrong with the list: a group that was
// there all the time is on it, whatever moves, and in calm times there is nothing else; when nothing has moved for a while each is there once.
// Where a node has still to load, or does not answer, nothing is said.
func (w *world) listed(ctx context.Context, s *seeker) string {
	began := time.Now()
	before, owners := w.standings()
	peace := w.view(groupName(0))
	got, err := s.list(ctx)
	after, owned := w.standings()
	if err != nil || time.Since(began) > time.Minute {
		return ""
	}
	slices.Sort(got)
	for g, removals := range before {
		again, there := after[g]
		if _, listed := slices.BinarySearch(got, g); !listed && there && again == removals {
			return fmt.Sprintf("listed are %v, and not %s, which was in the log all the time", got, g)
		}
	}
	rest := func(d time.Duration) bool {
		return slices.EqualFunc(owners, owned, func(a, b ownership) bool { return a.same(b) && !a.released && peace.at.Sub(a.since) > d })
	}
	if !maps.Equal(before, after) || !rest(readWithin) || !peace.peaceful() || !w.view(groupName(0)).calm.Equal(peace.calm) {
		return ""
	}
	if !rest(listsTwice) || peace.at.Sub(peace.calm) <= listsTwice { // who had it may have read of the move long after
		got = slices.Compact(got)
	}
	if want := sortedKeys(before); !slices.Equal(got, want) {
		return fmt.Sprintf("listed are %v, the log has %v", got, want)
	}
	return ""
}

// list is the union of what all nodes list.
func (s *seeker) list(ctx context.Context) (all []string, err error) {
	s.known = time.Time{}
	if err := s.refresh(ctx); err != nil {
		return nil, err
	}
	for _, n := range s.nodes {
		req := kmsg.NewPtrListGroupsRequest()
		req.Version = 5
		resp, _, err := s.ask(ctx, n.id, n.address, req)
		if err != nil {
			return nil, err
		}
		l := resp.(*kmsg.ListGroupsResponse)
		if err := problem(l.ErrorCode, nil); err != nil {
			return nil, err
		}
		for _, g := range l.Groups {
			if g.GroupType != "classic" { // the cluster's
				all = append(all, g.Group)
			}
		}
	}
	return all, nil
}

// compareRouting is what every replica must tell in the end, when nothing moves any more: whose each group is, and all groups.
func (w *world) compareRouting(ctx context.Context) {
	w.setPeace(true)
	pause(hintMost)
	seek := w.newSeeker("last probe", adminID, never)
	defer seek.close()
	names := []string{}
	for g := range w.groups {
		names = append(names, groupName(g))
	}
	for n := range passersMax {
		names = append(names, passing(n))
	}
	for _, r := range w.replicas {
		for _, group := range names {
			seek.probe(ctx, replicaAddress(r.node), r.node, group)
		}
	}
	for range 60 { // a fault for "the next append" may have waited until now
		if _, err := seek.list(ctx); err == nil {
			break
		}
		pause(time.Second)
	}
	pause(2 * readWithin)
	if _, err := seek.list(ctx); err != nil {
		w.violate("groups can't be listed: %v", err)
	}
	if what := w.listed(ctx, seek); what != "" {
		w.violate("%s", what)
	}
}

// refusedWrongly: "there is no such group" is told only of a group that was not in the log when the request was sent, or has been removed since.
func (w *world) refusedWrongly(what, group string, before view, err error) {
	refusal, ok := err.(*streams.Error)
	if !ok || refusal.Code != codeGroupNotFound || !before.exists || w.options.silent {
		return
	}
	if now := w.view(group); now.exists && now.removals == before.removals {
		w.violate("%s: %s was refused with %v, and the log had the group all the time", group, what, err)
	}
}
