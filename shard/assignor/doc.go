// Package assignor computes target assignments: pure functions of a snapshot of members and tasks.
//
// The one built in is Kafka 4.4's "sticky" (spec/assignor.md of KIP-1071's implementation). Nothing here knows
// of groups, records or time.
package assignor
