package sim

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/cleanup"
	"streamkeeper/eventlog"
	"streamkeeper/internal/coordinator"
	"streamkeeper/plugin"
	"streamkeeper/shard"
	"streamkeeper/shard/offsets"
)

// catalogue is where topology descriptions are kept (KIP-1331): a service of its own that outlives all replicas, slow now and then, and
// at times out of order.
type catalogue struct {
	mu    sync.Mutex
	rng   *rand.Rand
	kept  map[string]int32 // topology epochs by group
	calm  bool
	keeps bool // sabotage: what is deleted stays
}

var errCatalogue = errors.New("the catalogue is out of order (simulated)")

func (c *catalogue) Name() string { return "catalogue" }

// call does f after a while, or fails.
func call[T any](c *catalogue, f func() T) *plugin.Future[T] {
	c.mu.Lock()
	d, fails := delay(c.rng), !c.calm && c.rng.IntN(10) == 0
	c.mu.Unlock()
	return plugin.Go(func() (v T, err error) {
		pause(d)
		if fails {
			return v, errCatalogue
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return f(), nil
	})
}

func (c *catalogue) Set(_ context.Context, group string, epoch int32, _ *plugin.Description) *plugin.Future[plugin.Void] {
	return call(c, func() (v plugin.Void) { c.kept[group] = epoch; return v })
}

func (c *catalogue) Get(_ context.Context, group string, epoch int32) *plugin.Future[*plugin.Description] {
	return call(c, func() *plugin.Description {
		if e, ok := c.kept[group]; ok && e == epoch {
			return &plugin.Description{}
		}
		return nil
	})
}

func (c *catalogue) Delete(_ context.Context, group string) *plugin.Future[plugin.Void] {
	return call(c, func() (v plugin.Void) {
		if !c.keeps {
			delete(c.kept, group)
		}
		return v
	})
}

func (c *catalogue) Close(context.Context) error { return nil }

func (c *catalogue) has(group string) (epoch int32, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	epoch, ok = c.kept[group]
	return epoch, ok
}

func (c *catalogue) setCalm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calm = true
}

// describe makes what a process does about descriptions: what the coordinator needs of them, and the cleanup cycle.
func (w *world) describe(r *replica, p *process) (*coordinator.Descriptions, error) {
	traced, err := plugin.NewTraced(w.catalogue, plugin.Config{Logger: w.logger("plugin", r.node), Counters: new(plugin.Counters)})
	if err != nil {
		return nil, err
	}
	rng := w.rng(fmt.Sprintf("back-off of replica %d life %d", r.node, r.life))
	backoff := plugin.NewBackoff(rng.Float64, 0)
	p.cycle = cleanup.New(cleanup.Config{
		Logger: w.logger("cleanup", r.node), Descriptions: &cleanup.Descriptions{DeleteAll: traced.DeleteAll, Counters: new(plugin.Counters), Backoff: backoff},
		Shards: func() (all []cleanup.Shard) {
			for n := range w.partitions {
				if p.host.Owns(n) {
					all = append(all, swept{p, n, r.clock})
				}
			}
			return all
		},
	})
	return &coordinator.Descriptions{Plugin: traced, Shards: p.host, Backoff: backoff}, nil
}

// swept is a shard as the cleanup cycle sees it.
type swept struct {
	p         *process
	partition int32
	clock     func() time.Time
}

func (s swept) Partition() int32 { return s.partition }

func (s swept) Candidates(ctx context.Context) iter.Seq2[string, error] {
	return cleanup.AllCandidates(ctx, s.p.store, s.partition, offsets.Env{
		Now: s.clock().UnixMilli(), MetadataBytesMax: offsets.MetadataMaxDefault, Retention: offsets.RetentionDefault,
	})
}

func (s swept) Expire(ctx context.Context, groups []string) ([]shard.Judged, error) {
	return s.p.host.ExpireGroups(ctx, s.partition, groups)
}

func (s swept) Tenure() context.Context { return s.p.host.TenureOf(s.partition) }

func (s swept) Described(ctx context.Context) iter.Seq2[string, error] {
	return cleanup.DescribedCandidates(ctx, s.p.store, s.partition)
}

func (s swept) SeemsDescribed(group string) (bool, error) {
	return cleanup.SeemsDescribed(s.p.store, s.partition, group)
}

func (s swept) MayBeDescribed(ctx context.Context, group string) (bool, error) {
	return s.p.host.MayBeDescribed(ctx, group)
}

func (s swept) MarkExpired(ctx context.Context, group string) (bool, error) {
	return s.p.host.MarkExpired(ctx, group)
}

func (s swept) DescriptionDeleted(ctx context.Context, group string) error {
	return s.p.host.DescriptionDeleted(ctx, group)
}

// cleanup lets a replica sweep, again and again.
func (w *world) cleanup() {
	rng := w.rng("cleanup")
	for w.sleep(w.ctx, time.Duration(5+rng.IntN(20))*time.Second) {
		p := w.anyReplica(rng).running()
		if p == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
		report, err := p.cycle.Sweep(ctx)
		cancel()
		if report.OffsetsExpired > 0 {
			w.violate("%d offsets expired, which were committed less than the retention ago", report.OffsetsExpired)
		}
		if report.GroupsRemoved+report.DescriptionsDeleted+report.Failures > 0 {
			w.note("cleanup: %d groups removed, %d descriptions deleted, %d failures (%v)", report.GroupsRemoved, report.DescriptionsDeleted, report.Failures, err)
		}
	}
}

// pushRest is how long a client that was asked for a description rests before it pushes again.
const pushRest = 30 * time.Second

// push pushes the description of the application's topology, if the coordinator wants it.
func (c *client) push(asked bool) {
	if !asked || time.Now().Before(c.pushAt) {
		return
	}
	c.pushAt = time.Now().Add(pushRest)
	req := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
	req.Group, req.MemberID, req.TopologyEpoch = c.group, c.id, topologyEpoch
	for _, sub := range []string{sourced, stateful} {
		s := kmsg.NewTopologyDescriptionSubtopology()
		s.SubtopologyID = sub
		node := kmsg.NewTopologyDescriptionNode()
		node.Name, node.NodeType, node.SourceTopics = "source-"+sub, int8(plugin.NodeSource), []string{topicOf(sub)}
		s.Nodes = append(s.Nodes, node)
		req.TopologyDescription.Subtopologies = append(req.TopologyDescription.Subtopologies, s)
	}
	id, code, loss := c.id, int16(0), c.w.loss(c.group)
	resp, err := c.ask(req)
	if err == nil {
		code = resp.(*kmsg.StreamsGroupTopologyDescriptionUpdateResponse).ErrorCode
	}
	c.w.note("%s: %s pushes its description: %d %v", c.group, id, code, err)
	const failed = 135
	switch {
	case err != nil:
	case code == 0:
		c.w.checker.ackedDescription(c.group, topologyEpoch, loss)
	case slices.Contains([]int16{failed, codeLoading, codeUnavailable, codeNotCoordinator, codeTimedOut, codeUnknownMember, codeGroupNotFound}, code):
	default:
		c.w.violate("%s: the push of %s was refused with %d", c.group, id, code)
	}
}

// undescribed says what is wrong with the descriptions in the end: none outlives its group, and what the log says is stored is.
func (w *world) undescribed() string {
	for g := range w.groups {
		group := groupName(g)
		exists, stored := w.checker.stored(group)
		epoch, kept := w.catalogue.has(group)
		switch {
		case w.loss(group) > 0: // a mark may be lost that a call of the catalogue was preceded by
		case kept && !exists:
			return fmt.Sprintf("the description of %s (topology epoch %d) outlives its group", group, epoch)
		case kept && stored == eventlog.EpochNone:
			return fmt.Sprintf("a description of %s is kept (topology epoch %d), and the log says that there is none", group, epoch)
		case exists && stored >= 0 && (!kept || epoch != stored):
			return fmt.Sprintf("the log says that the description of %s is stored at topology epoch %d; the catalogue has %d (%v)", group, stored, epoch, kept)
		}
	}
	return ""
}
