package client

import "time"

const (
	// troubleAfter is how long a member goes without an answer before operators are told: longer than a coordinator takes to move, or a client to find one through
	// a gateway that learns of the group by its first join, and well below the 45 s after which the group does without the member.
	troubleAfter = 5 * time.Second
	// troubleEvery is the time between two lines about the same trouble.
	troubleEvery = 10 * time.Second
)

// trouble is a time in which heartbeats fail, or the coordinator is not found. Each failure is of interest for debugging only: any restart
// on the other side makes some. What lasts is told.
type trouble struct {
	since    time.Time // zero: there is none
	told     time.Time
	failures int
	lasts    bool // it is known to be none that passes by itself
}

// troubled notes a failure, after which the member tries again.
func (s *session) troubled(now time.Time, what string, err error) {
	t := &s.trouble
	if t.since.IsZero() {
		t.since = now
	}
	t.failures++
	worth := t.lasts || now.Sub(t.since) >= troubleAfter
	if !worth || !t.told.IsZero() && now.Sub(t.told) < troubleEvery {
		s.m.log.Debug(what+", trying again", "err", err)
		return
	}
	t.told = now
	s.m.log.Warn(what+", trying again", "for", now.Sub(t.since).Round(time.Millisecond), "failures", t.failures, "err", err)
}

// untroubled notes an answer.
func (s *session) untroubled(now time.Time) {
	if !s.trouble.told.IsZero() {
		s.m.log.Info("the coordinator answers again", "after", now.Sub(s.trouble.since).Round(time.Millisecond), "failures", s.trouble.failures)
	}
	s.trouble = trouble{}
}
