package eventlog

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A claim needs another broker than the one that leads the partition: the coordinator of its transactional id. A process may be cut from that one alone (unreached.go says
// from how), and then reads the partition well and can't claim it. Here too it counts for how long there was no answer while other brokers said that the broker is still
// the coordinator. A partition that is claimed elsewhere meanwhile is not claimed here, so nothing would notice the end: such a broker is asked again (watchCoordinators).

// coordinatorLook is the time between two looks at brokers that did not answer as coordinators: what the others said stays fresh, unreachedFresh, also where one look takes as
// long as an answer may.
const coordinatorLook = 5 * time.Second

// unclaimable are the partitions the coordinator of whose transactional id does not answer this process.
type unclaimable struct {
	mu sync.Mutex
	by map[int32]muteness
}

type muteness struct {
	node  int32  // the coordinator
	id    string // the transactional id
	since time.Time
	named time.Time // when another broker said last that node is the coordinator; not before since where it counts
	err   error     // the last request's
}

// silent notes that node did not answer as the coordinator of id, which is one of p's.
func (u *unclaimable) silent(p int32, id string, node int32, err error, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	m, ok := u.by[p]
	if !ok || m.node != node {
		m = muteness{node: node, since: now}
		for _, other := range u.by { // it has answered nobody since
			if other.node == node && other.since.Before(m.since) {
				m.since = other.since
			}
		}
	}
	m.id, m.err = id, err
	if u.by == nil {
		u.by = map[int32]muteness{}
	}
	u.by[p] = m
}

// named notes that another broker said at now that node is the coordinator of an id of p.
func (u *unclaimable) named(p, node int32, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	m, ok := u.by[p]
	switch {
	case !ok:
	case m.node != node:
		delete(u.by, p)
	default:
		m.named = now
		u.by[p] = m
	}
}

// heard notes that node has answered something.
func (u *unclaimable) heard(node int32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for p, m := range u.by {
		if m.node == node {
			delete(u.by, p)
		}
	}
}

// all is a copy.
func (u *unclaimable) all() map[int32]muteness {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make(map[int32]muteness, len(u.by))
	for p, m := range u.by {
		all[p] = m
	}
	return all
}

// Unclaimable implements Log.
func (k *Kafka) Unclaimable(p int32) (time.Duration, error) {
	k.unclaimable.mu.Lock()
	m, ok := k.unclaimable.by[p]
	k.unclaimable.mu.Unlock()
	now := time.Now()
	if !ok || m.named.Before(m.since) || now.Sub(m.named) > unreachedFresh {
		return 0, nil
	}
	return now.Sub(m.since), m.err
}

// noteCoordinator takes the outcome of a request to node as the coordinator of id. What was given up here, or because the cluster has given the broker up, says nothing of it.
func (k *Kafka) noteCoordinator(ctx context.Context, p int32, id string, node int32, err error) {
	var connection *connectionError
	if ctx.Err() == nil && errors.As(err, &connection) && connection.node == node && !errors.Is(err, errBrokerGone) {
		k.unclaimable.silent(p, id, node, err, time.Now())
	}
}

// watchCoordinators asks brokers that did not answer as coordinators again, and others whether they are coordinators still.
func (k *Kafka) watchCoordinators() {
	t := time.NewTicker(coordinatorLook)
	defer t.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-t.C:
		}
		k.lookAtCoordinators()
	}
}

// lookAtCoordinators makes one look. It asks for nothing that would count as a claim: an epoch that was given would fence whoever owns the partition. Partitions that were not
// claimed here, but have the same coordinator, are noted too, or they would come here, and go again, one after the other.
func (k *Kafka) lookAtCoordinators() {
	all := k.unclaimable.all()
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(k.ctx, requestOverhead)
	defer cancel()
	var asked sync.WaitGroup
	defer asked.Wait()
	mute := map[int32]muteness{}
	for _, m := range all {
		if _, ok := mute[m.node]; !ok {
			mute[m.node] = m
			asked.Go(func() { // any answer will do, and request notes it
				if _, err := request[*kmsg.FindCoordinatorResponse](ctx, k, m.node, findCoordinatorRequest(m.id)); err != nil {
					k.log.Debug("the coordinator of a transactional id does not answer", "broker", m.node, "err", err)
				}
			})
		}
	}
	for p, m := range all {
		if _, err := k.findCoordinator(ctx, p, m.id); err != nil {
			k.log.Debug("the coordinator of a transactional id can't be looked for", "partition", p, "err", err)
		}
	}
	for p := range k.id.Partitions {
		if _, ok := all[p]; ok {
			continue
		}
		id := TransactionalID(k.id.Topic, p, 0)
		node, err := k.coordinator(ctx, p, id) // which is asked for once
		if err != nil {
			return // no broker answers, or not in time; the next look goes on
		}
		if m, ok := mute[node]; ok {
			k.unclaimable.silent(p, id, node, m.err, time.Now()) // counts once others have named it again
		}
	}
}
