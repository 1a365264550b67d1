// Package faulty is a topology description plugin that fails on purpose, for tests: the group id says what each call does. It has a twin in
// Java (tests/jvm/plugin/FaultyPlugin.java) that a Kafka 4.4 broker runs, so that the same requests can go to both coordinators and
// their answers and records be compared. It is in no list of built-in plugins.
//
// A group id is a name and clauses, all divided by semicolons. A clause is OPERATION:BEHAVIOUR or OPERATION:BEHAVIOUR*COUNT, where the operation is
// set, get or delete. The clauses of an operation follow each other: each holds for COUNT calls, without a count for all calls
// from then on. After the last one, and without any, the plugin behaves. So "a;set:transient*1;set:throw*1;delete:error" fails the first
// Set for now, throws in the second, stores in the third, and never deletes.
//
//	ok         the description is stored, found, or deleted
//	null       the future completes without a value (nil for get; set and delete do nothing)
//	twice      ok, and then the same future is failed
//	late       ok after LateAfter
//	held       ok, as soon as a group is stored that has the clause free:NAME/OPERATION, where NAME is the name of this one
//	slow       ok after SlowAfter
//	latefail   like error, after LateAfter
//	transient  the future fails with the contract's transient failure
//	permanent  the future fails with the contract's permanent failure
//	wrapped    the same, inside the wrapper that futures have in Java; Go has none
//	error      the future fails with some other error
//	bare       the future fails, and nobody says with what
//	mute       the future fails with an error that has no text
//	large      the future fails with a text of LargeBytes bytes
//	throw      the method panics (Java: throws)
//	nil        the method returns no future
//	hang       the future never completes
//
// The text of a failure is "OPERATION fails, call N". Each call is told to Config.Called, as one line "plugin-call OPERATION EPOCH BEHAVIOUR
// GROUP" (epoch -1 for delete). Nothing is bounded or forgotten: it lives as long as a test.
//
// File map:
//
//	script.go  what a group id says
//	faulty.go  the plugin and its factory
package faulty
