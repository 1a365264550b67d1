package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client/topology"
)

// small is a description of a source and a sink, not in the order of the wire.
func small() *topology.Description {
	out := "out"
	return &topology.Description{Subtopologies: []topology.Subtopology{{ID: "0", Nodes: []topology.Node{
		{Name: "source", Type: topology.Source, Topics: []string{"in"}, Successors: []string{"sink"}},
		{Name: "sink", Type: topology.Sink, SinkTopic: &out},
	}}}}
}

// pushes is a member with a description, and what its Pushed was told.
func pushes(t *testing.T, edit func(*MemberConfig), f func(l *life, outcomes chan error)) {
	t.Helper()
	var outcomes chan error
	living(t, func(c *MemberConfig) {
		outcomes = make(chan error, 100)
		c.Description, c.Pushed = small(), func(err error) { outcomes <- err }
		if edit != nil {
			edit(c)
		}
	}, func(l *life) { f(l, outcomes) })
}

// quiet says that no push comes for so long, while heartbeats are answered.
func (l *life) quiet(d time.Duration) {
	l.t.Helper()
	until := time.Now().Add(d)
	for time.Now().Before(until) {
		select {
		case x := <-l.pushes:
			l.t.Fatalf("a push after %v", x.at)
		case x := <-l.beats:
			x.ok(max(x.beat().MemberEpoch, 1))
		case <-time.After(time.Until(until)):
		}
	}
}

func TestThePush(t *testing.T) {
	pushes(t, nil, func(l *life, outcomes chan error) {
		l.beat().ok(1, assigned(0), asksForTopology)
		x := l.push()
		want := kmsg.NewStreamsGroupTopologyDescriptionUpdateRequest()
		want.Group, want.MemberID = "g", l.m.ID()
		out := "out"
		want.TopologyDescription = kmsg.TopologyDescription{Subtopologies: []kmsg.TopologyDescriptionSubtopology{{SubtopologyID: "0", Nodes: []kmsg.TopologyDescriptionNode{
			{Name: "sink", NodeType: 3, SinkTopic: &out}, {Name: "source", NodeType: 1, SourceTopics: []string{"in"}, Successors: []string{"sink"}},
		}}}}
		if p := x.req.(push); !reflect.DeepEqual(*p.StreamsGroupTopologyDescriptionUpdateRequest, want) || p.Timeout() != 30000 || x.at != 0 || x.node.ID != 1 {
			t.Errorf("push to %v after %v\n%+v\nwant\n%+v", x.node, x.at, p.StreamsGroupTopologyDescriptionUpdateRequest, want)
		}
		x.pushed(0)
		l.quiet(time.Hour)
		if err := <-outcomes; err != nil {
			t.Error(err)
		}
		// Asked again it pushes again.
		l.beat().ok(1, asksForTopology)
		l.push().pushed(0)
		l.quiet(time.Hour)
	})
}

func TestNobodyPushesUnasked(t *testing.T) {
	pushes(t, nil, func(l *life, _ chan error) { l.quiet(time.Hour) })
	// Opted out, or nothing to say: the question is not answered.
	for _, edit := range []func(*MemberConfig){
		func(c *MemberConfig) { c.DisableTopologyPush = true },
		func(c *MemberConfig) { c.Description = nil },
	} {
		pushes(t, edit, func(l *life, _ chan error) {
			l.beat().ok(1, assigned(), asksForTopology)
			l.quiet(time.Hour)
		})
	}
	// A heartbeat that was refused asks for nothing.
	pushes(t, nil, func(l *life, _ chan error) {
		l.entered()
		x := l.beat()
		r := kmsg.NewPtrStreamsGroupHeartbeatResponse()
		r.ErrorCode, r.TopologyDescriptionRequired = kerr.CoordinatorLoadInProgress.Code, true
		x.out <- outcome{resp: r}
		l.quiet(time.Hour)
	})
}

// Each row of Kafka's table of push outcomes.
func TestPushOutcomes(t *testing.T) {
	refusal := func(e *kerr.Error) error { return &Error{Err: e} }
	type row struct {
		err              error
		again, elsewhere bool
		level            string
	}
	rows := []row{
		{err: nil, level: "INFO"},
		{err: refusal(kerr.NotCoordinator), again: true, elsewhere: true, level: "INFO"},
		{err: refusal(kerr.CoordinatorNotAvailable), again: true, elsewhere: true, level: "INFO"},
		{err: refusal(kerr.CoordinatorLoadInProgress), again: true, level: "INFO"},
		{err: refusal(kerr.UnknownMemberID), level: "INFO"},
		{err: context.DeadlineExceeded, again: true, level: "WARN"},
		{err: &kgo.ErrFirstReadEOF{}, again: true, elsewhere: true, level: "INFO"},
		{err: fmt.Errorf("read: %w", errReset), again: true, elsewhere: true, level: "INFO"},
		{err: kgo.ErrClientClosed, level: "WARN"},
		{err: errors.New("something else"), level: "WARN"},
	}
	listed := []int16{16, 15, 14, 25}
	for code := int16(-1); code < 140; code++ { // and every other code there is
		if e := kerr.TypedErrorForCode(code); e != nil && !slices.Contains(listed, code) {
			rows = append(rows, row{err: refusal(e), level: "WARN"})
		}
	}
	if len(rows) < 130 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, r := range rows {
		if v := judgePush(r.err); v.again != r.again || v.elsewhere != r.elsewhere || v.level.String() != r.level {
			t.Errorf("%v: %+v, want %+v", r.err, v, r)
		}
	}
}

func TestPushesThatAreTriedAgain(t *testing.T) {
	pushes(t, nil, func(l *life, outcomes chan error) {
		l.beat().ok(1, assigned(), asksForTopology)
		x := l.push()
		for _, delay := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
			before := time.Since(l.start)
			x.refuse(kerr.CoordinatorLoadInProgress, "")
			for x = nil; x == nil; {
				select {
				case x = <-l.pushes:
				case b := <-l.beats: // that do not ask any more: the wish stands
					b.ok(1)
				}
			}
			within(t, "the next push", x.at-before, delay*time.Millisecond*8/10, min(delay*time.Millisecond*12/10, time.Second))
			if err := <-outcomes; !errors.Is(err, kerr.CoordinatorLoadInProgress) {
				t.Error(err)
			}
		}
		if l.looked() != 1 {
			t.Errorf("%d lookups", l.looked())
		}
		x.pushed(0)
		l.quiet(time.Minute)
		// After a success the back-off begins anew.
		l.beat().ok(1, asksForTopology)
		x = l.push()
		before := time.Since(l.start)
		x.refuse(kerr.CoordinatorLoadInProgress, "")
		within(t, "the next push", l.push().at-before, 80*time.Millisecond, 120*time.Millisecond)
	})
}

func TestAPushGoesWhereTheCoordinatorIs(t *testing.T) {
	var outcomes chan error
	livingAt(t, func(n int) (Node, error) { return Node{int32(n), "broker", 9092}, nil }, func(c *MemberConfig) {
		outcomes = make(chan error, 10)
		c.Description, c.Pushed = small(), func(err error) { outcomes <- err }
	}, func(l *life) {
		l.beat().ok(1, assigned(), asksForTopology)
		l.push().refuse(kerr.NotCoordinator, "")
		if err := <-outcomes; !errors.Is(err, kerr.NotCoordinator) {
			t.Error(err)
		}
		l.beat().ok(1)
		x := l.push()
		if x.node.ID != 2 {
			t.Errorf("pushed to node %v", x.node)
		}
		x.fail(fmt.Errorf("read: %w", errReset)) // a connection that breaks
		synctest.Wait()
		l.beat().ok(1)
		if x = l.push(); x.node.ID != 3 {
			t.Errorf("pushed to node %v", x.node)
		}
		x.pushed(0)
	})
}

func TestRefusalsForGood(t *testing.T) {
	for _, e := range []*kerr.Error{kerr.StreamsTopologyDescriptionUpdateFailed, kerr.InvalidRequest, kerr.UnsupportedVersion, kerr.GroupIDNotFound, kerr.GroupAuthorizationFailed,
		kerr.UnknownMemberID, kerr.UnknownServerError, kerr.RequestTimedOut} {
		pushes(t, nil, func(l *life, outcomes chan error) {
			l.beat().ok(1, assigned(0), asksForTopology)
			l.push().refuse(e, "because")
			l.quiet(time.Hour)
			if err := <-outcomes; !errors.Is(err, e) || err.Error() != `push the topology description of group "g": because` {
				t.Errorf("%v: %v", e, err)
			}
			if !l.m.Tasks().Equal(tasks(0)) { // it never touches the member
				t.Errorf("%v: tasks %v", e, l.m.Tasks())
			}
			l.beat().ok(1, asksForTopology)
			l.push().pushed(0)
		})
	}
}

func TestThrottling(t *testing.T) {
	pushes(t, nil, func(l *life, _ chan error) {
		l.beat().ok(1, assigned(), asksForTopology)
		l.push().pushed(time.Minute)
		l.quiet(10 * time.Second)
		l.beat().ok(1, asksForTopology)
		asked := time.Since(l.start)
		for {
			select {
			case b := <-l.beats:
				b.ok(1)
				continue
			case x := <-l.pushes:
				within(t, "the push", x.at, time.Minute, time.Minute)
				if x.at == asked {
					t.Error("it was not held back")
				}
				return
			}
		}
	})
}

// A wish that can't be fulfilled at once ends with the membership.
func TestAFenceClearsTheWish(t *testing.T) {
	for _, e := range []*kerr.Error{kerr.UnknownMemberID, kerr.FencedMemberEpoch} {
		pushes(t, nil, func(l *life, _ chan error) {
			l.beat().ok(1, assigned(), asksForTopology)
			x := l.push()
			l.beat().ok(1) // the acknowledgement
			l.beat().refuse(e, "")
			x.refuse(kerr.CoordinatorLoadInProgress, "")
			l.quiet(time.Hour)
		})
	}
}

// A coordinator that is long in answering a push holds up nothing; after half a minute the push is sent again.
func TestAPushThatHangs(t *testing.T) {
	pushes(t, nil, func(l *life, outcomes chan error) {
		l.beat().ok(1, assigned(0), asksForTopology)
		sent := l.push().at
		n := 0
		var x *exchange
		for x == nil {
			select {
			case b := <-l.beats:
				n++
				b.ok(1, asksForTopology) // even if it asks again meanwhile
			case x = <-l.pushes:
			}
		}
		within(t, "the next push", x.at-sent, requestTimeout+80*time.Millisecond, requestTimeout+120*time.Millisecond)
		if err := <-outcomes; !errors.Is(err, context.DeadlineExceeded) || n < 6 {
			t.Errorf("%v after %d heartbeats", err, n)
		}
		if l.looked() != 1 {
			t.Errorf("%d lookups", l.looked())
		}
		// A member that ends does not wait for it.
		l.cancel()
		b := l.beat()
		b.ok(-1)
		if err := l.ended(); err != nil {
			t.Error(err)
		}
	})
}

// errReset is a connection that was reset, as the net package has it.
var errReset = os.NewSyscallError("read", errors.New("connection reset by peer"))

func TestCopartitionGroups(t *testing.T) {
	w, err := topologyToWire(0, []Subtopology{{ID: "0", SourceTopics: []string{"c", "a", "b", "a"}, RepartitionSourceTopics: []InternalTopic{{Name: "s"}, {Name: "r"}},
		CopartitionGroups: [][]string{{"c", "r", "a"}, {"s"}}}})
	if err != nil {
		t.Fatal(err)
	}
	want := []kmsg.StreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup{{SourceTopics: []int16{0, 2}, RepartitionSourceTopics: []int16{0}}, {RepartitionSourceTopics: []int16{1}}}
	if got := w.Subtopologies[0]; !reflect.DeepEqual(got.CopartitionGroups, want) || strings.Join(got.SourceTopics, " ") != "a b c" {
		t.Errorf("%+v, want %+v", got, want)
	}
}
