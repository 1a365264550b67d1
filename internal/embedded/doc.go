// Package embedded is the cluster of "streamkeeper dev": franz-go's kfake in this process, its data on local disk, so that
// nothing else has to be installed. kfake calls itself a test double, and this package is for trying things out.
//
//	cluster.go       the cluster: directory, lock, settings
//	lock_*.go        one process per directory
//	autocreate.go    topics that clients ask for
//	quirks.go        what Java's admin client needs and kfake does otherwise
//	cure.go          what kfake does not do after a kill: abort markers for transactions that were open
package embedded
