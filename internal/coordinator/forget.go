package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/internal/wire"
	"streamkeeper/shard"
)

// A replica that is gone for good is forgotten when somebody says so, with the request by which Kafka forgets a broker. That a day is never made shorter without
// being told has a reason: a replica that was stopped and one whose machine was taken away look the same from here, neither in the ownership
// group nor owner of anything, and the day is there for the first.

// membersMax bounds the question who is in the ownership group. The cluster's answer takes milliseconds; the rest of alterTimeout is for the log.
const membersMax = 3 * time.Second

// writtenText is what is said where a replica is forgotten in the log, and whoever wrote that can't read it: its disk is full, say, or the cluster does not let
// it read any more. Then the shard moves, and its next owner is asked.
const writtenText = "It is written down that the replica is gone, and those that read the log leave it out; the one that wrote it can't read it yet."

// UnregisterBroker forgets a replica: those that are gone are left out of Nodes, by every replica, until they come back.
func (c *Coordinator) UnregisterBroker(ctx context.Context, who Caller, node int32) *kmsg.UnregisterBrokerResponse {
	ctx, cancel := context.WithTimeout(ctx, alterTimeout)
	defer cancel()
	resp := kmsg.NewPtrUnregisterBrokerResponse()
	f := c.forget(ctx, who, node)
	resp.ErrorCode, resp.ErrorMessage = f.Code, f.text()
	return resp
}

// forget has a replica forgotten by whoever owns the shard in which that is written. While the shard moves it waits. Who is asked by another replica
// does not: that one looks at its log again, and tries again.
func (c *Coordinator) forget(ctx context.Context, who Caller, node int32) failure {
	written := false
	for {
		f, err := c.forgetHere(ctx, node)
		if fromReplica(who) {
			return f
		}
		if errors.Is(err, shard.ErrNotOwner) || errors.Is(err, shard.ErrUnavailable) {
			f, err = c.forgetThere(ctx, node, f, err)
		}
		if !mayPass(f.Code) {
			return f
		}
		if f.Message == writtenText {
			written = true
		} else if written {
			f.Message = writtenText // what keeps the next attempt from being settled is less than that
		}
		select {
		case <-time.After(alterPause):
		case <-ctx.Done():
			text := "This could not be settled in time; try again."
			if f.Message != "" {
				text += " " + f.Message
			}
			return c.report(failure{Code: codeTimedOut, Message: text}, "UnregisterBroker", "", err, "node", node)
		}
	}
}

// forgetHere judges and forgets as the owner of the shard.
func (c *Coordinator) forgetHere(ctx context.Context, node int32) (failure, error) {
	p := c.shards.Partition(shard.OwnershipGroup(c.cfg.LogTopic))
	if !c.shards.Owns(p) {
		return failure{Code: codeNotCoordinator}, shard.ErrNotOwner
	}
	gone, f, err := c.judgeGone(ctx, node)
	if f.Code != 0 {
		return f, err
	}
	if c.shards.Forgotten(gone) {
		return failure{}, nil
	}
	writing, cancel := c.writing(ctx)
	defer cancel()
	if err := c.shards.Forget(writing, gone); err != nil {
		return c.failed("UnregisterBroker", "", err, "node", node), err
	}
	c.others.drop(node)
	// Whoever asks this replica for Metadata next is not to see it; others read it within milliseconds.
	if err := c.barriers.wait(ctx, p); err != nil {
		return c.report(failure{Code: codeUnavailable, Message: writtenText}, "UnregisterBroker", "", err, "node", node), err
	}
	if slices.ContainsFunc(c.Nodes(), func(n Node) bool { return n.ID == node }) { // newer than what was judged: it came back meanwhile, or was read only now
		return failure{Code: codeUnavailable, Message: "It was heard of at the same time."}, nil
	}
	return failure{}, nil
}

// judgeGone finds the last ownership record of a replica that can be forgotten, or says why it can't be. One that is in the ownership group is
// alive, or was until a moment ago; one that owns a shard has to be found by clients, dead or not.
func (c *Coordinator) judgeGone(ctx context.Context, node int32) (gone eventlog.Owner, f failure, err error) {
	inUse := func(format string, args ...any) failure {
		return failure{Code: codeBrokerInUse, Message: fmt.Sprintf("Node %d ", node) + fmt.Sprintf(format, args...)}
	}
	if node == c.cfg.Node.ID {
		return gone, inUse("is a replica that runs: stop it first."), nil
	}
	if node < 0 {
		return gone, failure{Code: codeNoBroker, Message: fmt.Sprintf("%d is no node id.", node)}, nil
	}
	asking, cancel := context.WithTimeout(ctx, membersMax)
	defer cancel()
	members, err := c.shards.Members(asking)
	if err != nil {
		return gone, failure{Code: codeUnavailable, Message: "The cluster does not tell who is in the ownership group."}, err
	}
	if i := slices.IndexFunc(members, func(m shard.GroupMember) bool { return m.NodeID == node }); i >= 0 {
		return gone, inUse("is in the ownership group, as %s on %s: stop it first. One that was killed is in it until its session is over.",
			members[i].Address, strings.TrimPrefix(members[i].ClientHost, "/")), nil
	}
	owners, whole := c.Owners(ctx)
	if owners[node] {
		return gone, inUse("owns shards that no other replica has taken over yet; try again when one has."), nil
	}
	if !whole {
		return gone, failure{Code: codeUnavailable, Message: "The record log can't be read to its end."}, errLogUnread
	}
	since := c.cfg.Now().Add(-nodeSeenFor).UnixMilli()
	var known []string
	for _, o := range c.cfg.Replicas() {
		if o.Timestamp < since {
			continue
		}
		if o.NodeID == node {
			return o, failure{}, nil
		}
		if !c.shards.Forgotten(o) {
			known = append(known, strconv.Itoa(int(o.NodeID)))
		}
	}
	text := fmt.Sprintf("No replica with node id %d was seen within the last day.", node)
	if len(known) > 0 {
		text += " Seen were " + strings.Join(known, ", ") + "."
	}
	return gone, failure{Code: codeNoBroker, Message: text}, nil
}

var errLogUnread = errors.New("the log can't be read to its end")

// forgetThere asks the owner that the log names; refused is what this replica has said.
func (c *Coordinator) forgetThere(ctx context.Context, node int32, refused failure, err error) (failure, error) {
	o, ok := c.shards.Owner(c.shards.Partition(shard.OwnershipGroup(c.cfg.LogTopic)))
	if !ok || o.NodeID == c.cfg.Node.ID || c.cfg.Peers == nil {
		return refused, err
	}
	owner, err := ParseNode(o.NodeID, o.Address)
	if err != nil {
		return c.failed("UnregisterBroker", "", err), err
	}
	resp, err := c.cfg.Peers.Request(ctx, owner, wire.ForgetRequest(node))
	if err != nil {
		return c.report(failure{Code: codeUnavailable, Message: fmt.Sprintf("Replica %d at %s has to write it down, and does not answer, or is of a version that can't.", o.NodeID, o.Address)},
			"UnregisterBroker", "", err, "owner", owner.ID), err
	}
	answer, ok := resp.(*kmsg.UnregisterBrokerResponse)
	if !ok || !wire.IsForgetResponse(answer) {
		return failure{Code: codeUnsupported, Message: fmt.Sprintf("Replica %d at %s would have to write it down, and is of a version that can't: upgrade it first.", o.NodeID, o.Address)}, nil
	}
	f := failure{Code: answer.ErrorCode}
	if answer.ErrorMessage != nil {
		f.Message = *answer.ErrorMessage
	}
	return f, nil
}
