package client

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Error is a refusal by a coordinator: the protocol's error, and the text that came with it if there was one.
type Error struct {
	Err     error // one of package kerr
	Message string
}

func (e *Error) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// refusal is the error of a response, nil for none. A code that is not known becomes UNKNOWN_SERVER_ERROR with the number in its text.
func refusal(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err == nil {
		return nil
	}
	e := &Error{Err: err}
	if message != nil {
		e.Message = *message
	}
	if errors.Is(err, kerr.UnknownServerError) && code != kerr.UnknownServerError.Code && e.Message == "" {
		e.Message = fmt.Sprintf("unknown error code %d", code)
	}
	return e
}

// moved says that a coordinator does not, or not yet, answer for a group: ask again, and where else must be looked up.
func moved(err error) (again, elsewhere bool) {
	elsewhere = errors.Is(err, kerr.NotCoordinator) || errors.Is(err, kerr.CoordinatorNotAvailable)
	return elsewhere || errors.Is(err, kerr.CoordinatorLoadInProgress), elsewhere
}

// passing says that a request that got no answer may get one if it is sent again: a connection that broke or could not be made, a broker that
// did not answer in time. Refused credentials, a closed client, and a request that the broker doesn't know stay what they are.
func passing(err error) bool {
	if errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, context.Canceled) {
		return false
	}
	var (
		op    *net.OpError         // a dial that failed: kgo says no to those, for want of another broker,
		first *kgo.ErrFirstReadEOF // and to a new connection that ends at once, which a broker that is being stopped makes, too
	)
	return kgo.IsRetryableBrokerErr(err) || errors.As(err, &op) || errors.As(err, &first) || errors.Is(err, context.DeadlineExceeded)
}

// unreached looks for the addresses of all nodes anew where one could not be connected to: kgo goes on with the address that it
// learned, which may be one that a process that is gone lent the node. streamkeeper's replicas each list the brokers at ports of their own.
func unreached(cl *kgo.Client, err error) {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		cl.ForceMetadataRefresh()
	}
}

// unsupported says in the protocol's words that a node can't do what was asked: kgo has no error for that which can be told
// from others, so the node is asked for the versions it has. It returns err where that is not the reason.
func unsupported(ctx context.Context, cl *kgo.Client, node Node, req kmsg.Request, err error) error {
	var ke *kerr.Error
	if passing(err) || errors.As(err, &ke) || ctx.Err() != nil {
		return err
	}
	kresp, askErr := cl.Broker(int(node.ID)).Request(ctx, kmsg.NewPtrApiVersionsRequest())
	if askErr != nil {
		return err
	}
	for _, k := range kresp.(*kmsg.ApiVersionsResponse).ApiKeys {
		if k.ApiKey == req.Key() {
			return err
		}
	}
	return &Error{Err: kerr.UnsupportedVersion, Message: fmt.Sprintf("node %v does not support %s", node, kmsg.NameForKey(req.Key()))}
}

// errNoAnswer ends calls that have no deadline of their own.
var errNoAnswer = fmt.Errorf("no answer within %v: %w", adminTimeout, context.DeadlineExceeded)
