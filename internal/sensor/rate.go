package sensor

import "time"

// Rate is the growth of a counter per second over the last window (org.apache.kafka.common.metrics.stats.Rate).
type Rate struct{ edges *edges[int64] }

// Rate makes the rate of a counter; read returns its value, must not block, and is called from any goroutine.
func (s *Set) Rate(read func() int64) *Rate {
	r := &Rate{newEdges(read)}
	s.add(r.edges)
	return r
}

// PerSecond is the rate now. As in Kafka the time that it is divided by is a window at least: a sensor that has just been made does not tell of
// a storm because of one event.
func (r *Rate) PerSecond() float64 {
	before, at, now := r.edges.since()
	return float64(now-before) / max(time.Since(at), Window).Seconds()
}

// Share is the part of the time that the counter grew by, where it counts nanoseconds.
func (r *Rate) Share() float64 {
	before, at, now := r.edges.since()
	if passed := time.Since(at); passed > 0 {
		return float64(now-before) / float64(passed)
	}
	return 0
}
