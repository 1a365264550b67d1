package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// forgetPause is the time between two attempts where a replica could not settle it yet: it has tried for seconds itself.
const forgetPause = time.Second

// Forget has a replica that is gone for good left out of Metadata, by all replicas. It asks the bootstrap addresses themselves: which node of Metadata is a
// replica nobody can tell. A refusal has the replica's words.
func (c *Client) Forget(ctx context.Context, node int32) error {
	for {
		err := c.forgetOnce(ctx, node)
		if !errors.Is(err, kerr.RequestTimedOut) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(forgetPause):
		}
	}
}

func (c *Client) forgetOnce(ctx context.Context, node int32) error {
	var failed error
	for _, seed := range c.cl.SeedBrokers() {
		resp, err := seed.Request(ctx, wire.ForgetRequest(node))
		if err != nil {
			failed = err
			continue
		}
		answer, ok := resp.(*kmsg.UnregisterBrokerResponse)
		if !ok || !wire.IsForgetResponse(answer) {
			failed = errNoReplica
			continue
		}
		err = kerr.ErrorForCode(answer.ErrorCode)
		if err != nil && answer.ErrorMessage != nil {
			return refusal{err, *answer.ErrorMessage}
		}
		return err
	}
	var network net.Error
	if errors.Is(failed, errNoReplica) || errors.As(failed, &network) || kgo.IsRetryableBrokerErr(failed) || ctx.Err() != nil {
		return failed
	}
	return fmt.Errorf("%w (%w)", errNoReplica, failed) // a cluster without KRaft does not know the request, and the client does not send it
}

var errNoReplica = errors.New("whoever answers is no replica that can do it: --bootstrap-servers has to name streamkeeper, in this version or a newer one, not the brokers")

// refusal is an error of Kafka's with the words of who refused.
type refusal struct {
	code error
	text string
}

func (e refusal) Error() string { return e.text }
func (e refusal) Unwrap() error { return e.code }
