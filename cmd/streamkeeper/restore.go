package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/eventlog"
	"streamkeeper/internal/admin"
	"streamkeeper/internal/backup"
	"streamkeeper/internal/config"
	"streamkeeper/plugin/topic"
)

type restoreCmd struct {
	BootstrapServers     []string      `name:"bootstrap-servers" placeholder:"HOST:PORT" help:"The cluster to restore to; not needed with --dry-run."`
	From                 string        `name:"from" placeholder:"FILE" help:"A file that streamkeeper backup wrote; without it, --data-dir is read."`
	DataDir              string        `name:"data-dir" default:"./data" help:"The data directory of a replica that is stopped."`
	Partial              bool          `name:"partial" help:"Take a data directory also where it has not been read to the log's end."`
	DryRun               bool          `name:"dry-run" help:"Say what is in the file of --from, which is read whole, or in the data directory, and write nothing."`
	LogTopic             string        `name:"log-topic" default:"__streams_groups" help:"The record log: made if it is missing; it must be empty."`
	DescriptionTopic     string        `name:"description-topic" placeholder:"TOPIC" help:"The topic of topology descriptions (the log topic's name with -topologies): made if it is missing; left as it is unless it is empty."`
	LogReplicationFactor int16         `name:"log-replication-factor" placeholder:"N" help:"Replicas of the topics when they are created (3, at most the number of brokers)."`
	Timeout              time.Duration `name:"timeout" default:"1h" help:"How long it may take in all."`
}

const (
	// restoreBatchBytesMax bounds a batch where the topic has no bound to speak of: it is held in memory some times over.
	restoreBatchBytesMax = 256 << 20
	// restoreRequestBytes is the client library's own bound of a request, which only larger batches raise.
	restoreRequestBytes = 100 << 20
)

// Run writes what a backup or a directory holds of a log that is gone into a new one. The records go there as they are, without a producer id and before
// any ownership record: as long as nobody has claimed a partition, all that is in it counts (D4).
func (c *restoreCmd) Run(ctx context.Context, s *stdio) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, errTimeout)
	defer cancel()
	if c.DryRun {
		if c.From == "" {
			return c.sayHeld(s)
		}
		h, err := backup.Check(c.From)
		if err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		return writeHeader(s.out, c.From, h)
	}
	if len(c.BootstrapServers) == 0 {
		return usage(errors.New("--bootstrap-servers: where to restore to is not given"))
	}
	if err := (&config.Upstream{BootstrapServers: c.BootstrapServers}).Check(); err != nil {
		return usage(err)
	}
	held, descriptions, err := c.sources(s)
	if err != nil {
		return err
	}
	cfg := eventlog.KafkaConfig{
		SeedBrokers: admin.Answering(ctx, c.BootstrapServers), Topic: c.LogTopic, Partitions: held.partitions, ReplicationFactor: c.LogReplicationFactor,
		Logger: slog.New(slog.DiscardHandler),
	}
	log, err := eventlog.OpenKafka(ctx, cfg)
	if err != nil {
		return err
	}
	defer log.Close()
	if topicID(log.Identity().TopicID) == held.topicID && held.topicID != "" {
		return fmt.Errorf("topic %s is the log that %s was made of: there is nothing to restore", c.LogTopic, held.from)
	}
	if err := ends(ctx, log, nil, "restore writes into an empty topic only; after one that was interrupted, delete the topic and try again"); err != nil {
		return err
	}
	if err := c.mark(ctx, log, true, s); err != nil {
		return err
	}
	// Descriptions first: they are nothing without their groups, and a replica refuses the log as long as it is marked.
	if descriptions != nil {
		if err := c.descriptions(ctx, cfg, descriptions, s); err != nil {
			return err
		}
	}
	records, err := c.fill(ctx, cfg, log, held)
	if err != nil {
		return err
	}
	if err := c.mark(ctx, log, false, s); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "restored %s with %d records into %s\n", counted(held.groups, "group"), records, c.LogTopic)
	fmt.Fprintln(s.out, "Start each replica with --accept-new-log once, or with an empty data directory.")
	return nil
}

// descriptions restores the topology descriptions, unless their topic has some.
func (c *restoreCmd) descriptions(ctx context.Context, cfg eventlog.KafkaConfig, held *restorable, s *stdio) error {
	cfg.Topic = cmp.Or(c.DescriptionTopic, c.LogTopic+topic.TopicSuffix)
	cfg.SeedBrokers = admin.Answering(ctx, c.BootstrapServers) // the one of before may be away by now
	annex, err := eventlog.OpenAnnex(ctx, cfg, eventlog.Annexing{
		What: "topology description topic", BatchBytesWanted: topicBatchBytes, Advice: "name another one with --description-topic, or delete this one",
	})
	if err != nil {
		return err
	}
	defer annex.Close()
	var filled *otherEnd
	if err := ends(ctx, annex, nil, ""); errors.As(err, &filled) {
		if err := complete(ctx, annex, held); err != nil {
			return err
		}
		fmt.Fprintf(s.out, "topology descriptions are left as they are, for their topic is not empty: %v\n", err)
		return nil
	} else if err != nil {
		return err
	}
	records, err := c.fill(ctx, cfg, annex, held)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "restored %s into %s\n", counted(records, "topology description"), cfg.Topic)
	return nil
}

// complete refuses a topic of descriptions that looks like what a restore that was killed has left: no partition has more than the backup, and one has less.
func complete(ctx context.Context, annex *eventlog.Kafka, held *restorable) error {
	id := annex.Identity()
	if held.topicID != "" && topicID(id.TopicID) == held.topicID {
		return nil // it is the one that the backup was made of
	}
	want := map[int32]int64{}
	if err := held.each(func(p int32, _, _ []byte) error { want[p]++; return nil }); err != nil {
		return err
	}
	less := false
	for p := range id.Partitions {
		end, err := annex.End(ctx, p)
		if err != nil {
			return err
		}
		if end > want[p] {
			return nil
		}
		less = less || end < want[p]
	}
	if less {
		return fmt.Errorf("topic %s is not empty and has fewer records than %s: an interrupted restore may have left a part. Delete it, or name another one with --description-topic, and try again", id.Topic, held.from)
	}
	return nil
}

// mark makes replicas refuse the log while it is a part of what it will be.
func (c *restoreCmd) mark(ctx context.Context, log *eventlog.Kafka, restoring bool, s *stdio) error {
	err := log.MarkRestoring(ctx, restoring)
	if restoring && (errors.Is(err, kerr.UnsupportedVersion) || errors.Is(err, kerr.InvalidConfig) || errors.Is(err, kerr.InvalidRequest) ||
		errors.Is(err, kerr.PolicyViolation) || errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed)) {
		fmt.Fprintf(s.err, "the topic can't be marked, see that no replica starts before this is over, nor after it failed: %v\n", err)
		return nil
	}
	return err
}

// fill writes everything and sees that nobody else has.
func (c *restoreCmd) fill(ctx context.Context, cfg eventlog.KafkaConfig, log *eventlog.Kafka, held *restorable) (records int64, err error) {
	written, err := c.write(ctx, c.BootstrapServers, log, held)
	if err != nil {
		return 0, err
	}
	// Without idempotence a request whose answer was lost is written twice, which nobody can tell from what others write.
	if err := ends(ctx, log, written, "somebody else wrote meanwhile, or a request of this restore was repeated: see that all replicas are stopped, delete the topic and try again"); err != nil {
		return 0, err
	}
	for _, n := range written {
		records += n
	}
	return records, nil
}

// otherEnd says that a partition does not end where it should.
type otherEnd struct {
	topic     string
	partition int32
	end, want int64
}

func (e *otherEnd) Error() string {
	return fmt.Sprintf("partition %d of topic %s ends at %d, want %d", e.partition, e.topic, e.end, e.want)
}

// ends compares the ends of the partitions with what was written into them: an otherEnd where they differ.
func ends(ctx context.Context, log *eventlog.Kafka, written map[int32]int64, otherwise string) error {
	for p := range log.Identity().Partitions {
		end, err := log.End(ctx, p)
		if err != nil {
			return err
		}
		if end == written[p] {
			continue
		}
		err = &otherEnd{log.Identity().Topic, p, end, written[p]}
		if otherwise != "" {
			err = fmt.Errorf("%w: %s", err, otherwise)
		}
		return err
	}
	return nil
}

// write produces all records, in batches that the topic takes, and returns how many went into each partition.
func (c *restoreCmd) write(ctx context.Context, seeds []string, log *eventlog.Kafka, held *restorable) (map[int32]int64, error) {
	name := log.Identity().Topic
	batch := int32(min(log.Settings().BatchBytesMax, restoreBatchBytesMax))
	cl, err := kgo.NewClient(kgo.ProducerBatchMaxBytes(batch), kgo.BrokerMaxWriteBytes(max(restoreRequestBytes, 2*batch)), kgo.SeedBrokers(seeds...), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.MaxProduceRequestsInflightPerBroker(1), // without idempotence the order is kept by this
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return nil, fmt.Errorf("--bootstrap-servers: %w", err)
	}
	defer cl.Close()
	var mu sync.Mutex
	var failed error
	written := map[int32]int64{}
	err = held.each(func(p int32, key, value []byte) error {
		written[p]++
		record := &kgo.Record{Topic: name, Partition: p, Key: append([]byte{}, key...), Value: append([]byte{}, value...)}
		cl.Produce(ctx, record, func(_ *kgo.Record, err error) {
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
		return nil, fmt.Errorf("topic %s has a part of the records only, delete it and try again: %w", name, err)
	}
	return written, nil
}

// topicID is the id of a topic as Kafka's tools print it; "" for none.
func topicID(id [16]byte) string {
	if id == [16]byte{} {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// counted is a number with its noun: 1 group, 2 groups.
func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
