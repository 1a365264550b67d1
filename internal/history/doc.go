// Package history records what clients asked a coordinator and what they were told, and finds out afterwards whether that can be true
// (design D3, D4): no acknowledged commit is lost or goes back, no epoch goes back, no task has two owners, and everything that was
// acknowledged stands in the record log, where it counts.
//
// Clients write into a Recorder, each from its own goroutine: Begin before a request is sent, and then exactly one of Done, Refused, and
// Unknown. Refused means that the request had no effect and never will: an answer with an error. Unknown means that it may still have one: no
// answer came. History.Check looks at what was recorded alone, History.CheckLog compares it with the log, read with ReadLog. Both take
// nothing from the code that they check, but for the codecs of the records.
//
// Committed offsets are checked as linearizable registers, one for each partition of each group, with porcupine. A history that it
// can't decide in time fails.
//
// The package is for tests. Its own tests show it histories that are broken in every way it is to find.
//
// File map:
//
//	op.go        one request and its outcome
//	recorder.go  what clients write into
//	check.go     the rules, and how a violation reads
//	offsets.go   committed offsets as registers
//	epochs.go    member epochs, group epochs
//	tasks.go     no task has two owners
//	log.go       the record log as the cluster has it
//	batch.go     the records of a batch on its way
//	log_check.go what was acknowledged stands there, and counts
//	log_epochs.go epochs only grow
//	log_tasks.go an active task is one member's at a time
package history
