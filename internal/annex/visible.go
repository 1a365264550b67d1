package annex

import (
	"context"
	"sync"
	"time"
)

// visibleTimeout bounds one wait for the end of a partition, which callers leave earlier; without it a partition that is not read any
// further would keep a goroutine for ever.
const visibleTimeout = 30 * time.Second

// barrier waits until what is in a partition has been read. Who comes while a round is under way waits for the next one, which begins
// after they came: one question to the cluster answers all of them.
type barrier struct {
	mu      sync.Mutex
	running bool
	next    *round // who waits for it; nil: nobody
}

type round struct {
	done chan struct{}
	err  error // read after done
}

// wait returns when everything that is in partition p now has been read.
func (o *opened) wait(ctx context.Context, p int32) error {
	b := &o.visible[p]
	b.mu.Lock()
	if b.next == nil {
		b.next = &round{done: make(chan struct{})}
	}
	r := b.next
	if !b.running {
		b.running = true
		go o.rounds(p)
	}
	b.mu.Unlock()
	select {
	case <-r.done:
		return unread(r.err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// rounds runs as long as somebody waits.
func (o *opened) rounds(p int32) {
	b := &o.visible[p]
	for {
		b.mu.Lock()
		r := b.next
		b.next = nil
		if b.running = r != nil; r == nil {
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		r.err = o.reach(p)
		close(r.done)
	}
}

// reach waits until the store has what is in the partition now.
func (o *opened) reach(p int32) error {
	ctx, cancel := context.WithTimeout(context.Background(), visibleTimeout)
	defer cancel()
	end, err := o.annex.End(ctx, p)
	if err != nil {
		return err
	}
	return o.store.Wait(ctx, p, end)
}
