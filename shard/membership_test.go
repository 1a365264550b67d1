package shard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/internal/kafkatest"
)

// TestMembershipOnAnEmbeddedLog runs in virtual time: what is expected of sessions and leases must not depend on who else uses the machine.
func TestMembershipOnAnEmbeddedLog(t *testing.T) {
	for _, s := range membershipScenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := new(kfake.VirtualNetwork)
				s.run(t, emptyWorld(t, embeddedLog(t, n)).bubbled(n).begun())
			})
		})
	}
	t.Run("ProcessThatWakesUpHasNoLease", func(t *testing.T) {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.BrokerConfigs(testSettings))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		processThatWakesUpHasNoLease(t, emptyWorld(t, strings.Join(c.ListenAddrs(), ",")).begun())
	})
}

// embeddedLog is a cluster of one broker in memory, on a network in memory.
func embeddedLog(t *testing.T, n *kfake.VirtualNetwork) (seeds string) {
	t.Helper()
	return strings.Join(embeddedCluster(t, n).ListenAddrs(), ",")
}

func embeddedCluster(t *testing.T, n *kfake.VirtualNetwork) *kfake.Cluster {
	t.Helper()
	const port = 9092
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.ListenFn(n.Listen), kfake.BrokerConfigs(testSettings))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestOneHeartbeatIsAnsweredByACoordinatorThatForgotItsMembers: a coordinator that was replaced while it hung answers the one heartbeat that lay in its
// socket: kgo's, which joins again as a new member, or the lease's, of which kgo knows nothing. Either way everything is served again.
func TestOneHeartbeatIsAnsweredByACoordinatorThatForgotItsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(kfake.VirtualNetwork)
		c := embeddedCluster(t, n)
		w := emptyWorld(t, strings.Join(c.ListenAddrs(), ",")).bubbled(n).begun()
		a := w.start("a", 1)
		w.shared(20*time.Second, a)
		for tries, alone := 0, 0; alone < 3; tries++ {
			if tries == 50 {
				t.Fatalf("%d times it was the lease's heartbeat", alone)
			}
			member, _ := a.client.GroupMetadata()
			answered := make(chan struct{})
			c.ControlKey(int16(kmsg.Heartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
				resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
				resp.ErrorCode = kerr.UnknownMemberID.Code
				close(answered)
				return resp, nil, true // once
			})
			<-answered
			w.eventually(5*time.Second, "the lease has ended", func() bool { return a.lostNow() == (tries+1)*testPartitions })
			w.shared(20*time.Second, a)
			if now, _ := a.client.GroupMetadata(); now == member {
				alone++ // kgo has not heard of it
			}
		}
		a.stop()
	})
}

func TestMembershipOnKafka(t *testing.T) {
	seeds := kafkatest.Start(t, kafkatest.Options{Version: "4.4.0", Brokers: 1, Properties: testSettings}).Bootstrap()
	for _, s := range append(slices.Clone(membershipScenarios), membershipScenario{"ProcessThatWakesUpHasNoLease", processThatWakesUpHasNoLease}) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel() // they wait most of the time, each in a group of its own
			s.run(t, emptyWorld(t, seeds).begun())
		})
	}
}

type membershipScenario struct {
	name string
	run  func(*testing.T, *world)
}

var membershipScenarios = []membershipScenario{
	{"ReplicasShareThePartitions", replicasShareThePartitions},
	{"ReplicaThatDisappearsLosesItsLeaseBeforeOthersTakeOver", replicaThatDisappears},
	{"LeaseSurvivesARebalanceThatWaits", leaseSurvivesARebalanceThatWaits},
	{"LeaveIsQuickWhileTheGroupWaits", leaveIsQuickWhileTheGroupWaits},
	{"NodeIDOfALiveReplicaIsRefused", nodeIDOfALiveReplicaIsRefused},
	{"NodeIDThatWasTakenMeanwhileIsGivenUp", nodeIDTakenMeanwhile},
	{"RestartAfterAKillTakesItsNodeIDBack", restartAfterAKill},
	{"RestartAfterAKillAtOnce", restartAfterAKillAtOnce},
	{"WhatAReplicaDeclinesGoesToOthers", declinedGoesToOthers},
	{"AnOlderLeaderLeavesWhatIsDeclined", olderLeader},
	{"SessionTimeoutThatTheClusterRefusesIsExplained", sessionTimeoutIsRefused},
}

func replicasShareThePartitions(t *testing.T, w *world) {
	a := w.start("a", 1)
	t.Logf("the first replica has everything after %v", w.shared(20*time.Second, a))
	b := w.start("b", 2)
	joined := w.shared(20*time.Second, a, b)
	t.Logf("the second has its half after %v", joined)

	members, err := a.Members(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var all []int32
	seen := map[int32]string{}
	for _, m := range members {
		seen[m.NodeID] = m.Address
		all = append(all, m.Partitions...)
	}
	slices.Sort(all)
	if len(members) != 2 || seen[1] != "a:9292" || seen[2] != "b:9292" || len(slices.Compact(all)) != testPartitions {
		t.Errorf("members: %+v", members)
	}

	ctx, cancel := context.WithTimeout(context.Background(), max(5*time.Second, w.patience))
	defer cancel()
	start := time.Now()
	mine := slices.Collect(func(yield func(int32) bool) {
		for p := range int32(testPartitions) {
			if b.Lease().ValidFor(p, b.Lease().Now()) && !yield(p) {
				return
			}
		}
	})
	if len(mine) != testPartitions/2 {
		t.Errorf("the lease of b covers %d partitions", len(mine))
	}
	if err := b.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	left := time.Since(start)
	if b.count() != 0 {
		t.Errorf("b holds %d partitions after it left", b.count())
	}
	until := b.Lease().UntilOf(mine[0])
	if !b.Lease().ValidFor(mine[0], b.Lease().Now()) {
		t.Error("a leaving replica may not serve on")
	}
	w.shared(20*time.Second, a)
	t.Logf("planned move: left in %v, all assigned after %v", left, time.Since(start))
	if got := b.Lease().UntilOf(mine[0]); got != until {
		t.Error("the lease of a replica that left was prolonged")
	}
	b.stop()
	if b.lost != 0 || a.lost != 0 {
		t.Errorf("lost in a planned move: a %d, b %d", a.lost, b.lost)
	}
}

func replicaThatDisappears(t *testing.T, w *world) {
	a, b := w.start("a", 1), w.start("b", 2)
	w.shared(20*time.Second, a, b)
	start := time.Now()
	b.cut()
	// world.Assigned fails the test if b's lease still covers what a is assigned.
	w.eventually(20*time.Second, "a has everything", func() bool { return a.count() == testPartitions })
	t.Logf("taken over %v after the cut, session %v", time.Since(start), w.session)
	if b.LeaseValid() {
		t.Error("b believes in its lease")
	}
	if b.count() > 0 {
		// kgo may still be trying; whatever it believes, the lease is over.
		t.Logf("b still lists %d partitions", b.count())
	}
	b.gone.Store(false)
	w.shared(20*time.Second, a, b)
	if b.lost != testPartitions/2 {
		t.Errorf("b was told that %d partitions are lost, want %d", b.lost, testPartitions/2)
	}
}

func leaseSurvivesARebalanceThatWaits(t *testing.T, w *world) {
	// A member that died just before another joined holds the rebalance up until its session is over; the members that
	// wait in their joins must keep their leases.
	a, b := w.start("a", 1), w.start("b", 2)
	w.shared(20*time.Second, a, b)
	b.cut()
	c := w.start("c", 3)
	lapsed := false
	w.eventually(20*time.Second, "a and c have everything", func() bool {
		lapsed = lapsed || !a.LeaseValid()
		return a.count()+c.count() == testPartitions
	})
	if lapsed {
		t.Error("the lease of a lapsed while the group waited for the dead one")
	}
	if a.lost > 0 {
		t.Errorf("a lost %d partitions", a.lost)
	}
}

func leaveIsQuickWhileTheGroupWaits(t *testing.T, w *world) {
	cfg := w.config(2, "b:9292")
	cfg.SessionTimeout = 4 * w.session // the group will wait for this one
	a, b := w.start("a", 1), w.run(w.make("b", cfg))
	w.shared(20*time.Second, a, b)
	b.cut()
	c := w.start("c", 3)
	w.eventually(10*time.Second, "c is in the group", func() bool {
		ms, err := a.Members(context.Background())
		return err == nil && len(ms) == 3
	})
	time.Sleep(2 * w.heartbeat) // a has heard of the rebalance and waits in its join
	ctx, cancel := context.WithTimeout(context.Background(), 2*w.leave)
	defer cancel()
	start := time.Now()
	if err := a.Leave(ctx); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d > w.leave {
		t.Errorf("leaving took %v", d)
	}
	w.eventually(20*time.Second, "c has everything", func() bool { return c.count() == testPartitions })
}

func nodeIDOfALiveReplicaIsRefused(t *testing.T, w *world) {
	a := w.start("a", 1)
	w.shared(20*time.Second, a)
	func() { // at another address
		err := w.make("b", w.config(1, "b:9292")).Run(context.Background(), a)
		if !errors.Is(err, eventlog.ErrNodeIDTaken) || !strings.Contains(err.Error(), "a:9292") || !strings.Contains(err.Error(), "--node-id") {
			t.Errorf("error: %v", err)
		}
		if a.count() != testPartitions || a.lost != 0 {
			t.Error("the refused one disturbed the running one")
		}
	}()
	func() { // at the same address
		twin := w.make("twin", w.config(1, "a:9292"))
		ran := make(chan error, 1)
		w.mu.Lock()
		w.replicas = append(w.replicas, twin)
		w.mu.Unlock()
		go func() { ran <- twin.Run(context.Background(), twin) }()
		select {
		case err := <-ran:
			if !errors.Is(err, eventlog.ErrNodeIDTaken) {
				t.Errorf("error: %v", err)
			}
		case <-time.After(max(30*time.Second, 2*w.patience)): // it waits for four sessions whether the other one is dead
			t.Fatal("two replicas with one node id and address go on for ever")
		}
		w.shared(20*time.Second, a)
	}()
}

// nodeIDTakenMeanwhile: a replica is away for longer than its session, another one comes with its node id, and the first one is back: it ends.
func nodeIDTakenMeanwhile(t *testing.T, w *world) {
	first := w.start("first", 1)
	w.shared(20*time.Second, first)
	first.cut()
	second := w.start("second", 1)
	w.shared(20*time.Second, second)
	first.gone.Store(false)
	select {
	case <-first.ended:
	case <-time.After(max(40*time.Second, 2*w.patience)): // see nodeIDOfALiveReplicaIsRefused
		t.Fatal("two replicas with one node id go on for ever")
	}
	for _, part := range []string{"node id 1 ", "second:9292", "first:9292", "--node-id"} {
		if first.err == nil || !strings.Contains(first.err.Error(), part) {
			t.Errorf("the one that came back ends with %v, which does not say %q", first.err, part)
		}
	}
	if !errors.Is(first.err, eventlog.ErrNodeIDTaken) {
		t.Errorf("the one that came back ends with %v", first.err)
	}
	first.err = nil // as it should be
	w.shared(20*time.Second, second)
}

func sessionTimeoutIsRefused(t *testing.T, w *world) {
	cfg := w.config(1, "a:9292")
	cfg.SessionTimeout, cfg.HeartbeatInterval = 400*time.Millisecond, 100*time.Millisecond
	r := w.make("a", cfg)
	err := r.Run(context.Background(), r)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"time-out of 400ms (--ownership-session-timeout)", "group.min.session.timeout.ms=500", "group.max.session.timeout.ms="} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	if r.LeaseValid() {
		t.Error("lease")
	}
}

func TestMembershipConfigIsChecked(t *testing.T) {
	good := MembershipConfig{LogTopic: "log", NodeID: 1, Address: "h:1"}
	if _, err := NewMembership(good); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*MembershipConfig){
		"log topic":                      func(c *MembershipConfig) { c.LogTopic = "" },
		"node id -1":                     func(c *MembershipConfig) { c.NodeID = -1 },
		"host:port":                      func(c *MembershipConfig) { c.Address = "" },
		"negative":                       func(c *MembershipConfig) { c.LeaseMargin = -1 },
		"ownership.lease.margin.ms=5000": func(c *MembershipConfig) { c.LeaseMargin = 5 * time.Second },
		"heartbeat.interval.ms=4000":     func(c *MembershipConfig) { c.HeartbeatInterval = 4 * time.Second },
	} {
		c := good
		change(&c)
		if _, err := NewMembership(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error that says %q, got %v", want, err)
		}
	}
}

func TestMemberClientID(t *testing.T) {
	if got := memberClientID(1000001, "[::1]:9292"); got != "sk/1000001@[::1]:9292" {
		t.Error(got)
	}
	for id, want := range map[string]struct {
		node    int32
		address string
		ok      bool
	}{
		"sk/1000001@127.0.0.1:9292": {1000001, "127.0.0.1:9292", true},
		"sk/0@a@b:1":                {0, "a@b:1", true},
		"sk/1@":                     {-1, "", false},
		"sk/@a:1":                   {-1, "", false},
		"sk/-1@a:1":                 {-1, "", false},
		"sk/99999999999@a:1":        {-1, "", false},
		"sk/1":                      {-1, "", false},
		"consumer-1":                {-1, "", false},
		"":                          {-1, "", false},
	} {
		if node, address, ok := parseMemberClientID(id); node != want.node || address != want.address || ok != want.ok {
			t.Errorf("%q: %d %q %v, want %+v", id, node, address, ok, want)
		}
	}
}
