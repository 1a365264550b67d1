// Package inspect reads topics over the network as whole record batches, for the commands that look into the log and for
// the start of the embedded cluster. It takes part in no group and writes nothing.
//
//	reader.go    partitions of a topic, batch by batch, to the end or for ever
//	batch.go     the header of a batch; its records as entries of the record log
//	lines.go     one line per record, as text or JSON
//	segments.go  batches as segment files that kafka-dump-log reads
//	shards.go    who owns which shard, from the ownership records
package inspect
