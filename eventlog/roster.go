package eventlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A broker that hangs keeps its connections open and answers nothing. What is asked of it is not lost before requestOverhead is over, and that once for
// each step of a claim: seconds after the cluster has given everything that it led to other brokers. So
//
//   - a request that waits for longer than usual has the cluster's metadata looked at again and again (watch), and is given up as soon as the
//     broker is no longer listed there: the cluster has given it up, and somebody else leads. A broker that is only slow stays listed, and is waited for;
//   - what any broker can tell is asked of one, and soon of the next where it does not answer (anyBroker): those that were silent the last time come last.
//
// Giving a request up says nothing of its outcome: a batch is repeated byte for byte, a producer epoch is asked for anew.

const (
	// silentAfter is when a request counts as waiting for longer than usual: fetches wait half a second for something to read, and appends for
	// the replicas, which take milliseconds.
	silentAfter = time.Second
	// silentPause is the time between two looks at the metadata meanwhile. All requests that wait share them.
	silentPause = 250 * time.Millisecond
	// nextAfter is how long a broker may take before the next one is asked as well. A healthy one answers in milliseconds; more would add to every
	// takeover that meets one that hangs.
	nextAfter = 200 * time.Millisecond
	// askedMax is how many brokers are asked the same: were so many silent, one more would not help.
	askedMax = 6
)

// errBrokerGone: the cluster does not list the broker any more.
var errBrokerGone = errors.New("the cluster does not list it any more")

// roster is which brokers the cluster listed last, and which of them were silent when they were asked last.
type roster struct {
	mu     sync.Mutex
	listed map[int32]bool
	at     time.Time // when listed was asked for; zero: never
	silent map[int32]bool
}

// list takes the brokers of a Metadata answer to a request of that time.
func (r *roster) list(nodes []int32, asked time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(nodes) == 0 || asked.Before(r.at) {
		return
	}
	r.at = asked
	r.listed = make(map[int32]bool, len(nodes))
	for _, n := range nodes {
		r.listed[n] = true
	}
	for n := range r.silent {
		if !r.listed[n] {
			delete(r.silent, n)
		}
	}
}

// gone says that a listing which was asked for after since lacks the broker.
func (r *roster) gone(node int32, since time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at.After(since) && !r.listed[node]
}

// heard notes whether a broker answered when it was asked.
func (r *roster) heard(node int32, answered bool) {
	if node == anyNode {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if answered {
		delete(r.silent, node)
		return
	}
	if r.silent == nil {
		r.silent = map[int32]bool{}
	}
	r.silent[node] = true
}

func (r *roster) isSilent(node int32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.silent[node]
}

// order is the brokers listed, those that were silent last; the others take turns.
func (r *roster) order() []int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ordered, silent []int32
	for node := range r.listed { // in Go's order, which is another one each time
		if r.silent[node] {
			silent = append(silent, node)
		} else {
			ordered = append(ordered, node)
		}
	}
	return append(ordered, silent...)
}

// watch bounds a request to a broker by the cluster's giving that broker up. stop must be called when the request has ended.
func (l *leaders) watch(ctx context.Context, node int32) (watched context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	since, first := time.Now(), silentAfter
	if l.roster.isSilent(node) {
		first = silentPause
	}
	t := time.AfterFunc(first, func() {
		for ctx.Err() == nil {
			if l.roster.gone(node, since) {
				cancel(errBrokerGone)
				return
			}
			l.roster.heard(node, false)
			l.refresh()
			sleep(ctx, silentPause)
		}
	})
	return ctx, func() { t.Stop(); cancel(nil) }
}

// anyNode stands for whichever broker the client picks, its seeds among them.
const anyNode = -1

// anyBroker has ask ask a broker, and where that does not answer soon, or fails, the next one as well. The first answer counts; without one it
// returns the last error. The client's own pick comes first where it is wanted (it learns from Metadata that comes so), else last.
func anyBroker[T any](ctx context.Context, client *kgo.Client, r *roster, own bool, ask func(context.Context, kmsg.Requestor) (T, error)) (T, error) {
	nodes := r.order()
	if own {
		nodes = append([]int32{anyNode}, nodes...)
	} else {
		nodes = append(nodes[:min(len(nodes), askedMax-1)], anyNode)
	}
	return firstAnswer(ctx, r, nodes, func(ctx context.Context, node int32) (T, error) {
		if node == anyNode {
			return ask(ctx, client)
		}
		return ask(ctx, client.Broker(int(node)))
	})
}

// firstAnswer asks nodes in their order, see anyBroker.
func firstAnswer[T any](ctx context.Context, r *roster, nodes []int32, ask func(context.Context, int32) (T, error)) (T, error) {
	type answer struct {
		node  int32
		value T
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	nodes = nodes[:min(len(nodes), askedMax)]
	answers := make(chan answer, len(nodes))
	waiting := map[int32]time.Time{}
	last := error(&connectionError{-1, errors.New("no broker is known")})
	next := 0
	askNext := func() {
		if next < len(nodes) {
			node := nodes[next]
			next++
			waiting[node] = time.Now()
			go func() {
				v, err := ask(ctx, node)
				answers <- answer{node, v, err}
			}()
		}
	}
	askNext()
	t := time.NewTicker(nextAfter)
	defer t.Stop()
	for len(waiting) > 0 {
		select {
		case a := <-answers:
			delete(waiting, a.node)
			if a.err == nil {
				r.heard(a.node, true)
				for node, since := range waiting {
					if time.Since(since) >= nextAfter {
						r.heard(node, false)
					}
				}
				return a.value, nil
			}
			if last = a.err; a.node != anyNode {
				last = fmt.Errorf("broker %d: %w", a.node, a.err)
			}
			askNext()
		case <-t.C:
			askNext()
		case <-ctx.Done():
			return *new(T), &connectionError{anyNode, context.Cause(ctx)}
		}
	}
	return *new(T), last
}
