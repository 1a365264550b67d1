// Package coordinator turns group requests into work for shards: it finds the shard that owns the group,
// resolves topics, keeps the snapshot of the cluster's topics, splits and merges requests over several groups, and
// maps every failure to the Kafka error code that a client understands (errors.go, the one table).
//
// The gateway calls it and knows nothing of shards; it knows nothing of connections.
package coordinator
