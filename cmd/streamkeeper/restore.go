package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/eventlog"
	"streamkeeper/internal/config"
	"streamkeeper/projection"
)

type restoreCmd struct {
	config.Upstream
	DataDir              string        `name:"data-dir" default:"./data" help:"The data directory of a replica that is stopped."`
	LogTopic             string        `name:"log-topic" default:"__streams_groups" help:"The record log: made if it is missing; it must be empty."`
	LogReplicationFactor int16         `name:"log-replication-factor" placeholder:"N" help:"Replicas of the log when it is created (3, at most the number of brokers)."`
	Timeout              time.Duration `name:"timeout" default:"10m" help:"How long it may take in all."`
}

const (
	// restoreBatchBytesMax bounds a batch where the topic has no bound to speak of: it is held in memory some times over.
	restoreBatchBytesMax = 256 << 20
	// restoreRequestBytes is the client library's own bound of a request, which only larger batches raise.
	restoreRequestBytes = 100 << 20
)

// Run writes what the directory holds of a log that is gone into a new one. The records go there as they are, without a producer id and before any
// ownership record: as long as nobody has claimed a partition, all that is in it counts (D4).
func (c *restoreCmd) Run(ctx context.Context, s *stdio) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, errTimeout)
	defer cancel()
	dir := projection.Config{Dir: filepath.Join(c.DataDir, "projection")}
	held, err := projection.Look(dir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if held.Groups == 0 {
		return fmt.Errorf("--data-dir: %s holds no groups", dir.Dir)
	}
	log, err := eventlog.OpenKafka(ctx, eventlog.KafkaConfig{
		SeedBrokers: c.BootstrapServers, Topic: c.LogTopic, Partitions: held.Partitions, ReplicationFactor: c.LogReplicationFactor,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer log.Close()
	if log.Identity().TopicID == held.TopicID && held.TopicID != [16]byte{} {
		return fmt.Errorf("topic %s is the log that %s was made of: there is nothing to restore", c.LogTopic, dir.Dir)
	}
	if err := c.ends(ctx, log, map[int32]int64{}, "restore writes into an empty topic only; after one that was interrupted, delete the topic and try again"); err != nil {
		return err
	}
	written, err := c.write(ctx, dir, log.Settings().BatchBytesMax)
	if err != nil {
		return err
	}
	if err := c.ends(ctx, log, written, "somebody else wrote meanwhile: stop all replicas, delete the topic and try again"); err != nil {
		return err
	}
	records := int64(0)
	for _, n := range written {
		records += n
	}
	fmt.Fprintf(s.out, "restored %d groups with %d records into %s\n", held.Groups, records, c.LogTopic)
	fmt.Fprintln(s.out, "Start each replica with --accept-new-log once, or with an empty data directory.")
	return nil
}

// ends compares the ends of the partitions with what was written into them.
func (c *restoreCmd) ends(ctx context.Context, log *eventlog.Kafka, written map[int32]int64, otherwise string) error {
	for p := range log.Identity().Partitions {
		end, err := log.End(ctx, p)
		if err != nil {
			return err
		}
		if end != written[p] {
			return fmt.Errorf("partition %d of topic %s ends at %d, want %d: %s", p, c.LogTopic, end, written[p], otherwise)
		}
	}
	return nil
}

// write produces all records, in batches of at most batchBytesMax bytes, and returns how many went into each partition.
func (c *restoreCmd) write(ctx context.Context, dir projection.Config, batchBytesMax int) (map[int32]int64, error) {
	batch := int32(min(batchBytesMax, restoreBatchBytesMax))
	cl, err := kgo.NewClient(kgo.ProducerBatchMaxBytes(batch), kgo.BrokerMaxWriteBytes(max(restoreRequestBytes, 2*batch)), kgo.SeedBrokers(c.BootstrapServers...), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.MaxProduceRequestsInflightPerBroker(1), // without idempotence the order is kept by this
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return nil, fmt.Errorf("--bootstrap-servers: %w", err)
	}
	defer cl.Close()
	var mu sync.Mutex
	var failed error
	written := map[int32]int64{}
	err = projection.Each(dir, func(p int32, r eventlog.Record) error {
		raw, err := eventlog.TryEncode(r)
		if err != nil {
			return err
		}
		written[p]++
		cl.Produce(ctx, &kgo.Record{Topic: c.LogTopic, Partition: p, Key: raw.Key, Value: raw.Value}, func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if failed == nil {
				failed = err
			}
		})
		mu.Lock()
		defer mu.Unlock()
		return failed
	})
	flushed := cl.Flush(ctx)
	mu.Lock()
	defer mu.Unlock()
	if err = cmp.Or(err, flushed, failed); err != nil {
		return nil, fmt.Errorf("topic %s has a part of the groups only, delete it and try again: %w", c.LogTopic, err)
	}
	return written, nil
}
