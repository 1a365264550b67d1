package client

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// adminTimeout bounds a call whose context has no deadline, as default.api.timeout.ms does in Kafka's client: without it a
// call for a group whose coordinator stays away would never return.
const adminTimeout = time.Minute

// Admin asks about streams groups, and deletes them, with Kafka's own protocol. It borrows a client: closing it is
// the business of whoever made it. Its methods may be called from any goroutine.
type Admin struct {
	cl *kgo.Client
}

// NewAdmin makes an Admin that uses the connections of cl.
func NewAdmin(cl *kgo.Client) *Admin { return &Admin{cl: cl} }

// bounded is ctx with a deadline.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, adminTimeout, errNoAnswer)
}

// unique are the strings in their order, each once.
func unique(in []string) []string {
	seen := make(map[string]struct{}, len(in))
	var out []string
	for _, s := range in {
		if _, ok := seen[s]; !ok {
			seen[s] = struct{}{}
			out = append(out, s)
		}
	}
	return out
}
