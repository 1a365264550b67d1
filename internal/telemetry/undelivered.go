package telemetry

import (
	"log/slog"
	"sync"
	"time"
)

// undeliveredPause is how often the log says that traces do not arrive: the exporter fails every 5 seconds as long as there is no collector, and
// one line a minute tells as much.
const undeliveredPause = time.Minute

// undelivered is OpenTelemetry's error handler. The first failure is logged at once, those after it once a minute, with their number.
type undelivered struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	next   time.Time // nothing is logged before
	silent int       // failures that were not logged since the last line
}

// Handle logs err, unless it was lately that one was logged.
func (u *undelivered) Handle(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.now()
	if now.Before(u.next) {
		u.silent++
		return
	}
	if u.silent > 0 {
		u.log.Warn("traces are not delivered", "err", err, "failures_since_last_line", u.silent+1)
	} else {
		u.log.Warn("traces are not delivered", "err", err)
	}
	u.next, u.silent = now.Add(undeliveredPause), 0
}
