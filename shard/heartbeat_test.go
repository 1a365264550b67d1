package shard

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Heartbeat is the host's, for the many tests that look at the response alone.
func (r *node) Heartbeat(ctx context.Context, c Caller, version int16, req *kmsg.StreamsGroupHeartbeatRequest) (*kmsg.StreamsGroupHeartbeatResponse, error) {
	result, err := r.Host.Heartbeat(ctx, c, version, req)
	return result.Response, err
}
