// Package client speaks to streams groups (KIP-1071) from Go, over a franz-go client: franz-go's own group consumer does not know them. It works with
// every coordinator that speaks Kafka's protocol, streamkeeper or a Kafka 4.x broker.
//
// Admin describes groups, with the topology description of the application (KIP-1331) and, where streamkeeper is asked, why they are in their
// state (package explain); it lists and deletes them, and reads their committed offsets. Member is a member of a group for programs that process tasks in Go: it keeps Kafka's client rules for
// heartbeats, tasks and the push of its topology description. Package topology has the description itself and its drawings.
//
// A call names many groups at once and answers for each: what is wrong with one disturbs no other. Coordinators that load, move or are away are
// waited for until the context ends. What a coordinator refuses is an *Error, which unwraps to the protocol's error (package kerr) and says what
// the coordinator said.
//
// The package borrows the *kgo.Client that it is given and never closes it. Admin may be used from any goroutine. A Member has one Run, which calls
// its handlers; its other methods may be called from any goroutine.
//
// File map:
//
//	errors.go          refusals, and what may pass if it is tried again
//	coordinator.go     finding the coordinators of many groups, and asking them until they answer
//	admin.go           Admin
//	describe.go        StreamsGroupDescribe (89)
//	description.go     what a group is, and its reading from the wire
//	explain.go         why a group is in its state, from its description alone
//	running.go         who runs which task
//	status.go          topology descriptions as kafka-streams-groups prints them
//	list.go            ListGroups (16) on every node
//	delete.go          DeleteGroups (42)
//	offsets.go         OffsetFetch (9)
//	application.go     Application: from nodes to subtopologies and a description
//	member.go          Member: its configuration, tasks, statuses
//	member_session.go  the life of a member: phases, coordinator, what is due when
//	member_beat.go     StreamsGroupHeartbeat (88): joining, beating, errors, leaving
//	member_trouble.go  which failures are told to operators
//	member_tasks.go    taking and giving up tasks
//	member_offsets.go  OffsetCommit (8) and OffsetFetch (9) of a member
//	member_push.go     StreamsGroupTopologyDescriptionUpdate (93)
//	member_wire.go     requests of a member, and the network below
package client
