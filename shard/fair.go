package shard

import "time"

// longTurn is what a turn may take before its group waits for the others: a target for a thousand members takes a few milliseconds,
// and when all of them join at once, heartbeats of other groups would wait for all of those turns.
const longTurn = time.Millisecond

// fairness lets groups with long turns take theirs one at a time, between those of all others. Within a group the order of requests
// stays; between groups it has no meaning.
type fairness struct {
	later []request      // of groups with long turns, in the order of their arrival
	slow  map[string]int // how many of later are the group's; a group is in it from a long turn on until it is 0 again
}

// take serves a request now, or puts it behind those of its group that wait.
func (s *Shard) take(r *request) {
	if n, slow := s.fair.slow[r.group]; slow {
		s.fair.slow[r.group] = n + 1
		s.fair.later = append(s.fair.later, *r)
		return
	}
	s.timed(r)
}

// timed serves a request and looks at how long that took.
func (s *Shard) timed(r *request) {
	begin := s.host.cfg.Now()
	s.serve(r)
	if s.host.cfg.Now().Sub(begin) < longTurn {
		return
	}
	if s.fair.slow == nil {
		s.fair.slow = map[string]int{}
	}
	if _, known := s.fair.slow[r.group]; !known {
		s.fair.slow[r.group] = 0
	}
}

// takeLater serves one of the requests that wait, and forgets groups that have none.
func (s *Shard) takeLater() {
	f := &s.fair
	if len(f.later) > 0 {
		r := f.later[0]
		f.later[0] = request{}
		f.later = f.later[1:]
		f.slow[r.group]--
		s.timed(&r)
	}
	for group, n := range f.slow { // seldom any, never many
		if n == 0 {
			delete(f.slow, group)
		}
	}
}
