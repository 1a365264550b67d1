package coordinator

import (
	"context"
	"math/rand/v2"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"streamkeeper/eventlog"
	"streamkeeper/plugin"
	"streamkeeper/shard"
)

// DescriptionShards is what topology descriptions need of the shards; *shard.Host, with Config.Descriptions set, is one.
type DescriptionShards interface {
	// Tenure is a context that ends when this replica no longer serves the group's shard.
	Tenure(group string) context.Context
	// BeginPush and MarkForDelete are the barriers before a call of the plugin; the others record what came of it.
	BeginPush(ctx context.Context, group, member string, topologyEpoch int32, invalid error) error
	PushStored(ctx context.Context, group string, topologyEpoch int32) error
	PushRefused(ctx context.Context, group string, why eventlog.DescriptionRefusal) error
	MarkForDelete(ctx context.Context, group string) (bool, error)
	DescriptionDeleted(ctx context.Context, group string) error
	Doubt(ctx context.Context, group string) error
	DescribeStored(ctx context.Context, group string) (shard.Described, error)
}

var _ DescriptionShards = (*shard.Host)(nil)

// Descriptions makes a coordinator keep topology descriptions (KIP-1331).
type Descriptions struct {
	// Plugin keeps them; the coordinator closes it.
	Plugin *plugin.Traced
	Shards DescriptionShards
	// Backoff says when members may be asked again; the cleanup cycle shares it. nil: one of its own.
	Backoff *plugin.Backoff
}

// descriptions is what the coordinator has of them; nil where there is no plugin.
type descriptions struct {
	plugin  *plugin.Traced
	shards  DescriptionShards
	backoff *plugin.Backoff
	asked   asked
}

func newDescriptions(cfg *Descriptions) *descriptions {
	if cfg == nil {
		return nil
	}
	d := &descriptions{plugin: cfg.Plugin, shards: cfg.Shards, backoff: cfg.Backoff}
	if d.backoff == nil {
		d.backoff = plugin.NewBackoff(rand.Float64, 0)
	}
	return d
}

// Descriptions says whether topology descriptions are kept.
func (c *Coordinator) Descriptions() bool { return c.descriptions != nil }

// solicit asks the member of an accepted heartbeat for a description if its group lacks one, and nobody was asked within the
// current window (Kafka's StreamsGroupTopologyDescriptionManager). The heartbeat is durable: what was decided here rests on it.
func (c *Coordinator) solicit(ctx context.Context, group string, result shard.HeartbeatResult) {
	d := c.descriptions
	if d == nil || !result.Wants || !d.backoff.Arm(group, result.TopologyEpoch, c.cfg.Now()) {
		return
	}
	result.Response.TopologyDescriptionRequired = true
	d.asked.note(group, trace.SpanContextFromContext(ctx))
	c.log.Debug("member asked for the topology description", "group", group, "member", result.Response.MemberID, "topology_epoch", result.TopologyEpoch)
}

// withTenure is ctx without its end, and with that of the group's shard: a client that leaves does not undo what it began, and the
// next owner of the shard decides anew.
func (d *descriptions) withTenure(ctx, tenure context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(tenure, func() { cancel(context.Cause(tenure)) })
	return ctx, func() { stop(); cancel(nil) }
}

// askedMax bounds the remembered heartbeats; one that is lost costs a reader of traces a link.
const askedMax = 10_000

// asked remembers the spans of the heartbeats that asked for descriptions, so that the push can be linked to its cause.
type asked struct {
	mu     sync.Mutex
	groups map[string]trace.SpanContext
}

func (a *asked) note(group string, span trace.SpanContext) {
	if !span.IsValid() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.groups == nil {
		a.groups = map[string]trace.SpanContext{}
	}
	if _, ok := a.groups[group]; !ok && len(a.groups) >= askedMax {
		for other := range a.groups { // any one
			delete(a.groups, other)
			break
		}
	}
	a.groups[group] = span
}

// take returns the span and forgets it; a zero one where there is none.
func (a *asked) take(group string) trace.SpanContext {
	a.mu.Lock()
	defer a.mu.Unlock()
	span := a.groups[group]
	delete(a.groups, group)
	return span
}

// forget lets go of what is known of a group that is gone.
func (d *descriptions) forget(group string) {
	if d != nil {
		d.backoff.Forget(group)
		d.asked.take(group)
	}
}
