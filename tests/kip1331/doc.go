// Package kip1331 tests topology descriptions (KIP-1331) against Kafka 4.4 itself: the same requests go to a Kafka 4.4 broker and to
// streamkeeper, both with a plugin that fails as the group id says (plugin/faulty, tests/jvm/plugin), and answers, calls of the
// plugin and records in the log must be equal.
//
// The test plan of the KIP, class by class, with the tests that are its counterpart here, is in plan_test.go, and so is what a plugin may do wrong.
//
// What needs one of the two alone, or hours, is not here: differences on purpose in time-outs are in differences_test.go with what Kafka
// does, the back-off and the cleanup cycle in virtual time beside Kafka's classes in tests/differential.
//
// File map:
//
//	plan_test.go      the KIP's test plan: class by class, and where its counterparts are
//	world_test.go     both coordinators, connections to them, comparison
//	requests_test.go  the requests; masks_test.go: what is masked in the answers
//	records_test.go   the records in both logs
//	broker_test.go    the stories, by what they are about:
//	push_test.go      a push: refusals in order, conversion, what the plugin may do
//	solicit_test.go   which heartbeat asks for a description
//	foreign_test.go  streams groups that the cluster has already
//	describe_test.go  statuses
//	delete_test.go    DeleteGroups
//	convert_test.go   a classic join
//	differences_test.go  what we do otherwise, on purpose
//	random_test.go    random sequences of all that: -args -sequences N, -seed N
package kip1331
