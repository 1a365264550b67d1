package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client/topology"
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

func TestJoinBeatLeave(t *testing.T) {
	living(t, func(c *MemberConfig) {
		c.RackID, c.Tags, c.Endpoint, c.RebalanceTimeout = "r", map[string]string{"b": "2", "a": "1"}, &Endpoint{"h", 7}, time.Minute
	}, func(l *life) {
		x := l.beat()
		want := kmsg.NewStreamsGroupHeartbeatRequest()
		want.Group, want.MemberID, want.EndpointInformationEpoch, want.RebalanceTimeoutMillis = "g", l.m.ID(), -1, 60000
		want.RackID, want.ProcessID = kmsg.StringPtr("r"), kmsg.StringPtr("process")
		want.UserEndpoint = &kmsg.StreamsGroupHeartbeatRequestUserEndpoint{Host: "h", Port: 7}
		want.ClientTags = []kmsg.StreamsGroupHeartbeatRequestClientTag{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}
		want.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{{SubtopologyID: "0", SourceTopics: []string{"in"}}}}
		want.ActiveTasks, want.StandbyTasks, want.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
		want.TaskOffsets, want.TaskEndOffsets = []kmsg.TaskOffset{}, []kmsg.TaskOffset{}
		if !reflect.DeepEqual(*x.beat(), want) {
			t.Fatalf("join\n%+v\nwant\n%+v", *x.beat(), want)
		}
		if l.m.Epoch() != 0 || !l.m.Tasks().Empty() {
			t.Errorf("epoch %d, tasks %v before the join", l.m.Epoch(), l.m.Tasks())
		}
		x.ok(1, assigned(), func(r *kmsg.StreamsGroupHeartbeatResponse) { r.EndpointInformationEpoch = 4 })

		// The empty assignment is acknowledged at once, then only what has changed is said.
		plain := func(epoch int32) kmsg.StreamsGroupHeartbeatRequest {
			r := kmsg.NewStreamsGroupHeartbeatRequest()
			r.Group, r.MemberID, r.MemberEpoch, r.EndpointInformationEpoch = "g", l.m.ID(), epoch, 4
			return r
		}
		answer := func(r *kmsg.StreamsGroupHeartbeatResponse) { r.EndpointInformationEpoch = 4 }
		x = l.beat()
		want = plain(1)
		want.ActiveTasks, want.StandbyTasks, want.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
		if !reflect.DeepEqual(*x.beat(), want) || x.at != 0 {
			t.Fatalf("acknowledgement after %v\n%+v\nwant\n%+v", x.at, *x.beat(), want)
		}
		x.ok(1, answer)
		x = l.beat()
		if want = plain(1); !reflect.DeepEqual(*x.beat(), want) || x.at != 5*time.Second {
			t.Fatalf("heartbeat after %v\n%+v\nwant\n%+v", x.at, *x.beat(), want)
		}
		x.ok(3, answer, assigned(1, 0), func(r *kmsg.StreamsGroupHeartbeatResponse) {
			r.StandbyTasks = []kmsg.TaskIDs{{SubtopologyID: "1", Partitions: []int32{2}}}
			r.HeartbeatIntervalMillis = 7000
		})
		x = l.beat()
		want = plain(3)
		want.ActiveTasks, want.StandbyTasks, want.WarmupTasks = []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{0, 1}}}, []kmsg.TaskIDs{{SubtopologyID: "1", Partitions: []int32{2}}}, []kmsg.TaskIDs{}
		if !reflect.DeepEqual(*x.beat(), want) || x.at != 5*time.Second {
			t.Fatalf("acknowledgement after %v\n%+v\nwant\n%+v", x.at, *x.beat(), want)
		}
		l.says("assign active 0_0 0_1, standby 1_2")
		if l.m.Epoch() != 3 || l.m.Tasks().String() != "active 0_0 0_1, standby 1_2" {
			t.Errorf("epoch %d, tasks %v", l.m.Epoch(), l.m.Tasks())
		}
		x.ok(3, answer, func(r *kmsg.StreamsGroupHeartbeatResponse) { r.HeartbeatIntervalMillis = 0 }) // an older broker did not say
		x = l.beat()
		if x.at != 12*time.Second {
			t.Fatalf("heartbeat after %v", x.at)
		}
		x.ok(3, answer)
		l.cancel()
		x = l.beat()
		if want = plain(-1); !reflect.DeepEqual(*x.beat(), want) || x.at != 12*time.Second {
			t.Fatalf("goodbye after %v\n%+v\nwant\n%+v", x.at, *x.beat(), want)
		}
		l.says("revoke active 0_0 0_1, standby 1_2")
		x.ok(-1)
		if err := l.ended(); err != nil {
			t.Error(err)
		}
		if l.m.Epoch() != 0 || !l.m.Tasks().Empty() {
			t.Errorf("epoch %d, tasks %v after the end", l.m.Epoch(), l.m.Tasks())
		}
		if err := l.m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "has run already") {
			t.Errorf("second run: %v", err)
		}
	})
}

// Tasks are acknowledged when Revoke and Assign have returned; heartbeats go on meanwhile, and so does what the coordinator wants next.
func TestTasksAreGivenUpBeforeOthersGetThem(t *testing.T) {
	release := make(chan error)
	living(t, func(c *MemberConfig) {
		revoke := c.Revoke
		release = make(chan error)
		c.Revoke = func(ctx context.Context, t Tasks) error {
			_ = revoke(ctx, t)
			return <-release
		}
	}, func(l *life) {
		l.entered(0, 1, 2, 3)
		x := l.beat()
		x.ok(1, assigned(0, 1))
		l.says("revoke active 0_2 0_3")
		for range 3 { // while they are given up
			x = l.beat()
			if x.beat().ActiveTasks != nil {
				t.Fatalf("acknowledged %+v before it is so", x.beat().ActiveTasks)
			}
			x.ok(1, assigned(0)) // meanwhile it shall have even less
		}
		if got := l.m.Tasks(); !got.Equal(tasks(0, 1, 2, 3)) {
			t.Errorf("tasks %v", got)
		}
		before := x.at
		release <- nil
		l.says("assign active 0_0 0_1", "revoke active 0_1")
		x = l.beat()
		if got := x.beat().ActiveTasks; !reflect.DeepEqual(got, []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{0, 1}}}) || x.at != before {
			t.Fatalf("acknowledged %+v after %v", got, x.at)
		}
		x.ok(1)
		release <- nil
		x = l.beat()
		if got := x.beat().ActiveTasks; !reflect.DeepEqual(got, []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{0}}}) {
			t.Fatalf("acknowledged %+v", got)
		}
		l.says("assign active 0_0")
		x.ok(2)
		// What it has already needs no handler, and no acknowledgement again.
		x = l.beat()
		x.ok(2, assigned(0))
		if x = l.beat(); x.beat().ActiveTasks != nil {
			t.Fatalf("acknowledged %+v again", x.beat().ActiveTasks)
		}
		x.ok(2)
		l.says()
		go func() { release <- nil }()
	})
}

// A task that changes its role is given up in the old one first.
func TestARoleThatChanges(t *testing.T) {
	living(t, nil, func(l *life) {
		l.entered(0)
		l.beat().ok(2, assigned(), func(r *kmsg.StreamsGroupHeartbeatResponse) {
			r.StandbyTasks = []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{0}}}
		})
		l.says("revoke active 0_0", "assign standby 0_0")
	})
}

// Each row of Kafka's table of heartbeat errors.
func TestHeartbeatErrors(t *testing.T) {
	for _, fatal := range []*kerr.Error{kerr.GroupAuthorizationFailed, kerr.InvalidRequest, kerr.GroupMaxSizeReached, kerr.FencedInstanceID, kerr.UnreleasedInstanceID,
		kerr.StreamsInvalidTopology, kerr.StreamsInvalidTopologyEpoch, kerr.StreamsTopologyFenced, kerr.UnsupportedVersion, kerr.UnknownServerError, kerr.GroupIDNotFound, kerr.RequestTimedOut} {
		living(t, nil, func(l *life) {
			l.entered(0, 1)
			l.beat().refuse(fatal, "why")
			err := l.ended() // without a goodbye
			if !errors.Is(err, fatal) || !strings.HasSuffix(err.Error(), "why") {
				t.Errorf("%v: %v", fatal, err)
			}
			l.says("lose active 0_0 0_1")
			l.none(time.Minute)
			if l.m.Epoch() != 0 || !l.m.Tasks().Empty() {
				t.Errorf("%v: epoch %d, tasks %v", fatal, l.m.Epoch(), l.m.Tasks())
			}
		})
	}
	for _, thrownOut := range []*kerr.Error{kerr.UnknownMemberID, kerr.FencedMemberEpoch} {
		living(t, nil, func(l *life) {
			l.entered(0, 1)
			x := l.beat()
			before := x.at
			x.refuse(thrownOut, "")
			x = l.beat()
			if r := x.beat(); r.MemberEpoch != 0 || r.MemberID != l.m.ID() || r.Topology == nil || len(r.ActiveTasks) != 0 || r.ActiveTasks == nil || x.at != before {
				t.Errorf("%v: after %v %+v", thrownOut, x.at, r)
			}
			l.says("lose active 0_0 0_1")
			x.ok(7, assigned(3))
			if x = l.beat(); x.beat().MemberEpoch != 7 || len(x.beat().ActiveTasks) != 1 {
				t.Errorf("%v: %+v", thrownOut, x.beat())
			}
			l.says("assign active 0_3")
			x.ok(7)
		})
	}
	for _, again := range []*kerr.Error{kerr.CoordinatorLoadInProgress, kerr.TopicAuthorizationFailed} {
		living(t, nil, func(l *life) {
			l.entered(0)
			x := l.beat()
			for _, delay := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
				before := x.at
				x.refuse(again, "")
				x = l.beat()
				within(t, again.Message, x.at-before, delay*time.Millisecond*8/10, min(delay*time.Millisecond*12/10, time.Second))
				if r := x.beat(); r.MemberEpoch != 1 || !reflect.DeepEqual(r.ActiveTasks, []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{0}}}) {
					t.Errorf("%v: %+v", again, r) // with its tasks: the answer to the one before may have been lost
				}
			}
			if l.looked() != 1 {
				t.Errorf("%v: %d lookups", again, l.looked())
			}
			before := x.at
			x.ok(1)
			if x = l.beat(); x.at != before+5*time.Second {
				t.Errorf("%v: next heartbeat after %v", again, x.at-before)
			}
			x.ok(1)
			l.says()
		})
	}
	for _, elsewhere := range []*kerr.Error{kerr.NotCoordinator, kerr.CoordinatorNotAvailable} {
		livingAt(t, func(n int) (Node, error) { return Node{int32(n), "broker", 9092}, nil }, nil, func(l *life) {
			l.entered(0)
			x := l.beat()
			for i, delay := range []time.Duration{0, 100, 200, 400} { // not as fast as the network can, if it goes on
				before := x.at
				x.refuse(elsewhere, "")
				x = l.beat()
				within(t, elsewhere.Message, x.at-before, delay*time.Millisecond*8/10, delay*time.Millisecond*12/10)
				if x.node.ID != int32(i+2) {
					t.Errorf("%v: sent to node %v", elsewhere, x.node)
				}
			}
			x.ok(1)
			l.says()
		})
	}
}

// Without an answer the coordinator is looked up and asked again, until it answers.
func TestHeartbeatsThatAreNotAnswered(t *testing.T) {
	living(t, nil, func(l *life) {
		l.entered(0)
		x := l.beat()
		before := x.at
		x.fail(&kgo.ErrFirstReadEOF{})
		x = l.beat()
		within(t, "the next try", x.at-before, 80*time.Millisecond, 120*time.Millisecond)
		before = x.at // and now nothing at all comes
		x = l.beat()
		within(t, "the next try", x.at-before, requestTimeout+160*time.Millisecond, requestTimeout+240*time.Millisecond)
		if l.looked() != 3 {
			t.Errorf("%d lookups, want 3", l.looked())
		}
		x.ok(1)
		l.says()
	})
	living(t, nil, func(l *life) {
		l.entered(0)
		l.beat().fail(kgo.ErrClientClosed)
		if err := l.ended(); !errors.Is(err, kgo.ErrClientClosed) {
			t.Error(err)
		}
		l.says("lose active 0_0")
	})
}

func TestLookupsThatFail(t *testing.T) {
	livingAt(t, func(n int) (Node, error) {
		if n < 4 {
			return Node{}, []error{&Error{Err: kerr.CoordinatorNotAvailable}, context.DeadlineExceeded, errors.New("no route")}[n-1]
		}
		return Node{3, "broker", 9092}, nil
	}, nil, func(l *life) {
		x := l.beat()
		within(t, "the join", x.at, 560*time.Millisecond, 840*time.Millisecond)
		if x.node.ID != 3 || l.looked() != 4 {
			t.Errorf("at node %v after %d lookups", x.node, l.looked())
		}
		x.ok(1, assigned())
	})
	livingAt(t, func(int) (Node, error) { return Node{}, &Error{Err: kerr.GroupAuthorizationFailed} }, nil, func(l *life) {
		if err := l.ended(); !errors.Is(err, kerr.GroupAuthorizationFailed) || !strings.Contains(err.Error(), `find the coordinator of group "g"`) {
			t.Error(err)
		}
	})
}

func TestWaysToLeave(t *testing.T) {
	for _, c := range []struct {
		instance string
		policy   LeavePolicy
		epoch    int32 // 0: nothing is said
	}{
		{"", LeaveByDefault, -1}, {"", LeaveTheGroup, -1}, {"", RemainInTheGroup, 0},
		{"i", LeaveByDefault, -2}, {"i", LeaveTheGroup, -1}, {"i", RemainInTheGroup, -2},
	} {
		living(t, func(cfg *MemberConfig) { cfg.InstanceID, cfg.OnLeave = c.instance, c.policy }, func(l *life) {
			l.entered(0)
			l.cancel()
			l.says("revoke active 0_0")
			if c.epoch != 0 {
				x := l.beat()
				if r := x.beat(); r.MemberEpoch != c.epoch || (r.InstanceID != nil) != (c.instance != "") {
					t.Errorf("%+v: %+v", c, r)
				}
				x.ok(c.epoch)
			}
			if err := l.ended(); err != nil {
				t.Errorf("%+v: %v", c, err)
			}
		})
	}
}

// A goodbye that is not heard is said again for a while, at a new coordinator if need be.
func TestAGoodbyeThatIsNotHeard(t *testing.T) {
	living(t, nil, func(l *life) {
		l.entered(0)
		l.cancel()
		x := l.beat()
		before := x.at
		x.fail(context.DeadlineExceeded)
		l.beat().refuse(kerr.NotCoordinator, "")
		l.beat().refuse(kerr.CoordinatorLoadInProgress, "")
		l.beat() // and then there is no answer at all
		if err := l.ended(); err != nil {
			t.Error(err)
		}
		within(t, "the end", time.Since(l.start)-before, goodbyeTimeout, goodbyeTimeout+10*time.Millisecond)
		if l.looked() != 3 {
			t.Errorf("%d lookups", l.looked())
		}
	})
	for _, gone := range []*kerr.Error{kerr.UnknownMemberID, kerr.GroupIDNotFound} {
		living(t, nil, func(l *life) {
			l.entered(0)
			l.cancel()
			l.beat().refuse(gone, "")
			if err := l.ended(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A member that ends while a heartbeat is under way does not wait for the answer.
func TestLeavingCutsAHeartbeatOff(t *testing.T) {
	living(t, nil, func(l *life) {
		l.entered(0)
		x := l.beat()
		l.cancel()
		y := l.beat()
		if y.beat().MemberEpoch != -1 || y.at != x.at {
			t.Errorf("after %v: %+v", y.at-x.at, y.beat())
		}
		y.ok(-1)
		if err := l.ended(); err != nil {
			t.Error(err)
		}
	})
	// Also when it was the join: the coordinator may have it.
	living(t, nil, func(l *life) {
		l.beat()
		l.cancel()
		y := l.beat()
		if y.beat().MemberEpoch != -1 {
			t.Errorf("%+v", y.beat())
		}
		y.refuse(kerr.UnknownMemberID, "")
		if err := l.ended(); err != nil {
			t.Error(err)
		}
	})
	// Where nothing was ever sent there is nobody to tell.
	livingAt(t, func(int) (Node, error) { return Node{}, &Error{Err: kerr.CoordinatorNotAvailable} }, nil, func(l *life) {
		time.Sleep(10 * time.Second)
		l.cancel()
		if err := l.ended(); err != nil {
			t.Error(err)
		}
	})
}

// Heartbeats go on while the last tasks are given up; who takes too long is told by the context.
func TestTheLastTasks(t *testing.T) {
	living(t, func(c *MemberConfig) {
		c.Revoke = func(ctx context.Context, _ Tasks) error { <-ctx.Done(); return ctx.Err() }
	}, func(l *life) {
		l.entered(0)
		l.cancel()
		begun := time.Since(l.start)
		n := 0
		for {
			x := l.beat()
			if x.beat().MemberEpoch == -1 {
				within(t, "the goodbye", x.at-begun, handlerGrace, handlerGrace)
				x.ok(-1)
				break
			}
			n++
			x.ok(1)
		}
		if err := l.ended(); !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "give up tasks active 0_0: ") {
			t.Error(err)
		}
		if n < 5 {
			t.Errorf("%d heartbeats meanwhile", n)
		}
	})
	// Thrown out meanwhile: nothing to leave any more.
	release := make(chan error)
	living(t, func(c *MemberConfig) {
		release = make(chan error)
		c.Revoke = func(context.Context, Tasks) error { return <-release }
	}, func(l *life) {
		l.entered(0)
		l.cancel()
		l.beat().refuse(kerr.UnknownMemberID, "")
		release <- nil
		if err := l.ended(); err != nil {
			t.Error(err)
		}
		l.none(time.Minute)
	})
}

func TestHandlersThatFail(t *testing.T) {
	boom := errors.New("boom")
	living(t, func(c *MemberConfig) {
		assign := c.Assign
		c.Assign = func(ctx context.Context, t Tasks) error {
			if t.Equal(tasks(1)) {
				return boom
			}
			return assign(ctx, t)
		}
	}, func(l *life) {
		l.entered(0)
		l.beat().ok(1, assigned(1))
		x := l.beat() // after giving up what it had
		if x.beat().MemberEpoch != -1 {
			t.Errorf("%+v", x.beat())
		}
		l.says("revoke active 0_0", "revoke active 0_0")
		x.ok(-1)
		if err := l.ended(); !errors.Is(err, boom) || err.Error() != "take tasks active 0_1: boom" {
			t.Error(err)
		}
	})
	// A handler that fails because the member is thrown out meanwhile: the tasks are lost, then it is over.
	release := make(chan error)
	living(t, func(c *MemberConfig) {
		release = make(chan error)
		c.Revoke = func(context.Context, Tasks) error { return <-release }
	}, func(l *life) {
		l.entered(0, 1)
		l.beat().ok(1, assigned(1))
		l.beat().refuse(kerr.FencedMemberEpoch, "")
		l.none(time.Minute) // it waits for the handler
		release <- boom
		if err := l.ended(); !errors.Is(err, boom) {
			t.Error(err)
		}
		l.says("lose active 0_0 0_1")
	})
	// And one that succeeds: what it has then is lost, and it enters again.
	living(t, func(c *MemberConfig) {
		release = make(chan error)
		c.Revoke = func(context.Context, Tasks) error { return <-release }
	}, func(l *life) {
		l.entered(0, 1)
		l.beat().ok(1, assigned(1))
		l.beat().refuse(kerr.FencedMemberEpoch, "")
		release <- nil
		x := l.beat()
		if x.beat().MemberEpoch != 0 {
			t.Errorf("%+v", x.beat())
		}
		l.says("assign active 0_1", "lose active 0_1")
		x.ok(5, assigned())
	})
}

func TestStatuses(t *testing.T) {
	status := func(code int8, detail string) kmsg.StreamsGroupHeartbeatResponseStatus {
		return kmsg.StreamsGroupHeartbeatResponseStatus{StatusCode: code, StatusDetail: detail}
	}
	var told []string
	listen := func(c *MemberConfig) {
		told = nil
		c.Status = func(s []Status) { told = append(told, fmt.Sprint(s)) }
	}
	living(t, listen, func(l *life) {
		l.beat().ok(1, assigned(), remarked(status(5, "later"), status(3, "r")))
		l.beat().ok(1, remarked(status(5, "later"), status(3, "r")))
		l.beat().ok(1, remarked(status(6, "tags"), status(9, "new")))
		l.beat().ok(1)
		l.beat().ok(1)
		l.says()
		if want := []string{"[ASSIGNMENT_DELAYED: later MISSING_INTERNAL_TOPICS: r]", "[MISSING_CLIENT_TAGS: tags status 9: new]", "[]"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
	for _, code := range []StatusCode{StatusShutdownApplication, StatusIncorrectlyPartitionedTopics} {
		living(t, listen, func(l *life) {
			l.entered(0)
			l.beat().ok(1, remarked(status(int8(code), "why")))
			l.says("revoke active 0_0")
			l.beat().ok(-1)
			var e *StatusError
			if err := l.ended(); !errors.As(err, &e) || e.Code != code || err.Error() != code.String()+": why" {
				t.Errorf("%v: %v", code, err)
			}
		})
	}
	// Source topics may be on their way: two heartbeat intervals are given.
	living(t, listen, func(l *life) {
		missing := remarked(status(1, "Source topics in are missing."))
		l.beat().ok(1, assigned(), missing)
		l.beat().ok(1, missing)
		l.beat().ok(1, missing)
		l.beat().ok(1) // there they are
		l.beat().ok(1, missing)
		l.beat().ok(1, missing)
		l.beat().ok(1, missing)
		x := l.beat()
		if x.beat().MemberEpoch != -1 || x.at != 25*time.Second {
			t.Errorf("after %v: %+v", x.at, x.beat())
		}
		x.ok(-1)
		var e *StatusError
		if err := l.ended(); !errors.As(err, &e) || e.Code != StatusMissingSourceTopics {
			t.Error(err)
		}
	})
}

func TestShutdownApplication(t *testing.T) {
	living(t, nil, func(l *life) {
		l.entered(0)
		synctest.Wait()
		l.m.ShutdownApplication()
		l.m.ShutdownApplication()
		x := l.beat()
		if !x.beat().ShutdownApplication || x.at != 0 {
			t.Errorf("after %v: %+v", x.at, x.beat())
		}
		x.ok(1, remarked(kmsg.StreamsGroupHeartbeatResponseStatus{StatusCode: 4}))
		x = l.beat()
		if x.beat().MemberEpoch != -1 {
			t.Errorf("%+v", x.beat())
		}
		x.ok(-1)
		var e *StatusError
		if err := l.ended(); !errors.As(err, &e) || e.Code != StatusShutdownApplication {
			t.Error(err)
		}
	})
}

func TestTaskOffsets(t *testing.T) {
	living(t, func(c *MemberConfig) {
		c.TaskOffsets = func(t Tasks) (offsets, ends []TaskOffset) {
			for _, id := range t.Active {
				offsets, ends = append(offsets, TaskOffset{id, 10}), append(ends, TaskOffset{id, 20})
			}
			return offsets, ends
		}
	}, func(l *life) {
		l.entered(0, 1)
		var at []time.Duration
		for range 30 {
			x := l.beat()
			if r := x.beat(); r.TaskOffsets != nil {
				at = append(at, x.at)
				if want := []kmsg.TaskOffset{{SubtopologyID: "0", Partition: 0, Offset: 20}, {SubtopologyID: "0", Partition: 1, Offset: 20}}; !reflect.DeepEqual(r.TaskEndOffsets, want) {
					t.Fatalf("ends %+v", r.TaskEndOffsets)
				}
			}
			x.ok(1)
		}
		if want := []time.Duration{60 * time.Second, 120 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("offsets after %v, want %v", at, want)
		}
	})
}

// What version 0 does not know is left out of it.
func TestAHeartbeatOfVersion0(t *testing.T) {
	r := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	r.Group, r.MemberID, r.ActiveTasks, r.StandbyTasks = "g", "m", []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{0}}}, []kmsg.TaskIDs{}
	r.WarmupTasks = []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{1}}}
	r.TaskOffsets, r.TaskEndOffsets = []kmsg.TaskOffset{{SubtopologyID: "0"}}, []kmsg.TaskOffset{}
	for version := range int16(2) {
		h := heartbeat{r}
		h.SetVersion(version)
		back := kmsg.NewPtrStreamsGroupHeartbeatRequest()
		back.Version = version
		if err := back.ReadFrom(h.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		if version == 0 && (back.TaskOffsets != nil || back.TaskEndOffsets != nil || back.WarmupTasks == nil || len(back.WarmupTasks) > 0 || len(back.ActiveTasks) != 1) ||
			version == 1 && !reflect.DeepEqual(back, r) {
			t.Errorf("version %d: %+v", version, back)
		}
	}
}

func TestBadConfigurations(t *testing.T) {
	for want, edit := range map[string]func(*MemberConfig){
		`member of group " ": the group has no id`:                           func(c *MemberConfig) { c.Group = " " },
		`member of group "g": the application has no subtopologies`:          func(c *MemberConfig) { c.Subtopologies = nil },
		`member of group "g": two subtopologies have the id "0"`:             func(c *MemberConfig) { c.Subtopologies = append(c.Subtopologies, c.Subtopologies[0]) },
		`member of group "g": topology epoch -1 is negative`:                 func(c *MemberConfig) { c.TopologyEpoch = -1 },
		`member of group "g": instance id " " is blank`:                      func(c *MemberConfig) { c.InstanceID = " " },
		`member of group "g": rack id "\t" is blank`:                         func(c *MemberConfig) { c.RackID = "\t" },
		`member of group "g": rebalance time-out -1s is below a millisecond`: func(c *MemberConfig) { c.RebalanceTimeout = -time.Second },
		`member of group "g": unknown leave policy 9`:                        func(c *MemberConfig) { c.OnLeave = 9 },
		`member of group "g": subtopology "0": copartition group ["in" "x"] names "x", which it does not read`: func(c *MemberConfig) {
			c.Subtopologies[0].CopartitionGroups = [][]string{{"in", "x"}}
		},
		`member of group "g": topology description: subtopology "0", node "x": unknown node type 7`: func(c *MemberConfig) {
			c.Description = &topology.Description{Subtopologies: []topology.Subtopology{{ID: "0", Nodes: []topology.Node{{Name: "x", Type: 7}}}}}
		},
	} {
		cfg := MemberConfig{Group: "g", Subtopologies: []Subtopology{{ID: "0", SourceTopics: []string{"in"}}}}
		edit(&cfg)
		if m, err := newMember(nil, cfg); err == nil || err.Error() != want || m != nil {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := NewMember(nil, MemberConfig{}); err == nil {
		t.Error("a member without a client")
	}
	ids := map[string]bool{}
	for range 1000 {
		id := randomMemberID()
		if ids[id] = true; len(id) != 22 || id[0] == '-' {
			t.Fatalf("member id %q", id)
		}
	}
	if len(ids) != 1000 {
		t.Errorf("%d different ids of 1000", len(ids))
	}
}
