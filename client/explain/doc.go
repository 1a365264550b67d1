// Package explain is what a coordinator of streamkeeper can tell of a streams group beyond Kafka's protocol: why the group is in the state
// it is in, and why there is no topology description (KIP-1331), which Kafka answers with one of four numbers.
//
// It travels inside StreamsGroupDescribe (key 89), in a tagged field of our own: a client that wants to know puts a Question into the
// request, the coordinator puts the answer into the groups of the response. Whoever does not ask never sees a byte of it, and a
// coordinator that does not know the tag ignores it, as the protocol demands; then there is no answer, and the client says what
// it can from the protocol alone.
//
// The package holds data, its JSON form and its text for people. It knows no clock, no network and none of the other packages; who
// finds things out is shard/streams (a group's state), internal/coordinator (topics, descriptions), and who asks is client.
//
// File map:
//
//	question.go     the question, and the tagged fields
//	group.go        Group: the answer for one group; Reason: why its state is what it is
//	description.go  Description: where the topology description is, or why it is not there
//	text.go         both for people
package explain
