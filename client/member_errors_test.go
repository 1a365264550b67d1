package client

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client/topology"
)

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
