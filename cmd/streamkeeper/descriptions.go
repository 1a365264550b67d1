package main

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"streamkeeper/cleanup"
	"streamkeeper/eventlog"
	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/telemetry"
	"streamkeeper/plugin"
	"streamkeeper/plugin/http"
	"streamkeeper/plugin/memory"
	"streamkeeper/plugin/topic"
	"streamkeeper/shard"
)

// morePlugins are added to the built-in ones: by tests, and by nothing else.
var morePlugins []plugin.Factory

// plugins are the topology description plugins that are built in.
func plugins() (*plugin.Registry, error) {
	return plugin.NewRegistry(append([]plugin.Factory{topic.Factory(), memory.Factory(), http.Factory()}, morePlugins...)...)
}

// openPlugin makes the plugin that the flags name; nil for none. It connects to nothing.
func (r *replica) openPlugin() (plugin.Plugin, error) {
	registry, err := plugins()
	if err != nil {
		return nil, err
	}
	p, err := registry.Open(r.flags.Plugin, r.flags.PluginSet)
	if err != nil {
		return nil, usage(fmt.Errorf("--plugin: %w", err))
	}
	return p, nil
}

// describing is what a replica that keeps topology descriptions has for it. A nil one keeps none.
type describing struct {
	plugin   *plugin.Traced
	counters *plugin.Counters
	backoff  *plugin.Backoff
	reask    bool          // lost descriptions are asked for again
	topic    *topic.Plugin // nil: the plugin is another one
}

func newDescribing(p plugin.Plugin, cfg plugin.Config, reask bool) (*describing, error) {
	if p == nil {
		return nil, nil
	}
	cfg.Counters = new(plugin.Counters)
	traced, err := plugin.NewTraced(p, cfg)
	if err != nil {
		return nil, err
	}
	keeper, _ := p.(*topic.Plugin)
	return &describing{plugin: traced, counters: cfg.Counters, backoff: plugin.NewBackoff(rand.Float64, 0), reask: reask, topic: keeper}, nil
}

// topicName is the topic of the descriptions beside a log; "" where there is none.
func (d *describing) topicName(logTopic string) string {
	if d == nil || d.topic == nil {
		return ""
	}
	return d.topic.TopicOf(logTopic)
}

// holding is the claim of a partition that this replica serves; its host is made after what asks for it.
func (p *parts) holding(partition int32) (shard.Holding, bool) {
	if p.host == nil {
		return shard.Holding{}, false
	}
	return p.host.Holding(partition)
}

// coordinator is the part of it that answers requests, over the shards; nil where nothing is kept.
func (d *describing) coordinator(shards coordinator.DescriptionShards) *coordinator.Descriptions {
	if d == nil {
		return nil
	}
	return &coordinator.Descriptions{Plugin: d.plugin, Shards: shards, Backoff: d.backoff, ReaskLost: d.reask, Lost: d.counters.Lost}
}

// cleanup is the part of it that the cleanup cycle does; nil where nothing is kept.
func (d *describing) cleanup() *cleanup.Descriptions {
	if d == nil {
		return nil
	}
	c := &cleanup.Descriptions{DeleteAll: d.plugin.DeleteAll, Counters: d.counters, Backoff: d.backoff}
	if d.reask {
		c.Lost = &cleanup.Lost{GetAll: d.plugin.GetAll}
	}
	if d.topic != nil {
		c.Orphans = d.topic
	}
	return c
}

// tenureEnded lets go of what is remembered of the groups of a shard that moves; nil where nothing is kept.
func (d *describing) tenureEnded(partitions int32) func(p int32) {
	if d == nil {
		return nil
	}
	return func(p int32) {
		d.backoff.ForgetIf(func(group string) bool { return eventlog.Partition(group, partitions) == p })
	}
}

// register puts behind /metrics what Kafka does not tell apart.
func (d *describing) register(m *telemetry.Metrics) error {
	if d == nil {
		return nil
	}
	stats := func(f func(plugin.Stats) int64) func() []telemetry.Reading {
		return func() []telemetry.Reading { return telemetry.Read(f(d.plugin.Stats())) }
	}
	return errors.Join(
		m.Counter("plugin.timed.out", "Calls of the plugin without a result in time.", stats(func(s plugin.Stats) int64 { return s.TimedOut })),
		m.Counter("plugin.late", "Calls of the plugin that completed after their time-out.", stats(func(s plugin.Stats) int64 { return s.Late })),
		m.Counter("plugin.busy", "Calls of the plugin that were not made because too many were under way.", stats(func(s plugin.Stats) int64 { return s.Busy })),
		m.Counter("plugin.panicked", "Calls in which the plugin panicked.", stats(func(s plugin.Stats) int64 { return s.Panicked })),
		m.Counter("plugin.lost", "Topology descriptions that the plugin had lost, as far as they were looked for.", stats(func(s plugin.Stats) int64 { return s.Lost })),
		m.Gauge("plugin.under.way", "Calls of the plugin under way.", stats(func(s plugin.Stats) int64 { return s.UnderWay })),
	)
}
