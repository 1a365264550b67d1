package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/plugin/kslog"
)

// Membership says which partitions of the record log this replica should own, and until when it may answer from
// memory (D5, D3). *KafkaMembership is the real one.
type Membership interface {
	// Run takes part in the group until ctx ends and reports to l. It returns nil after ctx ended, else why this
	// replica can't take part. Called once. When it returns the lease is over.
	Run(ctx context.Context, l MembershipListener) error
	// Lease is the same object for the whole life of the Membership.
	Lease() *Lease
	// LeaseValid says that the lease of the whole replica is not over now; for a partition ask Lease.ValidFor.
	LeaseValid() bool
	// LeaseDuration is how long a replica that stopped hearing from the group may go on answering, at most.
	LeaseDuration() time.Duration
	// Members lists the replicas in the group, this one included.
	Members(ctx context.Context) ([]GroupMember, error)
	// Decline says which partitions this replica can't serve at present, and why, in a word: all of them each time. Where urgent is set the group
	// shares partitions anew because of it. It does not block.
	Decline(ps map[int32]string, urgent bool)
	// Declined is what the group has heard of that: what this replica said when it joined last.
	Declined() map[int32]string
	// Leave leaves the group within ctx: partitions are revoked and assigned to others, and the lease is prolonged
	// no more. Run goes on until its context ends.
	Leave(ctx context.Context) error
}

// MembershipListener is told what the group assigns. Calls never overlap and must not block: the lease already covers
// (Assigned), no longer grows with (Revoked), or excludes (Lost) the partitions. They are ascending and never empty.
type MembershipListener interface {
	// Assigned: nobody else is assigned ps now; claim them.
	Assigned(ps []int32)
	// Revoked: others will be assigned ps; serve on until the successor claims or Lease.UntilOf passes.
	Revoked(ps []int32)
	// Lost: the group went on without this replica; others may own ps since some time.
	Lost(ps []int32)
}

// Defaults of MembershipConfig, and the names of the settings as errors show them.
const (
	SessionTimeoutDefault    = 6 * time.Second // the smallest that clusters allow by default
	HeartbeatIntervalDefault = time.Second

	SettingSessionTimeout    = "ownership.session.timeout.ms"
	SettingHeartbeatInterval = "ownership.heartbeat.interval.ms"
	SettingLeaseMargin       = "ownership.lease.margin.ms"
)

const (
	// probePause is the time between two looks at the group while a node id seems taken: dead members vanish within a session.
	probePause = 500 * time.Millisecond
	// complainPause is how often the log says that the cluster can't be reached.
	complainPause = 10 * time.Second
	// probeSlack is how much longer than its time-outs a dead member may stay: a broker's timers and loops are not exact.
	probeSlack = 2 * time.Second
	// requestMax bounds a request that only asks, so that a broker that hangs doesn't hold a start for ever.
	requestMax = 10 * time.Second
	// closeMax bounds the closing of the client: a join under way would hold it for up to the rebalance time-out.
	closeMax = 2 * time.Second
	// rejoinPauseMin is the first pause between attempts to reach the group; it doubles.
	rejoinPauseMin = 100 * time.Millisecond
	// rejoinPauseMax is the longest: partitions wait for it.
	rejoinPauseMax = time.Second
	// silenceMin is the least time after which a broker that does not answer is given up.
	silenceMin = time.Second
	// leavePatience is how long the client may take to leave by itself before a leave request overtakes its join.
	leavePatience = 300 * time.Millisecond
)

// MembershipConfig configures a KafkaMembership. LogTopic, NodeID and Address are required, and options that name the
// cluster.
type MembershipConfig struct {
	Opts     []kgo.Opt // seeds, TLS, SASL, dialer
	LogTopic string
	NodeID   int32
	Address  string // host:port that clients are told
	// SessionTimeout is how long the group waits for a silent replica before its partitions go to others.
	SessionTimeout    time.Duration
	HeartbeatInterval time.Duration
	// RebalanceTimeout is how long the others wait for a replica to join again; 3 sessions where 0.
	RebalanceTimeout time.Duration
	// LeaseMargin is taken off the session time-out; a sixth of it where 0. It has to cover by how much the broker's
	// clock may run faster than ours during one session, and the granularity of the broker's timers.
	LeaseMargin time.Duration
	// Former is the member id under which an earlier process of this replica was in the group, where that process is certainly dead: Run has
	// it leave, so that nobody waits for the end of its session. "" where there is none, or it isn't certain.
	Former string
	// Joined is told this replica's member id before anything is assigned to it; the next process may give it as Former. It must not
	// block. Nil: nobody wants to know.
	Joined func(memberID string)
	Clock  Clock // BootClock where nil
	Logger *slog.Logger

	balancer kgo.GroupBalancer // in tests: that of an older replica
}

// KafkaMembership takes part in the consumer group "streamkeeper-<log topic>" with a client that never fetches.
//
// Joining, the cooperative protocol and the search for the coordinator are kgo's. The heartbeats that the lease is made
// of are sent here, beside kgo's own, with kgo's member id and generation: kgo does not tell the outcome of its
// heartbeats (a hook sees bytes, not error codes), sends none while it waits in a join, and joins again under a
// new member id without calling anything lost when the coordinator forgot the old one. Here each answer is known, each
// counts from before its request was handed to kgo, and a new member id ends the lease.
type KafkaMembership struct {
	cfg   MembershipConfig
	group string
	log   *slog.Logger
	lease *Lease

	wake  chan struct{} // an assignment is known: send a heartbeat at once
	again chan struct{} // joined as a new member, after the group had forgotten the former one
	fatal chan error

	mu       sync.Mutex // held while the listener is called
	listener MembershipListener
	client   *kgo.Client
	member   string         // the member id of the last assignment
	assigned map[int32]bool // as kgo sees it
	told     map[int32]bool // as the listener was told
	joined   bool           // an assignment was known once: errors are no longer those of a wrong setting
	leaving  bool           // Leave or close was called: nothing more is assigned
	left     bool           // the group knows
	stale    int            // errors that kgo holds for a poll

	declining struct {
		sync.Mutex
		ps   map[int32]string
		said map[int32]string // in the metadata of the last join
	}
}

// OwnershipGroup is the name of the consumer group in which the replicas of a log share its partitions.
func OwnershipGroup(logTopic string) string { return "streamkeeper-" + logTopic }

// NewMembership checks cfg; the cluster is not asked for anything before Run.
func NewMembership(cfg MembershipConfig) (*KafkaMembership, error) {
	cfg.SessionTimeout = cmp.Or(cfg.SessionTimeout, SessionTimeoutDefault)
	cfg.HeartbeatInterval = cmp.Or(cfg.HeartbeatInterval, HeartbeatIntervalDefault)
	cfg.RebalanceTimeout = cmp.Or(cfg.RebalanceTimeout, 3*cfg.SessionTimeout)
	cfg.LeaseMargin = cmp.Or(cfg.LeaseMargin, cfg.SessionTimeout/6)
	if cfg.Clock == nil {
		cfg.Clock = BootClock()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case cfg.LogTopic == "":
		return nil, errors.New("ownership group: no log topic")
	case cfg.NodeID < 0:
		return nil, fmt.Errorf("ownership group: node id %d is negative", cfg.NodeID)
	case cfg.Address == "" || strings.ContainsAny(cfg.Address, " \t\r\n"):
		return nil, fmt.Errorf("ownership group: address %q is not host:port", cfg.Address)
	case cfg.SessionTimeout < 0 || cfg.HeartbeatInterval < 0 || cfg.LeaseMargin < 0 || cfg.RebalanceTimeout < 0:
		return nil, errors.New("ownership group: a negative time-out or interval")
	case cfg.SessionTimeout-cfg.LeaseMargin < 2*cfg.HeartbeatInterval:
		// One late heartbeat would end the lease.
		return nil, fmt.Errorf("%s=%d less %s=%d must be at least twice %s=%d", SettingSessionTimeout,
			cfg.SessionTimeout.Milliseconds(), SettingLeaseMargin, cfg.LeaseMargin.Milliseconds(),
			SettingHeartbeatInterval, cfg.HeartbeatInterval.Milliseconds())
	}
	return &KafkaMembership{
		cfg: cfg, group: OwnershipGroup(cfg.LogTopic), log: cfg.Logger.With("group", OwnershipGroup(cfg.LogTopic)),
		lease: newLease(cfg.Clock, cfg.SessionTimeout, cfg.RebalanceTimeout, cfg.LeaseMargin),
		wake:  make(chan struct{}, 1), again: make(chan struct{}, 1), fatal: make(chan error, 1),
		assigned: map[int32]bool{}, told: map[int32]bool{},
	}, nil
}

// Lease implements Membership.
func (m *KafkaMembership) Lease() *Lease { return m.lease }

// LeaseValid implements Membership.
func (m *KafkaMembership) LeaseValid() bool { return m.lease.Valid(m.lease.Now()) }

// LeaseDuration implements Membership: the whole session time-out, which no lease exceeds.
func (m *KafkaMembership) LeaseDuration() time.Duration { return m.cfg.SessionTimeout }

// Run implements Membership. Errors: eventlog.ErrNodeIDTaken where another live replica has this node id; what the
// cluster refuses at the first join (session time-out, authorization). Once it has joined, Run repeats until ctx ends.
func (m *KafkaMembership) Run(ctx context.Context, l MembershipListener) error {
	defer m.lease.end()
	m.leaveFormer(ctx)
	if err := m.checkBefore(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := m.join(l); err != nil {
		return err
	}
	if m.client == nil { // left before it joined
		<-ctx.Done()
		return nil
	}
	defer m.close()
	ctx, cancel := context.WithCancel(ctx)
	var beats sync.WaitGroup
	defer beats.Wait()
	defer cancel()
	beats.Go(func() {
		for ctx.Err() == nil {
			if err := m.checkAfter(ctx); err != nil {
				m.fail(err)
				return
			}
			select {
			case <-ctx.Done():
			case <-m.again:
			}
		}
	})
	tick := time.NewTicker(m.cfg.HeartbeatInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-m.fatal:
			return m.explain(ctx, err)
		case <-m.wake:
		case <-tick.C:
			m.drainErrors()
		}
		// One that hangs must not hold up the next; each lives no longer than its answer is worth anything, so
		// there are at most session time-out / interval of them, and one for each rebalance.
		member, generation := m.client.GroupMetadata()
		if b, ok := m.lease.beat(member, generation); ok {
			beats.Go(func() { m.heartbeat(ctx, b) })
		}
	}
}

// heartbeat sends b and takes its answer.
func (m *KafkaMembership) heartbeat(ctx context.Context, b beat) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.SessionTimeout)
	defer cancel()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = m.group, b.member, b.generation
	resp, err := req.RequestWith(ctx, m.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	switch {
	case err == nil:
		m.lease.confirm(b, false)
	case errors.Is(err, kerr.RebalanceInProgress):
		m.lease.confirm(b, true)
	case errors.Is(err, kerr.UnknownMemberID):
		m.forgotten(b)
	case ctx.Err() == nil:
		// ILLEGAL_GENERATION is normal while an answered join has not reached kgo. Anything else confirms nothing either:
		// the lease runs out by itself, and kgo's own heartbeat decides what comes next.
		m.log.Debug("heartbeat not confirmed", "member", b.member, "generation", b.generation, "err", err)
	}
}

// forgotten: the coordinator does not know the member id. Ids of dynamic members never come back, so everything is
// lost, without waiting for kgo to find out. It may never do so: a coordinator that was replaced while it hung has forgotten all
// its members when it wakes up, and answers what lay in its socket, while kgo's own heartbeat has gone to its successor. So kgo is told to
// join again, whereupon the partitions are assigned anew.
func (m *KafkaMembership) forgotten(b beat) {
	m.mu.Lock()
	known := b.member == m.member && !m.leaving
	if known {
		m.lostLocked("the group no longer knows this replica")
	}
	client := m.client
	m.mu.Unlock()
	if known {
		client.ForceRebalance()
	}
}

// join starts the client that takes part in the group; none where Leave was called before.
func (m *KafkaMembership) join(l MembershipListener) error {
	m.mu.Lock() // kgo's callbacks wait until the client is stored
	defer m.mu.Unlock()
	if m.leaving {
		return nil
	}
	client, err := kgo.NewClient(append(slices.Clone(m.cfg.Opts), m.common(
		kgo.ConsumerGroup(m.group), kgo.ConsumeTopics(m.cfg.LogTopic),
		kgo.Balancers(m.balancer()),
		kgo.SessionTimeout(m.cfg.SessionTimeout), kgo.HeartbeatInterval(m.cfg.HeartbeatInterval),
		kgo.RebalanceTimeout(m.cfg.RebalanceTimeout),
		kgo.DisableAutoCommit(),
		kgo.RetryBackoffFn(func(tries int) time.Duration { return min(rejoinPauseMin<<min(tries, 8), rejoinPauseMax) }),
		// A coordinator that hangs must be given up well before the session is over, or another one is found too late.
		kgo.RequestTimeoutOverhead(max(m.cfg.SessionTimeout/2, silenceMin)),
		kgo.MaxConcurrentFetches(0), // none but inside a poll, and there is never one
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, ps map[string][]int32) { m.onAssigned(cl, ps[m.cfg.LogTopic]) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, ps map[string][]int32) { m.onRevoked(ps[m.cfg.LogTopic]) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, ps map[string][]int32) { m.onLost(ps[m.cfg.LogTopic]) }),
		kgo.WithHooks(manageErrors{m}),
	)...)...)
	if err != nil {
		return fmt.Errorf("ownership group: %w", err)
	}
	client.PauseFetchTopics(m.cfg.LogTopic)
	m.client, m.listener = client, l
	return nil
}

// Decline implements Membership.
func (m *KafkaMembership) Decline(ps map[int32]string, urgent bool) {
	m.declining.Lock()
	m.declining.ps = maps.Clone(ps)
	m.declining.Unlock()
	m.mu.Lock()
	client, leaving := m.client, m.leaving
	m.mu.Unlock()
	if urgent && client != nil && !leaving {
		client.ForceRebalance()
	}
}

func (m *KafkaMembership) balancer() kgo.GroupBalancer {
	if m.cfg.balancer != nil {
		return m.cfg.balancer
	}
	return newDecliningBalancer(m.cfg.LogTopic, m.declines)
}

// Declined implements Membership.
func (m *KafkaMembership) Declined() map[int32]string {
	m.declining.Lock()
	defer m.declining.Unlock()
	return maps.Clone(m.declining.said)
}

// declines is what this member declines now; kgo asks whenever it joins, after it has let go of calls for another rebalance.
func (m *KafkaMembership) declines() map[int32]string {
	m.declining.Lock()
	defer m.declining.Unlock()
	m.declining.said = m.declining.ps // Decline puts another map there, and never changes one
	return maps.Clone(m.declining.ps)
}

// common adds to opts what every client of the membership has.
func (m *KafkaMembership) common(opts ...kgo.Opt) []kgo.Opt {
	opts = append(opts, kgo.ClientID(memberClientID(m.cfg.NodeID, m.cfg.Address)))
	if m.log.Enabled(context.Background(), slog.LevelDebug) {
		opts = append(opts, kgo.WithLogger(kslog.New(m.log)))
	}
	return opts
}

// onAssigned: kgo has fetched the assignment of a new generation; added is what it did not have before.
func (m *KafkaMembership) onAssigned(cl *kgo.Client, added []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaving {
		return
	}
	member, generation := cl.GroupMetadata()
	if m.member != "" && m.member != member {
		// kgo joined again after the coordinator forgot the old id; what was kept over may have been elsewhere meanwhile.
		m.lostLocked("joined again as a new member")
	}
	switch {
	case !m.joined:
		m.log.Info("joined", "member", member, "generation", generation)
	case m.member != member:
		// While this replica was paused, or cut off, another one may have come with its node id.
		select {
		case m.again <- struct{}{}:
		default:
		}
	}
	m.joined = true
	if m.cfg.Joined != nil && m.member != member {
		m.cfg.Joined(member)
	}
	for _, p := range added {
		m.assigned[p] = true
	}
	m.member = member
	m.lease.begin(member, generation)
	var news []int32
	for p := range m.assigned {
		if !m.told[p] {
			m.told[p] = true
			news = append(news, p)
		}
	}
	if len(news) > 0 {
		slices.Sort(news)
		m.lease.hold(news)
		m.listener.Assigned(news)
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// onRevoked: kgo gives ps up, and joins again to tell the group.
func (m *KafkaMembership) onRevoked(ps []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range ps {
		delete(m.assigned, p)
	}
	m.revokeLocked(ps)
}

func (m *KafkaMembership) revokeLocked(ps []int32) {
	var gone []int32
	for _, p := range ps {
		if m.told[p] {
			delete(m.told, p)
			gone = append(gone, p)
		}
	}
	if len(gone) > 0 {
		slices.Sort(gone)
		m.lease.letGo(gone)
		m.listener.Revoked(gone)
	}
}

// onLost: kgo was thrown out of the group, or its session failed otherwise.
func (m *KafkaMembership) onLost(ps []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range ps {
		delete(m.assigned, p)
	}
	if !m.leaving {
		m.lostLocked("the session in the group failed")
	}
}

// lostLocked ends the lease and tells the listener that everything is lost. What kgo still counts as assigned is told
// again with the next assignment.
func (m *KafkaMembership) lostLocked(why string) {
	m.lease.end()
	if m.member != "" {
		m.log.Warn("lease ended", "why", why, "member", m.member, "partitions", len(m.told))
	}
	m.member = ""
	if gone := sorted(m.told); len(gone) > 0 {
		clear(m.told)
		m.listener.Lost(gone)
	}
}

// manageErrors takes the errors that end a session of kgo's in the group.
type manageErrors struct{ m *KafkaMembership }

// OnGroupManageError implements kgo.HookGroupManageError.
func (h manageErrors) OnGroupManageError(err error) {
	m := h.m
	m.mu.Lock()
	m.stale++
	joined := m.joined
	m.mu.Unlock()
	if !joined && isRefusal(err) {
		m.fail(err)
		return
	}
	m.log.Warn("session in the ownership group failed, joining again", "err", err)
}

// drainErrors empties the queue in which kgo keeps session errors for a poll that never comes.
func (m *KafkaMembership) drainErrors() {
	m.mu.Lock()
	n := m.stale
	m.stale = 0
	m.mu.Unlock()
	if n == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // a poll that does not wait
	m.client.PollFetches(ctx)
}

// fail makes Run return err; the first counts.
func (m *KafkaMembership) fail(err error) {
	select {
	case m.fatal <- err:
	default:
	}
}

func sorted(set map[int32]bool) []int32 {
	ps := make([]int32, 0, len(set))
	for p := range set {
		ps = append(ps, p)
	}
	slices.Sort(ps)
	return ps
}
