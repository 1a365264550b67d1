package coordinator

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"streamkeeper/eventlog"
)

// nodeSeenFor is how long a replica is named in Metadata after its last ownership record, alive or not: a client that
// learned its nodes while one replica was away would be stranded when the other goes (D9).
const nodeSeenFor = 24 * time.Hour

// ParseNode makes a Node of a node id and "host:port".
func ParseNode(id int32, address string) (Node, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return Node{}, fmt.Errorf("address %q of node %d: %w", address, id, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" {
		return Node{}, fmt.Errorf("address %q of node %d: want host:port with a port of 1 to 65535", address, id)
	}
	return Node{ID: id, Host: host, Port: int32(n)}, nil
}

// Node is this replica's own node.
func (c *Coordinator) Node() Node { return c.cfg.Node }

// LogTopic is the name of the record log.
func (c *Coordinator) LogTopic() string { return c.cfg.LogTopic }

// DescriptionTopic is the name of the topic with topology descriptions; "" where there is none.
func (c *Coordinator) DescriptionTopic() string { return c.cfg.DescriptionTopic }

// Nodes are the replicas whose ownership records of the last day the log holds, unless they were forgotten since, those that own a shard whenever they said so, and this one,
// ascending by id; where the log is not read, also those that the ownership group named lately. An id that was used from two addresses has the newer one.
func (c *Coordinator) Nodes() []Node {
	type seen struct {
		node Node
		at   int64
	}
	since := c.cfg.Now().Add(-nodeSeenFor).UnixMilli()
	newest := map[int32]seen{}
	see := func(o eventlog.Owner) {
		if was, ok := newest[o.NodeID]; o.NodeID == c.cfg.Node.ID || ok && o.Timestamp <= was.at {
			return
		}
		if n, err := ParseNode(o.NodeID, o.Address); err == nil { // one that names no address leads nobody anywhere
			newest[o.NodeID] = seen{n, o.Timestamp}
		}
	}
	for _, o := range c.cfg.Replicas() {
		if o.Timestamp >= since && !c.shards.Forgotten(o) {
			see(o)
		}
	}
	for p := range c.shards.Partitions() { // lookups name them, so they have to be there: after all replicas were down for a day, say
		if o, ok := c.shards.Owner(p); ok && !o.Released {
			see(o)
		}
	}
	nodes := []Node{c.cfg.Node}
	untold, read := c.untold()
	for _, n := range untold {
		if newest[n.ID].at <= read[n.ID] { // alive then, at this address; unless more was read of it since
			newest[n.ID] = seen{node: n}
		}
	}
	for _, s := range newest {
		nodes = append(nodes, s.node)
	}
	slices.SortFunc(nodes, func(a, b Node) int { return int(a.ID) - int(b.ID) })
	return nodes
}

// untold are the replicas that the ownership group named lately, where this one has not read all of the log, so may not have read of them. Its lookups name them
// (AskOthers), and clients look for what a lookup names among the nodes. read is what had been read of them when it named them: timestamps by
// the clock of each. Two of one replica can be compared.
func (c *Coordinator) untold() (nodes []Node, read map[int32]int64) {
	nodes, read = c.others.lately()
	if len(nodes) == 0 {
		return nil, nil
	}
	for p := range c.shards.Partitions() {
		if c.shards.Unread(p) {
			return nodes, read
		}
	}
	return nil, nil
}

// Owners are the ids of the nodes that own a shard. What this replica does not serve it reads to the end of the log first, as far as refreshMax
// allows; whole is false where that did not do, so that there may be owners that it has not read of, or owners no more.
func (c *Coordinator) Owners(ctx context.Context) (owners map[int32]bool, whole bool) {
	ctx, cancel := context.WithTimeout(ctx, refreshMax)
	defer cancel()
	var unread atomic.Bool
	fanout(int(c.shards.Partitions()), func(i int) {
		if p := int32(i); !c.shards.Owns(p) && c.barriers.wait(ctx, p) != nil {
			unread.Store(true)
		}
	})
	owners = map[int32]bool{}
	for p := range c.shards.Partitions() {
		if o, ok := c.shards.Owner(p); ok && !o.Released {
			owners[o.NodeID] = true
		}
	}
	return owners, !unread.Load()
}

// ownerNode is the node that owns a partition, ok false where nobody does. It is one of Nodes, at the address that it has there: the record of
// this partition may be from before the replica moved, and clients keep one connection for each node id.
func (c *Coordinator) ownerNode(p int32) (Node, bool) {
	if c.shards.Owns(p) {
		return c.cfg.Node, true
	}
	o, ok := c.shards.Owner(p)
	if !ok || o.Released {
		return Node{}, false
	}
	if o.NodeID == c.cfg.Node.ID {
		// A claim that does not serve yet, maybe over our own record of an earlier life: whoever comes here is told to wait.
		return c.cfg.Node, true
	}
	for _, n := range c.Nodes() {
		if n.ID == o.NodeID {
			return n, true
		}
	}
	return Node{}, false
}
