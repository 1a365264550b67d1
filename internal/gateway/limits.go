package gateway

import "time"

// Limits bounds what clients can make the gateway hold. The zero value of a field stands for its default.
type Limits struct {
	// ConnectionsMax is how many client connections are open at once (default connectionsMax). One more is closed
	// as soon as it is accepted, and logged.
	ConnectionsMax int
	// IdleTimeout closes a connection that sent nothing for so long and waits for nothing (default idleTimeout).
	IdleTimeout time.Duration
	// StallTimeout closes a connection whose peer neither takes nor sends the rest of a frame (default stallTimeout).
	StallTimeout time.Duration
	// StartWait is how long New waits for the cluster (default startWait).
	StartWait time.Duration
	// DrainTimeout is how long Close waits for the answers that are under way (default drainTimeout).
	DrainTimeout time.Duration
}

const (
	// connectionsMax keeps a flood of connections from using up memory: a connection with its upstream twin costs
	// about 50 KiB and two file descriptors, so this many cost 400 MiB. At the limit new ones are closed.
	connectionsMax = 8192

	// idleTimeout is Kafka's connections.max.idle.ms (10 minutes): the cluster closes its side then as well.
	idleTimeout = 10 * time.Minute

	// stallTimeout frees what a peer holds that stopped in the middle of a frame: its buffers and the upstream
	// connection. It restarts with each part that moves, so a slow peer is fine and a dead one is not.
	stallTimeout = 2 * time.Minute

	// drainTimeout lets requests that were accepted before a stop be answered; a Fetch waits half a second by
	// default. What takes longer (a JoinGroup waits for other members) sees its connection closed.
	drainTimeout = 5 * time.Second

	// closeMax is how long a connection that was cut may take to end: everything that it waits for ends with it, but for reading from a disk.
	closeMax = time.Second

	// slotsMax bounds the requests of one connection that wait for an answer: each holds a decoded request or an
	// answer. At the limit the connection is read no further until an answer has left (TCP holds the client back);
	// librdkafka would send a million.
	slotsMax = 128

	// Buffers per connection. What is larger than a buffer and at least spliceBytesMin is moved by the kernel.
	clientReadBytes    = 8 << 10
	clientWriteBytes   = 8 << 10
	upstreamReadBytes  = 16 << 10
	upstreamWriteBytes = 8 << 10

	// spliceBytesMin is what must be left of a body for a splice to pay: two system calls and a pipe against one
	// copy through a buffer.
	spliceBytesMin = 32 << 10

	// wideBytes is the size of the buffers that are lent while a frame of at least this size is walked.
	wideBytes = 64 << 10

	// spliceBytesStep is moved between two renewals of the stall deadline.
	spliceBytesStep = 1 << 20

	// endpointBytesMax bounds the part of a ShareFetch response behind the records, which is held in memory: a
	// thousand brokers need some 50 KiB.
	endpointBytesMax = 1 << 20

	// dialTimeout bounds one attempt to reach a broker, so that a dead host costs a client less than its own
	// request.timeout.ms (30 s).
	dialTimeout = 3 * time.Second

	// dialAttemptsMax is how many brokers are tried for a connection to the own node, for the same reason.
	dialAttemptsMax = 4

	// judgeTimeout bounds the question whose a group is, as the connection is not read meanwhile.
	judgeTimeout = 10 * time.Second

	// judgeFanOut bounds how many groups of one request are judged at once: each may cost a request upstream.
	judgeFanOut = 16

	// probeInterval is how often the cluster is asked for its brokers; changes also come with each Metadata
	// response that passes. probeRetry is the pause while it can't be reached.
	probeInterval = 30 * time.Second
	probeRetry    = time.Second

	// startWait is how long New waits for the cluster. After it the gateway starts all the same, and what New
	// would have refused (a broker's port is taken) is logged when the cluster is there.
	startWait = 5 * time.Second

	// relistenInterval is the least time between two attempts to open a broker's port that is taken, as every
	// Metadata response would try.
	relistenInterval = 5 * time.Second

	// logInterval is the least time between two log lines about the same kind of mishap; those left out are
	// counted in the next one. A thousand clients of a cluster that is down would write a thousand lines a second.
	logInterval = 10 * time.Second

	// watchAgain is the pause after something came over an upstream connection that is watched for its end, for what came to be read.
	watchAgain = 100 * time.Millisecond

	// recheckAfter is how long an upstream connection may be unused before it is checked for having been closed
	// by the broker; the check is one system call.
	recheckAfter = time.Second
)

func (l Limits) withDefaults() Limits {
	if l.ConnectionsMax <= 0 {
		l.ConnectionsMax = connectionsMax
	}
	if l.IdleTimeout <= 0 {
		l.IdleTimeout = idleTimeout
	}
	if l.StallTimeout <= 0 {
		l.StallTimeout = stallTimeout
	}
	if l.StartWait <= 0 {
		l.StartWait = startWait
	}
	if l.DrainTimeout <= 0 {
		l.DrainTimeout = drainTimeout
	}
	return l
}
