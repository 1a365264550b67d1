package cleanup

import (
	"context"
	"time"
)

const (
	// scanTurn is how long a scan of the projection goes on before it rests, and scanRest for how long. A scan is nothing but work for a
	// processor; four shards at once (shardsAtOnce) without a rest would take all of a small machine from those who wait for an answer.
	scanTurn = 500 * time.Microsecond
	scanRest = 2 * time.Millisecond
)

// pacer makes a scan rest now and then. The zero value is ready.
type pacer struct{ since time.Time }

// next is called after each step of the scan; false: ctx ended.
func (p *pacer) next(ctx context.Context) bool {
	now := time.Now()
	if p.since.IsZero() {
		p.since = now
	}
	if now.Sub(p.since) < scanTurn {
		return ctx.Err() == nil
	}
	if !rest(ctx, scanRest) {
		return false
	}
	p.since = time.Now()
	return true
}
