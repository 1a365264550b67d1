package offsets

import (
	"iter"

	"streamkeeper/eventlog"
)

// TopicPartition names a partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// View reads the committed offsets of one group: the projection with an overlay of what is appended and not
// yet applied there. It is only valid during the call it is passed to.
type View interface {
	Get(topic string, partition int32) (eventlog.OffsetCommit, bool)
	All() iter.Seq2[TopicPartition, eventlog.OffsetCommit]
	// Open says that a transaction with an offset for the partition is not settled yet.
	Open(topic string, partition int32) bool
	// OpenAll lists the partitions for which that is so.
	OpenAll() iter.Seq[TopicPartition]
}
