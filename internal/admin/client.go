package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// retryPause is the pause before a coordinator is asked again that is loading, moving or not there yet.
const retryPause = 200 * time.Millisecond

// Client asks one cluster. The contexts of its methods bound how long they try.
type Client struct {
	cl  *kgo.Client
	adm *kadm.Client
}

// New connects when it is first used. opts are those of the caller beyond the addresses.
func New(bootstrap []string, opts ...kgo.Opt) (*Client, error) {
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap...), kgo.ClientID("streamkeeper-cli")}, opts...)...)
	if err != nil {
		return nil, err
	}
	return &Client{cl: cl, adm: kadm.NewClient(cl)}, nil
}

// Kafka is the client below, for requests that this package has no method for.
func (c *Client) Kafka() *kgo.Client { return c.cl }

// Close ends the connections.
func (c *Client) Close() { c.cl.Close() }

// Node is a node of the cluster as it names itself.
type Node struct {
	ID   int32  `json:"id"`
	Host string `json:"host"`
	Port int32  `json:"port"`
}

func (n Node) String() string { return fmt.Sprintf("%s:%d (%d)", n.Host, n.Port, n.ID) }

// Error is a refusal by the cluster, with the text it gave if it gave one.
type Error struct {
	Err     error // one of kerr
	Message string
}

func (e *Error) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

func refusal(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err == nil {
		return nil
	}
	e := &Error{Err: err}
	if message != nil {
		e.Message = *message
	}
	return e
}

// moved says that the question must be asked again: the coordinator is another one, is loading, or there is none yet.
func moved(err error) bool {
	return errors.Is(err, kerr.NotCoordinator) || errors.Is(err, kerr.CoordinatorLoadInProgress) || errors.Is(err, kerr.CoordinatorNotAvailable)
}

// retry calls f until it returns nil or an error that will not pass, or ctx ends.
func retry(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || !moved(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-time.After(retryPause):
		}
	}
}

// coordinator looks the coordinator of a group up.
func (c *Client) coordinator(ctx context.Context, group string) (Node, error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = 0, group, []string{group}
	resp, err := req.RequestWith(ctx, c.cl)
	if err != nil {
		return Node{}, fmt.Errorf("coordinator of group %s: %w", group, err)
	}
	if len(resp.Coordinators) == 0 { // below version 4
		return Node{resp.NodeID, resp.Host, resp.Port}, refusal(resp.ErrorCode, resp.ErrorMessage)
	}
	k := resp.Coordinators[0]
	return Node{k.NodeID, k.Host, k.Port}, refusal(k.ErrorCode, k.ErrorMessage)
}
