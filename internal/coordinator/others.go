package coordinator

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A replica that reads its log anew, or was stopped for a while, does not know which groups are ours. Where it led a client of one to the cluster's
// coordinator, the client would come back with an error; where it called all groups ours, plain consumers would wait for as long as a log takes to be read. So it asks
// other replicas, and where none can tell the client is told to ask again (COORDINATOR_NOT_AVAILABLE, the one error of a lookup that all clients
// take for that).

const (
	// othersMax is how many replicas are asked for one group, one after the other: one that has read the log suffices.
	othersMax = 3
	// otherTimeout bounds the questions to one of them, which may have to read to the end of the log first (refreshMax).
	otherTimeout = time.Second
	// othersTimeout bounds the questions of one lookup: well below the request time-outs of clients.
	othersTimeout = 3 * time.Second
	// liveFor is how long the replicas of the ownership group are taken to be the same.
	liveFor = time.Second
)

// others are the other replicas, as the ownership group last named them.
type others struct {
	mu    sync.Mutex // also held while the group is asked: lookups that come meanwhile need the same answer
	nodes []Node
	at    time.Time
	turn  int // who is asked first, in turn
}

// AskOthers implements Service.
func (c *Coordinator) AskOthers(ctx context.Context, who Caller, groups []string) map[string]Found {
	out, asked := c.lookAgain(ctx, groups)
	if len(asked) == 0 || c.cfg.Peers == nil || fromReplica(who) { // which asks others itself
		return out
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
		var left []string
		for i, group := range asked {
			if out[group] = found[i]; !found[i].Cluster && !found[i].OK {
				left = append(left, group)
			}
		}
		asked = left
	}
	return out
}

// lookAgain looks at groups that were not known a moment ago. A shard of which that was not read to its end lately is read first, as far as refreshMax allows. out has
// those that are known now, and with nothing said of them those that others have to be asked for, which asked lists; what it lacks is the cluster's.
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
	read := make([]bool, len(ps))
	fanout(len(ps), func(i int) {
		// Where the end of a log that was read can't be asked for, and nobody said that there is more, there is nothing else to go by than what was read.
		read[i] = c.barriers.wait(ctx, ps[i]) == nil || !c.shards.Unread(ps[i])
	})
	for i, p := range ps {
		for _, group := range stale[p] {
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

// list are the other replicas in the order in which they are to be asked.
func (o *others) list(ctx context.Context, c *Coordinator) []Node {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.at.IsZero() || time.Since(o.at) >= liveFor {
		o.nodes = c.otherReplicas(ctx)
		o.at = time.Now()
	}
	if len(o.nodes) == 0 {
		return nil
	}
	o.turn = (o.turn + 1) % len(o.nodes)
	return append(slices.Clone(o.nodes[o.turn:]), o.nodes[:o.turn]...)
}

// otherReplicas are those that are in the ownership group, or those that the log names where the group does not tell.
func (c *Coordinator) otherReplicas(ctx context.Context) (nodes []Node) {
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
	return slices.DeleteFunc(nodes, func(n Node) bool { return n.ID == c.cfg.Node.ID })
}
