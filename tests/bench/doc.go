// Package bench measures streamkeeper beside Apache Kafka 4.4's own coordinator for streams groups, on the same
// machine, with the same load, by turns: heartbeats, joins and commits per second with their latencies, a plain
// acks=all produce for comparison, a group of 1,000 members that all join at once, and restart time and memory with many
// groups.
//
// The load is made of hand-built requests over plain connections, one request under way per connection, so that the
// generator costs little of the processors it shares with what it measures.
//
// Without -full (that is, in make test) everything is small: it shows that the measuring works and that no request
// fails. make bench gives -full and writes the table.
//
// File map:
//
//	bench_test.go    the rounds: which system, which phases
//	target_test.go   the two systems
//	fill_test.go     a log with very many groups, written at the speed of the log; both systems take it for their own
//	takeover_test.go how long groups are without a coordinator when one of three is stopped, comes back, is killed, hangs
//	takeover_fleet_test.go   three replicas of streamkeeper, three brokers of Kafka
//	takeover_client_test.go  a client by the rules of Java's: whom it asks, when it looks its coordinator up again
//	takeover_probe_test.go   the groups that are watched; takeover_herd_test.go: all the other members
//	growth_test.go   what idle groups cost, and how that grows: growth_keeper_test.go, growth_kafka_test.go; growth_probe_test.go: what is asked meanwhile
//	tools_test.go    Kafka's command line tools before many groups
//	load_test.go     the load: groups, connections, phases
//	storm_test.go    one large group whose members all join at once, and its neighbours
//	assignor_test.go the sticky assignor beside Kafka's class, in the same run
//	process_test.go  memory and processor time of a process
//	table_test.go    medians, and the table
package bench
