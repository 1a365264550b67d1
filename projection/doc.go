// Package projection is the memory of the log: one Pebble store for all partitions, holding the latest value of
// each record key with its offset, pending transactional values, the indexes "groups with members" and "topic →
// groups", and how far each partition has been applied. It is a cache: whatever is wrong with it, it is
// thrown away and read again from the log (design D6).
//
// Only the tail writes here: Store is the tail's eventlog.Follower. Everybody may read, from any goroutine, and may hold
// a Snapshot for work that takes long. Listeners (OnApplied, OnOwner, OnVoid) are called on the tail's goroutine.
//
// # Files
//
//	contract.go    Reader: what shards read
//	keys.go        the key layout, as a table
//	checkpoint.go  how far a partition is applied, as bytes
//	store.go       Config, Open, the state of a partition; open.go, close.go: the rest of its life
//	held.go        what a directory holds, of whatever log
//	engine.go      one Pebble store, and how it breaks without taking the process along
//	disk.go        the file system under it: a full disk, no file descriptors
//	apply.go       one batch of the tail; skipped.go: records of unknown types; offsets.go: committed and pending; owners.go: ownership records
//	opaque.go      the records of an annex: applied and read as they are
//	read.go        the Reader; snapshot.go: the same of one moment; sweep.go: all groups with their offsets, in one scan;
//	               many.go: groups one after the other, for less than single reads cost
//	rebuild.go     the reasons to read the log again, and forgetting a partition
//	track.go       which groups changed while somebody reads them all
//	position.go    where reading goes on, who waits for what, who is told
//	stats.go       numbers for metrics
//
// # Non-obvious
//
//   - A partition that is being rebuilt must never look empty: "no such offset" makes an application start over. Reads
//     fail with ErrLoading from before the first record is gone until the tail stands at the end again, also those
//     that were under way when it began.
//   - Before the tail stands at the end for the first time after a start, reads do work and say what was true at Applied.
//     Who serves clients waits for AtEnd, or for an offset (Wait).
//   - Pebble ends the process, or tries again for ever, when it can't write. Here a store that Pebble calls broken is
//     abandoned and an empty one begun (engine.go), and a full disk is waited out under Pebble's feet (disk.go).
//   - Pebble's write stalls can't be interrupted, so they are disabled; engine.ease bounds memory in their place.
//   - The time at the end is compared by the wall clock and by the monotonic one, and the larger difference counts: one
//     is set back now and then, the other stands still while the machine sleeps.
//   - The fence is part of the checkpoint. A reader that resumes without it would take late writes of a former owner
//     for valid.
//   - What compaction does to ownership records, see eventlog.Fence.
package projection
