package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"streamkeeper/internal/backup"
	"streamkeeper/projection"
)

// restorable is one topic that can be restored.
type restorable struct {
	from       string // for people
	topicID    string // as Kafka's tools print it; "" where it is not known
	partitions int32
	groups     int64
	each       func(f func(p int32, key, value []byte) error) error
}

// sources opens what is to be restored: the log, and the topology descriptions where they are there. Everything that can be wrong with it is found here.
func (c *restoreCmd) sources(s *stdio) (log, descriptions *restorable, err error) {
	if c.From != "" {
		return c.ofFile()
	}
	if _, err := os.Stat(c.DataDir); err != nil {
		return nil, nil, fmt.Errorf("--data-dir: %w", err)
	}
	dir := projection.Config{Dir: filepath.Join(c.DataDir, "projection")}
	held, err := projection.Look(dir)
	if err != nil {
		return nil, nil, ofDataDir(err)
	}
	if held.Empty() {
		return nil, nil, fmt.Errorf("--data-dir: %s holds no groups", dir.Dir)
	}
	if len(held.Unread) > 0 && !c.Partial {
		return nil, nil, fmt.Errorf("--data-dir: %s has not been read to the log's end: of partitions %v it has a part only. Take another replica's directory, or restore what is there with --partial", dir.Dir, held.Unread)
	}
	leftOut(s, held.Skipped)
	log = &restorable{from: dir.Dir, topicID: topicID(held.TopicID), partitions: held.Partitions, groups: held.Groups,
		each: func(f func(int32, []byte, []byte) error) error { return eachRaw(dir, f) }}
	beside := projection.Config{Dir: filepath.Join(c.DataDir, "descriptions"), Opaque: true}
	if held, err = projection.Look(projection.Config{Dir: beside.Dir}); err != nil {
		return nil, nil, ofDataDir(err)
	}
	if held.Values > 0 && held.Partitions == log.partitions {
		descriptions = &restorable{from: beside.Dir, topicID: topicID(held.TopicID), partitions: held.Partitions,
			each: func(f func(int32, []byte, []byte) error) error { return eachRaw(beside, f) }}
	}
	return log, descriptions, nil
}

// ofDataDir says what to do where a directory can't be read.
func ofDataDir(err error) error {
	if errors.Is(err, projection.ErrLocked) {
		return fmt.Errorf("--data-dir: %w: a replica runs with it, stop that one first; or another streamkeeper reads it, wait until that has ended", err)
	}
	return fmt.Errorf("--data-dir: %w", err)
}

// sayHeld prints what the data directory holds. READ tells which of several directories is the newest.
func (c *restoreCmd) sayHeld(s *stdio) error {
	if _, err := os.Stat(c.DataDir); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	dir := filepath.Join(c.DataDir, "projection")
	held, err := projection.Look(projection.Config{Dir: dir})
	if err != nil {
		return ofDataDir(err)
	}
	if held.Empty() {
		return fmt.Errorf("--data-dir: %s holds no groups", dir)
	}
	t := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOPIC\tID\tPARTITIONS\tGROUPS\tCONFIGURED\tOFFSETS\tREAD")
	fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\n", held.Topic, cmp.Or(topicID(held.TopicID), "-"), held.Partitions, held.Groups, held.Configured, held.Offsets, held.Read)
	if err := t.Flush(); err != nil {
		return err
	}
	leftOut(s, held.Skipped)
	if len(held.Unread) > 0 {
		fmt.Fprintf(s.out, "not read to the log's end: partitions %v\n", held.Unread)
	}
	return nil
}

func (c *restoreCmd) ofFile() (log, descriptions *restorable, err error) {
	h, err := backup.Check(c.From)
	if err != nil {
		return nil, nil, fmt.Errorf("--from: %w", err)
	}
	of := func(i int) *restorable {
		t := h.Topics[i]
		return &restorable{from: c.From, topicID: t.ID, partitions: t.Partitions, groups: t.Groups, each: func(f func(int32, []byte, []byte) error) error {
			_, err := backup.Records(c.From, func(topic int, p int32, key, value []byte) error {
				if topic != i {
					return nil
				}
				return f(p, key, value)
			})
			return err
		}}
	}
	if h.Topics[0].Records == 0 {
		return nil, nil, fmt.Errorf("--from: %s holds no records of the log", c.From)
	}
	if len(h.Topics) > 1 && h.Topics[1].Records > 0 {
		descriptions = of(1)
	}
	return of(0), descriptions, nil
}
