package topic

import (
	"context"
	"sync"
)

// locks has a lock for each group that something is done with, so that what is decided about a group and the queueing of what was decided
// are one step. There are as many as calls under way, which the caller of a plugin bounds, and one sweep per partition.
type locks struct {
	mu     sync.Mutex
	groups map[string]*groupLock
}

type groupLock struct {
	turn  chan struct{} // holds one token while somebody has the lock
	users int           // who have it or wait for it
}

// lock waits for the group's lock; unlock gives it back. It fails with ctx's cause.
func (l *locks) lock(ctx context.Context, group string) (unlock func(), err error) {
	l.mu.Lock()
	if l.groups == nil {
		l.groups = map[string]*groupLock{}
	}
	g := l.groups[group]
	if g == nil {
		g = &groupLock{turn: make(chan struct{}, 1)}
		l.groups[group] = g
	}
	g.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if g.users--; g.users == 0 {
			delete(l.groups, group)
		}
	}
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
	if ctx.Err() != nil {
		<-g.turn
		leave()
		return nil, context.Cause(ctx)
	}
	return func() {
		<-g.turn
		leave()
	}, nil
}
