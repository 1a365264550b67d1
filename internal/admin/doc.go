// Package admin asks a cluster about streams groups with Kafka's own protocol: through streamkeeper, or a Kafka 4.x
// broker that coordinates streams groups itself.
//
//	client.go    finding coordinators and asking them again where a shard moved
//	list.go      ListGroups on every node
//	describe.go  StreamsGroupDescribe, committed offsets and their lag
//	delete.go    DeleteGroups
//	text.go      tables for people
package admin
