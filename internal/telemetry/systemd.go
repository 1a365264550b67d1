package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// startGrace is how much longer than now systemd is asked to wait for a start that goes on: three of the longest pauses between two requests.
	startGrace = 30 * time.Second
	// reportEvery is the longest pause between two reports; with a watchdog it is half of the watchdog's time, if that is shorter.
	reportEvery = 10 * time.Second
	// notifyWriteMax keeps a service manager that does not read from holding us up: a report is repeated anyway.
	notifyWriteMax = time.Second
	// statusBytesMax is how much of a status is sent: it is one line of systemctl status.
	statusBytesMax = 500
)

// Systemd reports to the service manager as sd_notify(3) describes: that the start goes on, that it is over, that the process is well, that
// it stops. A nil one reports nothing: the process was not started by a manager that wants to know.
type Systemd struct {
	conn     *net.UnixConn
	watchdog time.Duration // 0: nobody watches
	log      *slog.Logger

	mu       sync.Mutex
	phase    string // what the next report says of the process
	alive    []Check
	status   func() string
	reported string // the last status
	failed   bool   // a report could not be sent, and that was said
}

// The phases of a process, in this order.
const (
	phaseStarting = "starting"
	phaseReady    = "ready"
	phaseStopping = "stopping"
)

// NewSystemd returns what reports to $NOTIFY_SOCKET, nil without one. pid is this process: a watchdog that is meant for another one is not ours.
func NewSystemd(getenv func(string) string, pid int, log *slog.Logger) (*Systemd, error) {
	socket := getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil, nil
	}
	if !strings.HasPrefix(socket, "/") && !strings.HasPrefix(socket, "@") {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %q is neither a path nor an abstract name (@…)", socket)
	}
	s := &Systemd{log: log, phase: phaseStarting}
	if usec := getenv("WATCHDOG_USEC"); usec != "" {
		n, err := strconv.ParseUint(usec, 10, 63)
		if err != nil || n == 0 || n > uint64(time.Duration(1<<63-1)/time.Microsecond) {
			return nil, fmt.Errorf("WATCHDOG_USEC: %q is no number of microseconds", usec)
		}
		if of := getenv("WATCHDOG_PID"); of == "" || of == strconv.Itoa(pid) {
			s.watchdog = time.Duration(n) * time.Microsecond
		}
	}
	var err error
	if s.conn, err = net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"}); err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	return s, nil
}

// RequireAlive adds checks, those of /healthz: while one of them is not content neither a start is prolonged nor the watchdog fed, so that the process is
// ended.
func (s *Systemd) RequireAlive(checks ...Check) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive = append(s.alive, checks...)
}

// Status sets what is shown by systemctl status, one line; it is asked at each report.
func (s *Systemd) Status(status func() string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

// Run reports until ctx ends.
func (s *Systemd) Run(ctx context.Context) {
	if s == nil {
		return
	}
	every := reportEvery
	if s.watchdog > 0 {
		every = min(every, s.watchdog/2) // as sd_watchdog_enabled(3) advises
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		s.report()
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// report sends what has to be repeated.
func (s *Systemd) report() {
	s.mu.Lock()
	defer s.mu.Unlock()
	hung := firstError(s.alive)
	if hung != nil {
		s.send(s.changed("hung: " + hung.Error()))
		return
	}
	var lines []string
	if s.phase == phaseStarting {
		lines = append(lines, extend(startGrace))
	}
	if s.watchdog > 0 {
		lines = append(lines, "WATCHDOG=1")
	}
	s.send(append(lines, s.changed(s.said())...))
}

// said is the status as the process tells it. It is called with mu held.
func (s *Systemd) said() string {
	if s.status == nil {
		return s.phase
	}
	return s.status()
}

// changed is the line with the status, where it is another one than before. It is called with mu held.
func (s *Systemd) changed(status string) []string {
	status = strings.Join(strings.Fields(status), " ") // a line break would begin another assignment
	if len(status) > statusBytesMax {
		status = strings.ToValidUTF8(status[:statusBytesMax], "") + "…"
	}
	if status == s.reported {
		return nil
	}
	s.reported = status
	return []string{"STATUS=" + status}
}

// Ready tells that the start is over.
func (s *Systemd) Ready() { s.enter(phaseReady, "READY=1") }

// Stopping tells that the process stops, and how long that takes at most.
func (s *Systemd) Stopping(most time.Duration) { s.enter(phaseStopping, "STOPPING=1", extend(most)) }

func (s *Systemd) enter(phase string, lines ...string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = phase
	s.send(append(lines, s.changed(s.said())...))
}

func extend(d time.Duration) string {
	return "EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(d.Microseconds(), 10)
}

// send sends one datagram. It is called with mu held. A report that is lost is no reason to stop serving; it is said once.
func (s *Systemd) send(lines []string) {
	if len(lines) == 0 {
		return
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(notifyWriteMax))
	_, err := s.conn.Write([]byte(strings.Join(lines, "\n") + "\n"))
	if err != nil && !s.failed {
		s.log.Warn("the service manager can't be told how the process is", "err", err)
	}
	s.failed = err != nil
}

// Close ends the connection to the manager.
func (s *Systemd) Close() {
	if s != nil {
		_ = s.conn.Close()
	}
}
