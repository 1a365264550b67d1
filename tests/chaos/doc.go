// Package chaos runs three replicas of streamkeeper, as processes, before three brokers of Kafka while things go wrong: replicas are killed, stopped, and cut
// from the cluster, from their clients, from each other, in one direction or both; packets are lost; brokers are killed and stopped, and leaders
// move; clocks are wrong, disks full, replicas restarted one after the other while one is cut off. Members of some groups join, take tasks, commit,
// fetch, and note everything (internal/history). Onlookers ask one replica each, whoever owns what. Real Kafka Streams applications with state and standbys
// work beside them: what goes in comes out, no task has two owners, what is committed does not go back, no thread dies, and no error is one that can't be
// tried again. After each blow everything has to work again within a bounded time. In the end the history is compared with itself and with the
// log, and the replicas' projections with the log.
//
// That a run can fail is shown by one in which relays lie to the replicas.
//
// What goes wrong and when is decided by a seed alone, which is printed:
//
//	go test ./tests/chaos -v -args -seed 42 -for 10m
//
// make chaos runs for an hour. In make test it is a short run of a fixed seed and one of a random one, with one application.
//
// Each replica is in a network namespace of its own, joined to the test by a bridge; its network is cut by iptables in there. That needs root, the
// commands ip and iptables. Without them the replicas run on loopback, and only what needs no namespace goes wrong; the test says so.
//
// File map:
//
//	net_test.go      namespaces, and what is cut in them
//	world_test.go    brokers, replicas, topics
//	member_test.go   a member of a group, with the rules of Kafka's client
//	faults_test.go   what goes wrong
//	chaos_test.go    the run: blow, calm, blow
//	onlooker_test.go who asks one replica alone
//	apps_test.go     real applications; appjudge_test.go: what must be so of them; appjudge_self_test.go
//	judge_test.go    what must be so in the end
//	sabotage_test.go that a run can fail
package chaos
