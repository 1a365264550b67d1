package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Member epochs that mean something else on the wire.
const (
	joining       = 0  // "take me in"
	leaving       = -1 // "I am gone"
	leavingForNow = -2 // a static member: "I may be back"
)

const (
	// requestTimeout is request.timeout.ms of Kafka's consumers: after it a request counts as lost and is sent again.
	requestTimeout = 30 * time.Second

	// heartbeatInterval is used until the coordinator says another.
	heartbeatInterval = 5 * time.Second

	// taskOffsetInterval likewise.
	taskOffsetInterval = time.Minute

	// goodbyeTimeout bounds the attempts to leave: if none succeeds the session time-out does it.
	goodbyeTimeout = 5 * time.Second

	// handlerGrace is how long Revoke and Assign may go on at the member's end before their context ends.
	handlerGrace = 30 * time.Second
)

// phase is where a member is in its life.
type phase int

const (
	entering phase = iota // a join has to be sent, or was
	inGroup
	fenced   // thrown out: its tasks are being lost, then it enters again
	parting  // in the group still, but the last tasks are being given up
	goodbye  // saying so
	expelled // refused for good: its tasks are being lost, then it is over
	over
)

// session is one run of a member. All its fields belong to the goroutine of run; requests and handlers run in others and report through channels.
type session struct {
	m     *Member
	ctx   context.Context // Run's
	phase phase
	err   error // what Run returns

	node         *Node // the coordinator, nil if it is not known
	finding      bool
	findFailures int
	findAt       time.Time

	beating       bool
	beatCancel    context.CancelFunc
	beatFailures  int
	beatAt        time.Time
	urgent        bool // there is something to tell before the interval is over
	interval      time.Duration
	everSent      bool // a join: the coordinator may know us
	endpointEpoch int32
	farewellUntil time.Time

	owned    Tasks  // the tasks that the member has
	told     *Tasks // what the coordinator was told of them; nil: nothing, or it is not certain
	target   *Tasks // what it shall have, if that is news
	next     Tasks  // what the handler at work makes of owned
	handling bool
	lastCall bool // the handler at work gives up the last tasks

	offsetsAt       time.Time
	offsetsInterval time.Duration
	statuses        []Status
	missingSince    time.Time

	push    pushing
	trouble trouble

	work, handlerCtx      context.Context
	stopWork, stopHandler context.CancelFunc
	requests              sync.WaitGroup
	founds                chan lookedUp
	beats                 chan beaten
	pushes                chan pushed
	handled               chan error
}

func newSession(ctx context.Context, m *Member) *session {
	s := &session{
		m: m, ctx: ctx, interval: heartbeatInterval, offsetsInterval: taskOffsetInterval, endpointEpoch: -1,
		// Room for one each: there is never more than one of a kind under way, so none waits for a reader that has gone.
		founds: make(chan lookedUp, 1), beats: make(chan beaten, 1), pushes: make(chan pushed, 1), handled: make(chan error, 1),
	}
	base := context.WithoutCancel(ctx) // giving up tasks and leaving come after ctx has ended
	s.work, s.stopWork = context.WithCancel(base)
	s.handlerCtx, s.stopHandler = context.WithCancel(base)
	return s
}

// goRequest runs something that ends soon after stopWork.
func (s *session) goRequest(f func(context.Context)) {
	s.requests.Go(func() { f(s.work) })
}

func (s *session) run() error {
	defer func() {
		s.stopWork()
		s.stopHandler()
		s.requests.Wait()
		s.m.setEpoch(joining)
		s.m.setTasks(Tasks{})
	}()
	done := s.ctx.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		s.advance(now)
		if s.phase == over {
			return s.err
		}
		var tick <-chan time.Time
		if at, ok := s.due(); ok {
			timer.Reset(at.Sub(now))
			tick = timer.C
		}
		select {
		case <-done:
			done = nil
			s.part(nil)
		case f := <-s.founds:
			s.onFound(f, time.Now())
		case b := <-s.beats:
			s.onBeaten(b, time.Now())
		case p := <-s.pushes:
			s.onPushed(p, time.Now())
		case err := <-s.handled:
			s.onHandled(err, time.Now())
		case <-s.m.wake:
			s.hurry(time.Now())
		case <-tick:
		}
	}
}

// part begins the end: err is what Run returns. A member that is on its way out already keeps its first reason.
func (s *session) part(err error) {
	switch s.phase {
	case entering, inGroup:
		s.phase, s.err = parting, err
	case fenced:
		s.phase, s.err = expelled, err // there is nothing to leave any more
	default:
		return
	}
	s.m.log.Info("the member ends", "reason", err)
	stop := time.AfterFunc(handlerGrace, s.stopHandler)
	context.AfterFunc(s.work, func() { stop.Stop() })
}

// expel ends a member that the coordinator does not want.
func (s *session) expel(err error) {
	s.m.log.Error("the member can't go on", "err", err)
	s.phase, s.err = expelled, errors.Join(s.err, err)
}

// advance starts whatever is due, and ends phases that have nothing left to do.
func (s *session) advance(now time.Time) {
	if !s.handling {
		s.advanceTasks(now)
	}
	if s.phase == goodbye && now.After(s.farewellUntil) {
		s.m.log.Warn("the group was not told that the member leaves: the session time-out will do it")
		s.phase = over
	}
	if s.phase == over {
		return
	}
	if s.needsCoordinator() && !s.finding && !now.Before(s.findAt) {
		s.startFind()
	}
	if s.mayBeat() && !now.Before(s.beatAt) {
		s.startBeat(now)
	}
	if s.mayPush() && !now.Before(s.push.notUntil) {
		s.startPush()
	}
}

func (s *session) needsCoordinator() bool {
	return s.node == nil && s.phase != fenced && s.phase != expelled
}

func (s *session) mayBeat() bool {
	return s.node != nil && !s.beating && s.phase != fenced && s.phase != expelled
}

// mayPush is true in every phase in which the member may be in the group: Kafka's client looks at nothing else either.
func (s *session) mayPush() bool {
	return s.node != nil && s.push.wanted && !s.push.under && s.m.description != nil && (s.phase == entering || s.phase == inGroup || s.phase == parting)
}

// due is when advance has something to do next without anything happening before.
func (s *session) due() (time.Time, bool) {
	var at time.Time
	ok := false
	earliest := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	if s.needsCoordinator() && !s.finding {
		earliest(s.findAt)
	}
	if s.mayBeat() {
		earliest(s.beatAt)
	}
	if s.mayPush() {
		earliest(s.push.notUntil)
	}
	if s.phase == goodbye {
		earliest(s.farewellUntil.Add(time.Millisecond))
	}
	return at, ok
}

// hurry makes the next heartbeat go out now, or right after the answer to the one that is under way.
func (s *session) hurry(now time.Time) { s.urgent, s.beatAt = true, now }

// lookedUp is the outcome of a lookup.
type lookedUp struct {
	node Node
	err  error
}

func (s *session) startFind() {
	s.finding = true
	s.goRequest(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		node, err := s.m.net.coordinator(ctx, s.m.cfg.Group)
		s.founds <- lookedUp{node, err}
	})
}

func (s *session) onFound(f lookedUp, now time.Time) {
	s.finding = false
	if f.err == nil {
		s.node = &f.node
		s.m.setCoordinator(&f.node)
		s.m.log.Debug("coordinator found", "node", f.node)
		return
	}
	if hopeless(f.err) {
		s.expel(fmt.Errorf("find the coordinator of group %q: %w", s.m.cfg.Group, f.err))
		return
	}
	s.findFailures++
	s.findAt = now.Add(retryDelay(s.findFailures))
	s.troubled(now, "the coordinator is not found", f.err)
}

// hopeless says that trying again does not help: a refusal that has nothing to do with where the coordinator is, refused
// credentials, a client that was closed.
func hopeless(err error) bool {
	var ke *kerr.Error
	if errors.As(err, &ke) {
		again, _ := moved(err)
		return !again && !ke.Retriable
	}
	return errors.Is(err, kgo.ErrClientClosed)
}

// forgetCoordinator makes the next request look it up. A coordinator that sends us away again and again is asked less and less often.
func (s *session) forgetCoordinator(now time.Time) {
	if s.node == nil {
		return
	}
	s.node = nil
	s.m.setCoordinator(nil)
	if s.findFailures++; s.findFailures > 1 {
		s.findAt = now.Add(retryDelay(s.findFailures - 1))
	}
}

// settled says that the coordinator is where we think it is.
func (s *session) settled() { s.findFailures = 0 }

// remarks turns the statuses of an answer into ours.
func remarks(in []kmsg.StreamsGroupHeartbeatResponseStatus) []Status {
	var out []Status
	for _, s := range in {
		out = append(out, Status{StatusCode(s.StatusCode), s.StatusDetail})
	}
	return out
}
