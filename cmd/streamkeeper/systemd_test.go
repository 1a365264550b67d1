package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A replica tells its service manager when it serves, that it is well, and that it stops; in this order.
func TestAReplicaUnderAServiceManager(t *testing.T) {
	dir, err := os.MkdirTemp("", "sd") // t.TempDir may be longer than a socket's address can be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "1000000")
	reports := make(chan string, 1000)
	go func() {
		defer close(reports)
		b := make([]byte, 4096)
		for {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			reports <- string(b[:n])
		}
	}()
	var all strings.Builder
	until := func(what string) {
		t.Helper()
		late := time.After(time.Minute)
		for {
			select {
			case r := <-reports:
				all.WriteString(r)
				if strings.Contains(r, what) {
					return
				}
			case <-late:
				t.Fatalf("it was not told %q, only:\n%s", what, all.String())
			}
		}
	}
	d := startDev(t, t.TempDir())
	until("READY=1\n")
	if told := all.String(); !strings.HasPrefix(told, "EXTEND_TIMEOUT_USEC=30000000\nWATCHDOG=1\nSTATUS=starting\n") || !strings.Contains(told, "STATUS=serving 4 of 4 shards\n") {
		t.Errorf("up to the start's end it was told:\n%s", told)
	}
	until("WATCHDOG=1\n")
	if code := d.stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
	_ = conn.Close()
	for r := range reports {
		all.WriteString(r)
	}
	if told := all.String(); !strings.Contains(told, "\nSTOPPING=1\nEXTEND_TIMEOUT_USEC=25000000\nSTATUS=process: stopping, 4 shards are still served here\n") {
		t.Errorf("at its end it was told:\n%s", told)
	}
}
