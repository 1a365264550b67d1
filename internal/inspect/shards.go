package inspect

import (
	"context"
	"errors"
	"fmt"

	"streamkeeper/eventlog"
)

// ownershipWindow is how many offsets at the end of a partition are read first in the search for the last ownership record;
// each further window is eight times as long.
const ownershipWindow = 1000

// Shard is one partition of the log and its owner.
type Shard struct {
	Partition int32
	Start     int64
	End       int64           // the first offset that is not written yet
	Owner     *eventlog.Owner // nil: no ownership record
	// Newer says that the last ownership record is of a newer program, whose owner can't be told here, and why; nil where it can be read.
	// Owner is the one before.
	Newer error
}

// Shards finds the last ownership record of every partition.
func (r *Reader) Shards(ctx context.Context) ([]Shard, error) {
	bounds, err := r.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	var out []Shard
	for _, p := range r.Partitions() {
		s := Shard{Partition: p, Start: bounds[p].Start, End: bounds[p].End}
		for window := int64(ownershipWindow); ; window *= 8 {
			from := max(s.Start, s.End-window)
			if s.Owner, s.Newer, err = r.lastOwner(ctx, p, from, s.End); err != nil {
				return nil, err
			}
			if s.Owner != nil || from == s.Start {
				break
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// lastOwner is the ownership record that counts at the end of the range, nil if there is none in it.
func (r *Reader) lastOwner(ctx context.Context, p int32, from, end int64) (owner *eventlog.Owner, newer, err error) {
	d := Decoder{Partition: p}
	err = r.Read(ctx, p, from, end, func(b Batch) error {
		entries, err := b.Entries(p, from)
		if err != nil {
			return err
		}
		for _, e := range entries {
			l := d.Line(e)
			if l.Record == nil || l.Void {
				if errors.Is(l.Err, eventlog.ErrUnknownVersion) && len(e.Key) == 2 && !eventlog.Forged(e, l.Err) {
					newer = fmt.Errorf("partition %d: the ownership record at offset %d is of a newer program: %w", p, e.Offset, l.Err)
				}
				continue
			}
			if o, ok := l.Record.Value.(*eventlog.Ownership); ok {
				generation := e.Offset
				if o.Claim >= 0 {
					generation = o.Claim
				}
				newer = nil
				owner = &eventlog.Owner{Ownership: *o, Offset: e.Offset, Generation: generation, Timestamp: e.Timestamp}
			}
		}
		return nil
	})
	return owner, newer, err
}
