// Package differential compares the state machines with Kafka 4.4's own classes: the same requests, at the same times, go to
// the group coordinator of Kafka (in one process, in virtual time: tests/jvm/oracle) and to packages shard/streams and shard/offsets, and
// responses and records must be equal. make differential plays many histories. What differs on purpose is listed in docs/differences.md and masked here by name.
//
//	oracle_test.go    the Java process: compiling, starting, one JSON line out, one in
//	world_test.go     both sides behind one set of operations, and the comparison
//	canonical_test.go what is masked: orders of Java's hash maps
//	topologies_test.go   topologies and topics to choose from
//	configs_test.go   what is configured for a group: what is taken, and what it does
//	random_test.go    random histories (rapid: a failing one is shrunk, and its seed printed)
//	offsets_test.go   offsets in random histories: commits, transactions, fetches, deletions; lists
//	committed_test.go the same on both sides: who may, what is answered, what is written
//	creation_test.go  what is asked for and told of internal topics
//	descriptions_test.go topology descriptions in hours of virtual time: back-off, expiry, no plugin, random lives
//	descriptions_world_test.go   a whole replica beside Kafka's coordinator, in one bubble
//	stories_test.go   histories in which we differ from Kafka on purpose
package differential
