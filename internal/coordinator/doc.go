// Package coordinator turns group requests into work for shards: it finds the shard that owns the group,
// resolves topics, keeps the snapshot of the cluster's topics, splits and merges requests over several groups, and
// maps every failure to the Kafka error code that a client understands (errors.go, the one table).
//
//	contract.go                       what the gateway calls
//	coordinator.go errors.go          the Service, what it is made of; errors to Kafka's codes
//	judge.go nodes.go                 whose a group is, who owns it, which replicas there are
//	others.go                         the same by what other replicas say, where this one has not read the log
//	heartbeat.go foreign.go           StreamsGroupHeartbeat: the gate before the shard; groups of the cluster's own
//	foreign_upstream.go               asking the cluster whether it has groups of some ids, many at once
//	groups.go offsets.go              describe, delete, list; commit, fetch, delete of offsets
//	description.go description_push.go description_groups.go description_wire.go   topology descriptions: who is asked; a
//	                                  push; describe and delete; conversions
//	convert.go convert_steps.go convert_upstream.go   a classic JoinGroup on an empty streams group: its offsets handed over to the
//	                                  cluster; what a failure or a crash leaves; the cluster's side
//	explain.go explain_description.go explain_epochs.go   why a group is in its state, and why its description is not there;
//	                                  descriptions of earlier topology epochs
//	takeover.go                       a streams heartbeat for an empty classic group: its offsets taken over from the cluster
//	creation.go creation_failures.go creation_request.go   internal topics made for groups; what failed and how it is told; CreateTopics
//	configs.go configs_alter.go peers.go   what is configured for groups: read here, changed by the owner of the shard, which may
//	                                  be another replica
//	forget.go                         a replica that is gone for good, left out of Metadata
//	fanout.go                         several groups of one request at a time
//	topics.go topics_fetch.go topics_pins.go   what is known of the cluster's topics
//	topics_gone.go                    which topics certainly were deleted
//
// The gateway calls it and knows nothing of shards; it knows nothing of connections.
package coordinator
