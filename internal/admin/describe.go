package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"streamkeeper/client"
)

// Description is everything that is shown of a group.
type Description struct {
	*client.GroupDescription
	Offsets []Offset `json:"offsets"`
	// Settings are those that were configured for this group alone.
	Settings []Setting `json:"settings"`
}

// Offset is a partition that the group reads or has a committed offset of.
type Offset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// Committed is the committed offset, nil for none; End the end of the partition, nil where it is not known; Lag what
	// lies between them, or all that is there where nothing is committed.
	Committed *int64 `json:"committed"`
	End       *int64 `json:"end"`
	Lag       *int64 `json:"lag"`
	// Task and Member say who reads the partition now; empty where nobody does.
	Task   string `json:"task,omitempty"`
	Member string `json:"member,omitempty"`
}

// Describe asks the group's coordinator, why the group is in its state included, what is configured for it, and the leaders of what it reads
// for the ends of their partitions. Where one of the later questions fails, the description has what the others say, and comes with the error.
func (c *Client) Describe(ctx context.Context, group string) (*Description, error) {
	described := c.groups.DescribeStreamsGroups(ctx, []string{group}, client.DescribeOptions{Explain: true})[0]
	if described.Err != nil {
		return nil, described.Err
	}
	d := &Description{GroupDescription: described.Description, Offsets: []Offset{}}
	ctx, cancel := most(ctx)
	defer cancel()
	settings := make(chan error, 1)
	go func() {
		var err error
		d.Settings, err = c.configs(ctx, group)
		settings <- err
	}()
	err := c.offsets(ctx, d)
	if failed := <-settings; failed != nil {
		d.Settings, err = []Setting{}, errors.Join(failed, err)
	}
	return d, err
}

// most is ctx with three quarters of the time that is left: whoever asks for more than one thing has some left when a thing does not come.
func most(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, time.Until(end)/4*3, context.DeadlineExceeded)
}

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

// offsets fills in what is committed, what is read by whom, and how far behind it is.
func (c *Client) offsets(ctx context.Context, d *Description) error {
	rows := map[place]*Offset{}
	row := func(topic string, partition int32) *Offset {
		p := place{topic, partition}
		if rows[p] == nil {
			rows[p] = &Offset{Topic: topic, Partition: partition}
		}
		return rows[p]
	}
	asking, cancel := most(ctx)
	defer cancel()
	committed := c.groups.ListStreamsGroupOffsets(asking, map[string][]client.TopicPartition{d.Group: nil}, client.OffsetsOptions{})[0]
	var err error
	if committed.Err != nil {
		err = fmt.Errorf("committed offsets of group %s: %w", d.Group, committed.Err)
	}
	for _, o := range committed.Offsets {
		if o.Err == nil && o.Offset >= 0 {
			row(o.Topic, o.Partition).Committed = &o.Offset
		}
	}
	reads := map[string][]string{}
	for _, s := range d.Subtopologies {
		reads[s.ID] = slices.Clone(s.SourceTopics)
		for _, t := range s.RepartitionSourceTopics {
			reads[s.ID] = append(reads[s.ID], t.Name)
		}
	}
	for _, m := range d.Members {
		for _, task := range m.Assignment.Active {
			for _, topic := range reads[task.Subtopology] {
				r := row(topic, task.Partition)
				r.Task, r.Member = task.String(), m.ID
			}
		}
	}
	if len(rows) == 0 {
		return err
	}
	return errors.Join(err, c.lags(ctx, d, rows, err == nil))
}

// lags asks for the ends of partitions, and puts the rows in order. committed says that it is known what is committed: without, there is no lag.
func (c *Client) lags(ctx context.Context, d *Description, rows map[place]*Offset, committed bool) error {
	topics := map[string]struct{}{}
	for p := range rows {
		topics[p.topic] = struct{}{}
	}
	names := make([]string, 0, len(topics))
	for t := range topics {
		names = append(names, t)
	}
	type listed struct {
		offsets kadm.ListedOffsets
		err     error
	}
	began := make(chan listed, 1)
	go func() {
		starts, err := c.adm.ListStartOffsets(ctx, names...)
		began <- listed{starts, err}
	}()
	ends, err := c.adm.ListEndOffsets(ctx, names...)
	starts := <-began
	var errs []error
	noEnds, noStarts := err != nil && !tolerable(err), starts.err != nil && !tolerable(starts.err)
	if noEnds {
		errs = append(errs, fmt.Errorf("ends of the topics of group %s: %w", d.Group, err))
	}
	if noStarts {
		errs = append(errs, fmt.Errorf("starts of the topics of group %s: %w", d.Group, starts.err))
	}
	for p, r := range rows {
		end, ok := ends.Lookup(p.topic, p.partition)
		if ok && end.Err == nil {
			r.End = &end.Offset
			from, known := int64(0), committed
			if r.Committed != nil {
				from = *r.Committed
			} else if start, ok := starts.offsets.Lookup(p.topic, p.partition); ok && start.Err == nil {
				from = start.Offset
			} else if noStarts {
				known = false
			}
			if known {
				lag := max(end.Offset-from, 0)
				r.Lag = &lag
			}
		} else if !noEnds && r.Task != "" && r.Committed == nil {
			continue // a task of another topic's partition: this topic has fewer
		}
		d.Offsets = append(d.Offsets, *r)
	}
	slices.SortFunc(d.Offsets, func(a, b Offset) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return errors.Join(errs...)
}

// tolerable errors concern single topics: one that was deleted has no end, and the rest is shown all the same.
func tolerable(err error) bool {
	var se *kadm.ShardErrors
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.As(err, &se) && !se.AllFailed
}
