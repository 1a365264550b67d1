// Package topology is the picture of a Kafka Streams application that KIP-1331 moves around: subtopologies, their
// nodes and arrows, stores, topics, global stores. It converts the picture from and to the wire (API keys 89 and 93) and
// draws it: Kafka's own text byte for byte, JSON, DOT, Mermaid and SVG.
//
// A description comes from an application, so its content is not to be trusted: names may hold any text, lists may
// repeat themselves, arrows may lead nowhere or in circles, two nodes may have one name. None of that is an error here.
// What is drawn is what was said, each format escapes what it must, and what would not end is refused at a limit.
//
// Values are plain data. Nothing here starts goroutines or does I/O beyond the writer it is given, and functions may be
// called from any goroutine as long as nobody changes the description meanwhile.
//
// File map:
//
//	model.go     Description, Subtopology, Node, GlobalStore; predecessors
//	order.go     the order of Java's strings, and sets made of lists
//	wire.go      from a describe response, to a push request
//	format.go    the formats by name
//	limits.go    where drawing stops
//	text.go      the text of kafka-streams-groups --describe --topology
//	json.go      JSON, both ways
//	diff.go      what changed from one description to another
//	picture.go   the drawing that DOT, Mermaid and SVG share: clusters, boxes, arrows
//	label.go     names made fit to be drawn
//	dot.go       Graphviz
//	mermaid.go   Mermaid
//	svg.go       SVG
//	layout.go    places for boxes, layer by layer
//	layers.go    the layers of a graph, and the order within them
package topology
