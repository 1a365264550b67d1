// Package cleanup runs the periodic cycle that removes what has expired: committed offsets past their retention, and
// streams groups that are empty and have no offset left.
//
// It owns the rhythm, the pace and the counters, and decides nothing: which groups are worth a look is read from the
// projection (Candidates), off the shards' loops; whether something really expires is judged by a handler on the loop
// of the group's shard (Shard.Expire), on the latest state. So a candidate list may be stale without harm.
//
// # A cycle
//
// One after another, because each step relies on what the one before has written:
//
//  1. Expired offsets get tombstones; a group that is empty and has no offset and no open transaction left goes with
//     its last ones, unless a topology description may still be stored for it (StoredDescriptionTopologyEpoch is
//     not EpochNone, with a description plugin configured).
//  2. (not built yet) Empty groups without offsets that may have a description: barrier record, plugin delete, result.
//  3. Such a group is removed by step 1 of the next cycle. A cycle between the two would only find it again.
//
// A cycle ends with its last write; the next begins an interval later. There is never more than one.
//
// Run belongs to one goroutine; Sweep and Stats may be called from any.
//
//	cycle.go       Cycle: interval, single flight, shards side by side, counters
//	sweep.go       one shard: pace, repeats, failures
//	candidates.go  which groups are worth a look, from the projection
package cleanup
