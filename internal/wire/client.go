package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Client speaks the protocol over one connection exactly as it is told: no version negotiation, no retries, no
// metadata. It exists for tests and tools that must control every byte; applications use franz-go's kgo.
// A Client belongs to one goroutine.
type Client struct {
	conn     net.Conn
	r        *bufio.Reader
	clientID *string
	next     int32
	buf      []byte
}

// Dial connects to addr (host:port). ctx bounds the connecting only.
func Dial(ctx context.Context, addr, clientID string) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return NewClient(conn, clientID), nil
}

// NewClient speaks over conn, which it owns from now on.
func NewClient(conn net.Conn, clientID string) *Client {
	return &Client{conn: conn, r: bufio.NewReader(conn), clientID: &clientID}
}

// Exchange sends req in its version and waits for the answer. After an error the connection can't be used further:
// the answer might still come.
func (c *Client) Exchange(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	correlationID, err := c.Send(ctx, req)
	if err != nil {
		return nil, err
	}
	return c.Receive(ctx, req, correlationID)
}

// Send sends req without waiting for the answer, so that several can be under way. It returns the correlation id.
func (c *Client) Send(ctx context.Context, req kmsg.Request) (int32, error) {
	correlationID := c.next
	c.next++
	c.buf = AppendRequest(c.buf[:0], correlationID, c.clientID, req)
	return correlationID, c.SendRaw(ctx, c.buf)
}

// SendRaw sends bytes as they are.
func (c *Client) SendRaw(ctx context.Context, b []byte) error {
	defer c.deadline(ctx)()
	if _, err := c.conn.Write(b); err != nil {
		return c.failed(ctx, "send", err)
	}
	return nil
}

// Receive waits for the next answer, which must be the one to req: answers come in the order of the requests.
func (c *Client) Receive(ctx context.Context, req kmsg.Request, correlationID int32) (kmsg.Response, error) {
	frame, err := c.ReceiveRaw(ctx)
	if err != nil {
		return nil, err
	}
	key, version := req.Key(), req.GetVersion()
	got, body, err := ParseResponseHeader(key, version, frame)
	if err != nil {
		return nil, err
	}
	if got != correlationID {
		return nil, &CorrelationError{Got: got, Want: correlationID}
	}
	return ParseResponse(key, version, body)
}

// ReceiveRaw waits for the next frame and returns it without its length prefix. It is valid until the next call.
func (c *Client) ReceiveRaw(ctx context.Context) ([]byte, error) {
	defer c.deadline(ctx)()
	var prefix [4]byte
	for i := range prefix {
		b, err := c.r.ReadByte()
		if err != nil {
			return nil, c.failed(ctx, "receive", err)
		}
		prefix[i] = b
	}
	n, err := CheckLength(prefix, 4, FrameBytesMax)
	if err != nil {
		return nil, err
	}
	c.buf, err = readBody(c.r, c.buf, n)
	if err != nil {
		return nil, c.failed(ctx, "receive", err)
	}
	return c.buf, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// deadline makes ctx's end interrupt reading and writing; the returned function undoes it.
func (c *Client) deadline(ctx context.Context) func() {
	if d, ok := ctx.Deadline(); ok {
		_ = c.conn.SetDeadline(d) // a closed connection fails at the read or write that follows
	} else {
		_ = c.conn.SetDeadline(time.Time{})
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = c.conn.SetDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-done // or it would cut off the next call instead
		}
	}
}

func (c *Client) failed(ctx context.Context, what string, err error) error {
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = context.DeadlineExceeded // the connection noticed ctx's deadline before ctx did
	}
	return fmt.Errorf("%s, %v: %w", what, c.conn.RemoteAddr(), err)
}
