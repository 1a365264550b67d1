// Package sim runs whole replicas in a simulated world: the real shards over the real projection (on a file system in
// memory that loses what was not synced), a log and an ownership group in memory, clients that behave like the Java
// client of Kafka Streams 4.4, and faults, all in virtual time (testing/synctest). One seed decides everything that is
// random, so a failing seed can be played again:
//
//	go test ./tests/sim -run TestSimulation -seed 4711 -v
//
// Goroutines that become runnable at the very same instant of virtual time run in an order that Go chooses. Delays are
// random to the nanosecond, so that there are few; almost every failure comes back with its seed.
//
// What must hold at every moment is in checker_test.go and client_test.go, what must hold once the faults have stopped in
// calm_test.go. Seeds that once failed are kept in testdata/seeds.txt and run first, always.
//
// File map:
//
//	sim_test.go      flags, seeds, one run
//	world_test.go    the world: what a seed draws, virtual time, history, violations
//	replica_test.go  one replica: start, crash, shutdown, and what is left on its disk
//	scenarios_test.go single stories, told step by step
//	link_test.go     the network between a replica and the log
//	client_test.go   a client: heartbeats, reconciliation, commits, fetches; offsets_test.go
//	admin_test.go    an operator: list, describe, delete
//	checker_test.go  reads the log as it grows and checks every state that it passes through
//	faults_test.go   what goes wrong
//	calm_test.go     what must be so in the end
package sim
