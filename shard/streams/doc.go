// Package streams is the state machine of one streams group (KIP-1071 as Kafka 4.4 ships it): members, epochs,
// topology, target assignment, reconciliation, states.
//
// It is pure: a handler is a function of (group, request, environment) that returns a response and records.
// It reads no clock, does no I/O, takes no lock and starts no goroutine. The group changes only through Apply
// (records) and ApplySoft (facts that are not in the log and are lost on purpose when the group is hydrated
// again: configured topology, task offsets, endpoint epoch, shutdown flag). Live, on replay and at hydration
// the same Apply runs.
//
// A Group belongs to the goroutine of its shard; nothing here is safe for concurrent use.
package streams
