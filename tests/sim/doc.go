// Package sim runs whole replicas in a simulated world: the real gateway, coordinator and shards over the real projection (on a file system
// in memory that loses what was not synced), a network, brokers, a log and an ownership group in memory, clients that behave like the Java
// client of Kafka Streams 4.4 and find their owner only through what replicas tell them, and faults, all in virtual time (testing/synctest). One seed decides everything that is
// random, so a failing seed can be played again:
//
//	go test ./tests/sim -run TestSimulation -seed 4711 -v
//
// In every other world applications move between the protocols (-converts): classic consumers of the cluster's own coordinator, streams members, and now and then both at once. There the
// committed offsets are one register over all conversions: what one kind of member was told as committed the other one finds, the cluster takes no commit of a classic member while the group is
// a streams group, nothing changes while a group is on its way, and what a conversion sends to the cluster comes while its replica owns the group, or so late after it looked at its
// lease that this could be over (which nothing fences, D10; how often that did harm is printed). Logs and coordinators of the ownership group are honest in these worlds.
//
// A failure is shrunk before it is shown: fewer faults, fewer groups, a shorter time. The command that is printed with it plays what is
// left. make sim runs many seeds, as many side by side as there are processors.
//
// Goroutines that become runnable at the very same instant of virtual time run in an order that Go chooses. Delays are
// random to the nanosecond, so that there are few; almost every failure comes back with its seed.
//
// What must hold at every moment is in checker_test.go, client_test.go and tasks_test.go, what must hold once the faults have stopped in
// calm_test.go: no active task twice, none taken before it was given up, no task twice in a process, epochs that only grow, equal ones
// of an empty group, no acknowledged commit lost or gone back, no answer by an owner that has been replaced, everybody at its target in
// the end, no topology description that outlives its group, and memory, disks and the replayed log the same. When all is over package history judges what the clients were told.
// Half of the others have coordinators of the ownership group that were replaced and still confirm heartbeats: there answers without a write may be
// half a minute old, and nothing else may. In all of them the cluster forgets producer ids; in some it does not let a claimer fence the former one. In half of
// those without such coordinators the log loses acknowledged records: what clients were told before does not bind then, and everything else does. That these checks
// can fail is shown, too: broken_test.go, sabotage_test.go. Seeds
// that once failed are kept in testdata/seeds.txt and run first, always.
//
// File map:
//
//	sim_test.go      flags, seeds, one run                shrink_test.go   a smaller history that fails
//	world_test.go    the world: what a seed draws, virtual time, history, violations
//	cluster_test.go  its topics, settings of groups, wall clocks
//	replica_test.go  one replica: start, crash, shutdown, and what is left on its disk; pause_test.go stops it anywhere
//	unclean_test.go  a log that loses acknowledged records
//	machine_test.go  its boot clock and its disk
//	front_test.go    what clients reach of it: coordinator and gateway; other replicas
//	link_test.go     the network between a replica and the log
//	network_test.go  connections between clients, replicas and brokers
//	upstream_test.go the brokers, and the topics that they know
//	routing_test.go  where clients are led, and lists; shards that move as planned after the faults
//	seeker_test.go   how clients find a coordinator: nodes, lookups, one connection for each node id
//	client_test.go   a client: heartbeats, goodbyes, static members
//	tasks_test.go    what it does with tasks; offsets_test.go: commits, fetches
//	descriptions_test.go topology descriptions: a catalogue, pushes, the cleanup cycle
//	classic_test.go  the cluster's own coordinator of classic groups; consumer_test.go: its clients, and who moves applications between the protocols
//	conversion_test.go what replicas do there, and what must hold of it
//	admin_test.go    an operator: list, describe, delete, configure
//	faults_test.go   what goes wrong
//	checker_test.go  reads the log as it grows and checks every state that it passes through
//	history_test.go  what clients asked and were told, judged as linearizable when all is over
//	calm_test.go     what must be so in the end
//	broken_test.go   histories that each check must see     sabotage_test.go   systems that are broken on purpose
//	scenarios_test.go single stories, told step by step; believers_test.go: two replicas with valid leases on one partition
package sim
