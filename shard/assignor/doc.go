// Package assignor computes target assignments: pure functions of a snapshot of members and tasks.
//
// The one built in is Kafka 4.4's "sticky" (class StickyTaskAssignor). Nothing here knows of groups, records, topics
// or time; an Assignor may be called from any goroutine and keeps nothing between calls.
//
// The result equals Kafka's, ties included, for the same iteration order of members and processes. That order is
// ours: ascending by id, where Kafka goes through hash maps. The recorded results of Kafka's class are compared under
// Kafka's order, which only the tests know. Where fewer processes than copies exist, standbys are left out without a
// word (Kafka logs a warning); a describe shows how many there are.
//
//	assignor.go   the contract: Spec, Target, Assignor
//	sticky.go     the passes: keep, restore, spread; for active tasks, then for standbys
//	placement.go  the state of an assignment in the making: quotas, loads, history
//	heap.go       a heap with Java's rules for ties
package assignor
