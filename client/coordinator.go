package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Node is a node of the cluster as it names itself.
type Node struct {
	ID   int32  `json:"id"`
	Host string `json:"host"`
	Port int32  `json:"port"`
}

func (n Node) String() string { return fmt.Sprintf("%s:%d (%d)", n.Host, n.Port, n.ID) }

const (
	// retryDelayMin and retryDelayMax bound the pause before something is tried again, Kafka's defaults for retry.backoff.ms
	// and retry.backoff.max.ms. It doubles in between, give or take a fifth, so that clients that failed together part.
	retryDelayMin = 100 * time.Millisecond
	retryDelayMax = time.Second

	// lookupBatchMax bounds the groups of one FindCoordinator request, so that the answer for a cluster full of groups comes in pieces.
	lookupBatchMax = 1000

	// oddErrorsMax is how often a request is sent that fails for a reason that may or may not pass (a coordinator that
	// the cluster's metadata does not list yet, say).
	oddErrorsMax = 3
)

// retryDelay is the pause after so many failures, counted from 1.
func retryDelay(failures int) time.Duration {
	d := retryDelayMax
	if shift := failures - 1; shift < 10 {
		d = min(d, retryDelayMin<<max(shift, 0))
	}
	return min(time.Duration(float64(d)*(0.8+0.4*rand.Float64())), retryDelayMax)
}

// pause waits, and says why if ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// found is the answer to a lookup of one group.
type found struct {
	node Node
	err  error
}

// findCoordinators asks a node, or by a *kgo.Client any node, who coordinates the groups. The error is that of the request as a whole. A node that
// knows only version 3 or less can be asked for one group.
func findCoordinators(ctx context.Context, cl kmsg.Requestor, groups []string) (map[string]found, error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKeys = 0, groups
	if len(groups) == 1 {
		req.CoordinatorKey = groups[0] // before version 4 there is one
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	out := make(map[string]found, len(groups))
	if len(resp.Coordinators) == 0 && len(groups) == 1 {
		out[groups[0]] = found{Node{resp.NodeID, resp.Host, resp.Port}, refusal(resp.ErrorCode, resp.ErrorMessage)}
	}
	for _, k := range resp.Coordinators {
		out[k.Key] = found{Node{k.NodeID, k.Host, k.Port}, refusal(k.ErrorCode, k.ErrorMessage)}
	}
	return out, nil
}

// question is something that is asked of the coordinators of groups.
type question struct {
	what     string // for errors: "describe"
	batchMax int    // groups in one request
	// request makes the request for some groups.
	request func(groups []string) kmsg.Request
	// answer takes the response apart and says what became of each group: done(group, nil), or its error. A group that it
	// says nothing about is an error.
	answer func(node Node, resp kmsg.Response, done func(group string, err error))
}

// asking is a question under way. Each batch goes its own way: looked up, sent, repeated as long as that may help and ctx
// lasts. So a coordinator that does not answer delays nobody but its own groups.
type asking struct {
	ctx context.Context
	cl  *kgo.Client
	q   question

	wg sync.WaitGroup
	// mu guards errs, and what q.answer writes.
	mu   sync.Mutex
	errs map[string]error // of each group that is done
}

// ask asks, and returns an entry for each group: nil, or why there is no answer.
func ask(ctx context.Context, cl *kgo.Client, groups []string, q question) map[string]error {
	a := &asking{ctx: ctx, cl: cl, q: q, errs: make(map[string]error, len(groups))}
	for batch := range slices.Chunk(groups, lookupBatchMax) {
		a.wg.Go(func() { a.lookup(batch, 0, 0) })
	}
	a.wg.Wait()
	return a.errs
}

func (a *asking) fail(groups []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, refused := err.(*Error) // that speaks for itself
	for _, g := range groups {
		if a.errs[g] = err; !refused {
			a.errs[g] = fmt.Errorf("%s group %q: %w", a.q.what, g, err)
		}
	}
}

// again goes on after a pause, unless ctx ends: then err is what the groups get.
func (a *asking) again(groups []string, failures int, err error, then func()) {
	if len(groups) == 0 {
		return
	}
	if cause := pause(a.ctx, retryDelay(failures)); cause != nil {
		a.fail(groups, fmt.Errorf("%w (%w)", err, cause))
		return
	}
	a.wg.Go(then) // not a call: that would make a deep stack of a long wait
}

// lookup finds the coordinators of groups and goes on to them. odd is the number of failures of an unknown kind.
func (a *asking) lookup(groups []string, failures, odd int) {
	at, err := findCoordinators(a.ctx, a.cl, groups)
	if err != nil {
		err = fmt.Errorf("find the coordinator: %w", err)
		if !passing(err) || a.ctx.Err() != nil {
			a.fail(groups, err)
			return
		}
		a.again(groups, failures+1, err, func() { a.lookup(groups, failures+1, odd) })
		return
	}
	byNode := map[Node][]string{}
	var later []string
	var why error
	for _, g := range groups {
		f, ok := at[g]
		switch again, _ := moved(f.err); {
		case !ok:
			a.fail([]string{g}, errors.New("find the coordinator: the answer says nothing about it"))
		case f.err == nil:
			byNode[f.node] = append(byNode[f.node], g)
		case again:
			later, why = append(later, g), f.err
		default:
			a.fail([]string{g}, f.err)
		}
	}
	for node, groups := range byNode {
		for batch := range slices.Chunk(groups, a.q.batchMax) {
			a.wg.Go(func() { a.send(node, batch, failures, odd) })
		}
	}
	a.again(later, failures+1, why, func() { a.lookup(later, failures+1, odd) })
}

// send asks the coordinator.
func (a *asking) send(node Node, groups []string, failures, odd int) {
	req := a.q.request(groups)
	// Not a retriable one: kgo would go on asking a node that is gone, where we look for its successor.
	resp, err := a.cl.Broker(int(node.ID)).Request(a.ctx, req)
	if err != nil {
		unreached(a.cl, err)
		if err = unsupported(a.ctx, a.cl, node, req, err); !passing(err) {
			odd++
		}
		if _, refused := err.(*Error); !refused {
			err = fmt.Errorf("at %v: %w", node, err)
		} else {
			odd = oddErrorsMax
		}
		if a.ctx.Err() != nil || odd >= oddErrorsMax {
			a.fail(groups, err)
			return
		}
		a.again(groups, failures+1, err, func() { a.lookup(groups, failures+1, odd) })
		return
	}
	var same, other []string
	var sameErr, otherErr error
	answered := make(map[string]struct{}, len(groups))
	a.mu.Lock()
	a.q.answer(node, resp, func(g string, err error) {
		if !slices.Contains(groups, g) {
			return // nobody asked
		}
		answered[g] = struct{}{}
		switch again, elsewhere := moved(err); {
		case err == nil:
			a.errs[g] = nil
		case elsewhere:
			other, otherErr = append(other, g), err
		case again:
			same, sameErr = append(same, g), err
		default:
			a.errs[g] = err
		}
	})
	a.mu.Unlock()
	for _, g := range groups {
		if _, ok := answered[g]; !ok {
			a.fail([]string{g}, fmt.Errorf("at %v: the answer says nothing about it", node))
		}
	}
	a.wg.Go(func() { a.again(other, failures+1, otherErr, func() { a.lookup(other, failures+1, odd) }) })
	a.again(same, failures+1, sameErr, func() { a.send(node, same, failures+1, odd) })
}
