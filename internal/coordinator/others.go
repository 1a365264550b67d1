package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard"
)

// A replica that reads its log anew, or was stopped for a while, does not know which groups are ours. Where it led a client of one to the cluster's
// coordinator, the client would come back with an error; where it called all groups ours, plain consumers would wait for as long as a log takes to be read. So it asks
// other replicas, and where none can tell the client is told to ask again (COORDINATOR_NOT_AVAILABLE, the one error of a lookup that all clients
// take for that).
//
// One that has read it, and is cut off from the broker that has a partition, or lost its right to read it, knows groups and not who owns them by now. It asks others as well; where none can
// tell, as where all of them are cut off from that broker, it names whom it knows: a shard that nobody can claim has the owner that it had.

const (
	// othersMax is how many replicas are asked for one group, one after the other: one that has read the log suffices.
	othersMax = 3
	// otherTimeout bounds the questions to one of them, which may have to read to the end of the log first (refreshMax).
	otherTimeout = time.Second
	// othersTimeout bounds the questions of one lookup: well below the request time-outs of clients.
	othersTimeout = 3 * time.Second
	// listTimeout bounds the question who is in the ownership group, which its coordinator answers in milliseconds. Half a second of othersTimeout leaves time to ask
	// two of the replicas that the log names for as long as they may take, and the third for half of it.
	listTimeout = 500 * time.Millisecond
	// toldFor is how long a replica that the group named is among the nodes of one that has not read the log, beside those that the log names: it is what a client
	// takes to ask for the nodes when a lookup has named one, and to try again.
	toldFor = time.Minute
	// liveFor is how long the replicas of the ownership group are taken to be the same.
	liveFor = time.Second
)

// others are the other replicas, as the ownership group last named them.
type others struct {
	mu     sync.Mutex // for moments: never while somebody is asked
	nodes  []Node
	at     time.Time
	turn   int           // who is asked first, in turn
	look   chan struct{} // closed when the group has been asked; nil: nobody asks it. Lookups that come meanwhile need the same answer
	told   []Node        // the last that the group itself named
	toldAt time.Time
	read   map[int32]int64 // the newest timestamps of replicas' ownership records when it was asked, by node
}

// AskOthers implements Service.
func (c *Coordinator) AskOthers(ctx context.Context, who Caller, groups []string) map[string]Found {
	out, asked := c.lookAgain(ctx, groups)
	if len(asked) == 0 || fromReplica(who) { // which asks others itself
		return out
	}
	for _, group := range c.askAll(ctx, asked, out) {
		if n, known, ok := c.Coordinator(ctx, group); known { // before it was cut off
			out[group] = Found{Node: n, OK: ok}
		}
	}
	for group, f := range out {
		if !f.Cluster || !c.hinted(group) {
			continue
		}
		// A streams client was sent away from here: whom it asks next serves it, or knows better where to send it.
		if nodes := c.others.list(ctx, c); len(nodes) > 0 {
			out[group] = Found{Node: nodes[0], OK: true}
		}
	}
	return out
}

// askAll asks other replicas for groups, puts what they say into out, and returns those of which none could tell.
func (c *Coordinator) askAll(ctx context.Context, asked []string, out map[string]Found) (left []string) {
	if c.cfg.Peers == nil {
		return asked
	}
	ctx, cancel := context.WithTimeout(ctx, othersTimeout)
	defer cancel()
	nodes := c.others.list(ctx, c)
	replicas := map[int32]bool{}
	for _, n := range append(c.Nodes(), nodes...) {
		replicas[n.ID] = true
	}
	for _, node := range nodes[:min(len(nodes), othersMax)] {
		if len(asked) == 0 || ctx.Err() != nil {
			break
		}
		asking, done := context.WithTimeout(ctx, otherTimeout)
		found := make([]Found, len(asked))
		fanout(len(asked), func(i int) { found[i] = c.askOther(asking, node, asked[i], replicas) })
		done()
		left = nil
		for i, group := range asked {
			if out[group] = found[i]; !found[i].Cluster && !found[i].OK {
				left = append(left, group)
			}
		}
		asked = left
	}
	return asked
}

// lookAgain looks at groups that were not known a moment ago. A shard of which that was not read to its end lately is read first, as far as refreshMax allows. out has
// those that are known now, and with nothing said of them those that others have to be asked for, which asked lists, among them all of shards of which nothing is seen here any more; what it lacks is the cluster's.
func (c *Coordinator) lookAgain(ctx context.Context, groups []string) (out map[string]Found, asked []string) {
	out = map[string]Found{}
	look := func(group string, read bool) {
		known, err := c.shards.Known(group)
		switch {
		case err == nil && known:
			n, ok := c.ownerNode(c.shards.Partition(group))
			out[group] = Found{Node: n, OK: ok}
		case err != nil || !read:
			out[group] = Found{}
			asked = append(asked, group)
		}
	}
	stale := map[int32][]string{}
	for _, group := range groups {
		if p := c.shards.Partition(group); c.shards.Owns(p) || c.shards.Fresh(p) { // and then: what was read before that is known
			look(group, true)
		} else {
			stale[p] = append(stale[p], group)
		}
	}
	ps := slices.Collect(maps.Keys(stale))
	if len(ps) == 0 {
		return out, asked
	}
	ctx, cancel := context.WithTimeout(ctx, refreshMax)
	defer cancel()
	read, blind := make([]bool, len(ps)), make([]bool, len(ps))
	fanout(len(ps), func(i int) {
		// Where the end of a log that was read can't be asked for, and nobody said that there is more, there is nothing else to go by than what was read.
		err := c.barriers.wait(ctx, ps[i])
		read[i], blind[i] = err == nil || !c.shards.Unread(ps[i]), errors.Is(err, shard.ErrBlind)
	})
	for i, p := range ps {
		for _, group := range stale[p] {
			if blind[i] {
				out[group] = Found{}
				asked = append(asked, group)
				continue
			}
			look(group, read[i])
		}
	}
	return out, asked
}

// askOther asks one replica for a group. What names a replica as its coordinator, knows it as ours. What names a broker may know no better than this replica; so it is
// asked for the group itself, and answers that there is none only after it has read the log to its end.
func (c *Coordinator) askOther(ctx context.Context, node Node, group string, replicas map[int32]bool) Found {
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorType, find.CoordinatorKey, find.CoordinatorKeys = 0, group, []string{group}
	resp, err := c.cfg.Peers.Request(ctx, node, find)
	if err != nil {
		c.tell(ctx, group, node, err)
		return Found{}
	}
	answer, ok := resp.(*kmsg.FindCoordinatorResponse)
	if !ok {
		return Found{}
	}
	code, at := answer.ErrorCode, Node{answer.NodeID, answer.Host, answer.Port} // before version 4 there is one
	if len(answer.Coordinators) == 1 {
		a := &answer.Coordinators[0]
		code, at = a.ErrorCode, Node{a.NodeID, a.Host, a.Port}
	}
	switch {
	case code == 0 && replicas[at.ID]:
		return Found{Node: at, OK: true}
	case code != 0:
		return Found{}
	}
	describe := kmsg.NewPtrStreamsGroupDescribeRequest()
	describe.Groups = []string{group}
	if resp, err = c.cfg.Peers.Request(ctx, node, describe); err != nil {
		c.tell(ctx, group, node, err)
		return Found{}
	}
	d, ok := resp.(*kmsg.StreamsGroupDescribeResponse)
	return Found{Cluster: ok && len(d.Groups) == 1 && d.Groups[0].ErrorCode == codeNoGroup}
}

func (c *Coordinator) tell(ctx context.Context, group string, node Node, err error) {
	if c.log.Enabled(ctx, slog.LevelDebug) {
		c.log.Debug("another replica can't be asked for a group", "group", group, "replica", node.ID, "err", err)
	}
}

// list are the other replicas in the order in which they are to be asked; none where ctx ends first.
func (o *others) list(ctx context.Context, c *Coordinator) []Node {
	o.mu.Lock()
	if look := o.look; look != nil || o.at.IsZero() || time.Since(o.at) >= liveFor {
		if look == nil {
			look = make(chan struct{})
			o.look = look
			go o.refresh(c)
		}
		o.mu.Unlock()
		select {
		case <-look:
		case <-ctx.Done():
			return nil
		}
		o.mu.Lock()
	}
	defer o.mu.Unlock()
	if len(o.nodes) == 0 {
		return nil
	}
	o.turn = (o.turn + 1) % len(o.nodes)
	return append(slices.Clone(o.nodes[o.turn:]), o.nodes[:o.turn]...)
}

// refresh asks the ownership group for its replicas, for everybody who waits. It has a time of its own: whoever came first may leave, and who asks has time left for the
// replicas where the group does not tell.
func (o *others) refresh(c *Coordinator) {
	timeout := listTimeout
	if len(c.Nodes()) == 1 { // the log names nobody else to ask
		timeout = othersTimeout
	}
	read := c.lastSaid()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	nodes, told := c.otherReplicas(ctx)
	cancel()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nodes, o.at = nodes, time.Now()
	close(o.look)
	o.look = nil
	if told {
		o.told, o.toldAt, o.read = nodes, o.at, read
	}
}

// lastSaid are the timestamps of the newest ownership record of each replica that was read, by that replica's own clock.
func (c *Coordinator) lastSaid() map[int32]int64 {
	said := map[int32]int64{}
	for _, o := range c.cfg.Replicas() {
		said[o.NodeID] = max(said[o.NodeID], o.Timestamp)
	}
	for p := range c.shards.Partitions() {
		if o, ok := c.shards.Owner(p); ok {
			said[o.NodeID] = max(said[o.NodeID], o.Timestamp)
		}
	}
	return said
}

// otherReplicas are those that are in the ownership group, or, with told false, those that the log names where the group does not tell.
func (c *Coordinator) otherReplicas(ctx context.Context) (nodes []Node, told bool) {
	logged := c.Nodes()
	members, err := c.shards.Members(ctx)
	if err != nil {
		c.log.Debug("the ownership group can't be asked for its replicas", "err", err)
		nodes = logged
	}
	for _, m := range members {
		if n, err := ParseNode(m.NodeID, m.Address); err == nil && m.NodeID >= 0 { // no stranger
			nodes = append(nodes, n)
		} else if i := slices.IndexFunc(logged, func(n Node) bool { return n.ID == m.NodeID }); i >= 0 {
			nodes = append(nodes, logged[i])
		}
	}
	return slices.DeleteFunc(nodes, func(n Node) bool { return n.ID == c.cfg.Node.ID }), err == nil
}

// lately are those that the group named within toldFor, and what had been read of them then.
func (o *others) lately() ([]Node, map[int32]int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.told) == 0 || time.Since(o.toldAt) >= toldFor {
		return nil, nil
	}
	return slices.Clone(o.told), o.read // which is not written any more
}

// drop forgets what the group said of a replica.
func (o *others) drop(id int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told = slices.DeleteFunc(slices.Clone(o.told), func(n Node) bool { return n.ID == id })
}
