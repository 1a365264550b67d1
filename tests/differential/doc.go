// Package differential compares the state machines with Kafka 4.4's own classes: the same requests, at the same times, go to
// the group coordinator of Kafka (in one process, in virtual time: tests/jvm/oracle) and to package shard/streams, and
// responses and records must be equal. What differs on purpose is listed in docs/differences.md and masked here by name.
//
//	oracle_test.go    the Java process: compiling, starting, one JSON line out, one in
//	world_test.go     both sides behind one set of operations, and the comparison
//	client_test.go    a member as a client would be: what it knows, what it may send
//	topologies_test.go   topologies and topics to choose from
//	random_test.go    random histories (rapid: a failing one is shrunk, and its seed printed)
//	stories_test.go   histories that random ones do not reach often
package differential
