// Package wire is the Kafka protocol below the messages: frames, headers, which versions are flexible, and how a
// message of package kmsg becomes bytes and back. The gateway, the tests and the small Client share it.
//
// Everything here treats its input as hostile: no length on the wire is believed before the bytes it announces
// have arrived, and every refusal is an error of a type of its own that says what was found and where.
// Nothing here keeps state between frames, starts a goroutine or logs; a Client belongs to one goroutine.
//
//	frame.go    length prefix, limits, reading a frame, TLS and HTTP recognised by their first bytes
//	header.go   request and response headers (v0, v1, v2), flexible versions
//	message.go  bodies: parse without leftovers, encode with header and length
//	errors.go   the error types
//	forget.go   a replica that is gone, in UnregisterBroker
//	client.go   Client: one connection, one request after another, for tests and tools
package wire
