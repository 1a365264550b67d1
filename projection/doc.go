// Package projection is the memory of the log: one Pebble store for all partitions, holding the latest value of
// each record key with its offset, pending transactional values, the indexes "groups with members" and "topic →
// groups", and how far each partition has been applied. It is a cache: whatever is wrong with it, it is
// thrown away and read again from the log (design D6).
//
// Only the tail writes here: Store is the tail's eventlog.Follower. Everybody may read, from any goroutine.
package projection
