package eventlog

import "sync"

// calls runs functions one after the other, in the order in which they came, on a goroutine of its own: Done functions
// may post to the very loop that is in the middle of an Append. It has no limit of its own: what is queued here was
// counted in a writer's backlog a moment before.
type calls struct {
	mu     sync.Mutex
	cond   sync.Cond
	queue  []func()
	closed bool
	ended  chan struct{}
}

func newCalls() *calls {
	c := &calls{ended: make(chan struct{})}
	c.cond.L = &c.mu
	go c.run()
	return c
}

func (c *calls) add(call func()) {
	c.mu.Lock()
	c.queue = append(c.queue, call)
	c.mu.Unlock()
	c.cond.Signal()
}

// close returns when all calls were made.
func (c *calls) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cond.Signal()
	<-c.ended
}

func (c *calls) run() {
	defer close(c.ended)
	var queue []func()
	for {
		c.mu.Lock()
		for len(c.queue) == 0 && !c.closed {
			c.cond.Wait()
		}
		if len(c.queue) == 0 {
			c.mu.Unlock()
			return
		}
		queue, c.queue = c.queue, queue[:0]
		c.mu.Unlock()
		for i, call := range queue {
			call()
			queue[i] = nil
		}
	}
}
