package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/internal/admin"
	"streamkeeper/internal/inspect"
)

type logCmd struct {
	connection
	LogTopic  string  `name:"log-topic" default:"__streams_groups" help:"The record log."`
	JSON      bool    `name:"json" help:"JSON, one object a line, records as kafka-dump-log decodes them."`
	Group     string  `name:"group" placeholder:"GROUP" help:"Only records of this group."`
	Partition []int32 `name:"partition" placeholder:"N" help:"Only this partition; repeatable."`
	Follow    bool    `name:"follow" short:"f" help:"Go on with what is written from now on."`
	Explain   bool    `name:"explain" help:"Tell what the records mean, as the story of each group: epochs and their reasons, targets, tasks given up and taken over."`
	Segments  string  `name:"segments" placeholder:"DIR" help:"Write the batches as segment files for kafka-dump-log --offsets-decoder instead."`
}

func (l *logCmd) Run(ctx context.Context, s *stdio) error {
	if l.Segments != "" && (l.Follow || l.JSON || l.Group != "" || l.Explain) {
		return usage(errors.New("--segments copies whole batches: --follow, --json, --group and --explain do not go with it"))
	}
	if err := l.check(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, l.Timeout, errTimeout)
	defer cancel()
	a, err := admin.New(admin.Answering(bounded, l.BootstrapServers))
	if err != nil {
		return err
	}
	defer a.Close()
	r, err := inspect.NewReader(bounded, a.Kafka(), l.LogTopic)
	if err != nil {
		return l.unanswered(ctx, bounded, err)
	}
	bounds, err := r.Bounds(bounded)
	if err != nil {
		return l.unanswered(ctx, bounded, err)
	}
	partitions, err := l.partitions(r)
	if err != nil {
		return err
	}
	reading := &logReading{r: r, bounds: bounds, connection: &l.connection}
	if l.Segments != "" {
		return l.writeSegments(ctx, s.out, reading, partitions)
	}
	return l.print(ctx, s.out, reading, partitions)
}

// logReading reads partitions one after the other, for as long as something comes: a long log takes its time, and --timeout is for a leader that hangs.
type logReading struct {
	*connection
	r      *inspect.Reader
	bounds map[int32]inspect.Bounds
}

// partition calls f with the batches of a partition. What f takes, which may be a pager's reader, does not count as silence.
func (r *logReading) partition(ctx context.Context, p int32, f func(inspect.Batch) error) error {
	patient, end := context.WithCancelCause(ctx)
	defer end(nil)
	silence := time.AfterFunc(r.Timeout, func() { end(errTimeout) })
	defer silence.Stop()
	err := r.r.Read(patient, p, r.bounds[p].Start, r.bounds[p].End, func(b inspect.Batch) error {
		silence.Stop()
		defer silence.Reset(r.Timeout)
		return f(b)
	})
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(patient), errTimeout) {
		return fmt.Errorf("nothing more of partition %d came within %v from %v", p, r.Timeout, r.BootstrapServers)
	}
	return err
}

// partitions are those that are read: of a group only the one that it lives in.
func (l *logCmd) partitions(r *inspect.Reader) ([]int32, error) {
	all := r.Partitions()
	for _, p := range l.Partition {
		if !slices.Contains(all, p) {
			return nil, fmt.Errorf("--partition %d: topic %s has partitions 0 to %d", p, l.LogTopic, len(all)-1)
		}
	}
	if l.Group != "" {
		own := eventlog.Partition(l.Group, int32(len(all)))
		if len(l.Partition) > 0 && !slices.Contains(l.Partition, own) {
			return nil, fmt.Errorf("--partition: group %s lives in partition %d", l.Group, own)
		}
		return []int32{own}, nil
	}
	if len(l.Partition) > 0 {
		return slices.Compact(slices.Sorted(slices.Values(l.Partition))), nil
	}
	return all, nil
}

func (l *logCmd) print(ctx context.Context, out io.Writer, r *logReading, partitions []int32) error {
	w := bufio.NewWriter(out)
	defer w.Flush()
	show, header := l.lines(w), inspect.TextHeader
	if l.Explain {
		show, header = newExplainer(w, l.JSON).show, explainHeader
	}
	if !l.JSON {
		fmt.Fprintln(w, header)
	}
	decoders := map[int32]*inspect.Decoder{}
	positions := map[int32]int64{}
	take := func(p int32, b inspect.Batch) error {
		entries, err := b.Entries(p, positions[p])
		if err != nil {
			return err
		}
		var lines []inspect.Line
		for _, e := range entries {
			line := decoders[p].Line(e)
			if l.Group == "" || line.Group() == l.Group {
				lines = append(lines, line)
			}
		}
		positions[p] = b.LastOffset + 1
		return show(lines)
	}
	for _, p := range partitions {
		decoders[p] = &inspect.Decoder{Partition: p}
		positions[p] = r.bounds[p].Start
		if err := r.partition(ctx, p, func(b inspect.Batch) error { return take(p, b) }); err != nil {
			return err
		}
		positions[p] = max(positions[p], r.bounds[p].End)
	}
	if !l.Follow {
		return w.Flush()
	}
	if err := w.Flush(); err != nil {
		return err
	}
	from := map[int32]int64{}
	for p, o := range positions {
		from[p] = o
	}
	return r.r.Follow(ctx, from, func(p int32, b inspect.Batch) error {
		if err := take(p, b); err != nil {
			return err
		}
		return w.Flush()
	})
}

// lines prints records, one a line.
func (l *logCmd) lines(w io.Writer) func([]inspect.Line) error {
	return func(lines []inspect.Line) error {
		for _, line := range lines {
			print := line.WriteText
			if l.JSON {
				print = line.WriteJSON
			}
			if err := print(w); err != nil {
				return err
			}
		}
		return nil
	}
}

func (l *logCmd) writeSegments(ctx context.Context, out io.Writer, r *logReading, partitions []int32) error {
	files, err := inspect.NewSegments(l.Segments, l.LogTopic)
	if err != nil {
		return err
	}
	defer files.Close()
	for _, p := range partitions {
		if err := r.partition(ctx, p, func(b inspect.Batch) error { return files.Write(p, b) }); err != nil {
			return err
		}
	}
	if err := files.Close(); err != nil {
		return err
	}
	for _, f := range files.Files {
		fmt.Fprintln(out, f)
	}
	return nil
}
