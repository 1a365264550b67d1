package e2e

import (
	"net"
	"strings"
	"testing"
	"time"

	"streamkeeper/internal/kafkatest"
)

// TestUpstreamDownAtStartAndLater: streamkeeper waits for its cluster, and an application lives through a stop and a
// kill of the cluster under load.
func TestUpstreamDownAtStartAndLater(t *testing.T) {
	c := kafkatest.Start(t, kafka39)
	c.Stop(1)

	k := kafkatest.NewStreamkeeper(t, serveArgs(t, c)...)
	k.Start()
	var why error
	kafkatest.Eventually(t, 20*time.Second, func() error { // until the admin address is there
		if why = k.Ready(); why != nil && strings.Contains(why.Error(), "/readyz answers") {
			return nil
		}
		return why
	})
	t.Logf("without the cluster: %v", why)
	// Long enough for several attempts to connect: the process must neither end nor claim to be ready.
	time.Sleep(3 * time.Second)
	if err := k.Ready(); !k.Running() || err == nil {
		t.Fatalf("with the cluster down: running %v, ready: %v\n%s", k.Running(), err, k.Output())
	}
	if !strings.Contains(k.Output(), c.Bootstrap()) {
		t.Errorf("streamkeeper doesn't say which address it can't reach:\n%s", k.Output())
	}
	c.Restart(1)
	k.WaitReady()

	const group, in, out = "outage", "outage-in", "outage-out"
	kafkatest.CreateTopics(t, k.Bootstrap(), partitions, in, out)
	load := kafkatest.NewLoad(t, c.Bootstrap(), in)
	sink := kafkatest.Watch(t, c.Bootstrap(), out)
	a := kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: k.Bootstrap(), Group: group})
	a.WaitTasks(partitions)
	s := &scene{t: t, p: keeperPlace(k, c), group: group, in: in, load: load, sink: sink}
	for _, end := range []struct {
		how string
		do  func(int)
	}{{"stopped", c.Stop}, {"killed", c.Kill}} {
		s.step("the cluster is " + end.how + " and comes back")
		s.underLoad(func() {
			n := a.Count()
			a.WaitCount(n + 50)
			end.do(1)
			if !k.Running() {
				t.Fatalf("streamkeeper ended with its cluster:\n%s", k.Output())
			}
			c.Restart(1)
			n = a.Count()
			a.WaitCount(n + 100)
		})
		kafkatest.WaitCommitted(t, k.Bootstrap(), group, in, outcome)
	}
	if u := a.Uncaught(); len(u) > 0 {
		t.Errorf("the application had uncaught exceptions: %q", u)
	}
	a.Stop()
	s.oneOwner()
}

// TestBadSettingsAreRefusedByName: a start that can't succeed ends at once and says what and where.
func TestBadSettingsAreRefusedByName(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, tc := range map[string]struct {
		args []string
		says []string
	}{
		"no cluster":       {[]string{"serve"}, []string{"--bootstrap-servers"}},
		"no port":          {[]string{"serve", "--bootstrap-servers", "localhost"}, []string{"--bootstrap-servers", "localhost"}},
		"unknown setting":  {keeperArgs("dev", "--set", "group.streams.sesion.timeout.ms=1"), []string{"group.streams.sesion.timeout.ms", "group.streams.session.timeout.ms"}},
		"setting's bounds": {[]string{"dev", "--set", "group.streams.session.timeout.ms=6000"}, []string{"group.streams.session.timeout.ms", "group.streams.min.session.timeout.ms"}},
		"port taken":       {keeperArgs("dev", "--admin-listen", taken.Addr().String()), []string{"--admin-listen", taken.Addr().String()}},
	} {
		t.Run(name, func(t *testing.T) {
			k := kafkatest.NewStreamkeeper(t, tc.args...)
			k.Start()
			if exit := k.WaitExit(30 * time.Second); exit == 0 {
				t.Error("exit code 0")
			}
			for _, s := range tc.says {
				if !strings.Contains(k.Output(), s) {
					t.Errorf("%q is not in the message:\n%s", s, k.Output())
				}
			}
			if n := strings.Count(k.Output(), "\n"); n > 15 {
				t.Errorf("%d lines for one mistake:\n%s", n, k.Output())
			}
		})
	}
}
