package kafkatest

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
)

// node is one broker's place: ids are 1, 2, …, as in the methods of Cluster.
type node struct {
	id             int
	host           string
	port, ctrlPort int
	dir            string
	proc           *process
}

func (n *node) addr() string { return net.JoinHostPort(n.host, fmt.Sprint(n.port)) }

// properties is the server.properties of a node: KRaft, every node broker and controller, as little memory and as
// few partitions of internal topics as do.
func properties(n *node, all []*node, o Options) string {
	var voters []string
	for _, m := range all {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", m.id, m.ctrlPort))
	}
	replicas := fmt.Sprint(min(3, len(all)))
	minISR := fmt.Sprint(min(2, len(all)))
	p := map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        fmt.Sprint(n.id),
		"controller.quorum.voters":       strings.Join(voters, ","),
		"controller.listener.names":      "CONTROLLER",
		"listeners":                      fmt.Sprintf("PLAINTEXT://%s,CONTROLLER://127.0.0.1:%d", n.addr(), n.ctrlPort),
		"advertised.listeners":           "PLAINTEXT://" + n.addr(),
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":     "PLAINTEXT",
		"log.dirs":                       n.dir + "/data",

		"num.network.threads":               "2",
		"num.io.threads":                    "4",
		"log.cleaner.dedupe.buffer.size":    "4194304", // 128 MB by default, more than half of the heap
		"log.cleaner.io.buffer.size":        "65536",
		"num.recovery.threads.per.data.dir": "2",

		"default.replication.factor":               replicas,
		"min.insync.replicas":                      minISR,
		"offsets.topic.num.partitions":             "8",
		"offsets.topic.replication.factor":         replicas,
		"transaction.state.log.num.partitions":     "4",
		"transaction.state.log.replication.factor": replicas,
		"transaction.state.log.min.isr":            minISR,
		"group.initial.rebalance.delay.ms":         "0",
		"controlled.shutdown.max.retries":          "1",
		"controller.quorum.election.timeout.ms":    "500",
		"controller.quorum.fetch.timeout.ms":       "1000",
		"broker.session.timeout.ms":                "6000", // a killed broker loses its partitions that soon
		"broker.heartbeat.interval.ms":             "1000",
		"auto.create.topics.enable":                "false",
	}
	if o.Version != V391 && !strings.HasPrefix(o.Version, "3.") {
		p["share.coordinator.state.topic.replication.factor"] = replicas
		p["share.coordinator.state.topic.min.isr"] = minISR
		p["share.coordinator.state.topic.num.partitions"] = "1"
		if o.Streams {
			p["group.coordinator.rebalance.protocols"] = "classic,consumer,streams"
		} else {
			p["group.coordinator.rebalance.protocols"] = "classic,consumer"
		}
	}
	maps.Copy(p, o.Properties)
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "%s=%s\n", k, p[k])
	}
	return b.String()
}
