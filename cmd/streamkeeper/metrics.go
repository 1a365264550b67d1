package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"streamkeeper/cleanup"
	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/telemetry"
	"streamkeeper/projection"
	"streamkeeper/shard"
)

// registerMetrics puts the counters of the parts behind /metrics: Kafka's (kafka_metrics.go), and those that Kafka has not.
func registerMetrics(m *telemetry.Metrics, p *parts) error {
	host := func(f func(shard.Stats) int64) func() []telemetry.Reading {
		return func() []telemetry.Reading { return telemetry.Read(f(p.host.Stats())) }
	}
	sweep := func(f func(cleanup.Stats) int64) func() []telemetry.Reading {
		return func() []telemetry.Reading { return telemetry.Read(f(p.cycle.Stats())) }
	}
	conversion := func(f func(coordinator.ConversionStats) int64) func() []telemetry.Reading {
		return func() []telemetry.Reading { return telemetry.Read(f(p.service.ConversionStats())) }
	}
	creation := func(f func(coordinator.CreationStats) int64) func() []telemetry.Reading {
		return func() []telemetry.Reading { return telemetry.Read(f(p.service.CreationStats())) }
	}
	return errors.Join(
		(&kafkaMetrics{m: m, set: &p.sensors}).register(p),
		m.Gauge("partitions", "Partitions of the log, which are the shards of all replicas together.", func() []telemetry.Reading {
			return telemetry.Read(int64(p.host.Partitions()))
		}),
		m.Counter("shard.requests", "Requests that shards ran.", host(func(s shard.Stats) int64 { return s.Requests })),
		m.Counter("shard.records", "Records that shards appended.", host(func(s shard.Stats) int64 { return s.Records })),
		m.Counter("shard.barriers", "Appends made only to prove that this replica still owned the shard.", host(func(s shard.Stats) int64 { return s.Barriers })),
		m.Counter("shard.claims", "Shards claimed.", host(func(s shard.Stats) int64 { return s.Claims })),
		m.Counter("shard.claims.failed", "Claims that failed.", host(func(s shard.Stats) int64 { return s.ClaimsFailed })),
		m.Counter("shard.appends.failed", "Appends that were refused or whose outcome stayed unknown.", host(func(s shard.Stats) int64 { return s.AppendsFailed })),
		m.Counter("shard.overloaded", "Requests refused because too many waited.", host(func(s shard.Stats) int64 { return s.Overloaded })),
		m.Counter("shard.panics", "Handlers that panicked; each is a bug.", host(func(s shard.Stats) int64 { return s.Panics })),
		m.Counter("shard.apply.failed", "Records of our own that could not be applied; each is a bug.", host(func(s shard.Stats) int64 { return s.ApplyFailed })),
		m.Counter("shard.groups.hydrated", "Groups read into memory.", host(func(s shard.Stats) int64 { return s.Hydrated })),
		m.Counter("shard.groups.evicted", "Groups that left memory.", host(func(s shard.Stats) int64 { return s.Evicted })),
		m.Counter("shard.timers.fired", "Session, rebalance and initial delay timers that fired.", host(func(s shard.Stats) int64 { return s.TimersFired })),
		m.Counter("shard.lease.refusals", "Answers withheld because the lease was over.", host(func(s shard.Stats) int64 { return s.LeaseRefusals })),
		m.Counter("internal.topics.created", "Internal topics created for streams groups.", creation(func(s coordinator.CreationStats) int64 { return s.Created })),
		m.Counter("groups.converted.to.classic", "Streams groups that became classic groups of the cluster.", conversion(func(s coordinator.ConversionStats) int64 { return s.ToClassic })),
		m.Counter("groups.converted.to.streams", "Classic groups of the cluster that became streams groups.", conversion(func(s coordinator.ConversionStats) int64 { return s.ToStreams })),
		m.Counter("groups.conversion.failed", "Attempts to convert a group that failed and are repeated.", conversion(func(s coordinator.ConversionStats) int64 { return s.Failed })),
		m.Counter("internal.topics.failed", "Attempts to create an internal topic that failed.", creation(func(s coordinator.CreationStats) int64 { return s.Failed })),
		m.Counter("cleanup.cycles", "Cleanup cycles.", sweep(func(s cleanup.Stats) int64 { return s.Cycles })),
		m.Counter("cleanup.groups.removed", "Empty groups removed.", sweep(func(s cleanup.Stats) int64 { return s.GroupsRemoved })),
		m.Counter("cleanup.deleted.topics.offsets", "Committed offsets of deleted topics that were removed.", func() []telemetry.Reading {
			return telemetry.Read(p.deleted.Removed())
		}),
		m.Gauge("cleanup.last.duration.ms", "How long the last cleanup cycle took.", sweep(func(s cleanup.Stats) int64 { return s.LastDuration.Milliseconds() })),
		m.Counter("cleanup.failures", "Groups and shards that a cleanup cycle could not judge.", sweep(func(s cleanup.Stats) int64 { return s.Failures })),
		registerProjection(m, p.store),
		m.Gauge("projection.seconds.left", "How long reading the log to its end may take; -1 where that can't be told.", func() []telemetry.Reading {
			return telemetry.Read(p.progress.look().secondsLeft())
		}),
		m.Gauge("shard.hung", "Shards whose loop takes no turn; /healthz fails.", func() []telemetry.Reading { return telemetry.Read(int64(len(p.host.Hung()))) }),
		m.Gauge("shard.declined", "Shards that this replica can't serve for a reason of its own, and leaves to others.", func() []telemetry.Reading {
			n := map[string]int64{}
			for _, d := range p.host.Declines() {
				n[d.Why]++
			}
			var out []telemetry.Reading
			for _, why := range shard.DeclineReasons {
				out = append(out, telemetry.Reading{Value: n[why], Attributes: []string{"reason", why}})
			}
			return out
		}),
		m.Gauge("ready", "1 where /readyz answers 200, else 0.", func() []telemetry.Reading {
			if p.ready() != nil {
				return telemetry.Read(0)
			}
			return telemetry.Read(1)
		}),
		m.Gauge("storage.failed", "Partitions whose records can't be stored below --data-dir.", func() []telemetry.Reading {
			return telemetry.Read(p.storageFailed())
		}),
		p.describing.register(m),
		registerDescriptionTopic(m, p.space),
	)
}

func registerProjection(m *telemetry.Metrics, store *projection.Store) error {
	stats := func(f func(projection.Stats) int64) func() []telemetry.Reading {
		return func() []telemetry.Reading { return telemetry.Read(f(store.Stats())) }
	}
	return errors.Join(
		m.Counter("projection.applied", "Entries of the log applied.", stats(func(s projection.Stats) int64 { return int64(s.Applied) })),
		m.Counter("projection.void", "Entries ignored because their writer had been replaced.", stats(func(s projection.Stats) int64 { return int64(s.Void) })),
		m.Counter("projection.unknown", "Entries skipped because their type is not ours.", stats(func(s projection.Stats) int64 { return int64(s.Unknown) })),
		m.Counter("projection.rebuilds", "Partitions, or the whole store, read again from the start of the log.", func() []telemetry.Reading {
			var out []telemetry.Reading
			rebuilds := store.Stats().Rebuilds
			for _, reason := range projection.Reasons { // also those that have not happened: increase() does not see a counter that begins with 1
				out = append(out, telemetry.Reading{Value: int64(rebuilds[reason]), Attributes: []string{"reason", string(reason)}})
			}
			return out
		}),
		m.Gauge("projection.refused", "Partitions with a record that this version can't read.", stats(func(s projection.Stats) int64 { return int64(s.Refused) })),
		m.Gauge("projection.loading", "Partitions that have not been read to their end yet.", stats(func(s projection.Stats) int64 { return int64(s.Loading) })),
		m.Gauge("projection.lag", "Records of the log that are not applied yet.", stats(func(s projection.Stats) int64 { return s.Lag })),
		m.Gauge("projection.pending", "Transactional offsets whose transaction is open.", stats(func(s projection.Stats) int64 { return int64(s.Pending) })),
		m.Gauge("projection.bytes", "Size of the store.", stats(func(s projection.Stats) int64 { return int64(s.Bytes) })),
	)
}

// shardsHandler answers how far this replica has read each partition.
func (p *parts) shardsHandler(node int32) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		st := shardStatus{NodeID: node}
		declined := map[int32]string{}
		for _, d := range p.host.Declines() {
			declined[d.Partition] = fmt.Sprintf("%s: %v", d.Why, d.Err)
		}
		for q := range p.host.Partitions() {
			s := shardPosition{Partition: q, Serving: p.host.Owns(q), Position: p.store.Applied(q), Declined: declined[q]}
			now := p.store.PartitionStats(q)
			if s.Left = now.Lag; !now.AtEnd {
				s.Reading = now.Because.String()
			}
			if o, ok := p.store.Owner(q); ok {
				s.Owner = &shardOwner{NodeID: o.NodeID, Address: o.Address, Generation: o.Generation, Released: o.Released, Written: o.Timestamp}
			}
			if err := p.store.Err(q); err != nil {
				s.Error = err.Error()
			}
			st.Shards = append(st.Shards, s)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(st)
	})
}
