package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

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
