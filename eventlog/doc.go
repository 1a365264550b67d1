// Package eventlog is the record log of streamkeeper: one compacted topic on the upstream cluster, whose
// partitions, keys and values are laid out like Kafka's own __consumer_offsets.
//
// It owns the record types and their bytes (record.go, codec_*.go), the mapping of a group to its partition
// (partition.go), the topic and the checks it must pass at every start (topic.go), the fenced writers
// (claim.go, appender.go, sender.go) and the reader of all partitions (tail.go). It never looks at the meaning
// of a record: that a type-19 value makes a member is the business of shard/streams.
//
// Durability: a record is durable when its append was acknowledged by all in-sync replicas. Ordering: the
// records of one Append call are adjacent, in one batch, and become visible together. Fencing: a writer holds
// a claim (a producer id and epoch of the cluster's); once a later claim's ownership record is in the log the
// cluster refuses the older writer, and readers void what slipped through (see Fence).
package eventlog
