package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// stopMax is what a stop may take in these tests, and stopSlack what a slow machine may add: less than stops took whose steps had bounds of their own.
const (
	stopMax   = 2 * time.Second
	stopSlack = 2 * time.Second
)

// cutNetwork hands out connections that a cluster listens on, until it is cut: from then on nothing comes and nothing goes, and nobody is told.
type cutNetwork struct {
	once sync.Once
	cut  chan struct{}
}

func (n *cutNetwork) listen(network, address string) (net.Listener, error) {
	ln, err := net.Listen(network, address)
	return &cutListener{ln, n}, err
}

type cutListener struct {
	net.Listener
	n *cutNetwork
}

func (l *cutListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &cutConn{c, l.n}, err
}

type cutConn struct {
	net.Conn
	n *cutNetwork
}

// Read returns what came before the cut only.
func (c *cutConn) Read(b []byte) (int, error) {
	read, err := c.Conn.Read(b)
	select {
	case <-c.n.cut:
		if err == nil {
			return c.Read(b)
		}
	default:
	}
	return read, err
}

func (c *cutConn) Write(b []byte) (int, error) {
	select {
	case <-c.n.cut:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

// endsInTime plays a story that ends with a stop until one was in time, three times at most: a machine that stood still says nothing of us, and what waits where it
// should not does so each time.
func endsInTime(t *testing.T, story func() (stop time.Duration)) {
	t.Helper()
	var all []time.Duration
	for range 3 {
		took := story()
		if all = append(all, took); took <= stopMax+stopSlack {
			return
		}
	}
	t.Errorf("the stops took %v, --shutdown-timeout is %v", all, stopMax)
}

// endOf ends a replica, and says what it did where that took too long.
func endOf(t *testing.T, d *dev) time.Duration {
	t.Helper()
	begun := time.Now()
	code := d.stop()
	took := time.Since(begun)
	t.Logf("the stop took %v", took)
	if took > stopMax+stopSlack {
		t.Logf("the stop took %v and ended with %d, --shutdown-timeout is %v:\n%s", took, code, stopMax, d.err)
		return took // and says nothing else: what was not over by then may have failed
	}
	if code != 0 {
		t.Errorf("exit %d:\n%s", code, d.err)
	}
	if !strings.Contains(d.err.String(), "stopping timeout="+stopMax.String()) {
		t.Errorf("nothing is said of the stop:\n%s", d.err)
	}
	return took
}

// A replica stops in time where the cluster is away, whether it refuses connections or says nothing any more.
func TestAStopAfterTheClusterHasGone(t *testing.T) {
	for _, how := range []string{"refuses", "silent"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			endsInTime(t, func() time.Duration {
				n := &cutNetwork{cut: make(chan struct{})}
				c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "in"), kfake.ListenFn(n.listen))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				s := &serving{t, strings.Join(c.ListenAddrs(), ","), t.TempDir()}
				d := s.start("--log-partitions", "4", "--shutdown-timeout", stopMax.String())
				m := newMember(t, d, "orders")
				m.join(4)
				if how == "silent" {
					close(n.cut)
				} else {
					c.Close()
				}
				took := endOf(t, d)
				if !strings.Contains(d.err.String(), "do not restore from it") {
					t.Errorf("nothing is said of what the data directory may lack:\n%s", d.err)
				}
				return took
			})
		})
	}
}

// A replica that reads the log stops in time, and says at /readyz meanwhile what it does.
func TestAStopWhileTheLogIsRead(t *testing.T) {
	endsInTime(t, func() time.Duration {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "in"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s := &serving{t, strings.Join(c.ListenAddrs(), ","), t.TempDir()}
		d := s.start("--log-partitions", "4")
		m := newMember(t, d, "orders")
		m.join(4)
		d.stop()

		s.dir = t.TempDir()
		held := make(chan struct{})
		defer close(held)
		c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			c.SleepControl(func() { <-held })
			return nil, nil, false
		})
		admin, err := fixPort("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		d = s.startUnready("--admin-listen", admin, "--shutdown-timeout", stopMax.String())
		for begun := time.Now(); ; {
			resp, err := http.Get("http://" + admin + "/readyz")
			if err == nil {
				resp.Body.Close()
				if code, body := get(t, admin, "/readyz"); code == http.StatusServiceUnavailable && strings.Contains(body, "record log: reading, ") && strings.Contains(body, "because: no store (4)") {
					break
				}
			}
			if time.Since(begun) > 30*time.Second {
				t.Fatalf("the log is not being read:\n%s", d.err)
			}
			time.Sleep(20 * time.Millisecond) // nothing tells when it has begun
		}
		return endOf(t, d)
	})
}

// startUnready starts a replica and does not wait until it is ready.
func (s *serving) startUnready(args ...string) *dev {
	d := &dev{out: &text{}, err: &text{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, append([]string{"serve", "--bootstrap-servers", s.upstream, "--listen", "127.0.0.1:0", "--data-dir", s.dir, "--log-format", "text"}, args...), d.out, d.err)
	}()
	d.stop = sync.OnceValue(func() int { cancel(); return <-ended })
	s.t.Cleanup(func() { d.stop() })
	return d
}

// A second signal ends a process that stops at once, and the exit code tells which.
func TestASecondSignalEndsAtOnce(t *testing.T) {
	var out text
	cmd := exec.Command(os.Args[0], "dev", "--listen", "127.0.0.1:0", "--admin-listen", "", "--data-dir", t.TempDir(), "--log-partitions", "2",
		"--shutdown-timeout", "10m", "--shutdown-delay", "5m")
	cmd.Env = append(os.Environ(), "STREAMKEEPER_TEST_PROCESS=1")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended, waited := make(chan int, 1), make(chan struct{})
	go func() {
		defer close(waited)
		_ = cmd.Wait()
		ended <- cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-waited })
	out.wait(t, `bootstrap\.servers +\S+`, ended)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	out.wait(t, "stopping", ended)
	// The stop waits for minutes from here on: what ends it is the second signal alone.
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-waited:
	case <-time.After(30 * time.Second):
		t.Fatalf("it goes on after the second signal:\n%s", &out)
	}
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v, want by the signal", cmd.ProcessState)
	}
}

// A part that does not end when it is told to is named, and is waited for no longer than that; nobody waits for those that have ended.
func TestAPartThatDoesNotEndIsNamed(t *testing.T) {
	over := make(chan struct{})
	close(over)
	parts := []runningPart{{"gateway", over}, {"cleanup", make(chan struct{})}, {"topics", over}, {"sensors", make(chan struct{})}}
	if got := unfinished(parts, time.Millisecond); !slices.Equal(got, []string{"cleanup", "sensors"}) {
		t.Errorf("left: %v", got)
	}
	if got := unfinished([]runningPart{{"gateway", over}, {"topics", over}}, time.Hour); got != nil {
		t.Errorf("left, though all have ended: %v", got)
	}
}
