package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A stop is told at /readyz while clients are still served; /healthz stays content, so that nobody ends the process early.
func TestAStopIsToldBeforeItBegins(t *testing.T) {
	t.Parallel() // it waits for the delay, which is longer than a slow machine needs for what is asked within it
	d := startDev(t, t.TempDir(), "--shutdown-delay", "15s", "--shutdown-timeout", "1m")
	produce(t, d, 1)
	m := newMember(t, d, "orders")
	m.join(4)
	if code, body := get(t, d.admin, "/readyz"); code != http.StatusOK || !strings.Contains(body, "process: ok\n") {
		t.Fatalf("/readyz of a replica that serves: %d %s", code, body)
	}
	stopped := make(chan int, 1)
	go func() { stopped <- d.stop() }()
	for begun := time.Now(); ; {
		code, body := get(t, d.admin, "/readyz")
		if code == http.StatusServiceUnavailable && strings.Contains(body, "process: stopping, 4 shards are still served here\n") {
			break
		}
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("/readyz: %d %s", code, body)
		}
		time.Sleep(10 * time.Millisecond) // the signal is on its way; nothing tells when it has come
	}
	if code, body := get(t, d.admin, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz of a replica that stops: %d %s", code, body)
	}
	m.beat(func(*kmsg.StreamsGroupHeartbeatRequest) {}) // served on
	if code := <-stopped; code != 0 {
		t.Errorf("exit %d", code)
	}
}

// A replica that waits for its cluster is not ready and not hung, and ends when it is told to.
func TestAStopWhileTheClusterIsAway(t *testing.T) {
	var out text
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"serve", "--bootstrap-servers", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data-dir", t.TempDir(), "--log-format", "text"}, &out, &out)
	}()
	out.wait(t, "the cluster does not answer, trying again", ended)
	begun := time.Now()
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit %d:\n%s", code, &out)
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("the stop took %v, longer than --shutdown-timeout", took)
	}
}

// get asks the admin address of a replica.
func get(t *testing.T, admin, path string) (code int, body string) {
	t.Helper()
	resp, err := http.Get("http://" + admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
