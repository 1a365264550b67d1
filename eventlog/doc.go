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
//
// The network side, file by file:
//
//	log.go        the contracts: Log, Writer, Follower, and what their errors mean
//	kafka.go      Kafka: opening, closing, asking the leader of a partition
//	topic.go      the topic: made where it is missing, checked at every start
//	end.go        where a partition ends
//	leaders.go    who leads each partition; a topic that is no longer the same
//	roster.go     brokers that hang: whom to ask, and when to give up
//	claim.go      claims and their renewal; proof.go: is there a fence at all?
//	coordinator.go  the broker that gives out a partition's producer epochs
//	former.go     a producer id that the cluster has forgotten is fenced by hand
//	annex.go      a second topic, whose writers adopt the claims of the log's
//	appender.go   the Writer of one partition: queue, the batch under way, outcomes
//	sender.go     one Produce request at a time for all partitions of a broker
//	batch.go      record batches, written; fetch.go: read
//	tail.go       reading a partition: where to begin, what was cut off, errors of the follower
//	denied.go     what the cluster does not let us read
//	unreached.go  brokers that this process alone does not reach
//	fetcher.go    one Fetch request at a time for all partitions of a broker
//	calls.go      Done functions, called one after the other
//	fake*.go      Fake: the log in memory for tests
package eventlog
