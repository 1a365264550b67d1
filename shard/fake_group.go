package shard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// FakeGroupOptions configure a FakeGroup. Zero values are the defaults of MembershipConfig.
type FakeGroupOptions struct {
	Partitions                                     int32
	SessionTimeout, HeartbeatInterval, LeaseMargin time.Duration
}

// FakeGroup is an ownership group in memory, for tests: a coordinator that expects heartbeats, expires members, and
// moves partitions cooperatively, as the real one does with the real client. A partition has one owner or none. It goes
// to the next only after the owner was told, gave it up and said so in a later heartbeat; or left; or was expired.
//
// It runs in a testing/synctest bubble when it was made inside one.
type FakeGroup struct {
	options FakeGroupOptions
	start   time.Time

	mu      sync.Mutex
	members []*fakeSeat // in the order of their joins
	owner   []*fakeSeat // by partition; nil: free
	target  []*fakeSeat
	joins   int
}

// fakeSeat is a member as the coordinator knows it.
type fakeSeat struct {
	id     string
	node   int32
	expiry *time.Timer
	// declines are what the member can't serve
	declines map[int32]string
}

// NewFakeGroup makes a group without members.
func NewFakeGroup(options FakeGroupOptions) *FakeGroup {
	if options.SessionTimeout == 0 {
		options.SessionTimeout = SessionTimeoutDefault
	}
	if options.HeartbeatInterval == 0 {
		options.HeartbeatInterval = HeartbeatIntervalDefault
	}
	if options.LeaseMargin == 0 {
		options.LeaseMargin = options.SessionTimeout / 6
	}
	return &FakeGroup{
		options: options, start: time.Now(),
		owner: make([]*fakeSeat, options.Partitions), target: make([]*fakeSeat, options.Partitions),
	}
}

// Now implements Clock, for the leases of the members.
func (g *FakeGroup) Now() Instant { return Instant(time.Since(g.start) + time.Hour) }

// Assign makes the member of the node the next owner of partition p, as a rebalance might. False: it is not a member.
func (g *FakeGroup) Assign(p, node int32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.members, func(s *fakeSeat) bool { return s.node == node })
	if i < 0 {
		return false
	}
	g.target[p] = g.members[i]
	return true
}

// Owner is the node whose member the coordinator believes to own partition p; false: none.
func (g *FakeGroup) Owner(p int32) (node int32, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.owner[p] == nil {
		return 0, false
	}
	return g.owner[p].node, true
}

func (g *FakeGroup) join(node int32) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.joins++
	s := &fakeSeat{id: fmt.Sprintf("node-%d-join-%d", node, g.joins), node: node}
	s.expiry = time.AfterFunc(g.options.SessionTimeout, func() { g.remove(s.id) })
	g.members = append(g.members, s)
	g.balance()
	return s.id
}

// decline takes a member's word on what it can't serve.
func (g *FakeGroup) decline(id string, ps map[int32]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.find(id); s != nil {
		s.declines = ps
		g.balance()
	}
}

func (g *FakeGroup) find(id string) *fakeSeat {
	if i := slices.IndexFunc(g.members, func(s *fakeSeat) bool { return s.id == id }); i >= 0 {
		return g.members[i]
	}
	return nil
}

// remove takes a member out: it left, or its session is over. Its partitions are free at once.
func (g *FakeGroup) remove(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.find(id)
	if s == nil {
		return
	}
	s.expiry.Stop()
	g.members = slices.DeleteFunc(g.members, func(o *fakeSeat) bool { return o == s })
	for p := range g.owner {
		if g.owner[p] == s {
			g.owner[p] = nil
		}
		if g.target[p] == s {
			g.target[p] = nil
		}
	}
	g.balance()
}

// balance places the targets anew, as the real group's leader does. g.mu is held.
func (g *FakeGroup) balance() {
	if len(g.members) == 0 {
		return
	}
	seats := make([]seat, len(g.members))
	for i, m := range g.members {
		seats[i].declines = map[int32]bool{}
		for p := range m.declines {
			seats[i].declines[p] = true
		}
		for p, s := range g.target {
			if s == m {
				seats[i].owns = append(seats[i].owns, int32(p))
			}
		}
	}
	for i, ps := range place(int32(len(g.target)), seats) {
		for _, p := range ps {
			g.target[p] = g.members[i]
		}
	}
}

// heartbeat takes a member's word on what it holds and answers what it should: what it has and keeps, and
// what is free for it. known is false for a member that was removed.
func (g *FakeGroup) heartbeat(id string, holds []int32) (assignment []int32, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.find(id)
	if s == nil {
		return nil, false
	}
	s.expiry.Reset(g.options.SessionTimeout)
	for p := range g.owner {
		p := int32(p)
		if g.owner[p] == s && g.target[p] != s && !slices.Contains(holds, p) {
			g.owner[p] = nil
		}
		if g.target[p] == s && g.owner[p] == nil {
			g.owner[p] = s
		}
		if g.owner[p] == s && g.target[p] == s {
			assignment = append(assignment, p)
		}
	}
	return assignment, true
}

// FakeMember is a Membership in a FakeGroup.
type FakeMember struct {
	g     *FakeGroup
	node  int32
	lease *Lease
	delay func() time.Duration

	mu       sync.Mutex
	listener MembershipListener
	id       string // "": not in the group
	told     map[int32]bool
	cut      bool
	deposed  bool
	leaving  bool
	declines map[int32]string
	declined bool // it changed since the group was told
	said     map[int32]string
}

var _ Membership = (*FakeMember)(nil)

// Member makes a member that joins when it is run. delay is how long a request or an answer is under way, each time
// anew; none where nil.
func (g *FakeGroup) Member(node int32, delay func() time.Duration) *FakeMember {
	if delay == nil {
		delay = func() time.Duration { return 0 }
	}
	return &FakeMember{
		g: g, node: node, delay: delay, told: map[int32]bool{},
		lease: newLease(g, g.options.SessionTimeout, 3*g.options.SessionTimeout, g.options.LeaseMargin),
	}
}

// SetClock makes the member's lease count by another clock than the group's own. Call it before Run.
func (m *FakeMember) SetClock(c Clock) { m.lease.clock = c }

// Cut takes the network between the member and the coordinator away, or gives it back.
func (m *FakeMember) Cut(cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = cut
}

func (m *FakeMember) isCut() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cut
}

// Depose puts a coordinator between the member and the group that was replaced and does not know it (a broker that is cut off from the
// others, but not from this client): it confirms every heartbeat, and the group, which hears nothing, gives the partitions to others. No rule
// of Kafka's forbids it for as long as such a broker takes to notice, so a lease can be confirmed that is worth nothing.
func (m *FakeMember) Depose(deposed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deposed = deposed
}

// Run implements Membership. When ctx ends the member is silent, as a killed process is; Leave says goodbye.
func (m *FakeMember) Run(ctx context.Context, l MembershipListener) error {
	defer m.lease.end()
	m.mu.Lock()
	m.listener = l
	m.mu.Unlock()
	tick := time.NewTicker(m.g.options.HeartbeatInterval)
	defer tick.Stop()
	for {
		again := m.beat()
		if again {
			continue // something changed: tell at once
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// beat joins if the member is not in the group, sends one heartbeat and takes its answer. The result says that it gave
// something up, which the coordinator waits for.
func (m *FakeMember) beat() (again bool) {
	m.mu.Lock()
	if m.leaving || m.cut {
		m.mu.Unlock()
		return false
	}
	joining := m.id == ""
	m.mu.Unlock()
	if joining {
		time.Sleep(m.delay())
		id := m.g.join(m.node)
		m.mu.Lock()
		m.id = id
		m.lease.begin(id, 0)
		m.mu.Unlock()
	}
	m.mu.Lock()
	id, holds := m.id, sorted(m.told)
	b, ok := m.lease.beat(id, 0)
	m.mu.Unlock()
	if !ok {
		return false
	}
	time.Sleep(m.delay())
	if m.isCut() {
		return false
	}
	m.mu.Lock()
	deposed := m.deposed
	declines, declined := m.declines, m.declined && !deposed
	m.declined = m.declined && deposed
	tell := declined || joining && len(declines) > 0
	if tell {
		m.said = declines
	}
	m.mu.Unlock()
	if tell {
		m.g.decline(id, declines)
	}
	assignment, known := holds, true
	if !deposed {
		assignment, known = m.g.heartbeat(id, holds)
	}
	time.Sleep(m.delay())
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cut || m.leaving || m.id != id {
		return false
	}
	if !known {
		m.lost()
		return true
	}
	return m.take(b, assignment)
}

func (m *FakeMember) take(b beat, assignment []int32) (gaveUp bool) {
	var gone, news []int32
	for _, p := range sorted(m.told) {
		if !slices.Contains(assignment, p) {
			gone = append(gone, p)
			delete(m.told, p)
		}
	}
	if len(gone) > 0 {
		m.lease.letGo(gone)
		m.listener.Revoked(gone)
	}
	m.lease.confirm(b, false)
	for _, p := range assignment {
		if !m.told[p] {
			m.told[p] = true
			news = append(news, p)
		}
	}
	if len(news) > 0 {
		m.lease.hold(news)
		m.listener.Assigned(news)
	}
	return len(gone) > 0
}

// lost: the coordinator has removed the member. m.mu is held.
func (m *FakeMember) lost() {
	m.lease.end()
	m.id = ""
	if gone := sorted(m.told); len(gone) > 0 {
		clear(m.told)
		m.listener.Lost(gone)
	}
}

// Lease implements Membership.
func (m *FakeMember) Lease() *Lease { return m.lease }

// LeaseValid implements Membership.
func (m *FakeMember) LeaseValid() bool { return m.lease.Valid(m.lease.Now()) }

// LeaseDuration implements Membership.
func (m *FakeMember) LeaseDuration() time.Duration { return m.g.options.SessionTimeout }

// Members implements Membership.
func (m *FakeMember) Members(context.Context) ([]GroupMember, error) {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	var out []GroupMember
	for _, s := range m.g.members {
		g := GroupMember{MemberID: s.id, NodeID: s.node}
		for p, o := range m.g.owner {
			if o == s {
				g.Partitions = append(g.Partitions, int32(p))
			}
		}
		out = append(out, g)
	}
	return out, nil
}

// Decline implements Membership. The group hears of it with the member's next heartbeat, urgent or not.
func (m *FakeMember) Decline(ps map[int32]string, _ bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.declines, m.declined = maps.Clone(ps), true
}

// Declined implements Membership.
func (m *FakeMember) Declined() map[int32]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.said)
}

// Leave implements Membership.
func (m *FakeMember) Leave(ctx context.Context) error {
	m.mu.Lock()
	m.leaving = true
	m.lease.stop()
	if gone := sorted(m.told); len(gone) > 0 {
		clear(m.told)
		m.lease.letGo(gone)
		m.listener.Revoked(gone)
	}
	id, cut := m.id, m.cut
	m.mu.Unlock()
	if cut {
		<-ctx.Done()
		return fmt.Errorf("ownership group: leaving: %w", ctx.Err())
	}
	time.Sleep(m.delay())
	m.g.remove(id)
	return nil
}
