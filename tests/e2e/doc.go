// Package e2e plays whole stories with real programs: a Kafka Streams 4.4 application, Apache Kafka brokers, Kafka's
// command line tools, and streamkeeper as a process.
//
// A story is played in several worlds with the same assertions: first before Kafka 4.4 with its own coordinator for
// streams groups, which shows that the story is true; then through streamkeeper before clusters that have no such
// coordinator, and through streamkeeper's embedded log. What only streamkeeper has (several replicas, an upstream that
// goes away) has stories of its own.
//
// File map:
//
//	world_test.go     the worlds, and the clusters they share
//	story_test.go     an application's life: second instance, stop, kill, coordinator killed under load
//	tools_test.go     kafka-streams-groups prints what it prints before Kafka
//	tools_away_test.go  tools and commands while of three replicas one is dead and one hangs
//	losses_test.go    the log topic is deleted or grows, data directories are lost; full_disk_linux_test.go: a disk is full
//	damage_test.go    bytes of a data directory are overwritten; it can't be written any more
//	offsets_test.go   offsets reset and deleted with kafka-streams-groups; those of a deleted topic
//	declines_test.go  a replica that can serve nothing leaves its shards to another
//	rights_test.go    the cluster takes rights away from one replica, and from both
//	rights_documented_test.go  the rights that the documentation names, and no others
//	spent_test.go     a shard's producer id is fenced under its owner: another transactional id is taken
//	clocks_test.go    replicas whose clocks are fast, slow, and jump
//	convert_test.go   a plain consumer takes over the group of an application that has stopped
//	configs_test.go   configurations of groups, as requests and through kafka-configs
//	dumplog_test.go   kafka-dump-log reads the record log
//	refusal_test.go   a topology description that the plugin refuses for good
//	fleet_test.go     several replicas: what their stories share
//	replicas_test.go  two replicas: sharing, leading clients, takeover, a replica that was paused
//	ownership_test.go three replicas under members of every shard: stopped, moved, gone; a node id taken; another installation; a newer format
//	rolling_test.go   three replicas restarted, killed, and paused, one after the other, under applications with standbys
//	paused_replica_test.go  replicas paused for a minute, and ended by what watches them, under applications with different patience (-long)
//	rolling_upgrade_test.go  from older builds to today's, replica by replica, and back
//	move_test.go      groups and their topics go to another cluster; moved_test.go: the log to other brokers
//	mixed_test.go     versions side by side: what goes from replica to replica, both ways
//	newer_test.go     records of a newer version in the log, of each kind; a newer replica among older ones
//	stateful_test.go  repartition topics, stores, a windowed join: internal topics made, state restored, all deleted
//	apps_test.go           real applications of many kinds, in Kafka and through streamkeeper: what their stories share
//	apps_scale_test.go     1, 3, 1 instances, restarts, crashes, slow, paused and clinging members: no task has two owners
//	apps_state_test.go     a global table, 12 and 100 subtopologies, endpoints of interactive queries, static members
//	apps_versions_test.go  applications of Kafka Streams 4.2 and 4.3
//	topics_test.go    internal topics that can't be made, and that are made anew
//	topology_test.go  topology descriptions: asked for, pushed, printed, deleted, lost
//	upgrade_test.go   replicas with and without a plugin, one after the other; applications of 4.3 and 4.4 in one group
//	upstream_test.go  the cluster goes away and comes back, or is down at start
package e2e
