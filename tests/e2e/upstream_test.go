package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"streamkeeper/internal/kafkatest"
)

// TestUpstreamDownAtStartAndLater: three replicas that start before their cluster wait for it, and make its topics once and as they must be when it is
// there; an application of one of them lives through a stop and a kill of the cluster under load.
func TestUpstreamDownAtStartAndLater(t *testing.T) {
	c := kafkatest.Start(t, kafka39)
	c.Stop(1)

	r := newFleet(t, c, 3)
	for _, node := range r.nodes {
		r.replicas[node].Start()
	}
	k := r.replicas[nodeOne]
	var why error
	kafkatest.Eventually(t, time.Minute, func() error { // until the admin address is there
		if why = k.Ready(); why != nil && strings.Contains(why.Error(), "/readyz answers") {
			return nil
		}
		return why
	})
	t.Logf("without the cluster: %v", why)
	// Long enough for several attempts to connect: the process must neither end nor claim to be ready.
	time.Sleep(3 * time.Second)
	kafkatest.Eventually(t, time.Minute, func() error { // an attempt takes as long as the machine lets it
		if !strings.Contains(k.Output(), c.Bootstrap()) {
			return fmt.Errorf("streamkeeper doesn't say which address it can't reach:\n%s", k.Output())
		}
		return nil
	})
	if err := k.Ready(); !k.Running() || err == nil {
		t.Fatalf("with the cluster down: running %v, ready: %v\n%s", k.Running(), err, k.Output())
	}
	c.Restart(1)
	for _, node := range r.nodes {
		r.replicas[node].WaitReady()
	}
	r.waitSpread(r.nodes...)
	r.madeTopicsOnce()
	for _, node := range r.without(nodeOne) {
		r.replicas[node].Stop()
	}

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

// madeTopicsOnce: of replicas that start at the same moment one makes the topics, with the settings that the log must have.
func (r *fleet) madeTopicsOnce() {
	r.t.Helper()
	for _, created := range []string{"log topic created", "topology description topic created"} {
		by := 0
		for _, node := range r.nodes {
			by += strings.Count(r.replicas[node].Output(), `"`+created+`"`)
		}
		if by != 1 {
			r.t.Errorf("%q is said %d times by three replicas", created, by)
		}
	}
	if ends := kafkatest.EndOffsets(r.t, r.cluster.Bootstrap(), r.topic); fmt.Sprint(len(ends)) != logPartitions {
		r.t.Errorf("the log topic has %d partitions", len(ends))
	}
	configs, err := kafkatest.Admin(r.t, r.cluster.Bootstrap()).DescribeTopicConfigs(r.t.Context(), r.topic)
	if err != nil || configs[0].Err != nil {
		r.t.Fatal(err, configs[0].Err)
	}
	got := map[string]string{}
	for _, c := range configs[0].Configs {
		if c.Value != nil {
			got[c.Key] = *c.Value
		}
	}
	for name, want := range map[string]string{
		"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600", "min.compaction.lag.ms": "3600000", "unclean.leader.election.enable": "false",
	} {
		if got[name] != want {
			r.t.Errorf("the log topic has %s=%s, want %s", name, got[name], want)
		}
	}
}

// TestLogTopicThatIsNotAsItMustBe: what somebody else made under the name of the log topic is not used, and what is wrong with it is said, with the way out.
func TestLogTopicThatIsNotAsItMustBe(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t, kafka44)
	adm := kafkatest.Admin(t, c.Bootstrap())
	for name, tc := range map[string]struct {
		partitions int32
		configs    map[string]string
		says       []string
	}{
		"deleted by age":     {8, map[string]string{"cleanup.policy": "delete"}, []string{`cleanup.policy is "delete", must be "compact"`, "kafka-configs --alter"}},
		"compacted and more": {8, map[string]string{"cleanup.policy": "compact,delete"}, []string{`cleanup.policy is "compact,delete"`}},
		"time of the broker": {8, map[string]string{"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}, []string{"message.timestamp.type is", "CreateTime"}},
		"another count":      {5, map[string]string{"cleanup.policy": "compact"}, []string{"partition count is 5, must be 8", "leave the setting out"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := kafkatest.NewStreamkeeper(t, serveArgs(t, c)...)
			configs := map[string]*string{}
			for name, value := range tc.configs {
				configs[name] = &value
			}
			if resp, err := adm.CreateTopic(t.Context(), tc.partitions, 1, configs, k.LogTopic()); err != nil || resp.Err != nil {
				t.Fatal(err, resp.Err)
			}
			k.Start()
			if code := k.WaitExit(goneIn); code == 0 {
				t.Error("exit code 0")
			}
			for _, words := range append(tc.says, k.LogTopic()) {
				if !strings.Contains(k.Output(), words) {
					t.Errorf("it does not say %q:\n%s", words, k.Output())
				}
			}
			if ends := kafkatest.EndOffsets(t, c.Bootstrap(), k.LogTopic()); ends[0] != 0 {
				t.Errorf("it wrote into the topic: %v", ends)
			}
		})
	}
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
