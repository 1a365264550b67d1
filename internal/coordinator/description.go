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
	DescriptionLost(ctx context.Context, group string, topologyEpoch int32) error
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
	// ReaskLost makes members be asked again for a description that the plugin has lost, once a describe finds that; Lost, where it is set,
	// is told of each.
	ReaskLost bool
	Lost      func()
}

// descriptions is what the coordinator has of them; nil where there is no plugin.
type descriptions struct {
	plugin  *plugin.Traced
	shards  DescriptionShards
	backoff *plugin.Backoff
	pushing pushing
	reask   bool
	lost    func()
}

// pushing counts the pushes under way by group; the plugin's bound on calls and the connections of clients bound it.
type pushing struct {
	mu     sync.Mutex
	groups map[string]int
}

// begin notes a push; the function that it returns notes its end.
func (p *pushing) begin(group string) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.groups == nil {
		p.groups = map[string]int{}
	}
	p.groups[group]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.groups[group]--; p.groups[group] == 0 {
			delete(p.groups, group)
		}
	}
}

func (p *pushing) has(group string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.groups[group] > 0
}

func newDescriptions(cfg *Descriptions) *descriptions {
	if cfg == nil {
		return nil
	}
	d := &descriptions{plugin: cfg.Plugin, shards: cfg.Shards, backoff: cfg.Backoff, reask: cfg.ReaskLost, lost: cfg.Lost}
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
	if d == nil || !result.Wants ||
		!d.backoff.Ask(group, result.TopologyEpoch, c.cfg.Now(), result.Response.MemberID, trace.SpanContextFromContext(ctx)) {
		return
	}
	result.Response.TopologyDescriptionRequired = true
	c.log.Debug("member asked for the topology description", "group", group, "member", result.Response.MemberID, "topology_epoch", result.TopologyEpoch)
}

// withTenure is ctx without its end, and with that of the group's shard: a client that leaves does not undo what it began, and the
// next owner of the shard decides anew.
func withTenure(ctx, tenure context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := shard.Under(ctx, tenure)
	return ctx, func() { cancel(nil) }
}

// forget lets go of what is known of a group that is gone.
func (d *descriptions) forget(group string) {
	if d != nil {
		d.backoff.Forget(group)
	}
}
