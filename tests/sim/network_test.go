package sim

import (
	"context"
	"errors"
	"time"

	"streamkeeper/shard"
)

const (
	requestTimeout = 10 * time.Second
	// serverPatience is how long a replica works on a request whose client has long gone.
	serverPatience = time.Minute
)

// errLost: no answer came.
var errLost = errors.New("no answer")

func (c *client) reach() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.cut
}

func (c *client) setCut(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
}

// ask sends a request to the coordinator and waits for its answer. Requests and answers take time and get lost; a request that
// arrived is worked on even if its client does not wait any more.
func ask[T any](c *client, f func(context.Context, *shard.Host) (T, error)) (T, error) {
	return askProcess(c, func(ctx context.Context, p *process) (T, error) { return f(ctx, p.host) })
}

// askProcess is ask for what is not the host's alone.
func askProcess[T any](c *client, f func(context.Context, *process) (T, error)) (T, error) {
	var zero T
	if c.coordinator == nil {
		pause(delay(c.rng))
		if !c.reach() {
			return zero, errLost
		}
		if c.coordinator = c.w.owner(c.group, c.rng); c.coordinator == nil {
			return zero, shard.ErrUnavailable
		}
	}
	give := time.Now().Add(requestTimeout)
	lost := func() (T, error) {
		pause(time.Until(give))
		return zero, errLost
	}
	loses := 0
	if !c.w.isCalm() {
		loses = 50 // one in that many
	}
	dropped := func() bool { return loses > 0 && c.rng.IntN(loses) == 0 }
	to, answer := delay(c.rng), delay(c.rng)
	dropThere, dropBack := dropped(), dropped()
	pause(to)
	p := c.coordinator.reachable()
	if p == nil || !c.reach() || dropThere {
		if p == nil {
			return zero, errLost // refused at once
		}
		return lost()
	}
	type outcome struct {
		v   T
		err error
	}
	out := make(chan outcome, 1)
	go func() {
		p.gate.pass()
		if time.Now().After(give) {
			return // the client has closed the connection, and may have sent something newer on another one
		}
		ctx, cancel := context.WithTimeout(context.Background(), serverPatience)
		defer cancel()
		v, err := f(ctx, p)
		p.gate.pass()
		out <- outcome{v, err}
	}()
	t := time.NewTimer(time.Until(give))
	defer t.Stop()
	select {
	case o := <-out:
		pause(answer)
		if !c.reach() || dropBack || c.coordinator.reachable() != p {
			return lost()
		}
		return o.v, o.err
	case <-t.C:
		return zero, errLost
	}
}
