// Package fence stops the owner of a shard, a real process, with SIGSTOP at each step of what it does to the log on a real cluster, lets
// another replica take over, delivers late what was under way, and wakes it up: nothing of the former owner counts, and nobody is told
// anything that is not so (design D3, D4).
//
// Each replica reaches the cluster through a relay that knows the protocol: it holds back the one request, or the one answer, at which the
// process is to stop. Clients note what they asked and were told (internal/history); in the end that is compared with itself and with the log.
//
// With -full (make fence) all steps are played on all versions of Kafka, and what takes longer: a transactional id that expires, so that the
// cluster can't refuse the former owner and readers have to.
//
// That the checks can fail is shown by a relay that breaks what a replica relies on: its lease (heartbeats of the ownership group that nobody confirmed, and a log in
// which there is nothing to read), producer ids (taken out of what it appends, so that the cluster accepts late writes), read barriers (appends that are acknowledged,
// read back by the one who made them, and go nowhere);
// and in internal/history, with made histories.
//
// File map:
//
//	match_test.go     which frame is meant
//	world_test.go     a cluster, two replicas, who owns what
//	client_test.go    a client that asks one replica and takes note
//	steps_test.go     the steps, and what is done at each
//	lies_test.go      a replica that is told that it still owns; one that is cut from the cluster
//	broken_test.go    a broken fence, which is found
//	stage_test.go     an owner with a commit under way, and its successor
//	expired_test.go   transactional ids that expire
//	behind_test.go    a replica whose tail stands still, or that has read nothing
//	denials_test.go   all requests whose answer could be that there is nothing
//	forgotten_test.go producers that a partition's leader forgets
//	denied_test.go    a leader that was replaced says that nothing has been written
//	hanging_test.go   a broker hangs while a replica dies
//	moved_test.go     another broker becomes the leader meanwhile
package fence
