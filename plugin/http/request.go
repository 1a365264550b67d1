package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"strconv"

	"go.opentelemetry.io/otel/propagation"

	"streamkeeper/plugin"
)

// smallAnswerBytesMax is how much is read of an answer that holds no description: the reason of a failure, and enough that the
// connection can be used again.
const smallAnswerBytesMax = 64 << 10

// documentSlack is what a GET's answer may have beyond a description: the group's id, white space, a service's own fields.
const documentSlack = 1 << 20

// address of the group's topologies, or of one of them.
func (p *Plugin) address(group string, epoch ...int32) string {
	parts := []string{"groups", GroupSegment(group), "topologies"}
	for _, e := range epoch {
		parts = append(parts, strconv.Itoa(int(e)))
	}
	return p.cfg.URL.JoinPath(parts...).String()
}

// do sends a request and reads its answer, of which at most bodyMax bytes.
func (p *Plugin) do(ctx context.Context, method, address string, body []byte, bodyMax int) (answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.Timeout, errSlow)
	defer cancel()
	stop := context.AfterFunc(p.life, cancel)
	defer stop()
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	r, err := nethttp.NewRequestWithContext(ctx, method, address, reader)
	if err != nil {
		return answer{}, plugin.Transient("the topology catalogue can't be asked", err)
	}
	auth, err := p.cfg.credentials()
	if err != nil {
		return answer{}, plugin.Transient("there are no credentials for the topology catalogue", err)
	}
	if auth != "" {
		r.Header.Set(p.cfg.AuthHeader, auth)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "streamkeeper")
	// An empty key is not sent, and tells Go's client that it may repeat the request when an idle connection turns out to be
	// closed; for PUT and DELETE it would not otherwise.
	r.Header["Idempotency-Key"] = []string{}
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))

	resp, err := p.client.Do(r)
	if err != nil {
		return answer{}, p.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if !a.ok() {
		bodyMax = smallAnswerBytesMax
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, int64(bodyMax)+1))
	if err != nil {
		return answer{}, p.unreachable(ctx, err)
	}
	if len(b) > bodyMax {
		b, a.cut = b[:bodyMax], true
	}
	a.body = b
	return a, nil
}

var errSlow = errors.New("the topology catalogue is too slow")

// unreachable words an error of the connection. The address is for the log, not for clients.
func (p *Plugin) unreachable(ctx context.Context, err error) error {
	switch {
	case p.life.Err() != nil:
		return plugin.ErrClosed
	case errors.Is(context.Cause(ctx), errSlow):
		return plugin.Transient(fmt.Sprintf("the topology catalogue did not answer within %s", p.cfg.Timeout), err)
	case ctx.Err() != nil:
		return err // the caller has given up and knows why
	}
	return plugin.Transient("the topology catalogue can't be reached", err)
}
