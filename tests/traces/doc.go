// Package traces looks at the traces of topology descriptions (KIP-1331) as an operator does: streamkeeper runs as a process and sends its
// spans with OTLP, to a receiver of the tests' own, and to a real Jaeger, which is then asked through its HTTP API. The story and what must be
// found are the same. Jaeger is taken from the cache; make jaeger builds it there.
//
// File map:
//
//	story_test.go     the life of groups: asked, pushed, described, deleted, expired, with plugins that fail
//	check_test.go     what must be found of it
//	spans_test.go     spans, wherever they come from
//	receiver_test.go  the receiver
//	jaeger_test.go    Jaeger, and the picture for docs/traces.md
package traces
