package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// manager is a socket as systemd opens it.
func manager(t *testing.T) (socket string, conn *net.UnixConn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sd") // t.TempDir may be longer than an address can be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "notify")
	if conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return socket, conn
}

// told is the next report.
func told(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	b := make([]byte, 4096)
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	n, err := conn.Read(b)
	if err != nil {
		t.Fatalf("no report: %v", err)
	}
	return string(b[:n])
}

// environment is a getenv.
func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestWhatTheServiceManagerIsTold(t *testing.T) {
	socket, conn := manager(t)
	s, err := NewSystemd(environment("NOTIFY_SOCKET", socket, "WATCHDOG_USEC", "30000000", "WATCHDOG_PID", "7"), 7, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var hung atomic.Bool
	s.RequireAlive(Check{Name: "shards", Ready: func() error {
		if hung.Load() {
			return errors.New("partitions [3] take no turn")
		}
		return nil
	}})
	s.Status(func() string { return "reading the log,\nREADY=1 is\tno order" })
	want := func(what, report string) {
		t.Helper()
		if got := told(t, conn); got != report {
			t.Errorf("%s: told %q, want %q", what, got, report)
		}
	}
	s.report()
	want("while starting", "EXTEND_TIMEOUT_USEC=30000000\nWATCHDOG=1\nSTATUS=reading the log, READY=1 is no order\n")
	s.report()
	want("while starting, nothing new", "EXTEND_TIMEOUT_USEC=30000000\nWATCHDOG=1\n")
	s.Status(func() string { return "serving 50 of 50 shards" })
	s.Ready()
	want("ready", "READY=1\nSTATUS=serving 50 of 50 shards\n")
	s.report()
	want("serving", "WATCHDOG=1\n")
	hung.Store(true)
	s.report()
	want("hung", "STATUS=hung: shards: partitions [3] take no turn\n")
	s.report() // says nothing, so the watchdog bites
	hung.Store(false)
	s.report()
	want("well again", "WATCHDOG=1\nSTATUS=serving 50 of 50 shards\n")
	s.Status(func() string { return strings.Repeat("é", statusBytesMax) })
	s.Stopping(29 * time.Second)
	want("stopping", "STOPPING=1\nEXTEND_TIMEOUT_USEC=29000000\nSTATUS="+strings.Repeat("é", statusBytesMax/2)+"…\n")
	s.report()
	want("while stopping", "WATCHDOG=1\n")
}

func TestTheWatchdogIsFedTwiceInItsTime(t *testing.T) {
	socket, conn := manager(t)
	s, err := NewSystemd(environment("NOTIFY_SOCKET", socket, "WATCHDOG_USEC", "100000"), 7, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Ready()
	told(t, conn)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	begun := time.Now()
	go func() { defer close(ended); s.Run(ctx) }()
	for range 5 {
		if got := told(t, conn); got != "WATCHDOG=1\n" {
			t.Errorf("told %q", got)
		}
	}
	if took := time.Since(begun); took < 190*time.Millisecond { // four pauses of 50 ms after the first
		t.Errorf("five reports in %v, want one each 50 ms", took)
	}
	cancel()
	<-ended
}

// A manager that does not read must hold nobody up, and one that is gone is said once.
func TestAManagerThatIsGone(t *testing.T) {
	socket, conn := manager(t)
	var log strings.Builder
	s, err := NewSystemd(environment("NOTIFY_SOCKET", socket), 7, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_ = conn.Close()
	s.report()
	s.report()
	if n := strings.Count(log.String(), "can't be told how the process is"); n != 1 {
		t.Errorf("said %d times: %s", n, log.String())
	}
}

func TestWhetherThereIsAManager(t *testing.T) {
	socket, _ := manager(t)
	for _, c := range []struct {
		env      []string
		watchdog time.Duration
		err      string
	}{
		{env: []string{"NOTIFY_SOCKET", socket}},
		{env: []string{"NOTIFY_SOCKET", socket, "WATCHDOG_USEC", "2000000"}, watchdog: 2 * time.Second},
		{env: []string{"NOTIFY_SOCKET", socket, "WATCHDOG_USEC", "2000000", "WATCHDOG_PID", "8"}}, // another process is watched
		{env: []string{"NOTIFY_SOCKET", socket, "WATCHDOG_USEC", "soon"}, err: `WATCHDOG_USEC: "soon" is no number of microseconds`},
		{env: []string{"NOTIFY_SOCKET", socket, "WATCHDOG_USEC", "0"}, err: `WATCHDOG_USEC: "0" is no number of microseconds`},
		{env: []string{"NOTIFY_SOCKET", "vsock:2:3"}, err: `NOTIFY_SOCKET: "vsock:2:3" is neither a path nor an abstract name (@…)`},
		{env: []string{"NOTIFY_SOCKET", socket + "-none"}, err: "NOTIFY_SOCKET: dial unixgram"},
	} {
		s, err := NewSystemd(environment(c.env...), 7, slog.New(slog.DiscardHandler))
		switch {
		case c.err != "":
			if err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%v: %v, want %s", c.env, err, c.err)
			}
		case err != nil:
			t.Errorf("%v: %v", c.env, err)
		default:
			if s.watchdog != c.watchdog {
				t.Errorf("%v: watchdog %v, want %v", c.env, s.watchdog, c.watchdog)
			}
			s.Close()
		}
	}
	// Without a manager everything is allowed and does nothing.
	s, err := NewSystemd(environment(), 7, slog.New(slog.DiscardHandler))
	if s != nil || err != nil {
		t.Fatalf("without a manager: %v %v", s, err)
	}
	s.RequireAlive(Check{})
	s.Status(nil)
	s.Run(t.Context())
	s.Ready()
	s.Stopping(time.Second)
	s.Close()
}
