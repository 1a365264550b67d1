// Package admin is what the command line shows of streams groups. It asks with package client, so it works through streamkeeper and with a Kafka
// 4.x broker that coordinates streams groups itself.
//
//	answering.go  which of the bootstrap addresses answers
//	client.go    connecting; list, delete
//	describe.go  a group with its committed offsets and their lag
//	configs.go   what is configured for a group
//	forget.go    a replica that is gone for good
//	text.go      tables for people
package admin
