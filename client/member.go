package client

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client/topology"
)

// LeavePolicy says what becomes of the membership when a member ends (GroupMembershipOperation in Kafka).
type LeavePolicy int

// The policies.
const (
	// LeaveByDefault is to leave, or for a static member to stay for the session time-out, in case it comes back.
	LeaveByDefault LeavePolicy = iota
	// LeaveTheGroup is to leave, also for a static member: its tasks go to others at once.
	LeaveTheGroup
	// RemainInTheGroup is to stay for the session time-out: a member that comes back soon moves no tasks.
	RemainInTheGroup
)

// rebalanceTimeout is max.poll.interval.ms of Kafka Streams.
const rebalanceTimeout = 5 * time.Minute

// MemberConfig says what a member is. Only Group and Subtopologies are needed.
type MemberConfig struct {
	Group string // the application id

	// Subtopologies are the topics of the application, as every member of the group must send them. Copartition groups name
	// topics of their subtopology.
	Subtopologies []Subtopology
	// TopologyEpoch is always 0 in Kafka Streams 4.4: its coordinator takes no other topology for a group that has one.
	TopologyEpoch int32

	// Description is the picture of the application that the member pushes when the coordinator asks for it (KIP-1331).
	// Nil: there is none, and the question is not answered.
	Description *topology.Description
	// DisableTopologyPush keeps the description to ourselves (topology.description.push.enabled=false).
	DisableTopologyPush bool

	ProcessID        string            // the instance that several members may belong to; by default a random one
	InstanceID       string            // for a static member
	RackID           string            // where it runs
	Tags             map[string]string // for rack-aware assignment
	Endpoint         *Endpoint         // where the instance answers queries
	RebalanceTimeout time.Duration     // how long giving up tasks may take before the member is thrown out; default 5 minutes
	OnLeave          LeavePolicy

	// Revoke is called with tasks that the member has to give up, or that change their role: it stops them and commits. Others get
	// them when it has returned. Assign is called afterwards with all tasks that the member has from then on. An
	// error ends the member, which leaves the group and returns it from Run. The context ends when Run has waited too long for the member's end.
	Revoke, Assign func(context.Context, Tasks) error
	// Lose is called with tasks that the member has lost without being asked: others may run them already, nothing must be committed.
	Lose func(Tasks)
	// Status is called with the coordinator's remarks whenever they have changed; nil for none any more.
	Status func([]Status)
	// Pushed is called with the outcome of each push of the description, nil for success.
	Pushed func(error)
	// TaskOffsets is asked now and then how far the given tasks have got with their changelogs, and where those end. It must not block.
	TaskOffsets func(Tasks) (offsets, ends []TaskOffset)

	Logger *slog.Logger // default: none
}

// Member is a member of a streams group: it joins, sends heartbeats, takes and gives up tasks, pushes the topology
// description when it is asked for it, and leaves. It keeps Kafka's client rules (StreamsMembershipManager, StreamsGroupHeartbeatRequestManager,
// StreamsGroupTopologyDescriptionRequestManager in 4.4). What the tasks do is the caller's business.
//
// The functions of the configuration are called one at a time, Status and Pushed from Run's goroutine (they must not block),
// Revoke, Assign and Lose from others, while heartbeats go on.
type Member struct {
	cfg         MemberConfig
	id          string
	topology    *kmsg.StreamsGroupHeartbeatRequestTopology
	description *kmsg.TopologyDescription // nil: nothing is pushed
	log         *slog.Logger
	net         network
	started     atomic.Bool

	wake     chan struct{} // of room 1: something was changed from outside
	shutdown atomic.Bool

	mu      sync.Mutex // what follows, written by Run
	epoch   int32
	lives   int // how often the member was thrown out of the group
	tasks   Tasks
	node    *Node         // the coordinator, as far as known; also written by Commit and Committed
	located chan struct{} // closed while it is known
}

// NewMember prepares a member. It borrows the client's connections, and neither consumes nor produces with it. The error says what is
// wrong with the configuration.
func NewMember(cl *kgo.Client, cfg MemberConfig) (*Member, error) {
	if cl == nil {
		return nil, errors.New("client: a member needs a client")
	}
	return newMember(kafkaNetwork{cl}, cfg)
}

func newMember(net network, cfg MemberConfig) (*Member, error) {
	bad := func(format string, a ...any) (*Member, error) {
		return nil, fmt.Errorf("member of group %q: %w", cfg.Group, fmt.Errorf(format, a...))
	}
	switch {
	case strings.TrimSpace(cfg.Group) == "":
		return bad("the group has no id")
	case len(cfg.Subtopologies) == 0:
		return bad("the application has no subtopologies")
	case cfg.TopologyEpoch < 0:
		return bad("topology epoch %d is negative", cfg.TopologyEpoch)
	case cfg.InstanceID != "" && strings.TrimSpace(cfg.InstanceID) == "":
		return bad("instance id %q is blank", cfg.InstanceID)
	case cfg.RackID != "" && strings.TrimSpace(cfg.RackID) == "":
		return bad("rack id %q is blank", cfg.RackID)
	case cfg.RebalanceTimeout < 0 || cfg.RebalanceTimeout > 0 && cfg.RebalanceTimeout < time.Millisecond:
		return bad("rebalance time-out %v is below a millisecond", cfg.RebalanceTimeout)
	case cfg.OnLeave < LeaveByDefault || cfg.OnLeave > RemainInTheGroup:
		return bad("unknown leave policy %d", cfg.OnLeave)
	}
	if cfg.RebalanceTimeout == 0 {
		cfg.RebalanceTimeout = rebalanceTimeout
	}
	if cfg.ProcessID == "" {
		cfg.ProcessID = randomUUID()
	}
	m := &Member{cfg: cfg, id: randomMemberID(), net: net, log: cfg.Logger, wake: make(chan struct{}, 1), located: make(chan struct{})}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	m.log = m.log.With("group", cfg.Group, "member", m.id)
	var err error
	if m.topology, err = topologyToWire(cfg.TopologyEpoch, cfg.Subtopologies); err != nil {
		return bad("%w", err)
	}
	if cfg.Description != nil && !cfg.DisableTopologyPush {
		d, err := topology.ToWire(cfg.Description)
		if err != nil {
			return bad("topology description: %w", err)
		}
		m.description = &d
	}
	return m, nil
}

// ID is the member's id, which it has for life.
func (m *Member) ID() string { return m.id }

// Epoch is the member epoch, to be sent with commits; 0 while the member is not in the group.
func (m *Member) Epoch() int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.epoch
}

// Tasks are the tasks that the member has now.
func (m *Member) Tasks() Tasks {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tasks.clone()
}

// ShutdownApplication asks all members of the group, this one included, to end: each learns it with its next heartbeat.
func (m *Member) ShutdownApplication() {
	if m.shutdown.Swap(true) {
		return
	}
	select {
	case m.wake <- struct{}{}:
	default: // it will look anyway
	}
}

func (m *Member) setEpoch(epoch int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch = epoch
}

// membership is the epoch, with the life that it belongs to.
func (m *Member) membership() (epoch int32, life int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.epoch, m.lives
}

// thrownOut ends a life: the epochs to come stand for other tasks.
func (m *Member) thrownOut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch = joining
	m.lives++
}

func (m *Member) setTasks(t Tasks) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tasks = t.clone()
}

// Run is the member's life: it joins and stays until ctx ends, then gives up its tasks, leaves, and returns nil. It returns earlier, with
// an error, when the coordinator refuses the member for good (*Error), when the application can't go on (*StatusError), or when
// Revoke or Assign fail. A member runs once.
func (m *Member) Run(ctx context.Context) error {
	if m.started.Swap(true) {
		return fmt.Errorf("member %s of group %q has run already: make a new one", m.id, m.cfg.Group)
	}
	return newSession(ctx, m).run()
}

// randomMemberID is like those of Kafka's clients: 22 characters of URL-safe base64, the first not a dash, which tools would
// take for an option.
func randomMemberID() string {
	for {
		if id := base64.RawURLEncoding.EncodeToString(randomUUIDBytes()); id[0] != '-' {
			return id
		}
	}
}

func randomUUIDBytes() []byte {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return b
}

func randomUUID() string {
	b := randomUUIDBytes()
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// StatusCode is a kind of remark in a heartbeat's answer.
type StatusCode int8

// The codes of Kafka 4.4 (StreamsGroupHeartbeatResponse).
const (
	StatusStaleTopology                StatusCode = 0
	StatusMissingSourceTopics          StatusCode = 1
	StatusIncorrectlyPartitionedTopics StatusCode = 2
	StatusMissingInternalTopics        StatusCode = 3
	StatusShutdownApplication          StatusCode = 4
	StatusAssignmentDelayed            StatusCode = 5
	StatusMissingClientTags            StatusCode = 6
)

func (c StatusCode) String() string {
	names := []string{"STALE_TOPOLOGY", "MISSING_SOURCE_TOPICS", "INCORRECTLY_PARTITIONED_TOPICS", "MISSING_INTERNAL_TOPICS", "SHUTDOWN_APPLICATION", "ASSIGNMENT_DELAYED", "MISSING_CLIENT_TAGS"}
	if c >= 0 && int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("status %d", int8(c))
}

// Status is a remark of the coordinator about the group or the member.
type Status struct {
	Code   StatusCode
	Detail string
}

func (s Status) String() string { return s.Code.String() + ": " + s.Detail }

// StatusError ends a member whose application can't go on: its source topics stay missing, its topics are partitioned wrongly, or
// a member asked all to shut down.
type StatusError struct{ Status }

func (e *StatusError) Error() string { return e.Status.String() }

// without are the tasks that are not among others, in the same role.
func (t Tasks) without(o Tasks) Tasks {
	minus := func(a, b []TaskID) []TaskID {
		return slices.DeleteFunc(slices.Clone(a), func(id TaskID) bool {
			_, found := slices.BinarySearchFunc(b, id, compareTasks)
			return found
		})
	}
	return Tasks{minus(t.Active, o.Active), minus(t.Standby, o.Standby), minus(t.Warmup, o.Warmup)}
}
