// Package plugin is the boundary between the coordinator and whatever stores topology descriptions (KIP-1331): the
// contract that a plugin fulfils, the value it stores, and the wrapper through which alone the coordinator calls it.
//
// # Who does what
//
// A Plugin stores, forwards or exposes the description of a streams group and answers with a Future. It need not be
// careful: a plugin that blocks, panics, returns nil, never answers or answers twice harms nobody, because the
// coordinator holds a Traced, which runs each call on a goroutine of its own, bounds their number and their time,
// classifies what comes back as Kafka 4.4 does (classes StreamsGroupTopologyDescriptionManager and
// StreamsGroupTopologyDescriptionConverter), counts it under Kafka's names, and delivers it exactly once. What Kafka has not and
// Traced has: a time-out, a bound on the calls under way, and one span per future from its call to its completion (design decision D11).
//
// The package knows nothing of groups' state and of Kafka's protocol; conversion from and to the wire, the records
// around a call and the answer to the client belong to the coordinator. A Backoff decides when members may be asked for a
// description again; it is pure but for its lock.
//
// # Goroutines
//
// Everything exported may be used from any goroutine. Callbacks (Future.OnComplete, the done functions of Traced) run
// on the goroutine that completes, and must not block: they hand a message on.
//
// # Non-obvious
//
//   - Kafka's two failure kinds look alike on the wire (error 135), but a permanent one silences the group until its
//     topology epoch advances, and Kafka's own client never advances it. So whatever an operator can repair
//     is transient, also a refused password.
//   - A throw and a missing future are permanent for Set in Kafka, while a future that fails because of a panic is
//     transient, like any failure that is not said to be permanent.
//   - After a time-out the slot of a call stays taken until its future completes or Config.Grace has passed, and as
//     long as the plugin's method has not returned: freeing it at once would let a hanging plugin pile up goroutines
//     without end, and never freeing it would make one lost future count for ever.
//   - A span ends with the future, not with the time-out, so it shows how long the backend really took; the outcome
//     is then "late".
//   - Group ids and names come from users: they may hold slashes, dots only, control characters, any length. In spans
//     they are made valid UTF-8, because one bad string makes an exporter drop its whole batch.
//
// # File map
//
//	plugin.go       Plugin, the contract
//	epochs.go       Epochs: the topology epochs that a plugin holds, where it tells
//	description.go  Description: subtopologies, nodes, global stores; copies, comparison
//	validate.go     what Kafka's converter checks and drops
//	json.go         the canonical JSON form
//	binary.go       the binary form: frame, compression, checksum, sizes
//	binary_body.go  the binary form: what is inside
//	future.go       Future, Go
//	errors.go       permanent failures, panics, messages cut to length
//	outcome.go      Outcome: what became of a call, and how errors are classified
//	traced.go       Traced: configuration, the three calls, Close
//	call.go         one call: from its start to whatever ends it
//	slots.go        the bound on calls under way
//	batch.go        many groups at once, paced
//	stats.go        counters with Kafka's names
//	backoff.go      when a member may be asked again
//	history.go      what came of asking, for those who want to know why there is no description
//	registry.go     plugins by name
//	settings.go     their key=value settings
package plugin
