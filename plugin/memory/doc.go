// Package memory is the topology description plugin "memory": descriptions in the memory of one replica.
//
// It is for trying things out and for tests. A restart loses everything, and another replica that takes a group over
// knows nothing of its description; a describe then says that none is stored, although the group's record says that one
// is. Kafka's own in-memory plugin (class InMemoryTopologyDescriptionPlugin) has the same flaw, and two that this
// one has not: it grows without bound, and it lets a description of a lower epoch displace a higher one.
//
// Some epochs of each group are kept, so that the one before can still be read during an upgrade of an application.
//
// File map:
//
//	memory.go   the plugin
//	factory.go  its settings
package memory
