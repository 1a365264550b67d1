package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// coordinatorTransaction is the coordinator type of FindCoordinator for transactional ids.
const coordinatorTransaction = 1

// initProducer gets a producer id and epoch. With the ones in force given, the cluster raises that epoch only. A request whose answer is not known
// may have raised the epoch: the last answer is that of the highest one, and what was given up is never used.
func (k *Kafka) initProducer(ctx context.Context, c Claim) (Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.AppendDeadline)
	defer cancel()
	id := TransactionalID(k.id.Topic, c.Partition, c.Number)
	for attempt := 0; ; attempt++ {
		node, err := k.coordinator(ctx, c.Partition, id)
		if err == nil {
			var got Claim
			if got, err = k.initOnce(ctx, node, id, c); err == nil {
				return got, nil
			}
			k.noteCoordinator(ctx, c.Partition, id, node, err)
			if moved(err) {
				k.forgetCoordinator(id, node)
			}
		}
		switch {
		case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
			return c, fmt.Errorf("%w: the process needs WRITE and DESCRIBE on the transactional id %s", err, id)
		case !retriable(err) && !errors.Is(err, kerr.ConcurrentTransactions):
			return c, fmt.Errorf("producer id of %s: %w", id, err)
		}
		select {
		case <-ctx.Done():
			return c, fmt.Errorf("producer id of %s: %w (%w)", id, err, context.Cause(ctx))
		case <-time.After(retryPause(attempt)):
		}
	}
}

// initOnce asks the coordinator once.
func (k *Kafka) initOnce(ctx context.Context, node int32, id string, c Claim) (Claim, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = &id
	req.TransactionTimeoutMillis = int32(transactionTimeout.Milliseconds())
	req.ProducerID, req.ProducerEpoch = c.ProducerID, c.ProducerEpoch
	resp, err := request[*kmsg.InitProducerIDResponse](ctx, k, node, req)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return c, err
	}
	return Claim{Partition: c.Partition, Number: c.Number, ProducerID: resp.ProducerID, ProducerEpoch: resp.ProducerEpoch}, nil
}

// moved says that another broker may be the coordinator by now.
func moved(err error) bool {
	var connection *connectionError
	return errors.As(err, &connection) || errors.Is(err, kerr.NotCoordinator) || errors.Is(err, kerr.CoordinatorNotAvailable)
}

// coordinator is the broker that coordinates a transactional id of p.
func (k *Kafka) coordinator(ctx context.Context, p int32, id string) (int32, error) {
	k.mu.Lock()
	node, ok := k.coordinators[id]
	k.mu.Unlock()
	if ok {
		return node, nil
	}
	return k.findCoordinator(ctx, p, id)
}

// findCoordinator asks the cluster which broker coordinates a transactional id of p.
func (k *Kafka) findCoordinator(ctx context.Context, p int32, id string) (int32, error) {
	node, err := anyBroker(ctx, k.client, &k.roster, false, func(ctx context.Context, to kmsg.Requestor) (int32, error) {
		resp, err := findCoordinatorRequest(id).RequestWith(ctx, to)
		if err != nil {
			return 0, &connectionError{-1, err}
		}
		code, node := resp.ErrorCode, resp.NodeID
		if len(resp.Coordinators) > 0 {
			code, node = resp.Coordinators[0].ErrorCode, resp.Coordinators[0].NodeID
		}
		return node, kerr.ErrorForCode(code)
	})
	if err != nil {
		return 0, fmt.Errorf("coordinator of %s: %w", id, err)
	}
	k.unclaimable.named(p, node, time.Now())
	k.mu.Lock()
	k.coordinators[id] = node
	k.mu.Unlock()
	return node, nil
}

func findCoordinatorRequest(id string) *kmsg.FindCoordinatorRequest {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = coordinatorTransaction
	req.CoordinatorKey, req.CoordinatorKeys = id, []string{id} // before and since version 4
	return req
}

// forgetCoordinator has the coordinator of a transactional id looked for again, unless that was done meanwhile.
func (k *Kafka) forgetCoordinator(id string, node int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.coordinators[id] == node {
		delete(k.coordinators, id)
	}
}
