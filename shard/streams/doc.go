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
//
// # Life of a heartbeat
//
//	Validate              what needs no state
//	Heartbeat
//	  find the member     join, rejoin, fencing, static members; or leave
//	  update the member   → record 19
//	  update the topology → record 23, once in the life of a group
//	  configure           partition counts, status, what to create; only if topics changed
//	  bump the epoch      → record 17, if anything above asks for it
//	  update the target   → records 21 and 20; delayed at first, and not too often
//	  reconcile           → record 22, one step of this member towards its target
//	  respond
//
// # Files
//
//	contract.go     Env, Topics, Config, Timer, Error: what others see
//	group.go        Group, Result, accessors           apply.go     records → state
//	soft.go         what is not in the log             state.go     the group's state
//	validate.go     Kafka's rules without state        sense.go     rules that Kafka lacks
//	heartbeat.go    the steps above                    lookup.go    who is it
//	topology.go     a topology and what is looked up   configure.go copartition.go   partition counts
//	target.go       targets of all members             reconcile.go one member's next step
//	respond.go      the response, endpoints            leave.go     who goes
//	timers.go       expiry, and timers after hydration offsets.go   reported changelog positions
//	commit.go       who may commit and fetch           describe.go  StreamsGroupDescribe
//	delete.go       tombstones                         text.go      stable text, for tests and logs
//	description.go  what the log knows of descriptions
//	convert.go      frozen on the way to a classic group
//	explain.go      why the state is what it is        explain_members.go  the part of it that is about members
//	chronicle.go    what records say to people
//	member.go       a member                           tasks.go     sets of tasks
//	holders.go      who holds a task                   hash.go      the metadata hash
//
// # Non-obvious
//
//   - Members, targets and topologies are replaced, never modified: a handler may put them into records and responses as they are,
//     and a record that was handed out stays what it was.
//   - Whether a task is free is judged by the group before the heartbeat. A member that gives a task up and wants it back in
//     the same request gets it one heartbeat later, as in Kafka.
//   - A member that is told of a new assignment is told once. If that response is lost it says so by owning something else, and is told again.
//   - An initial delay that is running hides the targets of all members, also from those who had one.
//   - Soft facts are applied after the records of the same result: a record may remove what a soft fact is about.
package streams
