package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/eventlog"
	"streamkeeper/internal/admin"
	"streamkeeper/internal/backup"
	"streamkeeper/internal/config"
	"streamkeeper/plugin/topic"
	"streamkeeper/projection"
)

type backupCmd struct {
	config.Upstream
	To               string        `name:"to" required:"" placeholder:"FILE" help:"The file to write. It must not exist; beside it there must be room for as much again."`
	LogTopic         string        `name:"log-topic" default:"__streams_groups" help:"The record log."`
	DescriptionTopic string        `name:"description-topic" placeholder:"TOPIC" help:"The topic of topology descriptions (the log topic's name with -topologies)."`
	Timeout          time.Duration `name:"timeout" default:"1h" help:"How long it may take in all."`
}

// Run reads both topics as a replica would, into stores of its own, and writes what counts in them into the file. Replicas may run meanwhile: of each
// partition the backup has what was there at one moment.
func (c *backupCmd) Run(ctx context.Context, s *stdio) (err error) {
	if err := c.Check(); err != nil {
		return usage(err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, errTimeout)
	defer cancel()
	if _, err := os.Lstat(c.To); err == nil {
		return fmt.Errorf("--to: %s exists: name another file", c.To)
	}
	work, err := os.MkdirTemp(filepath.Dir(c.To), ".streamkeeper-backup-*")
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()

	h := backup.Header{Version: version(), Taken: time.Now().UTC(), Cluster: c.BootstrapServers}
	seeds := admin.Answering(ctx, c.BootstrapServers)
	there, err := c.existing(ctx, seeds)
	if err != nil {
		return err
	}
	if !there[c.LogTopic] {
		return fmt.Errorf("--log-topic: topic %s does not exist at %v", c.LogTopic, c.BootstrapServers)
	}
	if c.DescriptionTopic != "" && !there[c.DescriptionTopic] {
		return fmt.Errorf("--description-topic: there is no topic %s at %v", c.DescriptionTopic, c.BootstrapServers)
	}
	cfg := eventlog.KafkaConfig{SeedBrokers: seeds, Topic: c.LogTopic, Logger: slog.New(slog.DiscardHandler)}
	log, err := eventlog.OpenKafka(ctx, cfg)
	if err != nil {
		return err
	}
	defer log.Close()
	dirs := []projection.Config{{Dir: filepath.Join(work, "log")}}
	t, skipped, err := readTopic(ctx, log, dirs[0])
	if err != nil {
		return err
	}
	h.Topics = append(h.Topics, t)
	if !there[c.descriptions()] {
		fmt.Fprintf(s.err, "There is no topic %s: the backup is without topology descriptions.\n", c.descriptions())
	} else {
		cfg.Topic, cfg.Partitions = c.descriptions(), log.Identity().Partitions
		cfg.SeedBrokers = admin.Answering(ctx, c.BootstrapServers) // the one of before may be away by now
		annex, err := eventlog.OpenAnnex(ctx, cfg, eventlog.Annexing{What: "topology description topic", Advice: "name another one with --description-topic"})
		if err != nil {
			return err
		}
		defer annex.Close()
		dirs = append(dirs, projection.Config{Dir: filepath.Join(work, "descriptions"), Opaque: true})
		if t, _, err = readTopic(ctx, annex, dirs[1]); err != nil {
			return err
		}
		h.Topics = append(h.Topics, t)
	}
	w, err := backup.Create(c.To, h)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	for i, dir := range dirs {
		if err := eachRaw(dir, func(p int32, key, value []byte) error {
			return cmp.Or(context.Cause(ctx), w.Add(i, p, key, value))
		}); err != nil {
			w.Abandon()
			return fmt.Errorf("--to: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	checked, err := backup.Check(c.To)
	if err != nil {
		return fmt.Errorf("what was written can't be read: %w", err)
	}
	leftOut(s, skipped)
	return writeHeader(s.out, c.To, checked)
}

func (c *backupCmd) descriptions() string {
	return cmp.Or(c.DescriptionTopic, c.LogTopic+topic.TopicSuffix)
}

const (
	// missingLook is how long after a topic was not found it is looked for again: a broker that has just started may not have heard of all topics.
	missingLook = time.Second
	// missingLookMax is how long an address may take to answer then.
	missingLookMax = 2 * time.Second
)

// existing says which of both topics are there. One that somebody does not know is looked for at all addresses.
func (c *backupCmd) existing(ctx context.Context, seeds []string) (map[string]bool, error) {
	names := []string{c.LogTopic, c.descriptions()}
	there, err := existing(ctx, seeds, names...)
	if err != nil || there[names[0]] && there[names[1]] {
		return there, err
	}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("--bootstrap-servers: %w", context.Cause(ctx))
	case <-time.After(missingLook):
	}
	ctx, cancel := context.WithTimeout(ctx, missingLookMax)
	defer cancel()
	answers := make(chan map[string]bool, len(c.BootstrapServers))
	for _, addr := range c.BootstrapServers {
		go func() {
			known, _ := existing(ctx, []string{addr}, names...) // one that does not answer knows nothing: there was an answer already
			answers <- known
		}()
	}
	for range c.BootstrapServers {
		for name, known := range <-answers {
			there[name] = there[name] || known
		}
	}
	return there, nil
}

// existing says which topics are there.
func existing(ctx context.Context, seeds []string, names ...string) (map[string]bool, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return nil, fmt.Errorf("--bootstrap-servers: %w", err)
	}
	defer cl.Close()
	topics, err := kadm.NewClient(cl).ListTopicsWithInternal(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("--bootstrap-servers: %w", err)
	}
	there := map[string]bool{}
	for _, name := range names {
		there[name] = topics.Has(name)
	}
	return there, nil
}

// leftOut says which records are not restored because this version does not know what they are: those of a newer one.
func leftOut(s *stdio, skipped []eventlog.Type) {
	if len(skipped) > 0 {
		fmt.Fprintf(s.err, "Records of the types %d are left out: streamkeeper %s does not know them. If a newer version wrote them, use that one.\n", skipped, version())
	}
}

// readTopic reads a topic into a store in dir.Dir, each partition to where it ends now. It returns also the types of records that were skipped.
func readTopic(ctx context.Context, log *eventlog.Kafka, dir projection.Config) (backup.Topic, []eventlog.Type, error) {
	id := log.Identity()
	t := backup.Topic{Name: id.Topic, ID: topicID(id.TopicID), Partitions: id.Partitions}
	dir.Identity, dir.DeleteRetention = id, cmp.Or(log.Settings().DeleteRetention, deleteRetentionUnread)
	store, err := projection.Open(dir)
	if err != nil {
		return t, nil, err
	}
	reading, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- log.Follow(reading, store)
		stop() // whoever waits for an offset need not wait on
	}()
	wait := func() error {
		for p := range id.Partitions {
			end, err := log.End(reading, p)
			if err == nil {
				err = store.Wait(reading, p, end)
			}
			if err != nil {
				return fmt.Errorf("topic %s, partition %d: %w", id.Topic, p, err)
			}
		}
		for p := range id.Partitions { // the tail reads on: what it has by now is in the store
			for !store.AtEnd(p) {
				select {
				case <-reading.Done():
					return fmt.Errorf("topic %s, partition %d: %w", id.Topic, p, context.Cause(reading))
				case <-time.After(readyLook):
				}
			}
		}
		return nil
	}
	waited := wait()
	stop()
	followed := <-ended
	ends, held, kept := keep(store, dir, id)
	t.Ends = ends
	if waited == nil {
		waited = kept
	}
	if waited != nil {
		if followed != nil && !errors.Is(followed, context.Canceled) {
			waited = fmt.Errorf("%w (%w)", waited, followed)
		}
		return t, nil, waited
	}
	t.Groups, t.Configured, t.Offsets = held.Groups, held.Configured, held.Offsets
	return t, held.Skipped, eachRaw(dir, func(int32, []byte, []byte) error { t.Records++; return nil })
}

// keep closes a store whose tail has ended, and says up to where the partitions were read and what the store has on disk. An error says that this is not all of it: with
// a full disk a store reads on in memory, and closes without having written it.
func keep(store *projection.Store, dir projection.Config, id eventlog.Identity) (ends []int64, held projection.Held, err error) {
	read := int64(0)
	for p := range id.Partitions {
		if err == nil {
			err = store.Err(p)
		}
		end := store.Applied(p)
		ends = append(ends, end)
		read += end
	}
	if err = cmp.Or(err, store.Close()); err != nil {
		return ends, held, fmt.Errorf("topic %s: %w", id.Topic, err)
	}
	held, err = projection.Look(projection.Config{Dir: dir.Dir, FS: dir.FS})
	switch {
	case err != nil:
	case held.Partitions != id.Partitions:
		err = fmt.Errorf("%s: what was read of topic %s can't be read back", dir.Dir, id.Topic)
	case held.Read != read || len(held.Unread) > 0:
		err = fmt.Errorf("%s: of topic %s %d offsets were read, and %d are on disk; not to their end: partitions %v", dir.Dir, id.Topic, read, held.Read, held.Unread)
	}
	return ends, held, err
}

// eachRaw calls f with the records of a store as they are in its topic.
func eachRaw(dir projection.Config, f func(p int32, key, value []byte) error) error {
	if dir.Opaque {
		return projection.EachValue(projection.Config{Dir: dir.Dir}, f)
	}
	return projection.Each(projection.Config{Dir: dir.Dir}, func(p int32, r eventlog.Record) error {
		raw, err := eventlog.TryEncode(r)
		if err != nil {
			return err
		}
		return f(p, raw.Key, raw.Value)
	})
}

// writeHeader says what a backup is of.
func writeHeader(out io.Writer, path string, h backup.Header) error {
	size := int64(0)
	if st, err := os.Stat(path); err == nil {
		size = st.Size()
	}
	fmt.Fprintf(out, "%s: %d bytes, whole, taken %s by streamkeeper %s of %v\n", path, size, h.Taken.Format(time.RFC3339), h.Version, h.Cluster)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOPIC\tID\tPARTITIONS\tRECORDS\tGROUPS\tCONFIGURED\tOFFSETS")
	for i, topic := range h.Topics {
		of := "-\t-\t-" // the topic of topology descriptions has none of these
		if i == 0 {
			of = fmt.Sprintf("%d\t%d\t%d", topic.Groups, topic.Configured, topic.Offsets)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\n", topic.Name, cmp.Or(topic.ID, "-"), topic.Partitions, topic.Records, of)
	}
	return t.Flush()
}
