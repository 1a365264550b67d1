package topic

import (
	"context"
	"errors"
)

// Record is a record of the topic; a nil Value is a tombstone.
type Record struct{ Key, Value []byte }

// Place is the topic as the plugin uses it. Records of a group are in the group's partition, which is that of the record log. All
// methods may be called from any goroutine. Their errors are what the client may read (plugin.Transient), unless ctx ended.
type Place interface {
	// Topic is its name.
	Topic() string
	// Partition is the group's partition.
	Partition(group string) int32
	// ValueBytesMax is the size of the largest value that a record with a key of keyBytes can have, in bytes.
	ValueBytesMax(keyBytes int) int
	// Append queues records as one batch, under the claim with which this replica owns the group's partition, and returns when they are
	// queued, or why not. What is queued for a group is written in that order. ctx must be under the tenure in which it was decided to
	// write; where that is over nothing is queued. done is called once if Append returned nil, with ErrTooLarge among others; it must not block.
	Append(ctx context.Context, group string, records []Record, done func(error)) error
	// Visible returns when Value and Keys show all that was in the topic when it was called.
	Visible(ctx context.Context, group string) error
	// Settle is Visible for an owner that is about to delete: it shows what this replica has queued, too, and whatever a former owner may
	// still write comes too late: it is refused, or void.
	Settle(ctx context.Context, group string) error
	// Value returns the latest value of a key of the group.
	Value(group string, key []byte) (value []byte, ok bool, err error)
	// Keys calls f with the group's keys that begin with prefix, ascending, until f returns false. f must not keep the key.
	Keys(group string, prefix []byte, f func(key []byte) bool) error

	// KeysOf does the same with all keys of a partition that come after after; nil: with all.
	KeysOf(p int32, after []byte, f func(key []byte) bool) error
	// VoidsOf does it with those whose newest record is void: written by a former owner that the cluster could not refuse. Compaction
	// would keep that record and drop the right one.
	VoidsOf(p int32, f func(key []byte) bool) error
}

// ErrTooLarge: the records don't fit one batch.
var ErrTooLarge = errors.New("the record is larger than the topic takes")
