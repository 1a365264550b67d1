// Package cleanup runs the periodic cycle that removes what has expired: committed offsets past their retention, and
// streams groups that are empty and have no offset left.
//
// It owns the rhythm, the pace and the counters, and decides nothing: which groups are worth a look is read from the
// projection (Candidates), off the shards' loops; whether something really expires is judged by a handler on the loop
// of the group's shard (Shard.Expire), on the latest state. So a candidate list may be stale without harm.
//
// # A cycle
//
// Each shard one step after the other, because each relies on what the one before has written:
//
//  1. Where topology descriptions are kept (KIP-1331): an empty group without offsets and open transactions that may have a
//     description (StoredDescriptionTopologyEpoch is not EpochNone) is marked uncertain, its description deleted at the plugin, and the
//     outcome recorded. What fails stays marked, and the next cycle does it again.
//     Where the plugin keeps them on the cluster, descriptions of groups that are gone are looked for too, once an hour.
//  2. Where that is wanted, descriptions that the plugin has lost are looked for, a bounded number of groups a cycle, and their groups
//     marked uncertain, so that members are asked again.
//  3. Expired offsets get tombstones; a group that is empty and has no offset and no open transaction left goes with
//     its last ones, unless a description may still be stored for it.
//
// So a described group takes two cycles: its offsets go in the first, its description and the group itself in the second. In Kafka
// the steps are two loops that know nothing of each other, and it takes up to three periods.
//
// A cycle ends with its last write; the next begins an interval later. There is never more than one.
//
// Topics has a rhythm of its own: offsets of topics that were deleted go as soon as somebody tells of it, and what nobody tells of is found
// in a sweep of everything each interval.
//
// Run belongs to one goroutine; Sweep, Stats and Deleted may be called from any.
//
//	cycle.go       Cycle: interval, single flight, shards side by side, counters
//	sweep.go       one shard: pace, repeats, failures
//	descriptions.go  one shard: topology descriptions
//	topics.go      Topics: offsets of deleted topics
//	lost.go        one shard: descriptions that the plugin has lost
//	orphans.go     one shard: descriptions without a group
//	pace.go        how fast the projection is scanned
//	candidates.go  which groups are worth a look, from the projection
package cleanup
