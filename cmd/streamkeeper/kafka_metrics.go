package main

import (
	"errors"
	"math"
	"strings"
	"time"

	"streamkeeper/internal/sensor"
	"streamkeeper/internal/telemetry"
	"streamkeeper/plugin"
	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

// kafkaMetrics puts behind /metrics what Kafka 4.4 has in its group group-coordinator-metrics (GroupCoordinatorMetrics,
// CoordinatorRuntimeMetricsImpl), as far as a coordinator of streams groups has it: under Kafka's names, with our prefix and Prometheus' underscores, in
// Kafka's units. A meter's "-count" is a counter, which Prometheus wants to end in "_total". docs/operations.md has the table.
type kafkaMetrics struct {
	m    *telemetry.Metrics
	set  *sensor.Set
	errs []error
}

func (k *kafkaMetrics) note(err error) {
	if err != nil {
		k.errs = append(k.errs, err)
	}
}

// dotted is a name of Kafka's as OpenTelemetry likes it.
func dotted(name string) string { return strings.ReplaceAll(name, "-", ".") }

// meter registers a counter and its rate, name-count and name-rate in Kafka.
func (k *kafkaMetrics) meter(name, help string, read func() int64) {
	k.note(k.m.Counter(dotted(name), help, func() []telemetry.Reading { return telemetry.Read(read()) }))
	k.rate(name+"-rate", help, read)
}

// rate registers the rate of a counter.
func (k *kafkaMetrics) rate(name, help string, read func() int64) {
	k.note(k.m.FloatGauge(dotted(name), help+" Per second, over the last 30 to 60 seconds.", k.set.Rate(read).PerSecond))
}

// quantiles are the endings of Kafka's histograms.
var quantiles = []struct {
	ending string
	q      float64
}{{"max", 1}, {"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}, {"p999", 0.999}}

// latency registers a histogram of Kafka's, whose name ends in -ms, and the same as a histogram that Prometheus can add up over replicas.
func (k *kafkaMetrics) latency(name, help string, h *sensor.Histogram) {
	w := k.set.Windowed(h)
	for _, q := range quantiles {
		k.note(k.m.FloatGauge(dotted(name)+"."+q.ending, help+" In ms, over the last 30 to 60 seconds.", func() float64 { return ms(w.Quantiles(q.q)[0]) }))
	}
	k.note(k.m.Histogram(dotted(strings.TrimSuffix(name, "-ms")), help, h))
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// register registers everything.
func (k *kafkaMetrics) register(p *parts) error {
	k.groups(p.host)
	host := func(f func(shard.Stats) int64) func() int64 { return func() int64 { return f(p.host.Stats()) } }
	k.meter("offset-commit", "Offsets committed.", host(func(s shard.Stats) int64 { return s.OffsetCommits }))
	k.meter("offset-expiration", "Committed offsets that expired.", host(func(s shard.Stats) int64 { return s.OffsetExpirations }))
	k.meter("offset-deletion", "Committed offsets that were deleted on request.", host(func(s shard.Stats) int64 { return s.OffsetDeletions }))
	k.meter("streams-group-rebalance", "Group epochs bumped by heartbeats.", host(func(s shard.Stats) int64 { return s.Rebalances }))
	k.runtime(p)
	k.descriptions(p.describing)
	return errors.Join(k.errs...)
}

func (k *kafkaMetrics) groups(host *shard.Host) {
	k.note(k.m.Gauge("group.count", "Groups of the shards of this replica.", func() []telemetry.Reading {
		n := int64(0)
		for _, of := range host.Census().Groups {
			n += of
		}
		return []telemetry.Reading{{Value: n, Attributes: []string{"protocol", "streams"}}}
	}))
	k.note(k.m.Gauge("streams.group.count", "Streams groups of the shards of this replica, by state.", func() []telemetry.Reading {
		c := host.Census()
		out := make([]telemetry.Reading, 0, len(streams.States))
		for _, st := range streams.States {
			out = append(out, telemetry.Reading{Value: c.Groups[st], Attributes: []string{"state", st.String()}})
		}
		return out
	}))
	k.note(k.m.Gauge("offset.count", "Committed offsets of the shards of this replica.", func() []telemetry.Reading {
		return telemetry.Read(host.Census().Offsets)
	}))
}

// runtime registers what Kafka measures of its coordinator runtime.
func (k *kafkaMetrics) runtime(p *parts) {
	k.note(k.m.Gauge("num.partitions", "Shards of this replica by state.", func() []telemetry.Reading {
		s, failed := p.host.Stats(), p.host.Failed()
		return []telemetry.Reading{
			{Value: int64(s.Owned), Attributes: []string{"state", "active"}},
			{Value: int64(max(s.Pending-failed, 0)), Attributes: []string{"state", "loading"}},
			{Value: int64(failed), Attributes: []string{"state", "failed"}},
		}
	}))
	k.note(k.m.Gauge("event.queue.size", "Requests that wait for their shard.", func() []telemetry.Reading {
		return telemetry.Read(int64(p.host.Queued()))
	}))
	t, l := p.host.Timings(), p.log.Timings()
	k.latency("event-queue-time-ms", "Time from a request's arrival at its shard to its handler.", &t.Queue)
	k.latency("event-processing-time-ms", "Time of a handler, with the application of its records.", &t.Processing)
	k.latency("event-purgatory-time-ms", "Time that an answer waits for the log.", &t.Purgatory)
	k.latency("batch-linger-time-ms", "Time that the first operation of a batch waits until the batch is sent.", &l.Linger)
	k.latency("batch-flush-time-ms", "Time from a batch's first sending to its acknowledgement by the replicas.", &l.Flush)
	k.rate("batch-flush-rate", "Batches acknowledged.", l.Flush.Count)

	load := k.set.Windowed(&t.Load)
	known := func(v float64) float64 { // as Kafka's sampled Max and Avg where nothing was loaded
		if _, ok := load.Mean(); !ok {
			return math.NaN()
		}
		return v
	}
	k.note(k.m.FloatGauge("partition.load.time.max", "Longest time from a claim to serving, in ms, over the last 30 to 60 seconds.", func() float64 {
		return known(ms(load.Quantiles(1)[0]))
	}))
	k.note(k.m.FloatGauge("partition.load.time.avg", "Mean time from a claim to serving, in ms, over the last 30 to 60 seconds.", func() float64 {
		mean, _ := load.Mean()
		return known(ms(mean))
	}))
	busy := k.set.Rate(t.Busy)
	k.note(k.m.FloatGauge("thread.idle.ratio.avg", "Part of the time that the loops of the shards had nothing to do.", func() float64 {
		return max(0, 1-busy.Share()/float64(max(p.host.OwnedCount(), 1)))
	}))
}

// descriptions registers the eight sensors of KIP-1331.
func (k *kafkaMetrics) descriptions(d *describing) {
	if d == nil {
		return
	}
	for i, c := range (plugin.Stats{}).Kafka() {
		k.meter(c.Name, "Topology descriptions: Kafka's sensor "+c.Name+".", func() int64 { return d.plugin.Stats().Kafka()[i].Value })
	}
}
