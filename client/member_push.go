package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// pushing is the state of the topology description push. The coordinator asks for the description in a heartbeat's answer; the wish
// stands until a push has an outcome, or the member is thrown out.
type pushing struct {
	wanted   bool
	under    bool      // way: a push has been sent
	failures int       // in a row
	notUntil time.Time // back-off, or what the coordinator wishes for (throttling)
}

// verdict is what an outcome of a push means.
type verdict struct {
	again     bool // the wish stands: after a back-off the same is pushed again
	elsewhere bool // at a coordinator that has to be looked up
	level     slog.Level
}

// judgePush is Kafka's table (StreamsGroupTopologyDescriptionRequestManager). After anything that is not listed here, a permanent
// refusal by the plugin included, only a new wish makes the member push again: the coordinator decides when.
func judgePush(err error) verdict {
	var refused *Error
	switch {
	case err == nil:
		return verdict{level: slog.LevelInfo}
	case errors.Is(err, kerr.NotCoordinator), errors.Is(err, kerr.CoordinatorNotAvailable):
		return verdict{again: true, elsewhere: true, level: slog.LevelInfo}
	case errors.Is(err, kerr.CoordinatorLoadInProgress):
		return verdict{again: true, level: slog.LevelInfo}
	case errors.Is(err, kerr.UnknownMemberID):
		return verdict{level: slog.LevelInfo} // a heartbeat will hear the same, and rejoin
	case errors.As(err, &refused):
		return verdict{level: slog.LevelWarn}
	case errors.Is(err, context.DeadlineExceeded): // a plugin that hangs, say
		return verdict{again: true, level: slog.LevelWarn}
	case passing(err): // what lasts of that the heartbeats tell
		return verdict{again: true, elsewhere: true, level: slog.LevelInfo}
	}
	return verdict{level: slog.LevelWarn}
}

// pushed is the outcome of a push.
type pushed struct {
	throttle time.Duration
	err      error
}

// startPush sends the description.
func (s *session) startPush() {
	s.push.under = true
	node := *s.node
	s.goRequest(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		kresp, err := s.m.net.request(ctx, node, s.m.pushOf(requestTimeout))
		out := pushed{err: err}
		if err == nil {
			resp := kresp.(*kmsg.StreamsGroupTopologyDescriptionUpdateResponse)
			out = pushed{time.Duration(resp.ThrottleMillis) * time.Millisecond, refusal(resp.ErrorCode, resp.ErrorMessage)}
		}
		s.pushes <- out
	})
}

func (s *session) onPushed(p pushed, now time.Time) {
	v := judgePush(p.err)
	s.push.under = false
	s.push.notUntil = now.Add(p.throttle)
	if v.again {
		s.push.failures++
		if at := now.Add(retryDelay(s.push.failures)); at.After(s.push.notUntil) {
			s.push.notUntil = at
		}
	} else {
		s.push.failures, s.push.wanted = 0, false
	}
	if v.elsewhere {
		s.forgetCoordinator(now)
	}
	if p.err == nil {
		s.m.log.Log(s.ctx, v.level, "topology description pushed")
	} else {
		s.m.log.Log(s.ctx, v.level, "topology description not pushed", "err", p.err, "again", v.again && s.push.wanted)
	}
	if s.m.cfg.Pushed != nil {
		err := p.err
		if err != nil {
			err = fmt.Errorf("push the topology description of group %q: %w", s.m.cfg.Group, err)
		}
		s.m.cfg.Pushed(err)
	}
}
