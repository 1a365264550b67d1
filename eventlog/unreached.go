package eventlog

import (
	"errors"
	"sync"
	"time"
)

// A process may be cut from one broker that all others reach: a route, a firewall, a name that does not resolve here. Of what that broker leads it reads nothing, and can
// claim nothing. A broker that is down looks alike at first; but the cluster takes what it leads away from it, after broker.session.timeout.ms (9 s by default). So
// what counts is for how long there was no answer while other brokers said that it is still the leader.

// unreachedFresh is how old at most what the others said may be. They are asked after each request that failed, and every metadataInterval.
const unreachedFresh = 15 * time.Second

// unreached are the partitions whose leader does not answer this process.
type unreached struct {
	mu sync.Mutex
	by map[int32]silence
}

type silence struct {
	leader leadership
	since  time.Time // when the first request had failed
	err    error     // the last one's
}

// note takes the outcome of a read of p at leader l. Any answer is one.
func (u *unreached) note(p int32, l leadership, err error, now time.Time) {
	var connection *connectionError
	u.mu.Lock()
	defer u.mu.Unlock()
	if !errors.As(err, &connection) || l.node < 0 {
		delete(u.by, p)
		return
	}
	s, ok := u.by[p]
	if !ok || s.leader != l {
		s = silence{leader: l, since: now}
	}
	s.err = err
	if u.by == nil {
		u.by = map[int32]silence{}
	}
	u.by[p] = s
}

// Unreached implements Log.
func (k *Kafka) Unreached(p int32) (time.Duration, error) {
	k.unreached.mu.Lock()
	s, ok := k.unreached.by[p]
	k.unreached.mu.Unlock()
	if !ok {
		return 0, nil
	}
	leader, told := k.leaders.told(p)
	now := time.Now()
	if leader != s.leader || !told.After(s.since) || now.Sub(told) > unreachedFresh {
		return 0, nil
	}
	return now.Sub(s.since), s.err
}
