// Package topic is the topology description plugin "topic": descriptions in a compacted topic of their own on the cluster itself, next to
// the record log. It needs no other service, survives the replicas, and every replica can take over from any other.
//
// The package decides what is written and when; how it gets to the cluster and back is the business of a Place, which the process
// gives it (package internal/annex). A record is one description: key.go has its key, package plugin its value.
//
// # No description outlives its group
//
//   - What is decided about a group, and the queueing of what was decided, happen with the group's lock held. So a Set is either in the queue when
//     a Delete looks, or comes after it.
//   - Delete settles first (Place.Settle): everything that was queued is in the topic and visible, and the topic takes nothing from a
//     former owner of the partition any more. Then it writes tombstones for what it sees.
//   - A Set is queued only while its context has not ended, which ends with the tenure of the shard (package shard). What a former owner
//     queued before is in front of everything that the new owner settles, refused by the cluster, or void for all readers.
//   - Sweep removes what is left of groups that are gone, and Repair keeps compaction from taking a void record for the latest.
//
// # Non-obvious
//
//   - The topic is read, not remembered: Get asks the cluster for the end of the partition and waits until it has been read, so it is right
//     directly after a takeover and after the data directory was lost.
//   - Trimming goes by what is visible, without waiting. One epoch too many stays until the next Set; that never harms.
//
// File map:
//
//	topic.go    the plugin: Set, Get, Epochs, Delete, Close
//	key.go      the key of a record
//	place.go    Place: the topic as the plugin uses it
//	locks.go    a lock for each group
//	sweep.go    descriptions of groups that are gone; void records
//	factory.go  its settings
package topic
