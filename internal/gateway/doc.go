// Package gateway is the proxy between Kafka clients and the cluster. Its one rule: what is not ours passes
// untouched. It owns the listeners, the connections, and the knowledge where clients reach which node; it decides
// per request whether the coordinator answers or the cluster. It never looks into records, keeps nothing that
// outlives a connection but the ports of brokers, and knows nothing of shards.
//
// Each upstream broker has a listener of its own, and this replica has one: its node, which is one more node in
// Metadata. A client connection has one upstream connection, made when it first needs one, so that the identity,
// quotas and order of the client are the cluster's business as without a gateway. Three goroutines serve a
// connection (conn.go); answers leave in the order of the requests whoever gives them.
//
// A Gateway's methods may be called from any goroutine. It calls coordinator.Service from many.
//
//	gateway.go       Config, New, Run, Close; listeners
//	brokers.go       upstream brokers and the ports that stand for them
//	probe.go         asking the cluster for its brokers, its id and the log topic's
//	conn.go          a client connection: its goroutines, its end
//	receive.go       reading requests and sending each where it belongs
//	connect.go       its upstream twin: connecting, replacing one that the broker closed
//	upstream.go      connecting to a broker and asking for its API versions
//	respond.go       answers in order
//	moved.go         an answer that sends the client to another replica ends its connection
//	work.go          requests that are answered here, a span each
//	stream.go        a socket with its buffers; moving bytes, by splice where it pays
//	routes.go        the table: what happens to which API key
//	api_versions.go  18: the cluster's versions merged with ours
//	remembered.go    what a broker said of its APIs, for while it is away
//	rewrite.go       3, 10, 55, 60, 75, 79 and Produce: addresses of nodes
//	idle_nodes.go    replicas without a shard, hidden from clients that list groups
//	walk.go          walking through a frame that passes
//	walk_fetch.go    1 and 78: addresses behind records, blanked in place
//	walk_produce.go  0: writes to the log topic, blanked in place
//	groups.go        whose a group is; requests about one group
//	groups_many.go   requests about several groups, split and merged
//	groups_txn.go    25, 28: refused for streams groups
//	own_node.go      what clients ask of each node
//	gone_node.go     64: a node that is gone for good
//	configs.go       32, 74: configurations described; those of groups come from two places
//	configs_alter.go 33, 44: and altered; configs_message.go: both in one form
//	own_topics.go    writes to the log topic and to that of topology descriptions, refused
//	limits.go        limits, each with its reason
//	mishap.go        rate-limited log lines, counters
//	keys.go          API keys and error codes by name
//	reader.go        skipping through a message in memory
//	gone_unix.go     has the broker closed the connection? gone_other.go where that can't be asked
package gateway
