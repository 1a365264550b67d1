// Package shard owns the groups of a replica. A shard is one partition of the record log; exactly one goroutine
// runs it while this replica owns the partition (D2).
//
// # Life of a request
//
// A method of Host puts the request into the inbox of the group's shard. The shard's loop hydrates the group if
// it is not in memory (from the projection, D7), calls a pure handler of shard/streams or shard/offsets, applies the
// records it returned at once, hands them to the partition's fenced writer, and remembers the response. The
// response leaves when what it is based on is durable (D3): after the append it made, or after the last append
// of its group, or, for OffsetFetch and for answers that say "there is none", after our own projection has passed a record that was
// written after the request came. Answers without a write leave only inside the lease, which also needs a tail that reads.
//
// # What ends a shard
//
// A writer error (fenced, or an outcome that stayed unknown): everything in memory is dropped, waiting requests get
// a retriable error, and if the partition is still assigned to this replica it is claimed again, read up to
// the new claim and hydrated again. A later ownership record by somebody else: the same without the claim.
//
// # Files
//
//	host.go        all shards of a replica; which partitions it wants (Membership); routing of a request to its shard
//	verbs.go       the requests a Host takes, one short method each
//	shard.go       the loop and its states
//	list.go        the groups of all shards that this replica answers for, while shards move
//	verbs_offsets.go, verbs_description.go   of offsets; what the log says of topology descriptions
//	verbs_config.go   the configuration of a group
//	forgotten.go   replicas that are gone for good
//	verbs_convert.go   steps of a conversion to a classic group of the cluster
//	verbs_explain.go   why a group is in its state
//	sweep.go       groups that the cleanup judges, many in one turn and one append
//	tenure.go      contexts that last as long as a shard serves
//	claim.go       claiming, giving up
//	hydration.go   the groups with members of a partition, read before and after its claim
//	partitions.go  the log has as many partitions as it had
//	turn.go        one unit of work on the loop: apply, append, who waits for what
//	fair.go        groups with long turns take them one at a time, between the others'
//	groups.go      hydration of one group, and eviction
//	timers.go      the timers of a shard, in one heap
//	overlay.go     committed offsets that the projection has not applied yet, and the view over both
//	membership.go  taking part in the consumer group among replicas; membership_leave.go ends it
//	declines.go    partitions that this replica can't serve; reading.go: or has still to read; balancer.go: how the group hears of it
//	placement.go   who gets which partition
//	members.go     who is in the group: node ids, refusals
//	lease.go       the lease that the group grants; lease_linux.go, lease_other.go: its clock
//	tail.go        how old what was read of the log is: the other half of the lease
//	repair.go      void records of a replaced owner get their keys' right values written again
//	tally.go       one log line for what many shards say
//	watch.go       loops that take no turn
//	stats.go       counters, and how long things take
//	rebalance.go   what an operation's records mean to people: log lines, and the span of a rebalance
//	census.go      how many groups there are in which state
//
// # Non-obvious
//
// The records of an operation are applied before they are durable, so a later operation of the same partition is decided on
// them; that is sound because appends of one partition succeed or fail in order, and a failure drops the memory as a whole.
//
// A group leaves memory only when the projection has applied its last record. Otherwise a join that comes just after the
// eviction would hydrate an older state than the one it evicted.
//
// Timers are not in the log. After a takeover, and after a pause of the process longer than the lease, every session starts at
// full length: a member must not be expired by a silence that was ours.
package shard
