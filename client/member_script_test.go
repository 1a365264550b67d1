package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// script is a network whose other end is the test. Time is virtual, so what comes when is exact, but for the random part of back-offs.
type script struct {
	t      testing.TB
	start  time.Time
	beats  chan *exchange
	pushes chan *exchange
	others chan *exchange // commits and fetches

	mu      sync.Mutex
	lookups []time.Duration // since the start
	find    func(n int) (Node, error)
}

// exchange is a request that waits for its answer.
type exchange struct {
	s    *script
	req  kmsg.Request
	node Node
	at   time.Duration // since the start
	out  chan outcome
}

type outcome struct {
	resp kmsg.Response
	err  error
}

func (s *script) coordinator(context.Context, string) (Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookups = append(s.lookups, time.Since(s.start))
	if s.find != nil {
		return s.find(len(s.lookups))
	}
	return Node{1, "broker", 9092}, nil
}

func (s *script) looked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lookups)
}

func (s *script) request(ctx context.Context, node Node, req kmsg.Request) (kmsg.Response, error) {
	x := &exchange{s, req, node, time.Since(s.start), make(chan outcome, 1)}
	to := s.beats
	switch req.Key() {
	case 93:
		to = s.pushes
	case 8, 9:
		to = s.others
	}
	select {
	case to <- x:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case o := <-x.out:
		return o.resp, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// beat waits for the next heartbeat.
func (s *script) beat() *exchange {
	s.t.Helper()
	select {
	case x := <-s.beats:
		return x
	case <-time.After(time.Hour):
		s.t.Fatal("no heartbeat comes")
		return nil
	}
}

// none says that no heartbeat comes for so long.
func (s *script) none(d time.Duration) {
	s.t.Helper()
	select {
	case x := <-s.beats:
		s.t.Fatalf("a heartbeat after %v: %+v", x.at, x.beat())
	case <-time.After(d):
	}
}

func (s *script) push() *exchange {
	s.t.Helper()
	select {
	case x := <-s.pushes:
		return x
	case <-time.After(time.Hour):
		s.t.Fatal("no push comes")
		return nil
	}
}

func (x *exchange) beat() *kmsg.StreamsGroupHeartbeatRequest {
	return x.req.(heartbeat).StreamsGroupHeartbeatRequest
}

func (x *exchange) fail(err error) { x.out <- outcome{err: err} }

// ok answers a heartbeat with an epoch, as edit changes it.
func (x *exchange) ok(epoch int32, edit ...func(*kmsg.StreamsGroupHeartbeatResponse)) {
	r := kmsg.NewPtrStreamsGroupHeartbeatResponse()
	r.MemberID, r.MemberEpoch, r.HeartbeatIntervalMillis, r.TaskOffsetIntervalMillis = x.beat().MemberID, epoch, 5000, 60000
	for _, e := range edit {
		e(r)
	}
	x.out <- outcome{resp: r}
}

func (x *exchange) refuse(e *kerr.Error, message string) {
	var resp kmsg.Response
	switch x.req.Key() {
	case 93:
		r := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateResponse()
		r.ErrorCode = e.Code
		r.ErrorMessage = text(message)
		resp = r
	default:
		r := kmsg.NewPtrStreamsGroupHeartbeatResponse()
		r.ErrorCode = e.Code
		r.ErrorMessage = text(message)
		resp = r
	}
	x.out <- outcome{resp: resp}
}

// pushed answers a push.
func (x *exchange) pushed(throttle time.Duration) {
	r := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateResponse()
	r.ThrottleMillis = int32(throttle.Milliseconds())
	x.out <- outcome{resp: r}
}

// assigned gives a member active tasks of subtopology 0.
func assigned(partitions ...int32) func(*kmsg.StreamsGroupHeartbeatResponse) {
	return func(r *kmsg.StreamsGroupHeartbeatResponse) {
		r.ActiveTasks, r.StandbyTasks, r.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
		if len(partitions) > 0 {
			r.ActiveTasks = []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: partitions}}
		}
	}
}

func asksForTopology(r *kmsg.StreamsGroupHeartbeatResponse) { r.TopologyDescriptionRequired = true }

func remarked(statuses ...kmsg.StreamsGroupHeartbeatResponseStatus) func(*kmsg.StreamsGroupHeartbeatResponse) {
	return func(r *kmsg.StreamsGroupHeartbeatResponse) { r.Status = statuses }
}

func tasks(partitions ...int32) Tasks {
	var t Tasks
	for _, p := range partitions {
		t.Active = append(t.Active, TaskID{"0", p})
	}
	return t
}

// life is a member that runs against a script.
type life struct {
	*script
	m      *Member
	cancel context.CancelFunc
	done   chan error
	events chan string // what the handlers were told; they hold up nothing unless a test makes them
}

// living runs a member in a bubble of virtual time.
func living(t *testing.T, edit func(*MemberConfig), f func(l *life)) {
	t.Helper()
	livingAt(t, nil, edit, f)
}

// livingAt is living with the answers to lookups, counted from 1.
func livingAt(t *testing.T, find func(n int) (Node, error), edit func(*MemberConfig), f func(l *life)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &life{
			script: &script{t: t, start: time.Now(), beats: make(chan *exchange), pushes: make(chan *exchange), others: make(chan *exchange), find: find},
			done:   make(chan error, 1), events: make(chan string, 1000),
		}
		cfg := MemberConfig{Group: "g", Subtopologies: []Subtopology{{ID: "0", SourceTopics: []string{"in"}}}, ProcessID: "process"}
		cfg.Revoke = func(_ context.Context, t Tasks) error { l.events <- "revoke " + t.String(); return nil }
		cfg.Assign = func(_ context.Context, t Tasks) error { l.events <- "assign " + t.String(); return nil }
		cfg.Lose = func(t Tasks) { l.events <- "lose " + t.String() }
		if edit != nil {
			edit(&cfg)
		}
		m, err := newMember(l.script, cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		l.m, l.cancel = m, cancel
		go func() { l.done <- m.Run(ctx) }()
		defer func() { // whatever the test left open
			cancel()
			for range 500 {
				select {
				case x := <-l.beats:
					x.fail(errors.New("the test is over"))
				case x := <-l.pushes:
					x.fail(errors.New("the test is over"))
				case <-l.done:
					return
				}
			}
			panic(fmt.Sprintf("the member does not end; the test has failed: %v", t.Failed()))
		}()
		f(l)
	})
}

// says checks what the handlers were told, in order.
func (l *life) says(want ...string) {
	l.t.Helper()
	synctest.Wait()
	var got []string
	for len(l.events) > 0 {
		got = append(got, <-l.events)
	}
	if !slices.Equal(got, want) {
		l.t.Fatalf("the handlers were told %q, want %q", got, want)
	}
}

// entered goes through the join: epoch 1, tasks, and the heartbeat that acknowledges them.
func (l *life) entered(partitions ...int32) {
	l.t.Helper()
	if x := l.beat(); x.beat().MemberEpoch != 0 {
		l.t.Fatalf("%+v is no join", x.beat())
	} else {
		x.ok(1, assigned(partitions...))
	}
	x := l.beat()
	if got := x.beat().ActiveTasks; !reflect.DeepEqual(got, tasksToWire(tasks(partitions...).Active)) {
		l.t.Fatalf("acknowledged %+v", got)
	}
	x.ok(1)
	if len(partitions) > 0 {
		l.says("assign " + tasks(partitions...).String())
	}
}

// ended waits for the end of Run.
func (l *life) ended() error {
	l.t.Helper()
	select {
	case err := <-l.done:
		l.done <- err
		return err
	case <-time.After(time.Hour):
		l.t.Fatal("it does not end")
		return nil
	}
}

func within(t testing.TB, what string, got, min, max time.Duration) {
	t.Helper()
	if got < min || got > max {
		t.Fatalf("%s after %v, want %v to %v", what, got, min, max)
	}
}
