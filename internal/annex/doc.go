// Package annex is the place on the cluster where the plugin "topic" keeps topology descriptions: a topic (eventlog.Annex) with as many
// partitions as the record log, what has been read of it (projection.Store), and the writers of the partitions that this replica owns.
//
// It is the joint between the plugin, which knows nothing of Kafka, and the log and its shards, which know nothing of descriptions. A
// writer adopts the claim under which the shard of the same partition is served, when it is first needed and again after each renewal
// of the claim; it ends with the shard's tenure. So a former owner is refused by the cluster from the present owner's first write on.
//
// # Non-obvious
//
//   - A claim's sequence numbers can't begin twice in a partition: the cluster would take other bytes for a repeat and acknowledge them. After a
//     write with an unknown outcome the shard's writer is asked for its next epoch (Holding.Renew), and writing goes on with that.
//   - The claim is looked up first, and only then is it asked whether the caller's context has ended. So a caller whose tenure is over never
//     writes under the next one's claim (shard.Under makes both end at the same moment).
//   - Void records are repaired in the cleanup cycle (topic.Plugin.Repair). Its interval is ten minutes, and the topic's
//     min.compaction.lag.ms an hour: who makes the one longer than the other may lose the value that a void record covers.
//   - A topic that is deleted while the process runs is made anew, empty. What was stored is gone, and a describe says that nothing is stored;
//     the record log goes on saying that it is.
//
// File map:
//
//	space.go     Space: opening, following, a topic that is gone; the topic.Place
//	writers.go   the writer of one partition: adoption, outcomes
//	visible.go   waiting until the end of a partition has been read, once for all who wait
package annex
