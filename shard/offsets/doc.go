// Package offsets decides over the committed offsets of streams groups: which commits are accepted, what a fetch
// answers, what has expired. Pure functions: they read a View and return records and responses; whether a member may
// commit or fetch at all, and what topics exist, is decided by others and handed in.
//
// The rules are Kafka 4.4's (OffsetMetadataManager, KafkaApis). A function may be called from any goroutine as long
// as its View allows it; the View of a shard belongs to the shard's loop.
//
//	contract.go    View: what is read
//	commit.go      OffsetCommit: resolved topics, admission, records
//	fetch.go       OffsetFetch of one group: named partitions or all
//	fetchframe.go  OffsetFetch versions: one or several groups, where an error goes
//	delete.go      OffsetDelete, and the tombstones of a deleted group or topic
//	expire.go      expiry
package offsets
