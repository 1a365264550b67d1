package gateway

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// job is a request, or the part of it, that is answered here.
type job struct {
	rq    *request
	group string // for the span; empty where there are several
	run   func(context.Context) kmsg.Response
	resp  kmsg.Response // nil if it was given up
	done  chan struct{}
}

// work runs jobs in the order of the requests, as a broker runs the requests of a connection.
func (c *conn) work() {
	for j := range c.jobs {
		if c.ctx.Err() == nil {
			c.run(j)
		}
		close(j.done)
		c.local.Done()
	}
}

// run runs a job in a span of its own, which is the parent of what the coordinator does.
func (c *conn) run(j *job) {
	name := kmsg.NameForKey(j.rq.Key)
	ctx, span := c.g.tracer.Start(c.ctx, name, trace.WithSpanKind(trace.SpanKindServer))
	if span.IsRecording() {
		who := j.rq.caller(c)
		span.SetAttributes(
			attribute.Int("kafka.api.version", int(j.rq.Version)),
			attribute.Int("kafka.correlation_id", int(j.rq.CorrelationID)),
			attribute.String("kafka.client_id", who.ClientID),
			attribute.String("kafka.client_host", who.ClientHost),
			attribute.Int("kafka.node", int(c.listener.id)))
		if j.group != "" {
			span.SetAttributes(attribute.String("kafka.group", j.group))
		}
	}
	defer span.End()
	j.resp = j.run(ctx)
	j.resp.SetVersion(j.rq.Version) // whatever the service left in it, the client reads this one
	if code := topLevelError(j.resp); code != 0 {
		span.SetAttributes(attribute.Int("kafka.error_code", int(code)))
		span.SetStatus(codes.Error, errorName(code))
	}
}

// topLevelError is the error code of an answer that has one for the whole of it.
func topLevelError(resp kmsg.Response) int16 {
	switch r := resp.(type) {
	case *kmsg.StreamsGroupHeartbeatResponse:
		return r.ErrorCode
	case *kmsg.StreamsGroupTopologyDescriptionUpdateResponse:
		return r.ErrorCode
	case *kmsg.JoinGroupResponse:
		return r.ErrorCode
	case *kmsg.OffsetFetchResponse:
		return r.ErrorCode
	case *kmsg.OffsetDeleteResponse:
		return r.ErrorCode
	case *kmsg.ListGroupsResponse:
		return r.ErrorCode
	}
	return 0
}
