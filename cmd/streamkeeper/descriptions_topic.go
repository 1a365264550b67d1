package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/eventlog"
	"streamkeeper/internal/annex"
	"streamkeeper/internal/telemetry"
	"streamkeeper/plugin/topic"
)

// topicBatchBytes is the max.message.bytes of a description topic where the cluster allows it. An application of ten thousand nodes takes
// some 100 kB compressed; this is far beyond, and small enough for a broker.
const topicBatchBytes = 8 << 20

// openDescriptionTopic opens the topic of the plugin "topic", beside the log, and gives it to the plugin. Nothing happens where another plugin is
// used. The shards' host is made later.
func (r *replica) openDescriptionTopic(ctx context.Context, p *parts, log eventlog.KafkaConfig) error {
	if p.describing == nil || p.describing.topic == nil {
		return nil
	}
	keeper := p.describing.topic
	cfg := log
	cfg.Topic, cfg.Partitions = keeper.TopicOf(log.Topic), p.log.Identity().Partitions
	cfg.ReplicationFactor = cmp.Or(log.ReplicationFactor, int16(p.log.Settings().ReplicationFactor))
	if cfg.Topic == log.Topic {
		return fmt.Errorf("--plugin-set topic=%s: that is the record log; topology descriptions need a topic of their own", cfg.Topic)
	}
	annexing := eventlog.Annexing{
		What: "topology description topic", BatchBytesWanted: topicBatchBytes,
		Advice: fmt.Sprintf("descriptions belong to partitions as groups do in the record log %s; name another topic with --plugin-set topic=NAME, or delete this one", log.Topic),
	}
	open := func(ctx context.Context) (annex.Topic, error) {
		bounded, cancel := context.WithTimeout(ctx, upstreamTry)
		defer cancel()
		k, err := eventlog.OpenAnnex(bounded, cfg, annexing)
		if err != nil {
			return annex.Topic{}, err
		}
		return annex.Topic{Annex: k, DeleteRetention: cmp.Or(k.Settings().DeleteRetention, deleteRetentionUnread)}, nil
	}
	var err error
	if p.space, err = opening(ctx, r, p.upstream, func(bounded context.Context) (*annex.Space, error) {
		return annex.Open(bounded, annex.Config{
			Open: open, Dir: filepath.Join(r.flags.DataDir, "descriptions"), Partitions: cfg.Partitions,
			Holding: p.holding, Logger: r.log,
		})
	}); err != nil {
		return fmt.Errorf("--plugin topic: %w", err)
	}
	keeper.Attach(p.space, r.log)
	return nil
}

// opening opens something at the cluster, waiting for one that can't be reached. What is wrong otherwise is an error.
func opening[T any](ctx context.Context, r *replica, cl *kgo.Client, open func(ctx context.Context) (T, error)) (T, error) {
	for waited := false; ; waited = true {
		bounded, cancel := context.WithTimeout(ctx, upstreamTry)
		err := cl.Ping(bounded)
		if err == nil && waited {
			r.log.Info("the cluster answers", "cluster", r.upstream)
		}
		var opened T
		if err == nil {
			opened, err = open(bounded)
		} else {
			err = fmt.Errorf("--bootstrap-servers: %v: %w", r.upstream, err)
		}
		if ofDisk(err) {
			cancel()
			return opened, fmt.Errorf("--data-dir: %w", err)
		}
		// By the cluster's own settings there are brokers to come. Where the number is a setting of ours it is that which may be wrong.
		few := errors.Is(err, eventlog.ErrFewBrokers) && r.flags.LogReplicationFactor == 0
		if wait := err != nil && ctx.Err() == nil && (bounded.Err() != nil || few || passing(err)); wait {
			r.log.Warn("the cluster does not answer, trying again", "cluster", r.upstream, "err", err)
			<-bounded.Done() // where it was refused at once, the next attempt is due when this one's time is over
			cancel()
			continue
		}
		cancel()
		return opened, err
	}
}

// registerDescriptionTopic puts the numbers of the topic behind /metrics, if there is one.
func registerDescriptionTopic(m *telemetry.Metrics, space *annex.Space) error {
	if space == nil {
		return nil
	}
	stats := func(f func(annex.Stats) int64) func() []telemetry.Reading {
		return func() []telemetry.Reading { return telemetry.Read(f(space.Stats())) }
	}
	return errors.Join(
		m.Gauge("description.topic.waiting.bytes", "Topology descriptions that wait to be appended to their topic.", stats(func(s annex.Stats) int64 { return s.Waiting })),
		m.Gauge("description.topic.lag", "Entries of the topic of topology descriptions that are not read yet.", stats(func(s annex.Stats) int64 { return s.Lag })),
		m.Gauge("description.topic.refused", "Partitions of the topic of topology descriptions that can't be read any further.", stats(func(s annex.Stats) int64 { return int64(s.Refused) })),
		m.Gauge("description.topic.void", "Entries of the topic of topology descriptions ignored because their writer had been replaced.", stats(func(s annex.Stats) int64 { return s.Void })),
		m.Gauge("description.topic.bytes", "Space that topology descriptions take here, on disk and in memory.", stats(func(s annex.Stats) int64 { return s.Bytes })),
	)
}

var _ topic.Place = (*annex.Space)(nil)
