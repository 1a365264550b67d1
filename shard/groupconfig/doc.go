// Package groupconfig is what can be configured for one streams group: resource type GROUP of DescribeConfigs, AlterConfigs and
// IncrementalAlterConfigs (KIP-848, KIP-1071), as Kafka 4.4's GroupConfig has it. A configuration is a map from names to
// texts, as they were written; what is not in it follows the replica's own settings, group.streams.….
//
// It is pure: given the same settings, configuration and request the answer is the same. It keeps nothing; the configuration of a
// group is part of the group's records (eventlog.GroupConfig).
//
//	settings.go     the replica's settings: names, types, defaults, bounds
//	definitions.go  what can be configured for a group
//	validate.go     is a configuration one that Kafka takes? In Kafka's order and words
//	alter.go        changes
//	effective.go    what a configuration makes of the settings
//	describe.go     a configuration with what it hides
//	parse.go        texts as Kafka's ConfigDef reads them
package groupconfig
