package shard

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"streamkeeper/eventlog"
)

// cutLog is a log of which one replica does not reach the leader of a partition, or the coordinator of its claims.
type cutLog struct {
	eventlog.Log
	p           int32
	coordinates bool                      // it is the coordinator
	since       atomic.Pointer[time.Time] // nil: it does
}

func (l *cutLog) ClaimAfter(ctx context.Context, p int32, o eventlog.Ownership, prev *eventlog.Owner, lease time.Duration) (eventlog.Writer, error) {
	if p == l.p && l.since.Load() != nil {
		return nil, l.why()
	}
	return l.Log.ClaimAfter(ctx, p, o, prev, lease)
}

func (l *cutLog) Unreached(p int32) (time.Duration, error) {
	return l.silence(p, false)
}

func (l *cutLog) Unclaimable(p int32) (time.Duration, error) { return l.silence(p, true) }

func (l *cutLog) silence(p int32, coordinates bool) (time.Duration, error) {
	since := l.since.Load()
	if p != l.p || since == nil || coordinates != l.coordinates {
		return 0, nil
	}
	return time.Since(*since), l.why()
}

func (l *cutLog) why() error {
	return fmt.Errorf("broker 1: no route to host: %w", kerr.RequestTimedOut)
}

// A broker that one replica does not reach, and all others do: what it leads is served by others, and comes again when the broker is reached.
func TestABrokerThatOneReplicaDoesNotReach(t *testing.T) {
	inFleet(t, 4, func(t *testing.T, f *fleet) {
		var cut []*cutLog
		f.cut = func(_ int32, log eventlog.Log) eventlog.Log {
			cut = append(cut, &cutLog{Log: log, p: 3})
			return cut[len(cut)-1]
		}
		hosts := []*Host{f.start(0), f.start(0)}
		time.Sleep(20 * time.Second) // the bubble's clock
		owner := 0
		if hosts[1].Owns(3) {
			owner = 1
		}
		lose := func(ids ...int) {
			now := time.Now()
			for _, id := range ids {
				cut[id].since.Store(&now)
			}
			f.log.FailAppend(3, eventlog.ErrOutcomeUnknown)
			(&node{Host: hosts[owner]}).write(3)
		}
		lose(owner)
		if gap := f.unserved(time.Minute); gap > unreachedPatience+5*time.Second {
			t.Errorf("a shard had no owner for %v", gap)
		}
		if d := hosts[owner].Declines(); len(d) != 1 || d[0].Partition != 3 || d[0].Why != DeclinedBroker || !hosts[1-owner].Owns(3) {
			t.Errorf("it declines %v, and %v has the shard", d, hosts[1-owner].Owns(3))
		}
		if err := hosts[owner].Barrier(t.Context(), 3); !errors.Is(err, ErrBlind) || !hosts[owner].Unread(3) {
			t.Errorf("a read barrier where nothing can be read: %v, unread %v", err, hosts[owner].Unread(3)) // who asks is led to others
		}
		if err := hosts[1-owner].Barrier(t.Context(), 3); err != nil || hosts[1-owner].Unread(3) {
			t.Errorf("a read barrier of the other replica: %v, unread %v", err, hosts[1-owner].Unread(3))
		}
		cut[owner].since.Store(nil)
		if gap := f.unserved(2 * time.Minute); gap > plannedMove || !f.spread() {
			t.Errorf("a shard had no owner for %v when all was well again, or they are not shared: %d and %d", gap, hosts[0].OwnedCount(), hosts[1].OwnedCount())
		}

		if owner = 0; hosts[1].Owns(3) {
			owner = 1
		}
		lose(0, 1)                   // nobody reaches it
		time.Sleep(10 * time.Minute) // the bubble's clock
		if !(hosts[0].OwnedCount() == 2 && hosts[1].OwnedCount() == 1 || hosts[0].OwnedCount() == 1 && hosts[1].OwnedCount() == 2) {
			t.Errorf("the other shards are not shared while nobody reaches the broker of one: %d and %d", hosts[0].OwnedCount(), hosts[1].OwnedCount())
		}
		cut[0].since.Store(nil)
		cut[1].since.Store(nil)
		time.Sleep(10 * time.Second) // the bubble's clock: a claim is tried every 5 s
		if hosts[0].OwnedCount()+hosts[1].OwnedCount() != 4 {
			t.Errorf("a shard has no owner although the broker is reached again: %d and %d", hosts[0].OwnedCount(), hosts[1].OwnedCount())
		}
	})
}

// A broker that one replica does not reach coordinates the claims of a shard that another broker leads: where the replica serves the shard it serves on, else it leaves it to
// others, which it can be told of by what it reads.
func TestACoordinatorThatOneReplicaDoesNotReach(t *testing.T) {
	inFleet(t, 4, func(t *testing.T, f *fleet) {
		var cut []*cutLog
		f.cut = func(_ int32, log eventlog.Log) eventlog.Log {
			cut = append(cut, &cutLog{Log: log, p: 3, coordinates: true})
			return cut[len(cut)-1]
		}
		hosts := []*Host{f.start(0), f.start(0)}
		time.Sleep(20 * time.Second) // the bubble's clock
		owner := 0
		if hosts[1].Owns(3) {
			owner = 1
		}
		now := time.Now()
		cut[owner].since.Store(&now)
		if gap := f.unserved(time.Minute); gap > 0 || !hosts[owner].Owns(3) || len(hosts[owner].Declines()) > 0 {
			t.Errorf("a shard that is served had no owner for %v, and its owner declines %v", gap, hosts[owner].Declines())
		}

		now = time.Now()
		cut[owner].since.Store(&now)
		f.log.FailAppend(3, eventlog.ErrOutcomeUnknown)
		(&node{Host: hosts[owner]}).write(3)
		if gap := f.unserved(time.Minute); gap > unreachedPatience+5*time.Second {
			t.Errorf("a shard had no owner for %v", gap)
		}
		if d := hosts[owner].Declines(); len(d) != 1 || d[0].Partition != 3 || d[0].Why != DeclinedBroker || !hosts[1-owner].Owns(3) {
			t.Errorf("it declines %v, and %v has the shard", d, hosts[1-owner].Owns(3))
		}
		for i, h := range hosts {
			if err := h.Barrier(t.Context(), 3); err != nil || h.Unread(3) {
				t.Errorf("replica %d reads the shard: %v, unread %v", i, err, h.Unread(3))
			}
		}
		if gap := f.unserved(10 * time.Minute); gap > 0 || hosts[owner].Owns(3) {
			t.Errorf("a shard had no owner for %v while one replica can't claim it", gap)
		}
		cut[owner].since.Store(nil)
		if gap := f.unserved(2 * time.Minute); gap > plannedMove || !f.spread() {
			t.Errorf("a shard had no owner for %v when all was well again, or they are not shared: %d and %d", gap, hosts[0].OwnedCount(), hosts[1].OwnedCount())
		}
	})
}
