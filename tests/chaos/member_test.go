package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/history"
	"streamkeeper/internal/kafkatest"
	"streamkeeper/internal/wire"
)

const (
	beatEvery = 500 * time.Millisecond
	// answerMax is the members' request time-out. Kafka's clients wait 30 s by default; whoever is led through a replica that hangs is advised
	// to wait less.
	answerMax = 3 * time.Second
	findMax   = 2 * time.Second
	pauseMin  = 50 * time.Millisecond
)

// member is a member of a group with a topology of one subtopology, whose tasks are counters: it commits an ever greater number for each.
// Numbers are drawn from one sequence per group and partition, so that every commit is unlike every other.
type member struct {
	w     *world
	group string
	id    string
	next  *[inPartitions]atomic.Int64

	epoch  int32
	tasks  map[int32]*history.Hold // those it works on
	report bool                    // the coordinator must be told its tasks
	node   int32                   // the coordinator, 0: unknown
	addr   string
	conn   *wire.Client
	turn   int // which replica is asked for the coordinator next

	beaten  atomic.Int64 // when the last acknowledged heartbeat began
	counted atomic.Int64 // when the last acknowledged commit began
	working atomic.Int32 // tasks
	rejoins atomic.Int64
	lastErr atomic.Value
}

var counters = map[string]*[inPartitions]atomic.Int64{}

func (w *world) newMember(group, id string) *member {
	if counters[group] == nil {
		counters[group] = &[inPartitions]atomic.Int64{}
	}
	return &member{w: w, group: group, id: group + "-" + id, next: counters[group], tasks: map[int32]*history.Hold{}, turn: len(w.members)}
}

// run lives until ctx ends.
func (m *member) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := m.beat(ctx)
		if err == nil && len(m.tasks) > 0 {
			err = m.count(ctx)
		}
		if err != nil {
			m.lastErr.Store(err.Error())
		}
		wait := beatEvery
		if m.report || err != nil {
			wait = pauseMin
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait + rand.N(pauseMin)):
		}
	}
	m.forget()
}

// forget ends the connection: the next request looks for the coordinator.
func (m *member) forget() {
	if m.conn != nil {
		m.conn.Close()
	}
	m.conn, m.node = nil, 0
}

// find asks one replica after the other who coordinates the group, and connects.
func (m *member) find(ctx context.Context) error {
	if m.conn != nil {
		return nil
	}
	addresses := m.w.addresses()
	m.turn++
	ctx, cancel := context.WithTimeout(ctx, findMax)
	defer cancel()
	ask, err := wire.Dial(ctx, addresses[m.turn%len(addresses)], m.id)
	if err != nil {
		return err
	}
	defer ask.Close()
	resp, err := ask.Exchange(ctx, kafkatest.FindCoordinators(m.group))
	if err != nil {
		return err
	}
	node, addr, err := kafkatest.CoordinatorIn(resp)
	if err != nil {
		return err
	}
	if node < firstNode {
		// The cluster's own coordinator: no replica knows of the group yet. Whoever gets the first heartbeat says whose it is.
		node = firstNode + int32(m.turn%replicas)
		addr = addresses[node-firstNode]
	}
	conn, err := wire.Dial(ctx, addr, m.id)
	if err != nil {
		return err
	}
	m.conn, m.node, m.addr = conn, node, addr
	return nil
}

// ask sends a request to the coordinator and has it noted.
func (m *member) ask(ctx context.Context, op history.Op, req kmsg.Request, done func(*history.Op, kmsg.Response)) error {
	if err := m.find(ctx); err != nil {
		return fmt.Errorf("find the coordinator: %w", err)
	}
	op.Client, op.Group = m.id, m.group
	noted := m.w.rec.Begin(op)
	// Not ended by ctx: what the run's end cuts off would be one unknown outcome more.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerMax)
	defer cancel()
	resp, err := m.conn.Exchange(ctx, req)
	if err != nil {
		noted.Unknown(err)
		m.forget()
		return err
	}
	err = kafkatest.Refusal(resp)
	if err == nil {
		noted.Done(func(o *history.Op) {
			o.Node = m.node
			if done != nil {
				done(o, resp)
			}
		})
		return nil
	}
	noted.Failed(err)
	if kerr.IsRetriable(err) {
		m.forget()
	}
	return err
}

// request is the member as its requests know it.
func (m *member) request() kafkatest.Member {
	return kafkatest.Member{Group: m.group, ID: m.id, Topic: inTopic, Epoch: m.epoch}
}

// drop stops work on a task.
func (m *member) drop(p int32) {
	m.tasks[p].Drop()
	delete(m.tasks, p)
	m.working.Store(int32(len(m.tasks)))
}

// lose stops work on everything, because the group does not know the member any more.
func (m *member) lose() {
	for p := range m.tasks {
		m.drop(p)
	}
	m.epoch, m.report = 0, false
	m.rejoins.Add(1)
}

// beat is a heartbeat, and what follows from the answer.
func (m *member) beat(ctx context.Context) error {
	req := m.request().Heartbeat()
	if m.report {
		req = m.request().Owning(slices.Collect(maps.Keys(m.tasks))...)
	}
	began := m.w.now()
	var resp *kmsg.StreamsGroupHeartbeatResponse
	err := m.ask(ctx, history.Op{Kind: history.Heartbeat, Member: m.id, Sent: m.epoch}, req,
		func(o *history.Op, r kmsg.Response) {
			resp = r.(*kmsg.StreamsGroupHeartbeatResponse)
			o.Epoch = resp.MemberEpoch
		})
	if err != nil {
		// Whatever happened, the coordinator is told everything again: it may be another one.
		m.report = m.epoch > 0
		if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.FencedMemberEpoch) || errors.Is(err, kerr.GroupIDNotFound) {
			m.lose()
		}
		return err
	}
	m.beaten.Store(int64(began))
	m.epoch, m.report = resp.MemberEpoch, false
	if resp.ActiveTasks == nil {
		return nil
	}
	wanted := map[int32]bool{}
	for _, t := range resp.ActiveTasks {
		for _, p := range t.Partitions {
			wanted[p] = true
		}
	}
	for p := range m.tasks {
		if !wanted[p] {
			m.drop(p)
			m.report = true
		}
	}
	for p := range wanted {
		if m.tasks[p] == nil {
			m.tasks[p] = m.w.rec.Take(m.group, fmt.Sprintf("0_%d", p), m.id)
			m.working.Store(int32(len(m.tasks)))
			m.report = true
			if err := m.look(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// look fetches what is committed for a task, as a new owner does.
func (m *member) look(ctx context.Context, p int32) error {
	return m.ask(ctx, history.Op{Kind: history.Fetch, Topic: inTopic, Partition: p}, m.request().Fetch(p),
		func(o *history.Op, r kmsg.Response) { o.Offset = kafkatest.CommittedIn(r, inTopic, p) })
}

// count commits the next number of one task.
func (m *member) count(ctx context.Context) error {
	for p := range m.tasks {
		began := m.w.now()
		if err := m.commit(ctx, p, m.next[p].Add(1)); err != nil {
			if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.GroupIDNotFound) {
				m.lose()
			}
			return err
		}
		m.counted.Store(int64(began))
		if rand.N(4) == 0 {
			return m.look(ctx, p)
		}
		return nil
	}
	return nil
}

func (m *member) commit(ctx context.Context, p int32, offset int64) error {
	return m.ask(ctx, history.Op{Kind: history.Commit, Topic: inTopic, Partition: p, Offset: offset, Member: m.id, Sent: m.epoch}, m.request().Commit(p, offset), nil)
}
