package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Upstream says where the cluster is.
type Upstream struct {
	BootstrapServers []string `name:"bootstrap-servers" placeholder:"HOST:PORT" required:"" help:"The Kafka-compatible cluster behind streamkeeper."`
}

// Logging says what is written to standard error.
type Logging struct {
	LogLevel  string `name:"log-level" enum:"debug,info,warn,error" default:"info" help:"Least level of log lines: ${enum}."`
	LogFormat string `name:"log-format" enum:"auto,text,json" default:"auto" help:"${enum}; auto is text on a terminal and JSON elsewhere."`
}

// Replica are the flags that serve and dev have in common.
type Replica struct {
	Listen                  string            `name:"listen" default:"127.0.0.1:9292" placeholder:"HOST:PORT" help:"Where applications bootstrap to: this replica's own node. Default ${default}."`
	Advertise               string            `name:"advertise" placeholder:"HOST[:PORT]" help:"What clients are told instead of the listen address."`
	BrokerPortBase          int               `name:"broker-port-base" placeholder:"PORT" help:"Broker n of the cluster is reached at PORT+n; the listen port + 1 if not given."`
	NodeID                  int32             `name:"node-id" default:"1000001" help:"This replica's node id in Metadata: unique among replicas, and none that a broker has now or later; from 1001 on."`
	DataDir                 string            `name:"data-dir" default:"./data" help:"Where the projection of the log lives (and in dev the log)."`
	LogTopic                string            `name:"log-topic" default:"__streams_groups" help:"The record log: one compacted topic on the cluster."`
	LogPartitions           int32             `name:"log-partitions" placeholder:"N" help:"Partitions of the log when it is created (50); with an existing log the number that it must have."`
	LogReplicationFactor    int16             `name:"log-replication-factor" placeholder:"N" help:"Replicas of the log when it is created (3, at most the number of brokers)."`
	AcceptNewLog            bool              `name:"accept-new-log" help:"Begin with a new log although the data directory holds groups of another one: those are given up."`
	AdminListen             string            `name:"admin-listen" default:"127.0.0.1:9291" placeholder:"HOST:PORT" help:"/healthz, /readyz, /metrics and /shards; empty for none. Default ${default}."`
	OwnershipSessionTimeout time.Duration     `name:"ownership-session-timeout" default:"6s" help:"A replica that is not heard of for so long loses its shards; the cluster's group.min.session.timeout.ms must allow it."`
	ShutdownTimeout         time.Duration     `name:"shutdown-timeout" default:"20s" help:"How long a stop may take as a whole: handing shards over, finishing requests, and ending."`
	ShutdownDelay           time.Duration     `name:"shutdown-delay" default:"0s" help:"How long a stop says at /readyz that it stops before it begins to hand over; part of --shutdown-timeout."`
	Plugin                  string            `name:"plugin" default:"topic" placeholder:"NAME" help:"Who keeps topology descriptions: topic (on the cluster itself), memory, http or none. Default ${default}."`
	PluginSet               map[string]string `name:"plugin-set" placeholder:"NAME=VALUE" help:"A setting of the plugin, e.g. url=https://catalogue.example.org for http; repeatable, or several with semicolons between."`
	PluginReaskLost         bool              `name:"plugin-reask-lost" help:"Have members push a topology description again that the plugin has lost."`
	Set                     map[string]string `name:"set" placeholder:"NAME=VALUE" help:"One of Kafka's settings by Kafka's name, e.g. group.streams.session.timeout.ms=45000; repeatable, or several with semicolons between."`
}

// Effective is a checked configuration.
type Effective struct {
	Listen         string // host:port; port 0 is chosen by the system
	AdvertiseHost  string
	AdvertisePort  int // 0: the listen port
	BrokerPortBase int
	Kafka          Kafka
}

// portMax is the largest port that TCP has.
const portMax = 65535

// The node id of a replica must be none that a broker has, now or later: clients take both for nodes of one cluster, and a broker with a replica's id can't be
// reached through that replica. Brokers are numbered from 0 or 1 on, and Kafka reserves the ids up to reserved.broker.max.id, 1000 by
// default, for those that are given by hand; clusters that draw ids themselves begin behind it, so the default is far away. From the other end Java's client
// counts its second connection to each coordinator, 2147483647 less the node id.
const (
	nodeIDMin = 1001
	nodeIDMax = 1<<30 - 1
)

// Check checks flags against each other and fills in what follows from others. Errors name the flag.
func (r *Replica) Check() (Effective, error) {
	var e Effective
	var errs []error
	refuse := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
	}

	host, port, err := SplitAddress(r.Listen)
	if err != nil {
		refuse("listen", "%v", err)
	}
	e.Listen = r.Listen
	e.AdvertiseHost = host
	if r.Advertise != "" {
		h, p, err := splitAdvertised(r.Advertise)
		if err != nil {
			refuse("advertise", "%v", err)
		}
		e.AdvertiseHost, e.AdvertisePort = h, p
	} else if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		refuse("advertise", "clients can't connect to %q: say which name they are to use", r.Listen)
	}
	e.BrokerPortBase = r.BrokerPortBase
	switch {
	case r.BrokerPortBase < 0 || r.BrokerPortBase > portMax:
		refuse("broker-port-base", "%d is no port", r.BrokerPortBase)
	case r.BrokerPortBase == 0 && port > 0:
		e.BrokerPortBase = port + 1
		if e.BrokerPortBase > portMax {
			refuse("broker-port-base", "the port after %d is none: give a base", port)
		}
	}
	switch {
	case r.NodeID < 0:
		refuse("node-id", "%d is negative", r.NodeID)
	case r.NodeID < nodeIDMin:
		refuse("node-id", "%d may be a broker's id, now or later, and a replica must have none of those: take one from %d on, best far beyond all brokers, such as 1000001", r.NodeID, nodeIDMin)
	case r.NodeID > nodeIDMax:
		refuse("node-id", "%d is too large for Java's clients, which count connections of their own from 2147483647 down: take one up to %d", r.NodeID, nodeIDMax)
	}
	if r.DataDir == "" {
		refuse("data-dir", "is empty")
	}
	if err := checkTopic(r.LogTopic); err != nil {
		refuse("log-topic", "%v", err)
	}
	if r.LogPartitions < 0 {
		refuse("log-partitions", "%d is negative", r.LogPartitions)
	}
	if r.LogReplicationFactor < 0 {
		refuse("log-replication-factor", "%d is negative", r.LogReplicationFactor)
	}
	if r.AdminListen != "" {
		if _, _, err := SplitAddress(r.AdminListen); err != nil {
			refuse("admin-listen", "%v", err)
		}
	}
	if r.OwnershipSessionTimeout < time.Second {
		refuse("ownership-session-timeout", "%v is less than a second", r.OwnershipSessionTimeout)
	}
	if r.ShutdownTimeout < 0 {
		refuse("shutdown-timeout", "%v is negative", r.ShutdownTimeout)
	}
	if r.ShutdownDelay < 0 || r.ShutdownDelay > r.ShutdownTimeout/2 {
		refuse("shutdown-delay", "%v, want between 0 and half of --shutdown-timeout (%v)", r.ShutdownDelay, r.ShutdownTimeout)
	}
	if e.Kafka, err = NewKafka(r.Set); err != nil {
		for _, one := range joined(err) {
			refuse("set", "%v", one)
		}
	}
	return e, errors.Join(errs...)
}

// Check checks the addresses of the cluster.
func (u *Upstream) Check() error {
	var errs []error
	for _, s := range u.BootstrapServers {
		if _, p, err := SplitAddress(s); err != nil {
			errs = append(errs, fmt.Errorf("--bootstrap-servers: %w", err))
		} else if p == 0 {
			errs = append(errs, fmt.Errorf("--bootstrap-servers: %q has no port that can be connected to", s))
		}
	}
	if len(u.BootstrapServers) == 0 {
		errs = append(errs, errors.New("--bootstrap-servers: is empty"))
	}
	return errors.Join(errs...)
}

// NotAt refuses an address of the cluster that is surely the replica's own: it would wait for itself, or take itself for the cluster. A name that leads here
// otherwise is found when something answers there.
func (u *Upstream) NotAt(e Effective) error {
	for _, s := range u.BootstrapServers {
		host, port, err := SplitAddress(s)
		if err == nil && port > 0 && (e.listensAt(host, port) || e.advertises(host, port)) {
			return fmt.Errorf("--bootstrap-servers: %s is this replica itself, not the cluster behind it: name the brokers themselves", s)
		}
	}
	return nil
}

// listensAt says that whoever connects to host and port from this machine reaches the listener, or that it can't be opened because somebody else has the port.
func (e Effective) listensAt(host string, port int) bool {
	own, at, err := SplitAddress(e.Listen)
	if err != nil || at != port {
		return false
	}
	if ip := net.ParseIP(own); own != "" && (ip == nil || !ip.IsUnspecified()) {
		return strings.EqualFold(dialled(own), dialled(host))
	}
	there := net.ParseIP(dialled(host))
	if there == nil {
		return false // a name may be that of a host with a broker
	}
	mine, _ := net.InterfaceAddrs() // where the system does not tell, what is not loopback stays allowed
	return there.IsLoopback() || slices.ContainsFunc(mine, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(there)
	})
}

// advertises says that host and port are what clients are told. A loopback address is of the machine that the client is on, which may be another one.
func (e Effective) advertises(host string, port int) bool {
	at := e.AdvertisePort
	if at == 0 {
		_, at, _ = SplitAddress(e.Listen)
	}
	host, own := dialled(host), dialled(e.AdvertiseHost)
	if ip := net.ParseIP(own); ip != nil && ip.IsLoopback() {
		return false
	}
	return at == port && strings.EqualFold(own, host)
}

// dialled is a host as it is connected to: none, the unspecified address and localhost are this machine.
func dialled(host string) string {
	const here = "127.0.0.1"
	if ip := net.ParseIP(host); ip != nil {
		if ip.IsUnspecified() {
			return here
		}
		return ip.String()
	}
	if host = strings.TrimSuffix(host, "."); host == "" || strings.EqualFold(host, "localhost") {
		return here
	}
	return host
}

func joined(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range j.Unwrap() {
			out = append(out, joined(e)...)
		}
		return out
	}
	return []error{err}
}

// SplitAddress takes HOST:PORT apart. The host may be empty, the port 0; the error says what is wrong with the address.
func SplitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not HOST:PORT", address)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q: %q is no port, want a number up to %d", address, text, portMax)
	}
	return host, int(n), nil
}

// splitAdvertised takes a host with or without a port.
func splitAdvertised(address string) (host string, port int, err error) {
	if !strings.Contains(address, ":") || net.ParseIP(address) != nil {
		return address, 0, nil
	}
	host, port, err = SplitAddress(address)
	if err == nil && host == "" {
		err = fmt.Errorf("%q names no host", address)
	}
	return host, port, err
}

// checkTopic applies Kafka's rule for topic names.
func checkTopic(name string) error {
	const lengthMax = 249
	switch {
	case name == "", name == ".", name == "..":
		return fmt.Errorf("%q is no topic name", name)
	case len(name) > lengthMax:
		return fmt.Errorf("a topic name has at most %d characters, this one %d", lengthMax, len(name))
	}
	for _, c := range name {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return fmt.Errorf("%q is no topic name: it holds %q", name, c)
		}
	}
	return nil
}
